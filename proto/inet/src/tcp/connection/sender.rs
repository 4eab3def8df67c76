//! The sending half of a connection: what was given, what was sent, what the peer's window takes.

use super::super::config::Config;
use super::super::congestion::Control;
use super::super::pacing::Pacer;
use super::super::path_mtu::PathMtu;
use super::super::prr::Prr;
use super::super::rack::{Conditions, Rack};
use super::super::rtt::Rtt;
use super::super::scoreboard::Scoreboard;
use super::super::segment::MIN_HEADER_LEN;
use super::super::seq::{Position, Seq, FIRST_OCTET};
use super::super::tlp::Tlp;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

/// Where the repair of losses stands.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Losses are being repaired; it ends when `point` is acknowledged.
    Recovery {
        point: Position,
        prr: Prr,
        window: u64,
    },
    /// The timer expired; it ends when `point` is acknowledged.
    Loss { point: Position },
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Sender {
    pub initial: Seq,
    /// SND.UNA.
    pub una: Position,
    /// SND.NXT.
    pub nxt: Position,
    /// Behind the last octet the program gave; a FIN stands here.
    pub end: Position,
    /// The program will give no more.
    pub finished: bool,
    /// The peer acknowledges what it no longer waits for ([`super::Connection::forgive`]).
    pub peer_forgives: bool,
    /// Until this position is acknowledged, what it forgives is no further sign of congestion.
    pub forgiven_round: Position,
    /// Where the program wants segments to end.
    pub cuts: VecDeque<Position>,
    /// Right edge of the peer's window.
    pub edge: Position,
    /// The largest window the peer ever offered.
    pub max_window: u64,
    /// SEG.SEQ and SEG.ACK of the last window update.
    pub window_from: (Position, Position),
    /// Shift of the peer's window field.
    pub shift: u8,
    /// The peer's MSS option.
    pub peer_mss: u32,
    /// Octets of options in every segment with data.
    pub option_len: u32,
    pub ip_header: u32,
    pub path: PathMtu,
    pub board: Scoreboard,
    pub rack: Rack,
    pub tlp: Tlp,
    pub rtt: Rtt,
    pub control: Box<dyn Control>,
    pub pace: bool,
    pub pacer: Pacer,
    pub phase: Phase,
    /// ACKs in a row that repeat SND.UNA, where the peer has no SACK.
    pub repeats: u32,
    /// The congestion window, and nothing else, stopped the sender since the last ACK.
    pub limited: bool,
    /// When data was sent last.
    pub sent_at: Option<Duration>,
    /// One segment may be sent whatever the window says: after a timeout.
    pub forced: bool,
}

impl Sender {
    pub fn new(initial: Seq, config: &Config) -> Sender {
        let path = PathMtu::new(config.mtu, config.ipv6, config.mtu_probing);
        let peer_mss = default_mss(config);
        let mss = u64::from(peer_mss);
        Sender {
            initial,
            una: 0,
            nxt: 0,
            end: FIRST_OCTET,
            finished: false,
            peer_forgives: false,
            forgiven_round: 0,
            cuts: VecDeque::new(),
            edge: FIRST_OCTET,
            max_window: 0,
            window_from: (0, 0),
            shift: 0,
            peer_mss,
            option_len: 0,
            ip_header: config.ip_header(),
            path,
            board: Scoreboard::default(),
            rack: Rack::new(),
            tlp: Tlp::default(),
            rtt: Rtt::new(config.min_rto),
            control: config.algorithm.build(mss),
            pace: config.pacing,
            pacer: Pacer::default(),
            phase: Phase::Open,
            repeats: 0,
            limited: false,
            sent_at: None,
            forced: false,
        }
    }

    /// Octets of data in a full segment: what the peer takes and the path takes, without options (RFC 6691).
    pub fn mss(&self) -> u32 {
        let headers = self.ip_header + MIN_HEADER_LEN as u32;
        let path = self.path.current().saturating_sub(headers);
        self.peer_mss
            .min(path)
            .saturating_sub(self.option_len)
            .max(MIN_MSS)
    }

