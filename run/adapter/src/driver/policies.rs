//! How connections send and acknowledge: what the rules say of each, and what the program does.

use std::io;

use weft_engine::settings::transport::{Control, Direction, Policy};
use weft_inet::tcp::{AckPolicy, Algorithm, Connection, ConnectionId, Reason, Tuple};

use super::state::State;
use super::table::{Closed, Key};
use super::windows::FRAME_OCTETS_MAX;

/// Octets of all headers of a frame: a rule says how long frames are, the TCP what data they have.
const HEADERS_OCTETS_MAX: u32 = 120;

impl State {
    /// Has a new connection send as the first rule that fits says.
    pub(super) fn follow_rules(&mut self, id: ConnectionId, ends: &Tuple, direction: Direction) {
        let policy = self.rules.decide(direction, &[ends.local, ends.remote]);
        if let Some(policy) = policy {
            self.stack
                .command(id, |connection| apply(&policy, connection));
        }
    }
}

impl State {
    /// Has a connection send as the program says, from now on.
    pub fn set_policy(&mut self, key: Key, policy: &Policy) -> io::Result<()> {
        let conn = self.table.get(key);
        let closed = conn.and_then(|conn| conn.closed);
        let reset = Closed::Because(Reason::Reset);
        let id = match conn.and_then(|conn| conn.id) {
            Some(id) if closed.is_none() => id,
            _ => return Err(closed.unwrap_or(reset).error()),
        };
        self.stack
            .command(id, |connection| apply(policy, connection));
        // What waited for the old control may leave.
        let now = self.now();
        self.turn(now);
        Ok(())
    }
}

fn apply(policy: &Policy, connection: &mut Connection) {
    connection.set_algorithm(match policy.control {
        Control::Cubic => Algorithm::Cubic,
        Control::Reno => Algorithm::Reno,
        Control::Unlimited => Algorithm::Unlimited,
        Control::Rate(rate) => Algorithm::FixedRate { rate },
    });
    if let Some(every) = policy.acks {
        let usual = AckPolicy::default();
        connection.set_ack_policy(match every > usual.every {
            true => AckPolicy::thinned(every),
            false => AckPolicy { every, ..usual },
        });
    }
    if let Some(octets) = policy.frame {
        let data = octets.saturating_sub(HEADERS_OCTETS_MAX);
        connection.set_max_frame(data.min(FRAME_OCTETS_MAX));
    }
}
