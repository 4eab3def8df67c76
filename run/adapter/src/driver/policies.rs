//! How connections send and acknowledge: what the rules say of each.

use weft_engine::settings::transport::{Control, Direction, Policy};
use weft_inet::tcp::{AckPolicy, Algorithm, Connection, ConnectionId, Tuple};

use super::state::State;
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
