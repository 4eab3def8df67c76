//! The engine's own user of an id, in place of a program: the traits by which the connection manager tells it what
//! happens, without knowing it.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use weft_verbs::iwarp::PeerRequest;

use super::turn::Turn;
use super::Id;
use crate::qp::{Admission, Owner};

/// What an id's events go to where it has no channel.
pub(crate) trait Handler: Debug + Send + Sync {
    /// A connection came to the listener, and its Request is there. It is accepted, rejected, or kept.
    fn on_request(&self, _id: &Arc<Id>, _request: &PeerRequest) {}

    /// The other end has accepted. Gives what the queue pair has to ask before it takes the connection, or `None` where
    /// that is not to be. Called under the id's lock: takes no id's.
    fn on_reply(
        &self,
        _id: &Id,
        _from: Option<SocketAddr>,
        _private_data: &[u8],
    ) -> Option<Admission> {
        None
    }

    /// The queue pair has taken the connection.
    fn on_established(&self, _id: &Arc<Id>) {}

    /// The connect failed, or the connection is over. Called under the id's lock: takes no other id's.
    fn on_over(&self, _id: &Id) {}
}

/// A connection's owner: its id, as long as there is one, and its turn among those of its address.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: Weak<Id>,
    /// Given back when the stream is over, which drops this. Most have none.
    pub(super) _turn: Option<Box<Turn>>,
}

impl Owner for Link {
    fn on_first_fpdu(&self) {
        if let Some(id) = self.id.upgrade() {
            id.on_first_fpdu();
        }
    }

    fn on_stream_ended(&self, was_up: bool) {
        if let Some(id) = self.id.upgrade() {
            id.on_stream_ended(was_up);
        }
    }
}
