//! A reliable connected queue pair over one iWARP stream.
//!
//! [`Qp`] is what a driver calls (module `queue_pair`). It joins parts, each of which owns its state and its rules and
//! knows no queue pair; what a part needs of others it is given. Decision 0026 has the picture.
//!
//! | part | what it owns |
//! | --- | --- |
//! | `attributes` | what the program sets, which a reset leaves as it is |
//! | `lifecycle`, `ending` | the state, and how far the end of the stream has come |
//! | `stream`, `peer` | the iWARP stream, and what is known of the other end |
//! | `control`, `turn`, `framing` | zero-length messages that are due; who is next; how messages become octets |
//! | `requester`, `terminated` | the send queue, from requests to completions; which one a Terminate is about |
//! | `reads` | Reads and atomics of this side that await their response |
//! | `acknowledgements` | when a request is known to be at the peer |
//! | `responder`, `atomics` | the peer's Read and Atomic Requests |
//! | `delayed`, `first_fpdu_probe` | an acknowledgement that waits for the next post; a peer that is silent |
//! | `arriving`, `direct` | the segment that is arriving; where a driver reads it to, and what it hears of its octets |
//! | `receives`, `immediate` | the receive queue and the receive in hand; Immediate Data |
//! | `writes` | the peer's newest RDMA Write |
//! | `rnr_queue`, `rnr` | messages that find no receive, and how long they wait |
//! | `pause` | whether the rest stays in the transport while messages wait |
//! | `waits` | nothing; why octets ahead of order wait for it |
//! | `timers` | the deadlines |
//! | `counters` | what is counted |

mod acknowledgements;
mod arriving;
mod atomics;
mod attributes;
mod control;
mod counters;
mod delayed;
mod direct;
mod ending;
mod first_fpdu_probe;
mod framing;
mod immediate;
mod lifecycle;
mod pause;
mod peer;
mod queue_pair;
mod reads;
mod receives;
mod requester;
mod responder;
mod rnr;
mod rnr_queue;
mod stream;
mod terminated;
mod timers;
mod turn;
mod waits;
mod writes;

pub use attributes::QpConfig;
pub use counters::QpCounters;
pub use direct::{DirectTarget, Received};
pub use ending::{Ending, QpEvent};
pub use peer::{FpduPolicy, MeetingNumber};
pub use queue_pair::Qp;
pub use timers::{Close, LINGER};
pub use waits::Waits;
