//! Loading and unloading.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use weft_os::fork::once;
use weft_os::{io_uring, stderr};
use weft_settings::{program, LogLevel, Settings};
use weft_sockets::ddp::Slots;
use weft_sockets::stack::Stack;

use crate::descriptors;
use crate::exec;
use crate::process;
use crate::real;
use crate::stack::{set_stack, stack};
use crate::stdio;

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
    let names = program::names();
    let program = names.first().cloned().unwrap_or_default();
    if settings.off {
        exec::begin(Slots::inherited_file());
        // Without a stack every hook is the C library's call: no table, no thread.
        if settings.log >= LogLevel::Info {
            eprintln!("weft: info: {program}: Weft is off (WEFT_OFF); socket calls are passed on");
        }
        return;
    }
    for complaint in complaints
        .iter()
        .filter(|one| one.is_about("sockets") || one.variable == "WEFT_OFF")
    {
        eprintln!("weft: warn: {complaint}");
    }
    weft_settings::log::set_threshold(settings.log);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    weft_udp_offload::choose_network(weft_adapter::setup::network);
    weft_os::descriptors::prepare();
    let stack = Stack::new(&settings, &names);
    if settings.log >= LogLevel::Info {
        let _ = LOUD.set(program);
    }
    let Some(stack) = stack else {
        // The program has none of the connections, and those that it starts may: it keeps what it was given.
        return exec::begin(Slots::inherited_file());
    };
    let stack = set_stack(stack);
    exec::begin(stack.kinds().streams.kept());
    // A program that takes another's place has its connections, and what it prints may go to one.
    if stack.adopt_inherited() {
        (0..3).for_each(stdio::moved);
    }
}

/// The sockets face, whatever the rules say: the program makes an rsocket. Nothing where Weft is off, or the machine
/// lacks what it takes.
///
/// Threads that come at once may each begin, and one of them stands: a child of a fork amid that would wait for ever
/// for the thread that was at it.
pub fn begun_by_program() -> Option<&'static Stack> {
    static BEGUN: OnceLock<Option<&'static Stack>> = OnceLock::new();
    stack().or_else(|| *once(&BEGUN, begin_for_program))
}

fn begin_for_program() -> Option<&'static Stack> {
    let (settings, _) = Settings::from_env();
    if settings.off {
        return None;
    }
    let names = program::names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stack = set_stack(Stack::whatever_rules_say(&settings, &names)?);
    if !are_hooks_in_front() {
        stack.kinds().streams.calls_are_unseen();
        process::watch_forks();
    }
    Some(stack)
}

/// Whether the program's own calls come to the hooks: not where this library was opened for its rsockets alone.
fn are_hooks_in_front() -> bool {
    // SAFETY: no name is the program itself, whose scope is asked: this library's own begins with itself (-Bsymbolic).
    // The result is compared only.
    let close = unsafe {
        let program = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY);
        libc::dlsym(program, c"close".as_ptr())
    };
    std::ptr::eq(close.cast_const(), descriptors::close as *const c_void)
}

extern "C" fn unload() {
    let Some(stack) = stack() else { return };
    stdio::flush_all();
    stack.ending();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = stack.kinds().datagrams.counts();
    let (sends, heads) = (count(&counts.sends), count(&counts.heads));
    // A program that has confined itself may not be asked what it used, nor write a line where its files may not grow.
    let program = LOUD.get().filter(|_| !stack.is_confined());
    let Some(program) = program else { return };
    // In one call: lines of several processes do not mix.
    let say = |text: String| stderr::line(&format!("weft: info: {program}: {text}\n"));
    if io_uring::is_used() {
        say("it uses io_uring; what goes through its rings is the kernel's alone".into());
    }
    // Most programs have no sockets of a kind, and a shell starts many.
    if sends + heads > 0 {
        say(format!(
            "{} datagrams left in {sends} sends, {} were split from {heads} receives",
            count(&counts.gathered),
            count(&counts.split),
        ));
    }
    let carried = stack.kinds().datagrams.carried().unwrap_or_default();
    let dropped = carried.dropped_full + carried.dropped_received;
    // Who had none may have dropped all that it sent.
    if carried.carriers > 0 || dropped > 0 {
        let received = carried.received;
        say(format!(
            "{} datagrams left over {} connections of Weft's, {received} came, {dropped} were dropped",
            carried.sent, carried.carriers,
        ));
    }
    if carried.forgiven > 0 {
        say(format!(
            "{} octets were missing for too long, and nobody waited for them",
            carried.forgiven
        ));
    }
    let streams = stack.kinds().streams.begun();
    if streams > 0 {
        let over_ddp = weft_sockets::ddp::begun();
        say(format!(
            "TCP sockets looked after: {streams}; DDP on {over_ddp}"
        ));
    }
}
