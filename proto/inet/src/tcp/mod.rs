//! TCP (RFC 9293) as data.
//!
//! | module | concern | source |
//! | --- | --- | --- |
//! | [`seq`], [`segment`], [`options`] | numbers and headers | RFC 9293 section 3.1, RFC 7323, RFC 2018 |
//! | [`connection`] | one connection: segments, commands and time in; segments, events and deadlines out | RFC 9293 section 3.10 |
//! | [`state`] | states and transitions | RFC 9293 section 3.3.2 |
//! | [`scoreboard`], [`record`], [`ranges`] | what is outstanding, what the peer has of it | RFC 2018, RFC 6675 |
//! | [`rack`], [`tlp`], [`prr`], [`rtt`] | loss detection and recovery | RFC 8985, RFC 9937, RFC 6298 |
//! | [`congestion`], [`pacing`] | how much, how fast | RFC 9438, RFC 5681 |
//! | [`receive`], [`receive_buffer`], [`ack`] | where octets belong, when to acknowledge | RFC 9293 section 3.8.6 |
//! | [`send_buffer`] | references to the program's octets | |
//! | [`timestamps`], [`challenge`], [`path_mtu`], [`keepalive`], [`timers`] | | RFC 7323, RFC 5961, RFC 4821 |
//! | [`endpoint`], [`listen`], [`cookies`], [`isn`], [`time_wait`] | all connections of an address | RFC 6528, RFC 4987, RFC 6191 |

pub mod ack;
pub mod challenge;
pub mod config;
pub mod congestion;
pub mod connection;
mod connections;
pub mod cookies;
pub mod endpoint;
pub mod isn;
pub mod keepalive;
pub mod listen;
mod listeners;
pub mod options;
pub mod pacing;
pub mod path_mtu;
pub mod prr;
pub mod rack;
pub mod ranges;
pub mod receive;
pub mod receive_buffer;
pub mod record;
pub mod rtt;
pub mod scoreboard;
pub mod segment;
pub mod send_buffer;
pub mod seq;
pub mod state;
pub mod time_wait;
pub mod timers;
pub mod timestamps;
pub mod tlp;

pub use ack::AckPolicy;
pub use config::Config;
pub use congestion::Algorithm;
pub use connection::{Connection, Event, Reason, Transmit};
pub use endpoint::{ConnectError, ConnectionId, Endpoint, EndpointEvent, Limits};
pub use isn::{Secret, Tuple};
pub use keepalive::KeepAlive;
pub use listen::Backlog;
pub use receive::Placement;
pub use segment::{Flags, Header};
pub use seq::Seq;
pub use state::State;
