//! Packet scripts: a text file for each scenario, replayed against the real machine.
//!
//! One step on each line:
//!
//! ```text
//! # remark
//! config mtu=1040 sack=off ...         before anything else; see `Script::configure`
//! connect | listen [backlog]           what the machine does first
//! > FLAGS seq:end ack=N win=N <opts>   the machine has to send exactly this now
//! < FLAGS seq:end ack=N win=N <opts>   this arrives
//! +10ms                                time passes, during which nothing may be sent
//! ...300ms > FLAGS ...                 within this time, but not before the deadline it sets, this is sent
//! write N | close | abort | consume N | forgive N | peerforgives | cut | detach      commands
//! toobig SEQ MTU | unreachable SEQ     ICMP
//! event NAME                           this event has to come now
//! nodelay on|off | keepalive TIME|off | user TIME|off | window N    settings changed now
//! state NAME | delivered N | acked N | held N | cwnd N | none      what must be true; `none`: nothing is to be sent
//! urgent N                             offset behind the last urgent octet; 0: none is waited for
//! place OFFSET LEN                     the last segment's octets belong there
//! ```
//!
//! Numbers are counted from each side's SYN: ours and the peer's both begin at 0. What a `>` line does not mention is
//! not compared.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use weft_inet::tcp::connection::Transmit;
use weft_inet::tcp::options::{Options, Timestamps};
use weft_inet::tcp::{
    AckPolicy, Algorithm, Backlog, Config, ConnectionId, Endpoint, EndpointEvent, Event, Flags,
    Header, KeepAlive, Limits, Placement, Secret, Seq, Tuple,
};

/// The peer's initial sequence number.
const PEER: u32 = 0xffff_fff0;
const PORT: u16 = 80;

struct Runner {
    endpoint: Endpoint,
    config: Config,
    tuple: Tuple,
    id: Option<ConnectionId>,
    initial: Option<Seq>,
    now: Duration,
    out: VecDeque<Transmit>,
    events: VecDeque<Event>,
    placements: VecDeque<Placement>,
    /// Kept for questions after the end.
    last_state: String,
}

type Outcome = Result<(), String>;

impl Runner {
    fn new() -> Runner {
        Runner {
            endpoint: Endpoint::new(Secret([9; 16]), Limits::default()),
            config: Config {
                timestamps: false,
                window_scaling: false,
                sack: true,
                receive_window: 20_000,
                algorithm: Algorithm::Reno,
                // Round numbers: 1000 octets of data in a segment.
                mtu: 1040,
                ..Config::default()
            },
            tuple: Tuple {
                local: SocketAddr::from(([10, 0, 0, 1], PORT)),
                remote: SocketAddr::from(([10, 0, 0, 2], 5000)),
            },
            id: None,
            initial: None,
            now: Duration::from_secs(100),
            out: VecDeque::new(),
            events: VecDeque::new(),
            placements: VecDeque::new(),
            last_state: "none".into(),
        }
    }

