//! What is served: the trait of everything that stands in the epoll set or has a timer, and the table of it.

use std::fmt::Debug;
use std::sync::Arc;

/// Something that progress is made for: a listener, a connection, a socket for datagrams.
///
/// Calls come from whatever thread serves at the moment, several at once if need be: each member has its own lock.
pub(crate) trait Member: Debug + Send + Sync {
    /// Its descriptor is ready; `writable` says that a socket that was full has room again. Waits for its turn:
    /// readiness is level-triggered, and to come back at once would keep the thread that is at it from the core.
    fn serve(&self, writable: bool) -> Served;

    /// A deadline may have passed.
    fn on_timer(&self);

    /// A thread polls: receives what is there, unless another thread does. Called for members that were
    /// [`Served::Active`] lately.
    fn poll(&self) -> Hints {
        Hints::default()
    }

    /// The calling thread polls, and reads this member before it looks elsewhere: its descriptor need not be watched
    /// meanwhile. For members whose hints say that [a thread waits](Hints::waits_for_one).
    fn lease(&self) {}

    /// Its descriptor is watched again.
    fn end_lease(&self) {}

    /// Somebody is about to sleep, and what comes has to show at its descriptor from now on. True where something is
    /// there already. For members that [are looked at](Member::look).
    fn arm(&self) -> bool {
        false
    }

    /// Serves what came without showing at its descriptor, unless another thread is at it.
    fn look(&self) -> Looked {
        Looked::Elsewhere
    }
}

/// Says of a member that a look at it would find nothing, without its lock: most of many have nothing.
pub trait Quiet: Debug + Send + Sync {
    /// Whether nothing has come since a look found nothing. False where only a look can tell.
    fn is_quiet(&self) -> bool;
}

/// What a look at a member came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Looked {
    /// Nothing was there.
    Nothing,
    /// Something was, and was served.
    Served(Served),
    /// What comes shows at its descriptor.
    Elsewhere,
}

/// What came of serving a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    /// It carries no messages of the program's: a listener, or a start-up.
    Setup,
    /// It carries messages, and none came.
    Quiet,
    /// Octets of messages came. Pollers look at it first from now on.
    Active,
}

/// What a member expects, at a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hints {
    /// The peer was asked to acknowledge Writes, and has not.
    pub(crate) unacknowledged: bool,
    /// As above, and the program waits for that one Write alone.
    pub(crate) waits_for_one: bool,
}

/// Something whose posts wait to be sent together.
pub(crate) trait Flush: Debug + Send + Sync {
    /// Sends what waits.
    fn flush(&self);
}

/// A member's number in the epoll set: its place in the table, and how often that place was used before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Token(u64);

impl Token {
    /// As the epoll set reports it.
    pub(super) fn from_number(number: u64) -> Token {
        Token(number)
    }

    /// As a name among others.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// The members, by token. A token whose member has gone leads to nobody, even if its place is used again.
#[derive(Debug, Default)]
pub(super) struct Members {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    member: Option<Arc<dyn Member>>,
}

/// Bits of a generation: a token with all bits set stands for the waker.
const GENERATIONS: u32 = 0x7FFF_FFFF;

impl Members {
    pub(super) fn insert(&mut self, member: Arc<dyn Member>) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                generation: 0,
                member: None,
            });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.member = Some(member);
        Token(u64::from(place.generation) << 32 | u64::from(index))
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn replace(&mut self, token: Token, member: Arc<dyn Member>) {
        if let Some(place) = self.place(token) {
            place.member = Some(member);
        }
    }

    pub(super) fn remove(&mut self, token: Token) {
        if let Some(place) = self.place(token) {
            place.member = None;
            place.generation = place.generation.wrapping_add(1) & GENERATIONS;
            self.free.push(token.0 as u32);
        }
    }

    pub(super) fn get(&self, token: Token) -> Option<Arc<dyn Member>> {
        let place = self.places.get(token.0 as u32 as usize)?;
        (u64::from(place.generation) == token.0 >> 32)
            .then(|| place.member.clone())
            .flatten()
    }

    fn place(&mut self, token: Token) -> Option<&mut Place> {
        let place = self.places.get_mut(token.0 as u32 as usize)?;
        (u64::from(place.generation) == token.0 >> 32).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing;

    impl Member for Nothing {
        fn serve(&self, _writable: bool) -> Served {
            Served::Quiet
        }

        fn on_timer(&self) {}
    }

    #[test]
    fn a_token_leads_to_its_member_alone_even_when_the_place_is_used_again() {
        let mut members = Members::default();
        let (one, other): (Arc<dyn Member>, Arc<dyn Member>) =
            (Arc::new(Nothing), Arc::new(Nothing));
        let first = members.insert(one.clone());
        assert!(members.get(first).is_some());
        assert_eq!(members.count(), 1);
        members.remove(first);
        assert!(members.get(first).is_none());
        assert_eq!(members.count(), 0);
        let second = members.insert(other);
        assert_eq!(
            first.number() as u32,
            second.number() as u32,
            "the same place"
        );
        assert!(members.get(first).is_none() && members.get(second).is_some());
        members.replace(first, one.clone());
        members.remove(first);
        assert!(
            members.get(second).is_some(),
            "an old token changes nothing"
        );
        members.replace(second, one);
        assert_eq!(members.places.len(), 1);
    }
}
