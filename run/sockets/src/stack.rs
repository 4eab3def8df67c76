//! The sockets of one process: which kinds there are.

use std::time::Duration;

use weft_os::user;
use weft_settings::Settings;
use weft_udp_offload::Offload;

use crate::descriptors::Descriptors;
use crate::discovering::Discovery;
use crate::kind::{self, Sockets};
use crate::table;
use crate::tcp::{Record, Streams};
use crate::udp::Datagrams;

/// Writes the names of the kinds and the list of them. A kind that the list lacked would compile and never be found.
macro_rules! kinds {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// The kinds of sockets that are looked after.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$meta])* $name,)*
        }

        impl table::Kind for Kind {
            const ALL: &'static [Kind] = &[$(Kind::$name),*];

            #[inline]
            fn place(self) -> usize {
                self as usize
            }
        }
    };
}

kinds! {
    /// UDP: datagrams are gathered and split.
    Datagrams,
    /// TCP: octets that may go as DDP.
    Streams,
}

/// The sockets of each kind.
#[derive(Debug)]
pub struct Kinds {
    /// Those of UDP.
    pub datagrams: Datagrams,
    /// Those of TCP.
    pub streams: Streams,
    /// See [`Stack::busy_poll`].
    busy_poll: Duration,
}

impl kind::Kinds for Kinds {
    type Kind = Kind;

    #[inline]
    fn sockets(&self, kind: Kind) -> &dyn Sockets {
        match kind {
            Kind::Datagrams => &self.datagrams,
            Kind::Streams => &self.streams,
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
        let settings = settings.for_program(names);
        settings
            .hooks_sockets()
            .then(|| Stack::of_settings(settings))
            .flatten()
    }

    /// The same where the settings ask for nothing: the program itself is about to.
    pub fn whatever_rules_say(settings: &Settings, names: &[&str]) -> Option<Stack> {
        Stack::of_settings(settings.for_program(names))
    }

    fn of_settings(settings: Settings) -> Option<Stack> {
        user::guard_copies();
        let port = settings.discovery_port;
        let offload = Offload::new(&settings);
        let discovery = Discovery::new(port, offload);
        let (busy_after, hold) = (settings.udp_busy_after, settings.udp_hold);
        Descriptors::over(Kinds {
            datagrams: Datagrams::new(settings.udp, busy_after, hold, offload)?,
            streams: Streams::new(settings.ddp, settings.ddp_crc, discovery, settings.stat),
            busy_poll: settings.busy_poll,
        })
    }
}

impl Stack {
    /// How long a thread looks for what it waits for, at most, before it sleeps (decision 0056). A program that has
    /// confined itself may not ask for what looking takes.
    #[inline]
    pub fn busy_poll(&self) -> Duration {
        let kinds = self.kinds();
        match kinds.datagrams.is_confined() {
            true => Duration::ZERO,
            false => kinds.busy_poll,
        }
    }

    /// A call that has waited on this TCP socket is over, and holds it no longer.
    pub fn let_go_of_stream(&'static self, record: &'static Record) {
        self.kinds().streams.let_go(record);
        self.remove_reference(Socket {
            kind: Kind::Streams,
            number: record.number(),
        });
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
