//! Loading and unloading.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use weft_settings::{LogLevel, Settings};
use weft_sockets::stack::Stack;

use crate::io_uring;
use crate::real;
use crate::stack::{set_stack, stack};

/// The program's name, if it is to be told what was done for it.
static LOUD: OnceLock<String> = OnceLock::new();

#[used]
#[link_section = ".init_array"]
static LOAD: extern "C" fn() = load;

#[used]
#[link_section = ".fini_array"]
static UNLOAD: extern "C" fn() = unload;

extern "C" fn load() {
    real::find_all();
    let begun = std::panic::catch_unwind(begin);
    if begun.is_err() {
        eprintln!("weft: error: the sockets face could not be started; nothing is offloaded");
    }
}

fn begin() {
    let (settings, complaints) = Settings::from_env();
    for complaint in complaints
        .iter()
        .filter(|one| one.variable.starts_with("WEFT_UDP"))
    {
        eprintln!("weft: warn: {complaint}");
    }
    let program = program_name();
    let stack = Stack::new(&settings, &program);
    if settings.log >= LogLevel::Info {
        let _ = LOUD.set(program);
    }
    if let Some(stack) = stack {
        set_stack(stack);
    }
}

/// The last part of the program's own name.
fn program_name() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = name.to_string_lossy();
    let last = name.rsplit('/').next().unwrap_or_default();
    last.to_owned()
}

extern "C" fn unload() {
    let Some(stack) = stack() else { return };
    stack.flush_all();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = stack.kinds().datagrams.counts();
    let (sends, heads) = (count(&counts.sends), count(&counts.heads));
    let Some(program) = LOUD.get() else { return };
    if io_uring::is_used() {
        eprintln!(
            "weft: info: {program}: it uses io_uring; what goes through its rings is the kernel's alone"
        );
    }
    // Most programs have no UDP sockets, and a shell starts many.
    if sends + heads == 0 {
        return;
    }
    eprintln!(
        "weft: info: {program}: {} datagrams left in {sends} sends, {} were split from {heads} receives",
        count(&counts.gathered),
        count(&counts.split),
    );
}
