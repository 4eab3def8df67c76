//! What a service thread asks of the scheduler.

/// Asks for short scheduler slices for the calling thread, so that it runs soon after it wakes
/// even when every core has a spinning program on it. Kernels before 6.12 ignore the wish.
///
/// `slice` is the wish in nanoseconds (the kernel takes 100 us to 100 ms). A thread that somebody made a real-time
/// thread stays one: it has no slices.
pub fn prefer_short_slices(slice_ns: u64) {
    if is_real_time() {
        return;
    }
    #[repr(C)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attr = SchedAttr {
        size: std::mem::size_of::<SchedAttr>() as u32,
        policy: 0,
        flags: 0,
        nice: own_nice(),
        priority: 0,
        runtime: slice_ns,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` octets of `attr`; 0 names the calling thread. A refusal
    // changes nothing.
    unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&attr), 0);
    }
}

fn is_real_time() -> bool {
    // SAFETY: reads a number of the calling thread's, which 0 names.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy)
}

/// The calling thread's nice value.
fn own_nice() -> i32 {
    // SAFETY: reads a number of the calling thread's; a refusal is not possible for one's own.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Blocks all signals for the calling thread: handlers run on the program's own threads.
pub fn block_all_signals() {
    // SAFETY: the set is initialised by sigfillset before it is read.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        // Faults are raised by the instruction itself and must reach their handler.
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

/// Runs `work` with all signals blocked, so that a thread it starts is born with them blocked.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: all-zero is a value of the plain structure, which the next call fills.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a null new set only reads the present one into `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut before) };
    block_all_signals();
    let outcome = work();
    // SAFETY: puts back the set that was read.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    outcome
}

/// Asks for the calling thread's sleeps to end when they should, not up to 50 us later.
pub fn sharpen_timers() {
    // SAFETY: concerns the calling thread's timers alone; a refusal changes nothing.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Sleeps so long, or less. Unlike the C library's sleeps it is no cancellation point: a thread that is cancelled in a
/// hook of ours is to die at a place that the hook has chosen, and not with frames of ours on its stack.
pub fn pause(time: std::time::Duration) {
    let nobody_wakes = std::sync::atomic::AtomicU32::new(0);
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    crate::lock::futex_wait(&nobody_wakes, 0, Some(ns));
}

/// The calling thread's number, as the kernel has it.
pub fn thread_number() -> i32 {
    // SAFETY: no arguments, no effect.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Whether this process has a thread of this number.
pub fn is_thread(number: i32) -> bool {
    // SAFETY: signal 0 is none: only whether it could be sent is asked.
    unsafe { libc::syscall(libc::SYS_tgkill, super::process::getpid() as i32, number, 0) == 0 }
}

/// How often the calling thread has lost its core to another one while it could have gone on: its time was up, or
/// somebody more urgent woke.
pub fn losses_of_core() -> u64 {
    // SAFETY: all-zero is a value of the plain structure, which the next call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer; for the calling thread the call cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw as u64
}

/// Milliseconds since some moment; wraps. As exact as the kernel's tick, and no system call.
pub fn now_ms() -> u32 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // The C library's and not rustix's: that one looks for the kernel's clock where the auxiliary vector says it is,
    // and under valgrind nothing is there.
    // SAFETY: fills `now`; async-signal-safe, and mostly without a system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    (now.tv_sec as u32)
        .wrapping_mul(1000)
        .wrapping_add((now.tv_nsec / 1_000_000) as u32)
}
