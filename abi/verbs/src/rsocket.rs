//! rsocket(7): not served. The functions are here all the same, because the installed library's
//! would take our ids for its own.

use std::sync::Once;

use crate::entry::{set_errno, Errno};

/// Says once for each function that it fails, and fails.
fn refuse(said: &Once, name: &str) -> isize {
    said.call_once(|| {
        weft_engine::warn!("{name}: rsockets are not served");
    });
    set_errno(Errno(libc::EOPNOTSUPP));
    -1
}

/// Functions that take whatever they are given and return -1. C passes integers and pointers in
/// registers that a function may ignore, and reads as much of the result as it declared.
macro_rules! rsocket_stubs {
    ($($name:ident),* $(,)?) => { export! { $(
        /// Fails with `EOPNOTSUPP`.
        fn $name() -> isize {
            static SAID: Once = Once::new();
            refuse(&SAID, stringify!($name))
        }
    )* } };
}

include!(concat!(env!("OUT_DIR"), "/rsockets.rs"));
