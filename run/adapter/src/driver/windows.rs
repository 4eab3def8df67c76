//! What connections are given to begin with, and what their windows promise.

use weft_inet::tcp::Config;

use super::state::State;
use super::table::{Key, SEND_OCTETS_MAX};

/// Octets of data in the largest frame that is handed to the link: a packet of 64 kB with all headers.
pub(super) const FRAME_OCTETS_MAX: u32 = 65_000;
/// Octets that all receive windows of an interface promise together, for each frame that its link keeps: what a frame
/// holds that a sender with segmentation offload makes.
const PROMISED_OCTETS_PER_FRAME: usize = 64 << 10;
/// What is placed behind a hole lets a window grow to so many times its share.
const PLACED_SHARES_MAX: u64 = 4;
/// A receive window is never below this: a few full segments of a jumbo frame. An MPA Request takes less.
const WINDOW_OCTETS_MIN: usize = 32 << 10;

/// Octets that all connections of an interface take together to send before their peers have acknowledged any, as long
/// as each has [`SEND_OCTETS_MIN`].
const SEND_OCTETS_ALL: u64 = 256 << 20;
/// A connection takes so many, however many others there are.
const SEND_OCTETS_MIN: u64 = 512 << 10;

impl State {
    /// Octets that a connection takes to send before the peer has acknowledged any: its share. A peer that reads
    /// nothing holds as many until its connection ends, and many such peers together no more than all shares.
    #[inline]
    pub(super) fn send_octets_max(&self) -> u64 {
        (SEND_OCTETS_ALL / self.shares as u64).clamp(SEND_OCTETS_MIN, SEND_OCTETS_MAX)
    }

    /// Octets that all windows promise together.
    pub(super) fn promised(&self) -> usize {
        self.link.waiting_frames_max() * PROMISED_OCTETS_PER_FRAME
    }

    /// What a connection begins with. Its window scaling is for the largest window it may have.
    pub fn config(&self) -> Config {
        Config {
            mtu: self.stack.config().mtu,
            receive_window: self.promised() as u64 * PLACED_SHARES_MAX,
            aligned: true,
            max_frame: FRAME_OCTETS_MAX,
            ..Config::default()
        }
    }

    /// A queue pair has the connection from now on, which so has a share.
    pub fn attach(&mut self, key: Key) {
        let Some(conn) = self.table.get_mut(key) else {
            return;
        };
        conn.attached = true;
        self.share_windows();
        self.set_window(key);
        let now = self.now();
        self.turn(now);
    }

    /// Gives every connection of a queue pair its share of what windows promise; those of a few more or less stay as
    /// they are. Others have none: strangers who only connect, as many as they like, take nothing from those who work.
    pub fn share_windows(&mut self) {
        let conns = self.table.conns();
        let attached = conns.filter(|conn| conn.attached && conn.id.is_some());
        let shares = attached.count().max(1).next_power_of_two();
        let all = shares != std::mem::replace(&mut self.shares, shares);
        if all {
            let keys: Vec<Key> = self.table.keys().collect();
            keys.into_iter().for_each(|key| self.set_window(key));
        }
    }

    /// Gives a connection its share, or what the program wants where that is less; the least without a queue pair. What
    /// was placed behind a hole takes no buffer, and has left the link: so much more may come.
    pub fn set_window(&mut self, key: Key) {
        let Some(conn) = self.table.get(key) else {
            return;
        };
        let share = (self.promised() / self.shares).max(WINDOW_OCTETS_MIN);
        let window = match conn.window_max {
            _ if !conn.attached => WINDOW_OCTETS_MIN,
            0 => share,
            // What was taken is told in steps, which a smaller window would wait for.
            most => share.min(most.max(WINDOW_OCTETS_MIN)),
        };
        let window = window as u64 + conn.done.placed;
        if let Some(id) = conn.id {
            self.stack
                .command(id, |connection| connection.set_receive_window(window));
        }
    }
}