    fn step(&mut self, line: &str) -> Outcome {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["config", ref settings @ ..] => {
                settings.iter().try_for_each(|word| self.configure(word))
            }
            ["connect"] => self.connect(),
            ["listen"] => self.listen(8),
            ["listen", backlog] => self.listen(number(backlog)? as usize),
            ["peer", port] => {
                self.tuple.remote.set_port(number(port)? as u16);
                Ok(())
            }
            [">", ref rest @ ..] => self.expect_segment(rest),
            ["<", ref rest @ ..] => self.inject(rest),
            ["write", octets] => self.command(|c, n| c.write(n), octets),
            ["consume", octets] => self.command(|c, n| c.consume(n), octets),
            ["close"] => self.command(|c, _| c.close(), "0"),
            ["abort"] => self.command(|c, _| c.abort(), "0"),
            ["forgive", offset] => {
                let now = self.now;
                self.command(|c, n| c.forgive(n, now), offset)
            }
            ["peerforgives"] => self.command(|c, _| c.set_peer_forgives(), "0"),
            ["cut"] => self.command(|c, _| c.cut(), "0"),
            ["nodelay", value] => self.command(|c, n| c.set_no_delay(n == 1), on_off(value)),
            ["window", octets] => self.command(|c, n| c.set_receive_window(n), octets),
            ["keepalive", value] => {
                let (keep_alive, now) = (keep_alive(value)?, self.now);
                self.command(|c, _| c.set_keep_alive(keep_alive, now), "0")
            }
            ["user", "off"] => {
                let now = self.now;
                self.command(|c, _| c.set_user_timeout(None, now), "0")
            }
            ["user", time] => {
                let (time, now) = (duration(time)?, self.now);
                self.command(|c, _| c.set_user_timeout(Some(time), now), "0")
            }
            ["detach"] => {
                let now = self.now;
                self.command(|c, _| c.detach(now), "0")
            }
            ["toobig", seq, mtu] => {
                let (seq, mtu) = (self.own_seq(number(seq)?)?, number(mtu)? as u32);
                self.endpoint
                    .handle_packet_too_big(&self.tuple, seq, mtu, self.now);
                self.drain();
                Ok(())
            }
            ["unreachable", seq] => {
                let seq = self.own_seq(number(seq)?)?;
                self.endpoint.handle_unreachable(&self.tuple, seq, true);
                self.drain();
                Ok(())
            }
            ["event", name] => self.expect_event(name),
            ["place", offset, len] => self.expect_placement(number(offset)?, number(len)?),
            ["none"] => self.expect_silence(),
            ["state", name] => same("state", &self.state(), &name.to_string()),
            ["delivered", n] => self.ask(n, |c| c.delivered()),
            ["acked", n] => self.ask(n, |c| c.acknowledged()),
            ["held", n] => self.ask(n, |c| c.out_of_order()),
            ["urgent", n] => self.ask(n, |c| c.urgent().unwrap_or(0)),
            ["cwnd", n] => self.ask(n, |c| c.congestion_window()),
            ["timewaits", n] => same(
                "entries",
                &(self.endpoint.time_wait_len() as u64),
                &number(n)?,
            ),
            [time] if time.starts_with('+') => self.pass(duration(&time[1..])?),
            [time, ">", ref rest @ ..] if time.starts_with("...") => {
                self.wait(duration(&time[3..])?, rest)
            }
            _ => Err("not understood".into()),
        }
    }

    fn configure(&mut self, word: &str) -> Outcome {
        let (name, value) = word.split_once('=').ok_or("name=value")?;
        let on = value == "on";
        let config = &mut self.config;
        match name {
            "mtu" => config.mtu = number(value)? as u32,
            "window" => config.receive_window = number(value)?,
            "sack" => config.sack = on,
            "timestamps" => config.timestamps = on,
            "scaling" => config.window_scaling = on,
            "nodelay" => config.no_delay = on,
            "aligned" => config.aligned = on,
            "probing" => config.mtu_probing = on,
            "frame" => config.max_frame = number(value)? as u32,
            "ack" => {
                config.ack = AckPolicy {
                    every: number(value)? as u32,
                    ..config.ack
                }
            }
            "user" => config.user_timeout = Some(duration(value)?),
            "retries" => config.syn_retries = number(value)? as u32,
            "rate" => {
                config.algorithm = Algorithm::FixedRate {
                    rate: number(value)?,
                }
            }
            "control" => {
                config.algorithm = match value {
                    "cubic" => Algorithm::Cubic,
                    "none" => Algorithm::Unlimited,
                    _ => return Err("no such control".into()),
                }
            }
            "keepalive" => config.keep_alive = keep_alive(value)?,
            _ => return Err(format!("no setting {name}")),
        }
        Ok(())
    }

    fn connect(&mut self) -> Outcome {
        let (local, remote) = (self.tuple.local, self.tuple.remote);
        let id = self
            .endpoint
            .connect(
                local.ip(),
                local.port(),
                remote,
                self.config.clone(),
                self.now,
            )
            .map_err(|error| format!("{error:?}"))?;
        self.id = Some(id);
        self.drain();
        Ok(())
    }

    fn listen(&mut self, backlog: usize) -> Outcome {
        let backlog = Backlog::new(backlog);
        self.endpoint
            .listen(self.tuple.local, self.config.clone(), backlog);
        Ok(())
    }

    fn command<R>(
        &mut self,
        command: impl FnOnce(&mut weft_inet::tcp::Connection, u64) -> R,
        argument: &str,
    ) -> Outcome {
        let n = number(argument)?;
        let id = self.id.ok_or("no connection")?;
        self.endpoint
            .command(id, |c| command(c, n))
            .ok_or("the connection is gone")?;
        self.drain();
        Ok(())
    }

    /// Takes what the machine gives now.
    fn drain(&mut self) {
        loop {
            while let Some(event) = self.endpoint.poll_event() {
                match event {
                    EndpointEvent::Incoming(id) => self.id = Some(id),
                    EndpointEvent::Connection(_, event) => self.events.push_back(event),
                }
            }
            if let Some(connection) = self.id.and_then(|id| self.endpoint.get(id)) {
                self.last_state = format!("{:?}", connection.state());
            }
            let Some((_, _, transmit)) = self.endpoint.poll_transmit(self.now) else {
                break;
            };
            if transmit.header.flags.contains(Flags::SYN) {
                self.initial = Some(transmit.header.seq);
            }
            self.out.push_back(transmit);
        }
    }

    fn state(&self) -> String {
        match self.id.and_then(|id| self.endpoint.get(id)) {
            Some(connection) => format!("{:?}", connection.state()),
            None => self.last_state.clone(),
        }
    }

    fn ask(&self, expected: &str, value: impl Fn(&weft_inet::tcp::Connection) -> u64) -> Outcome {
        let connection = self
            .id
            .and_then(|id| self.endpoint.get(id))
            .ok_or("no connection")?;
        same("value", &value(connection), &number(expected)?)
    }

    fn own_seq(&self, at: u64) -> Result<Seq, String> {
        Ok(self.initial.ok_or("no SYN was sent yet")?.advanced(at))
    }

    fn inject(&mut self, words: &[&str]) -> Outcome {
        let line = Line::parse(words)?;
        let ours = self.initial.unwrap_or(Seq(0));
        let header = Header {
            source: self.tuple.remote.port(),
            destination: PORT,
            seq: Seq(PEER).advanced(line.seq.unwrap_or(0)),
            ack: line.ack.map_or(Seq(0), |ack| ours.advanced(ack)),
            flags: line.flags,
            window: line.window.unwrap_or(20_000),
            urgent: line.urgent,
            options: line.options(Seq(ours.0), |at| ours.advanced(at)),
        };
        let len = line.len() as usize;
        self.placements.clear();
        if let Some(id) = self
            .endpoint
            .handle_segment(&self.tuple, &header, len, self.now)
        {
            self.endpoint
                .command(id, |c| self.placements.extend(c.placements()));
        }
        self.drain();
        Ok(())
    }

    fn expect_segment(&mut self, words: &[&str]) -> Outcome {
        let line = Line::parse(words)?;
        let sent = self.out.pop_front().ok_or("nothing was sent")?;
        let header = sent.header;
        same("flags", &header.flags, &line.flags)?;
        let relative = |seq: Seq| {
            seq.0
                .wrapping_sub(self.initial.map_or(0, |initial| initial.0))
        };
        if let Some(seq) = line.seq {
            same("seq", &u64::from(relative(header.seq)), &seq)?;
            same(
                "octets",
                &(sent.payload.end - sent.payload.start),
                &line.len(),
            )?;
        }
        if let Some(ack) = line.ack {
            same("ack", &u64::from(header.ack.0.wrapping_sub(PEER)), &ack)?;
        }
        if let Some(window) = line.window {
            same("window", &header.window, &window)?;
        }
        line.check_options(&header.options, sent.segment_size)
    }

    fn expect_silence(&mut self) -> Outcome {
        match self.out.pop_front() {
            None => Ok(()),
            Some(sent) => Err(format!("this was sent: {}", self.tell(&sent))),
        }
    }

    fn tell(&self, sent: &Transmit) -> String {
        let header = &sent.header;
        let mut text = String::new();
        let ours = self.initial.map_or(0, |initial| initial.0);
        let seq = header.seq.0.wrapping_sub(ours);
        let len = sent.payload.end - sent.payload.start;
        let ack = header.ack.0.wrapping_sub(PEER);
        let _ = write!(
            text,
            "{:?} {seq}:{} ack={ack} win={}",
            header.flags,
            u64::from(seq) + len,
            header.window
        );
        for (left, right) in header.options.sack.as_slice() {
            let _ = write!(
                text,
                " sack={}-{}",
                left.0.wrapping_sub(PEER),
                right.0.wrapping_sub(PEER)
            );
        }
        text
    }

    fn expect_event(&mut self, name: &str) -> Outcome {
        let event = self.events.pop_front().ok_or("no event came")?;
        let told = format!("{event:?}");
        same("event", &told.as_str(), &name)
    }

    fn expect_placement(&mut self, offset: u64, len: u64) -> Outcome {
        let placement = self.placements.pop_front().ok_or("nothing was placed")?;
        same("offset", &placement.offset, &offset)?;
        same("octets", &(placement.octets.len() as u64), &len)
    }

    /// Time passes in silence.
    fn pass(&mut self, time: Duration) -> Outcome {
        self.expect_silence()?;
        let until = self.now + time;
        while let Some(at) = self.endpoint.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.endpoint.handle_timeout(self.now);
            self.drain();
            if self.now < until {
                self.expect_silence()?;
            }
        }
        self.now = until;
        Ok(())
    }

    /// Goes on to when something is sent.
    fn wait(&mut self, most: Duration, words: &[&str]) -> Outcome {
        self.expect_silence()?;
        let until = self.now + most;
        while self.out.is_empty() {
            let at = self.endpoint.deadline().filter(|at| *at <= until);
            self.now = self.now.max(at.ok_or("nothing was sent in time")?);
            self.endpoint.handle_timeout(self.now);
            self.drain();
        }
        self.expect_segment(words)
    }
}

