//! A listener with its two queues, both bounded: handshakes that others began, each remembered in a few octets, and
//! connections that the program has not accepted yet.

use super::config::Config;
use super::connection::{Accepted, Connection, Secrets};
use super::connections::ConnectionId;
use super::cookies;
use super::isn::{Secret, Tuple};
use super::options::{Options, Timestamps};
use super::segment::{Flags, Header};
use super::seq::Seq;
use super::timestamps::Clock;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

/// SYN+ACKs sent again before a handshake is forgotten.
const RETRIES_MAX: u32 = 5;
const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);

/// How long the queues of a listener may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backlog {
    /// Handshakes remembered; beyond that there are cookies.
    pub handshakes: usize,
    /// Connections that wait for the program to accept them. While there are so many, no handshake begins or ends:
    /// the peers repeat their segments.
    pub connections: usize,
}

impl Backlog {
    /// Both queues of one length, but room for one connection at least.
    pub fn new(len: usize) -> Backlog {
        Backlog {
            handshakes: len,
            connections: len.max(1),
        }
    }
}

/// An address and port that take connections.
#[derive(Debug)]
pub struct Listener {
    config: Config,
    backlog: Backlog,
    half_open: BTreeMap<Tuple, HalfOpen>,
    waiting: BTreeSet<ConnectionId>,
    deadlines: BTreeSet<(Duration, Tuple)>,
    /// When a cookie was sent last: only then can an ACK from nowhere bring one.
    cookie_sent: Option<Duration>,
}

/// A handshake of which the SYN+ACK is out.
#[derive(Clone, Copy, Debug)]
struct HalfOpen {
    secrets: Secrets,
    peer: Seq,
    options: Options,
    answered_at: Duration,
    retry_at: Duration,
    retries: u32,
}

/// What a segment to a listener leads to.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing.
    Nothing,
    /// This is to be sent.
    Reply(Header),
    /// A connection, to which the segment has to be handed.
    Established(Accepted),
    /// The segment belongs to nothing here.
    Stray,
}

impl Listener {
    /// A listener whose connections get `config`, but for the version of IP, which their addresses tell.
    pub fn new(config: Config, backlog: Backlog) -> Listener {
        Listener {
            config,
            backlog,
            half_open: BTreeMap::new(),
            waiting: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            cookie_sent: None,
        }
    }

    /// What its connections get.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Handshakes remembered.
    pub fn len(&self) -> usize {
        self.half_open.len()
    }

    /// No handshake is remembered.
    pub fn is_empty(&self) -> bool {
        self.half_open.is_empty()
    }

    /// Connections that the program has not accepted.
    pub fn waiting(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.waiting.iter().copied()
    }

    /// A connection waits for the program to accept it.
    pub(super) fn waits(&mut self, id: ConnectionId) {
        self.waiting.insert(id);
    }

    /// A connection was accepted, or is gone.
    pub(super) fn left(&mut self, id: ConnectionId) {
        self.waiting.remove(&id);
    }

    /// A segment for which there is no connection (RFC 9293 section 3.10.7.2, and 3.10.7.4 for SYN-RECEIVED). `room`
    /// says whether a connection more may be made.
    pub fn handle_segment(
        &mut self,
        secret: &Secret,
        tuple: &Tuple,
        header: &Header,
        room: bool,
        now: Duration,
    ) -> Outcome {
        let accepts = self.waiting.len() < self.backlog.connections;
        let room = room && accepts;
        if let Some(half_open) = self.half_open.get(tuple).copied() {
            return self.continued(tuple, &half_open, header, room, now);
        }
        if header.flags.contains(Flags::RST) {
            return Outcome::Nothing;
        }
        match (
            header.flags.contains(Flags::SYN),
            header.flags.contains(Flags::ACK),
        ) {
            // The program is behind: what began now would only wait longer. The peer repeats its SYN.
            (true, false) if !accepts => Outcome::Nothing,
            (true, false) if self.half_open.len() < self.backlog.handshakes => {
                self.begin(secret, tuple, header, now)
            }
            (true, false) => Outcome::Reply(self.cookie(secret, tuple, header, now)),
            (false, true) => self.redeem(secret, tuple, header, room, now),
            _ => Outcome::Stray,
        }
    }

    fn begin(&mut self, secret: &Secret, tuple: &Tuple, header: &Header, now: Duration) -> Outcome {
        let half_open = HalfOpen {
            secrets: secret.for_connection(tuple, now),
            peer: header.seq,
            options: header.options,
            answered_at: now,
            retry_at: now + RETRY_DELAY_MIN,
            retries: 0,
        };
        self.half_open.insert(*tuple, half_open);
        self.deadlines.insert((half_open.retry_at, *tuple));
        let clock = Clock::value(half_open.secrets.clock_offset, now);
        Outcome::Reply(self.syn_ack(tuple, half_open.secrets.initial, &half_open, clock))
    }

    fn syn_ack(&self, tuple: &Tuple, initial: Seq, half_open: &HalfOpen, clock: u32) -> Header {
        let echo = half_open.options.timestamps.map_or(0, |peer| peer.value);
        let timestamps = Timestamps { value: clock, echo };
        let config = self.config.clone().for_version_of(tuple.local.ip());
        Header {
            source: tuple.local.port(),
            destination: tuple.remote.port(),
            seq: initial,
            ack: half_open.peer.advanced(1),
            flags: Flags::SYN | Flags::ACK,
            window: self.config.receive_window.min(65_535) as u16,
            options: Connection::syn_options(&config, Some(&half_open.options), timestamps),
            ..Header::default()
        }
    }

