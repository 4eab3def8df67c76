//! The connections that a yes was said for, in memory that a family of processes shares: one of them says yes, and
//! another may accept.

use std::time::Duration;

use weft_discovery_proto::expected::First;
use weft_discovery_proto::{Connection, Expected};
use weft_os::shared::{self, Holding, Shared, Taken};
use zerocopy::FromZeros;

use crate::answering::Owner;

#[repr(C, align(4096))]
#[derive(Debug, FromZeros)]
struct Page {
    expected: Shared<Expected>,
}

/// What was promised, and what is promised no more. See [`Expected`].
#[derive(Debug)]
pub struct Promises {
    page: &'static Page,
}

impl Promises {
    /// None yet, shared with every process forked from this one; nothing where the kernel has no room for them.
    pub fn new() -> Option<Promises> {
        let page = shared::values::<Page>(1)?.first()?;
        let promises = Promises { page };
        promises.expected()?.set_seed(weft_os::random_u64());
        Some(promises)
    }

    /// When a yes was said for this connection, which the program has just accepted; nothing where none was. The
    /// promise is the caller's to keep from then on.
    pub fn take(&self, connection: &Connection, now: Duration) -> Option<Duration> {
        self.expected()?.take(connection, now)
    }

    /// The program's first octets are about to leave on this connection, whose Request has not come and whose promise
    /// was not taken.
    pub fn settle(&self, connection: &Connection, now: Duration) -> First {
        match self.expected() {
            Some(mut expected) => expected.settle(connection, now),
            // A signal handler, come between a look at the table: nobody knows, and to wait harms least.
            None => First::Held(now),
        }
    }

    /// The table; nothing where the calling thread holds it already.
    fn expected(&self) -> Option<Holding<'static, Expected>> {
        match self.page.expected.take() {
            // An entry that somebody left half written is one that nobody asks for.
            Taken::Held(held) | Taken::Inherited(held) => Some(held),
            Taken::Again => None,
        }
    }
}

impl Owner for Promises {
    fn promise(&self, connection: &Connection, now: Duration) -> bool {
        let promised = self
            .expected()
            .map(|mut expected| expected.promise(connection, now));
        matches!(promised, Some(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_discovery_proto::{About, End};

    #[test]
    fn a_promise_reaches_who_accepts() {
        weft_os::process::watch();
        let promises = Promises::new().unwrap();
        let connection = |port| Connection {
            about: About::Stream,
            client: End::new([192, 0, 2, 1].into(), port),
            server: End::new([192, 0, 2, 2].into(), 80),
        };
        let now = crate::now();
        assert!(promises.promise(&connection(1), now));
        assert_eq!(promises.settle(&connection(2), now), First::Leave);
        assert!(
            !promises.promise(&connection(2), now),
            "its program has begun to send"
        );
        let taken = promises.take(&connection(1), now).unwrap();
        assert!(
            now - taken < Duration::from_micros(2),
            "microseconds are kept"
        );
        assert_eq!(promises.take(&connection(1), now), None);
    }
}
