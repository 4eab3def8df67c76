//! What `weft stat` is shown: the paths of connections, and the interface.

use std::time::Duration;

use weft_engine::stats::{Control, Interface, InterfaceRow, NetworkPath, PathRow};
use weft_inet::tcp::{Algorithm, Connection};

use super::state::State;
use super::table::Key;

/// How often it is told while something happens.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Where the driver tells, and when.
#[derive(Debug, Default)]
pub(super) struct Showing {
    name: String,
    interface: Option<InterfaceRow>,
    /// Frames that the link dropped.
    dropped: u64,
    /// Frames in and out when it told last.
    told: (u64, u64),
    /// When it tells next, if there is news.
    next: Duration,
}

impl State {
    /// Tells of the interface there from now on.
    pub fn show_interface(&mut self, name: &str, row: InterfaceRow) {
        self.showing.name = name.to_owned();
        self.showing.interface = Some(row);
        self.tell(self.now());
    }

    /// Tells of a connection's path there from now on.
    pub fn show_path(&mut self, key: Key, row: Option<PathRow>) {
        if let Some(conn) = self.table.get_mut(key) {
            conn.row = row;
        }
        self.tell(self.now());
    }

    /// Octets that came before what precedes them, and were kept.
    pub fn kept_octets(&self, key: Key) -> u64 {
        let id = self.table.get(key).and_then(|conn| conn.id);
        let connection = id.and_then(|id| self.stack.tcp().get(id));
        connection.map_or(0, |connection| connection.counters().octets_behind_holes)
    }

    /// How long the way there and back takes at the least, once that was measured.
    pub fn round_trip(&self, key: Key) -> Option<Duration> {
        let id = self.table.get(key)?.id?;
        self.stack.tcp().get(id)?.least_rtt()
    }

    /// When it has something to tell.
    #[inline]
    pub(super) fn tells_at(&self) -> Option<Duration> {
        let frames = (self.counters.frames_in, self.counters.frames_out);
        let showing = &self.showing;
        (showing.interface.is_some() && showing.told != frames).then_some(showing.next)
    }

    /// Tells, if it is time.
    #[inline]
    pub(super) fn tell_if_due(&mut self, now: Duration) {
        if self.tells_at().is_some_and(|at| at <= now) {
            self.tell(now);
        }
    }

    fn tell(&mut self, now: Duration) {
        self.showing.next = now + TELL_EVERY;
        self.showing.told = (self.counters.frames_in, self.counters.frames_out);
        if let Some(row) = &self.showing.interface {
            self.showing.dropped += self.link.take_drops();
            row.write(&Interface {
                name: self.showing.name.clone(),
                frames_in: self.counters.frames_in,
                frames_out: self.counters.frames_out,
                frames_lost: self.counters.frames_lost,
                dropped: self.showing.dropped + self.table.inboxes.dropped,
            });
        }
        for conn in self.table.conns() {
            let connection = conn.id.and_then(|id| self.stack.tcp().get(id));
            if let (Some(row), Some(connection)) = (&conn.row, connection) {
                row.write(&path(connection));
            }
        }
    }
}

fn path(connection: &Connection) -> NetworkPath {
    let counters = connection.counters();
    let rtt = connection.srtt().unwrap_or_default();
    // Without pacing a window leaves for each round trip.
    let by_window = || {
        let octets = u128::from(connection.congestion_window()) * 1_000_000_000;
        octets.checked_div(rtt.as_nanos()).unwrap_or(0) as u64
    };
    NetworkPath {
        control: match connection.algorithm() {
            Algorithm::Cubic => Control::Cubic,
            Algorithm::Reno => Control::Reno,
            Algorithm::FixedRate { .. } => Control::Rate,
            Algorithm::Unlimited => Control::Unlimited,
        },
        rate: connection.rate().unwrap_or_else(by_window),
        rtt,
        retransmissions: counters.retransmissions,
        holes: counters.max_holes as u64,
    }
}
