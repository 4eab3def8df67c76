//! The sockets of one process: which kinds there are.

use weft_os::user;
use weft_settings::Settings;

use crate::descriptors::{self, Descriptors, Sockets};
use crate::table;
use crate::udp::Datagrams;

/// The kinds of sockets that are looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UDP: datagrams are gathered and split.
    Datagrams,
}

impl table::Kind for Kind {
    const ALL: &'static [Kind] = &[Kind::Datagrams];

    #[inline]
    fn place(self) -> usize {
        self as usize
    }
}

/// The sockets of each kind.
#[derive(Debug)]
pub struct Kinds {
    /// Those of UDP.
    pub datagrams: Datagrams,
}

impl descriptors::Kinds for Kinds {
    type Kind = Kind;

    #[inline]
    fn sockets(&self, kind: Kind) -> &dyn Sockets {
        match kind {
            Kind::Datagrams => &self.datagrams,
        }
    }
}

/// A socket of ours.
pub type Socket = table::Socket<Kind>;
/// The descriptors of this process, and the sockets behind them.
pub type Stack = Descriptors<Kinds>;

impl Stack {
    /// What the settings ask for, for a program with these names; nothing if they ask for nothing, or the
    /// machine lacks what it takes.
    pub fn new(settings: &Settings, names: &[&str]) -> Option<Stack> {
        let rules = settings.udp.for_program(names);
        if !rules.any() {
            return None;
        }
        user::guard_copies();
        Descriptors::over(Kinds {
            datagrams: Datagrams::new(rules, settings.udp_busy_after, settings.udp_hold)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Kind as _;

    #[test]
    fn every_kind_stands_at_its_place() {
        for (place, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind.place(), place);
        }
    }
}