/// One segment as a script writes it.
#[derive(Default)]
struct Line {
    flags: Flags,
    seq: Option<u64>,
    end: u64,
    ack: Option<u64>,
    window: Option<u16>,
    urgent: u16,
    mss: Option<u16>,
    scale: Option<u8>,
    sack_ok: bool,
    stamp: Option<(u32, u32)>,
    sack: Vec<(u64, u64)>,
    no_sack: bool,
    frame: Option<u16>,
}

impl Line {
    fn parse(words: &[&str]) -> Result<Line, String> {
        let mut line = Line::default();
        for letter in words.first().ok_or("no flags")?.chars() {
            let flag = match letter {
                'S' => Flags::SYN,
                'F' => Flags::FIN,
                'R' => Flags::RST,
                'P' => Flags::PSH,
                '.' => Flags::ACK,
                'U' => Flags::URG,
                'E' => Flags::ECE,
                'C' => Flags::CWR,
                _ => return Err(format!("no flag {letter}")),
            };
            line.flags |= flag;
        }
        words[1..].iter().try_for_each(|word| line.take(word))?;
        Ok(line)
    }

    fn take(&mut self, word: &str) -> Outcome {
        if let Some((seq, end)) = word.split_once(':') {
            self.seq = Some(number(seq)?);
            self.end = number(end)?;
            return Ok(());
        }
        match word.split_once('=') {
            Some(("ack", n)) => self.ack = Some(number(n)?),
            Some(("win", n)) => self.window = Some(number(n)? as u16),
            Some(("urg", n)) => self.urgent = number(n)? as u16,
            Some(("mss", n)) => self.mss = Some(number(n)? as u16),
            Some(("ws", n)) => self.scale = Some(number(n)? as u8),
            Some(("frame", n)) => self.frame = Some(number(n)? as u16),
            Some(("ts", pair)) => {
                let (value, echo) = pair.split_once('/').ok_or("ts=value/echo")?;
                self.stamp = Some((number(value)? as u32, number(echo)? as u32));
            }
            Some(("sack", range)) => {
                let (left, right) = range.split_once('-').ok_or("sack=left-right")?;
                self.sack.push((number(left)?, number(right)?));
            }
            _ if word == "sackok" => self.sack_ok = true,
            _ if word == "nosack" => self.no_sack = true,
            _ => return Err(format!("{word} not understood")),
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.end - self.seq.unwrap_or(self.end)
    }

    /// What arrives: blocks are of our numbers.
    fn options(&self, _ours: Seq, number: impl Fn(u64) -> Seq) -> Options {
        Options {
            mss: self.mss,
            window_scale: self.scale,
            sack_permitted: self.sack_ok,
            timestamps: self.stamp.map(|(value, echo)| Timestamps { value, echo }),
            sack: self
                .sack
                .iter()
                .map(|(left, right)| (number(*left), number(*right)))
                .collect(),
        }
    }

    /// What was sent: blocks are of the peer's numbers.
    fn check_options(&self, options: &Options, frame: Option<u16>) -> Outcome {
        if self.mss.is_some() {
            same("mss", &options.mss, &self.mss)?;
        }
        if self.scale.is_some() {
            same("window scale", &options.window_scale, &self.scale)?;
        }
        if self.sack_ok {
            same("SACK permitted", &options.sack_permitted, &true)?;
        }
        if let Some((_, echo)) = self.stamp {
            same(
                "echoed timestamp",
                &options.timestamps.map(|sent| sent.echo),
                &Some(echo),
            )?;
        }
        if self.frame.is_some() {
            same("segment size", &frame, &self.frame)?;
        }
        if self.no_sack || !self.sack.is_empty() {
            let peers = |seq: Seq| u64::from(seq.0.wrapping_sub(PEER));
            let blocks: Vec<_> = options
                .sack
                .as_slice()
                .iter()
                .map(|(l, r)| (peers(*l), peers(*r)))
                .collect();
            same("SACK blocks", &blocks, &self.sack)?;
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Outcome {
    if got == expected {
        return Ok(());
    }
    Err(format!("{what} is {got:?}, not {expected:?}"))
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

fn on_off(word: &str) -> &str {
    if word == "on" {
        "1"
    } else {
        "0"
    }
}

/// Three probes of this interval after ten times as much silence, or `off`.
fn keep_alive(word: &str) -> Result<Option<KeepAlive>, String> {
    if word == "off" {
        return Ok(None);
    }
    let interval = duration(word)?;
    Ok(Some(KeepAlive {
        idle: interval * 10,
        interval,
        count: 3,
    }))
}

fn duration(word: &str) -> Result<Duration, String> {
    let (digits, unit) = word.split_at(word.find(|c: char| c.is_alphabetic()).ok_or("no unit")?);
    let count = number(digits)?;
    match unit {
        "us" => Ok(Duration::from_micros(count)),
        "ms" => Ok(Duration::from_millis(count)),
        "s" => Ok(Duration::from_secs(count)),
        _ => Err(format!("no unit {unit}")),
    }
}

fn run(path: &Path) -> Outcome {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut runner = Runner::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        runner.step(line).map_err(|error| {
            let left: Vec<_> = runner.out.iter().map(|sent| runner.tell(sent)).collect();
            format!(
                "line {}: {line}\n    {error}; waiting: {left:?}; events: {:?}",
                number + 1,
                runner.events
            )
        })?;
    }
    runner
        .expect_silence()
        .map_err(|error| format!("at the end {error}"))
}

#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pkt"))
        .collect();
    paths.sort();
    let failures: Vec<_> = paths
        .iter()
        .filter_map(|path| {
            run(path)
                .err()
                .map(|error| format!("{}: {error}", path.display()))
        })
        .collect();
    println!("{} scripts", paths.len());
    assert!(paths.len() >= 40, "where are the scripts?");
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
