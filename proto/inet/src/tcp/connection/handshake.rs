//! Until both SYNs are acknowledged (RFC 9293 section 3.5, 3.10.7.3).

use super::super::ack::Acknowledger;
use super::super::challenge::Challenges;
use super::super::keepalive::Probes;
use super::super::options::{Options, Timestamps, TIMESTAMPS_LEN};
use super::super::receive::Receiver;
use super::super::segment::{Flags, Header};
use super::super::seq::{Seq, FIRST_OCTET};
use super::super::state::{Cause, State};
use super::super::timers::{Timer, Timers};
use super::super::timestamps::Clock;
use super::sender::Sender;
use super::{Config, Connection, Counters, DueNow, Pending, Reason};
use alloc::vec::Vec;
use core::time::Duration;

/// What must not be guessed from outside.
#[derive(Clone, Copy, Debug)]
pub struct Secrets {
    /// The initial sequence number ([`crate::tcp::isn`]).
    pub initial: Seq,
    /// Offset of the timestamp clock.
    pub clock_offset: u32,
}

/// What a listener learned in a handshake.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    /// Ours.
    pub secrets: Secrets,
    /// Number of the peer's SYN.
    pub peer_initial: Seq,
    /// Options of the peer's SYN.
    pub options: Options,
    /// When the SYN+ACK left, for a first RTT; none when it left more than once or nobody remembers.
    pub answered_at: Option<Duration>,
}

impl Connection {
    /// Opens actively: the SYN is the next thing to send.
    pub fn connect(config: Config, secrets: Secrets, now: Duration) -> Connection {
        let mut connection = Connection::new(config, secrets);
        connection.due.syn = true;
        connection.start_user_timer(now);
        connection
    }

    /// A connection whose handshake a listener did, up to the segment that acknowledged the SYN+ACK. Hand that segment
    /// to [`Connection::handle_segment`] next: it may carry data.
    pub fn accept(config: Config, accepted: &Accepted, now: Duration) -> Connection {
        let mut connection = Connection::new(config, accepted.secrets);
        connection.peer_syn(accepted.peer_initial, &accepted.options, now);
        connection.send.nxt = FIRST_OCTET;
        if let Some(at) = accepted.answered_at {
            connection.send.rtt.sample(now.saturating_sub(at), now);
        }
        connection.state = State::SynReceived;
        connection
    }

    fn new(config: Config, secrets: Secrets) -> Connection {
        Connection {
            state: State::SynSent,
            send: Sender::new(secrets.initial, &config),
            receive: None,
            shift: 0,
            offered_shift: config.window_shift(),
            sack: false,
            clock: None,
            clock_offset: secrets.clock_offset,
            ack: Acknowledger::new(config.ack),
            last_ack_sent: Seq(0),
            timers: Timers::default(),
            challenges: Challenges::default(),
            probes: Probes::default(),
            paced: false,
            persist_backoff: 0,
            syn_left: None,
            stray: None,
            due: DueNow::default(),
            placements: Vec::new(),
            pending: Pending::default(),
            detached: false,
            progress: None,
            peer_finished: false,
            counters: Counters::default(),
            config,
        }
    }

    /// The options of our SYN. In answer to a SYN only what that offered is agreed to (RFC 7323 sections 1.3 and 3.2).
    pub(crate) fn syn_options(
        config: &Config,
        answer_to: Option<&Options>,
        timestamps: Timestamps,
    ) -> Options {
        let offered = |has: bool| answer_to.is_none() || has;
        let peer = answer_to.copied().unwrap_or_default();
        Options {
            mss: Some(config.mss()),
            window_scale: (config.window_scaling && offered(peer.window_scale.is_some()))
                .then(|| config.window_shift()),
            sack_permitted: config.sack && offered(peer.sack_permitted),
            timestamps: (config.timestamps && offered(peer.timestamps.is_some()))
                .then_some(timestamps),
            ..Options::default()
        }
    }

