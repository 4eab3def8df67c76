//! rsocket(7): not served. The functions are here all the same, because the installed library's
//! would take our ids for its own.

use std::sync::atomic::AtomicBool;

use crate::entry::{status, Outcome};
use crate::unsupported::in_words;

/// Fails, and says so at the program's first call of any of them.
fn refuse(name: &str) -> Outcome<()> {
    static SAID: AtomicBool = AtomicBool::new(false);
    let words = format!(
        "{name}: rsockets (rsocket(7)) are not served: give the program ordinary sockets, if it can be told so, and leave \
         librspreload.so out of LD_PRELOAD"
    );
    in_words(&SAID, &words)
}

/// Functions that take whatever they are given and return -1. C passes integers and pointers in
/// registers that a function may ignore, and reads as much of the result as it declared.
macro_rules! rsocket_stubs {
    // Off or not: what they are given cannot be passed on from here.
    ($($name:ident),* $(,)?) => { $(
        export_named! {
            [#[doc = "Fails with `EOPNOTSUPP`."]] $name () [isize]
            { status(|| refuse(stringify!($name))) as isize }
        }
    )* };
}

include!(concat!(env!("OUT_DIR"), "/rsockets.rs"));
