//! What the bench and a far end say to each other: a line of JSON each.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ended::Ended;
use crate::job::{Invocation, Ready};
use crate::record::Environment;

/// Goes up when a message changes: both ends have to have the same.
pub const PROTOCOL: u32 = 1;

/// What the bench asks of a far end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// Start a program as this role of the job.
    Start {
        /// Its name, which no other role of the job has.
        role: String,
        /// Which core it is tied to.
        core: Option<usize>,
        /// What it runs.
        program: Invocation,
        /// When it is ready, which is told once.
        ready: Ready,
    },
    /// Tell a program, and what it started, to end (SIGTERM).
    TellToEnd {
        /// Its role.
        role: String,
    },
    /// Nothing: the bench is still there.
    StillHere,
    /// The job is over: what still runs of it is killed, and all is told that its programs came to.
    End,
}

/// What a far end tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Tell {
    /// The first line: who it is.
    Here(Box<Here>),
    /// A program runs.
    Started {
        /// Its role.
        role: String,
    },
    /// A program could not be started.
    NotStarted {
        /// Its role.
        role: String,
        /// Why.
        why: String,
    },
    /// A role is ready.
    Ready {
        /// Which.
        role: String,
    },
    /// A program has ended.
    Gone {
        /// Its role.
        role: String,
        /// How, as wait(2) tells it.
        status: i32,
    },
    /// A program does what none has reason to.
    Wrong {
        /// Its role.
        role: String,
        /// What that is.
        why: String,
    },
    /// The job is over.
    Ended {
        /// What its roles here came to.
        roles: Vec<Ended>,
    },
}

/// What a far end says of itself and of its machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Here {
    /// Its [`PROTOCOL`].
    pub protocol: u32,
    /// Its version of Weft.
    pub version: String,
    /// Its machine.
    pub environment: Environment,
    /// Kernel settings that bear on TCP.
    pub sysctls: BTreeMap<String, String>,
    /// Its network interfaces.
    pub interfaces: Vec<Interface>,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Octets of a packet at most.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Here {
    /// The interface that has this address.
    pub fn interface_of(&self, address: IpAddr) -> Option<&Interface> {
        let mut interfaces = self.interfaces.iter();
        interfaces.find(|interface| interface.addresses.contains(&address))
    }
}