    /// A segment of a handshake that is remembered.
    fn continued(
        &mut self,
        tuple: &Tuple,
        half_open: &HalfOpen,
        header: &Header,
        room: bool,
        now: Duration,
    ) -> Outcome {
        let expected = half_open.peer.advanced(1);
        let ahead = header.seq.distance_from(expected);
        if header.flags.contains(Flags::RST) {
            // Only the exact number (RFC 5961 section 3.2).
            if ahead == 0 {
                self.forget(tuple);
            }
            return Outcome::Nothing;
        }
        if header.flags.contains(Flags::SYN) {
            // The SYN again: so is the answer. Another SYN gets it as challenge.
            let clock = Clock::value(half_open.secrets.clock_offset, now);
            return Outcome::Reply(self.syn_ack(
                tuple,
                half_open.secrets.initial,
                half_open,
                clock,
            ));
        }
        if !header.flags.contains(Flags::ACK) || ahead < 0 || i64::from(ahead) > 65_535 {
            return Outcome::Nothing;
        }
        if header.ack != half_open.secrets.initial.advanced(1) {
            return Outcome::Stray;
        }
        if !room {
            // The SYN+ACK will be repeated, and so will the ACK.
            return Outcome::Nothing;
        }
        self.forget(tuple);
        Outcome::Established(Accepted {
            secrets: half_open.secrets,
            peer_initial: half_open.peer,
            options: half_open.options,
            answered_at: (half_open.retries == 0).then_some(half_open.answered_at),
        })
    }

    fn forget(&mut self, tuple: &Tuple) {
        if let Some(half_open) = self.half_open.remove(tuple) {
            self.deadlines.remove(&(half_open.retry_at, *tuple));
        }
    }

    fn cookie(&mut self, secret: &Secret, tuple: &Tuple, header: &Header, now: Duration) -> Header {
        self.cookie_sent = Some(now);
        let initial = cookies::make(secret, tuple, header.seq, header.options.mss, now);
        let mut options = header.options;
        if options.timestamps.is_none() || !self.config.timestamps {
            // Nowhere to remember them.
            options.window_scale = None;
            options.sack_permitted = false;
        }
        let secrets = Secrets {
            initial,
            clock_offset: secret.clock_offset(tuple),
        };
        let clock = cookies::lend(Clock::value(secrets.clock_offset, now), &options);
        let half_open = HalfOpen {
            secrets,
            peer: header.seq,
            options,
            answered_at: now,
            retry_at: now,
            retries: 0,
        };
        self.syn_ack(tuple, initial, &half_open, clock)
    }

    /// An ACK from nowhere: perhaps it brings a cookie.
    fn redeem(
        &mut self,
        secret: &Secret,
        tuple: &Tuple,
        header: &Header,
        room: bool,
        now: Duration,
    ) -> Outcome {
        let recent = Duration::from_secs(192);
        if self
            .cookie_sent
            .is_none_or(|sent| now.saturating_sub(sent) > recent)
        {
            return Outcome::Stray;
        }
        // Neither is before the first number of its side: both SYNs count one.
        let peer = Seq(header.seq.0.wrapping_sub(1));
        let initial = Seq(header.ack.0.wrapping_sub(1));
        let Some(mss) = cookies::check(secret, tuple, peer, initial, now) else {
            // It may be of such a handshake all the same: the second segment of data, the first one lost. A
            // reset would end what the repetition of the first will complete.
            return Outcome::Nothing;
        };
        if !room {
            // What the peer sends next brings the cookie again.
            return Outcome::Nothing;
        }
        let remembered = header
            .options
            .timestamps
            .map(|peer| cookies::recall(peer.echo));
        Outcome::Established(Accepted {
            secrets: Secrets {
                initial,
                clock_offset: secret.clock_offset(tuple),
            },
            peer_initial: peer,
            options: Options {
                mss: Some(mss),
                timestamps: header.options.timestamps,
                ..remembered.unwrap_or_default()
            },
            answered_at: None,
        })
    }

    /// When a SYN+ACK is to be repeated next.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A SYN+ACK to repeat at `now`. Call it until it gives none.
    pub fn handle_timeout(&mut self, now: Duration) -> Option<(Tuple, Header)> {
        loop {
            let (at, tuple) = *self.deadlines.first().filter(|(at, _)| *at <= now)?;
            self.deadlines.pop_first();
            let Some(half_open) = self.half_open.get_mut(&tuple) else {
                continue;
            };
            debug_assert_eq!(half_open.retry_at, at);
            if half_open.retries == RETRIES_MAX {
                self.half_open.remove(&tuple);
                continue;
            }
            half_open.retries += 1;
            half_open.retry_at = now + RETRY_DELAY_MIN * 2u32.pow(half_open.retries);
            self.deadlines.insert((half_open.retry_at, tuple));
            let half_open = *half_open;
            let clock = Clock::value(half_open.secrets.clock_offset, now);
            return Some((
                tuple,
                self.syn_ack(&tuple, half_open.secrets.initial, &half_open, clock),
            ));
        }
    }
}
