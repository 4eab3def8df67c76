//! What has become of datagrams.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What has become of a process's datagrams and carriers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counted {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The same, as it is counted.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counted {
            /// How many counts there are.
            pub(crate) const COUNT: usize = [$(stringify!($name)),*].len();

            /// The counts in their order.
            pub(crate) fn to_words(self) -> [u64; Counted::COUNT] {
                [$(self.$name),*]
            }

            /// The counts that were these words.
            pub(crate) fn from_words(words: [u64; Counted::COUNT]) -> Counted {
                let [$($name),*] = words;
                Counted { $($name),* }
            }
        }

        impl Counts {
            pub(crate) fn counted(&self) -> Counted {
                Counted {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                }
            }

            pub(crate) fn clear(&self) {
                $(self.$name.store(0, Ordering::Relaxed);)*
            }
        }
    };
}

counts! {
    /// Datagrams that left on carriers.
    sent,
    /// Datagrams that came on carriers and were handed out.
    received,
    /// Destinations that were asked for.
    asked,
    /// Of those, that said yes.
    found,
    /// Carriers that came up.
    carriers,
    /// Channels for datagrams of this process that were opened.
    opened,
    /// Channels of other processes that were taken.
    taken,
    /// Channels of other processes that were refused.
    refused,
    /// Bells rung for sockets whose queue filled.
    bells,
    /// Datagrams dropped by the sender: the carrier was full for longer than is waited.
    dropped_full,
    /// Datagrams dropped by the receiver: no room, or too old, or on a channel that was closed.
    dropped_received,
    /// Octets that were missing for too long, and that nobody waits for any more.
    forgiven,
    /// Carriers that were closed for what the other end did.
    faults,
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