    /// Octets of the packet around so much data.
    pub fn packet_len(&self, data: u64) -> u64 {
        data + u64::from(self.ip_header + self.option_len) + MIN_HEADER_LEN as u64
    }

    /// The number of a position.
    pub fn seq(&self, at: Position) -> Seq {
        self.initial.advanced(at)
    }

    /// Octets given and not yet sent.
    pub fn unsent(&self) -> u64 {
        self.end.saturating_sub(self.nxt)
    }

    /// All that was sent is acknowledged, and no repair or probe waits for a word of the peer.
    pub fn is_quiet(&self) -> bool {
        self.board.is_empty() && !self.tlp.is_out() && matches!(self.phase, Phase::Open)
    }

    /// A tail loss probe may be sent (RFC 8985 section 7.2): nothing else will tell of a loss.
    pub fn probes_tail(&self) -> bool {
        matches!(self.phase, Phase::Open) && self.board.sacked() == 0 && !self.tlp.is_out()
    }

    /// The FIN was acknowledged.
    pub fn fin_acknowledged(&self) -> bool {
        self.finished && self.una > self.end
    }

    /// There is data or a FIN to send for the first time.
    pub fn has_new(&self) -> bool {
        self.nxt >= FIRST_OCTET && (self.unsent() > 0 || (self.finished && self.nxt == self.end))
    }

    /// Data is about to be sent. After a time in which none was, nothing is known of the path any more, and a window
    /// that was right before would leave as one burst (RFC 5681 section 4.1).
    pub fn after_idle(&mut self, now: Duration) {
        let idle = |at: Duration| now.saturating_sub(at) > self.rtt.rto();
        if self.board.is_empty() && self.sent_at.is_some_and(idle) {
            self.sent_at = None;
            self.control.idle();
        }
    }

    /// Octets the congestion window leaves.
    pub fn room(&self) -> u64 {
        let window = match &self.phase {
            Phase::Recovery { window, .. } => *window,
            Phase::Open | Phase::Loss { .. } => self.control.window(),
        };
        window.saturating_sub(self.board.in_flight())
    }

    /// Octets per second at which to send.
    pub fn rate(&self) -> Option<u64> {
        self.control.rate().or_else(|| {
            if !self.pace {
                return None;
            }
            let srtt = self.rtt.smoothed()?.as_nanos().max(1);
            let window = self.control.window();
            // As the field does: twice the window in slow start, 5/4 of it after.
            let slow_start = window < self.control.threshold();
            let quarters = if slow_start { 8 } else { 5 };
            let rate = u128::from(window) * 1_000_000_000 * quarters / (4 * srtt);
            Some(rate.min(u128::from(u64::MAX)) as u64)
        })
    }

    /// Octets that one frame holds at most, or a segment if that is more: what leaves in a millisecond at the rate at
    /// which to send. The device sends a frame in one piece, and the pace would be bursts with silence between them.
    pub fn burst(&self) -> u64 {
        self.rate().map_or(u64::MAX, |rate| rate / 1000)
    }

    /// What RACK needs to know.
    pub fn conditions(&self) -> Conditions {
        Conditions {
            min_rtt: self.rtt.minimum().unwrap_or(Duration::ZERO),
            srtt: self.rtt.smoothed().unwrap_or(Duration::ZERO),
            recovering: !matches!(self.phase, Phase::Open),
            mss: u64::from(self.mss()),
        }
    }

    /// The peer's MSS option, or its absence, is known.
    pub fn set_peer_mss(&mut self, mss: Option<u16>, config: &Config) {
        self.peer_mss = mss.map_or(default_mss(config), u32::from).max(MIN_MSS);
        self.control = config.algorithm.build(u64::from(self.mss()));
    }
}

/// MSS of a peer that does not say (RFC 9293 section 3.7.1).
fn default_mss(config: &Config) -> u32 {
    if config.ipv6 {
        1220
    } else {
        536
    }
}

/// A peer cannot make us send octet by octet.
const MIN_MSS: u32 = 64;