    /// Our SYN, or SYN+ACK once the peer's is here. The window of a SYN is not scaled (RFC 7323 section 2.2).
    pub(super) fn syn(&mut self, now: Duration) -> Header {
        let value = Clock::value(self.clock_offset, now);
        let echo = self.clock.as_ref().map_or(0, Clock::recent);
        let mut options = Connection::syn_options(&self.config, None, Timestamps { value, echo });
        options.window_scale = options.window_scale.map(|_| self.offered_shift);
        let mut header = Header {
            seq: self.send.initial,
            flags: Flags::SYN,
            window: self.config.receive_window.min(65_535) as u16,
            ..Header::default()
        };
        if let Some(receive) = &self.receive {
            options.sack_permitted &= self.sack;
            options.window_scale = options
                .window_scale
                .filter(|_| self.send.shift > 0 || self.shift > 0);
            options.timestamps = options.timestamps.filter(|_| self.clock.is_some());
            header.flags = Flags::SYN | Flags::ACK;
            header.ack = receive.next_seq();
        }
        header.options = options;
        self.send.nxt = self.send.nxt.max(FIRST_OCTET);
        header
    }

    /// The peer's SYN is here: what both offered is in use from now on.
    pub(super) fn peer_syn(&mut self, initial: Seq, options: &Options, now: Duration) {
        let config = &self.config;
        let scaled = config.window_scaling && options.window_scale.is_some();
        self.receive = Some(Receiver::new(
            initial,
            config.capacity(scaled),
            config.ranges(),
        ));
        self.sack = config.sack && options.sack_permitted;
        if scaled {
            self.shift = self.offered_shift;
            self.send.shift = options.window_scale.unwrap_or(0);
        }
        if let Some(peer) = options.timestamps.filter(|_| config.timestamps) {
            self.clock = Some(Clock::new(self.clock_offset, peer.value, now));
            self.send.option_len = TIMESTAMPS_LEN as u32;
        }
        self.send.set_peer_mss(options.mss, &self.config);
        self.last_ack_sent = initial.advanced(1);
    }

    /// A segment in SYN-SENT (RFC 9293 section 3.10.7.3).
    pub(super) fn syn_sent(&mut self, header: &Header, payload: usize, now: Duration) {
        let acknowledges = header.flags.contains(Flags::ACK);
        if acknowledges && (header.ack != self.seq_of(FIRST_OCTET) || self.send.nxt == 0) {
            // An ACK of something else: a stray of an earlier connection, or a blind attack. The owner answers with a
            // reset, and the attempt goes on.
            self.stray = header.reset_for(payload);
            return;
        }
        if header.flags.contains(Flags::RST) {
            if acknowledges {
                self.end(Reason::Refused);
            }
            return;
        }
        if !header.flags.contains(Flags::SYN) {
            return;
        }
        self.peer_syn(header.seq, &header.options, now);
        self.send.max_window = u64::from(header.window);
        if acknowledges {
            self.handshake_acknowledged(now);
            self.send.window_from = (0, FIRST_OCTET);
            self.send.edge = FIRST_OCTET + u64::from(header.window);
            self.ack.at_once();
        } else {
            // Simultaneous open (RFC 9293 section 3.5, figure 8).
            self.state = State::SynReceived;
            self.due.syn = true;
        }
    }

    /// Our SYN is acknowledged.
    pub(super) fn handshake_acknowledged(&mut self, now: Duration) {
        let closing = self.state == State::FinWait1;
        if let Some(left) = self
            .syn_left
            .take()
            .filter(|_| self.send.rtt.backoffs() == 0)
        {
            self.send.rtt.sample(now.saturating_sub(left), now);
        }
        self.send.rtt.progress();
        self.send.una = FIRST_OCTET;
        self.due.syn = false;
        self.timers.stop(Timer::Retransmit);
        self.timers.stop(Timer::User);
        if !closing {
            self.step(Cause::Established, now);
        }
        self.pending.established = true;
        self.start_keep_alive(now);
    }
}
