//! The numbers of new descriptors: the kernel gives each the lowest that is free, and programs count on that.
//!
//! What Weft opens in a program gets the lowest free number too, and has it until it is moved apart or closed, a few
//! system calls later. If the program opened something meanwhile, it would get another number than without Weft. So
//! each waits for the other: [`program`] runs calls of the program's that take or free a number, [`ours`] what takes
//! one for Weft and gives it back.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::atomic::try_update;

/// Threads that are in [`program`], and in [`ours`].
static PROGRAM: AtomicU32 = AtomicU32::new(0);
static OURS: AtomicU32 = AtomicU32::new(0);

/// How long one side waits for the other. Some calls take longer (a FIFO is opened when its other end is), and some
/// never come back to say that they are over: a fork amid one leaves its mark in the child, a handler may jump out of
/// one. Who is not ready by then is waited for no more.
const WAIT_MAX: Duration = Duration::from_millis(1);

thread_local! {
    /// Whether this thread is in [`ours`]: the C library's calls in it come by the program's hooks, and do not wait.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call of the program's that takes or frees a number, and is soon over: nothing of ours has a low number for
/// the time of the call. It goes before what is ours and has not begun.
pub fn program<T>(call: impl FnOnce() -> T) -> T {
    if HERE.get() {
        return call();
    }
    PROGRAM.fetch_add(1, Ordering::SeqCst);
    if OURS.load(Ordering::SeqCst) != 0 {
        await_none(&OURS, Instant::now());
    }
    let result = call();
    leave(&PROGRAM);
    result
}

/// Waits until nothing of ours has a low number: before a call of the program's that may last. The kernel gives such a
/// call its number as it begins.
pub fn await_ours() {
    if !HERE.get() && OURS.load(Ordering::SeqCst) != 0 {
        await_none(&OURS, Instant::now());
    }
}

/// Runs what takes a low number for us and gives it back before it returns.
pub fn ours<T>(work: impl FnOnce() -> T) -> T {
    if HERE.replace(true) {
        return work();
    }
    OURS.fetch_add(1, Ordering::SeqCst);
    if PROGRAM.load(Ordering::SeqCst) != 0 {
        give_way();
    }
    let result = work();
    leave(&OURS);
    HERE.set(false);
    result
}

/// Marks what is ours when no call of the program's is under way: they wait for each other for as long as the mark is
/// there, so it goes while this waits.
#[cold]
fn give_way() {
    let since = Instant::now();
    loop {
        leave(&OURS);
        let is_late = await_none(&PROGRAM, since);
        OURS.fetch_add(1, Ordering::SeqCst);
        if is_late || PROGRAM.load(Ordering::SeqCst) == 0 {
            return;
        }
    }
}

/// Reads a file of the system's, as Weft's threads do in a program.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn read_to_string(path: &str) -> std::io::Result<String> {
    ours(|| std::fs::read_to_string(path))
}

/// One fewer. Where somebody waited in vain it is not counted any more.
fn leave(side: &AtomicU32) {
    let fewer = |count: u32| count.checked_sub(1);
    let _ = try_update(side, fewer);
}

/// Waits until nobody is on this side; whether that took too long.
#[cold]
fn await_none(side: &AtomicU32, since: Instant) -> bool {
    while side.load(Ordering::SeqCst) != 0 {
        if since.elapsed() >= WAIT_MAX {
            side.store(0, Ordering::SeqCst);
            return true;
        }
        std::thread::yield_now();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{eventfd, EventfdFlags};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicBool;

    /// The counts and the numbers are the process's, so this one does nothing else.
    #[test]
    fn each_waits_for_the_other_in_a_process_of_its_own() {
        let name = "lowest::tests::each_waits_for_the_other_in_a_process_of_its_own";
        if !crate::alone::is_alone(name) {
            return;
        }
        a_program_gets_the_numbers_that_it_counts_on();
        who_never_comes_back_is_waited_for_once();
        what_is_called_amid_ones_own_does_not_wait();
    }

    fn a_program_gets_the_numbers_that_it_counts_on() {
        crate::descriptors::prepare();
        let open = || eventfd(0, EventfdFlags::CLOEXEC);
        let number = || program(|| open().unwrap().as_raw_fd());
        let lowest = number();
        let over = AtomicBool::new(false);
        let others = std::thread::scope(|scope| {
            let opens = scope.spawn(|| {
                let mut count = 0;
                while !over.load(Ordering::Relaxed) {
                    drop(crate::descriptors::open_apart(open).unwrap());
                    count += 1;
                }
                count
            });
            let others = (0..20_000).filter(|_| number() != lowest).count();
            over.store(true, Ordering::Relaxed);
            assert!(opens.join().unwrap() > 0);
            others
        });
        // One that has no core for a millisecond is waited for no more.
        assert!(others < 100, "{others} of 20000");
    }

    fn who_never_comes_back_is_waited_for_once() {
        let waited = |work: &(dyn Fn() + Sync)| {
            let begun = Instant::now();
            std::thread::scope(|scope| scope.spawn(work).join().unwrap());
            begun.elapsed() >= WAIT_MAX
        };
        PROGRAM.fetch_add(1, Ordering::SeqCst);
        assert!(waited(&|| ours(|| ())));
        assert_eq!(PROGRAM.load(Ordering::SeqCst), 0);
        for waits in [&await_ours as &(dyn Fn() + Sync), &|| program(|| ())] {
            OURS.fetch_add(1, Ordering::SeqCst);
            assert!(waited(waits));
            assert_eq!(OURS.load(Ordering::SeqCst), 0);
        }
    }

    fn what_is_called_amid_ones_own_does_not_wait() {
        let amid = || {
            let begun = Instant::now();
            program(await_ours);
            assert!(begun.elapsed() < WAIT_MAX);
            OURS.load(Ordering::SeqCst)
        };
        assert_eq!(ours(|| ours(amid)), 1, "once for each thread");
        assert_eq!(OURS.load(Ordering::SeqCst), 0);
    }
}
