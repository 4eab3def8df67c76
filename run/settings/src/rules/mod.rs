//! Rules: which action is taken for which socket. One grammar for every setting that is a list of rules.
//!
//! ```text
//! rules     = rule *( ";" rule )
//! rule      = action *( option / condition )        ; white space between words; `rate=` has its value behind it
//! option    = name "=" value                        ; the action's own
//! condition = "direction=" ( one of the setting's words / "both" )
//!           / "address=" ADDRESS [ "/" BITS ]       ; IPv4 or IPv6, or a prefix of either
//!           / "port=" N [ "-" M ]
//!           / "program=" NAME
//! ```
//!
//! The first rule whose conditions all fit decides; a rule without conditions fits everything. Address and port fit
//! when one end of the socket has both. Actions, their options and the words for the directions are the setting's: a
//! [`Grammar`] lists them, [`Grammar::parse`] reads text with it, and what [`Rules`] display as is read as the same
//! rules again.

mod error;
mod grammar;
mod network;
mod parse;
mod rule;

pub use error::{Problem, RuleError};
pub use grammar::{Action, ActionOption, Grammar, BOTH};
pub use network::{Network, Ports};
pub use rule::{Rule, Rules};

#[cfg(test)]
mod tests;
