//! What has become of questions.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What has become of the datagrams that came to this process.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counted {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The same, as the thread counts it.
        #[derive(Debug, Default)]
        pub(super) struct Counts {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counts {
            pub(super) fn counted(&self) -> Counted {
                Counted {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                }
            }

            pub(super) fn clear(&self) {
                $(self.$name.store(0, Ordering::Relaxed);)*
            }
        }
    };
}

counts! {
    /// Datagrams that came.
    datagrams,
    /// Answered: yes.
    answered,
    /// Ignored: no question.
    no_questions,
    /// Ignored: too many of late, of their sender or at all.
    limited,
    /// Ignored: their addresses are not those they name; a translator, or forged.
    translated,
    /// Not answered: this machine has no such connection.
    unconnected,
    /// Not answered: nobody has a listener there that may be asked for.
    unknown,
    /// Not answered: the program has begun to send, or there is no room for another promise, or somebody who has to be
    /// asked does not say.
    refused,
    /// Questions of other processes of the user that were answered.
    colleagues,
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
