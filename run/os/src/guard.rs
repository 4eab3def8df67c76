//! Copies to and from memory that the program may have unmapped.
//!
//! The program registers memory and may later unmap it without deregistering. System calls
//! answer that with EFAULT; what is copied here must not end in SIGSEGV either. The copy, and the
//! exchange behind it, are a few instructions between two labels; a handler for SIGSEGV and SIGBUS that finds the fault
//! inside them continues at the exit with "not copied", and passes every other fault on to
//! whoever handled it before.
//!
//! The kernel asks no handler while the thread at fault blocks the signal, and programs that leave signals to one of
//! their threads block them all in the others. So each thread unblocks the two before its first copy.
//!
//! A program that installs its own handler afterwards takes the guard away: an unmapped region
//! then reaches its handler, as any stray access would. So does a thread that blocks the two after its first copy.

#[cfg(target_arch = "aarch64")]
#[path = "guard/aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "guard/x86_64.rs"]
mod machine;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod imp {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::machine;
    use crate::fork::PerProcess;

    extern "C" {
        // What the two do, and their registers, stand in `machine`.
        fn weft_guarded_copy(target: *mut u8, source: *const u8, octets: usize) -> u32;
        fn weft_guarded_compare_exchange(target: *mut u64, expected: *mut u64, new: u64) -> u32;
        fn weft_guarded_copy_fault();
    }

    /// The handlers that were there before ours, for SIGSEGV and SIGBUS.
    static PREVIOUS: [Previous; 2] = [Previous::new(), Previous::new()];

    struct Previous {
        handler: AtomicUsize,
        flags: AtomicUsize,
    }

    impl Previous {
        const fn new() -> Previous {
            Previous {
                handler: AtomicUsize::new(libc::SIG_DFL),
                flags: AtomicUsize::new(0),
            }
        }
    }

    fn slot(signal: i32) -> &'static Previous {
        &PREVIOUS[usize::from(signal == libc::SIGBUS)]
    }

    extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let begin = weft_guarded_copy as *const () as usize;
        let exit = weft_guarded_copy_fault as *const () as usize;
        // SAFETY: with SA_SIGINFO the kernel passes a ucontext_t that lives until the handler
        // returns; changing its instruction pointer is how a handler continues elsewhere. The
        // copy keeps nothing on the stack, so returning from its exit is sound anywhere inside.
        let at = unsafe { machine::instruction(&mut *context.cast::<libc::ucontext_t>()) };
        if (begin..exit).contains(&(*at as usize)) {
            *at = exit as _;
            return;
        }
        pass_on(signal, info, context);
    }

    /// Gives a fault that is not ours to the handler that was there before.
    fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let previous = slot(signal);
        let handler = previous.handler.load(Ordering::Relaxed);
        let flags = previous.flags.load(Ordering::Relaxed) as i32;
        // SAFETY: the value came from sigaction and is a handler of the kind its flags say; for
        // the default or ignored disposition it is restored, and the faulting instruction, run
        // again on return, ends the process as it would have without us.
        unsafe {
            match handler {
                libc::SIG_DFL | libc::SIG_IGN => {
                    let mut action: libc::sigaction = std::mem::zeroed();
                    action.sa_sigaction = libc::SIG_DFL;
                    libc::sigaction(signal, &action, std::ptr::null_mut());
                }
                _ if flags & libc::SA_SIGINFO != 0 => {
                    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(handler);
                    handler(signal, info, context);
                }
                _ => {
                    let handler: extern "C" fn(i32) = std::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
    }

    /// Installs the handlers, once; a child keeps its parent's.
    pub(crate) fn install() {
        static INSTALLED: AtomicBool = AtomicBool::new(false);
        // Of each process its own: a child would wait for good for a thread of its parent that is at it.
        static INSTALL: PerProcess<()> = PerProcess::new();
        if !INSTALLED.load(Ordering::Acquire) {
            INSTALL.get_or_init(|| {
                machine::choose();
                [libc::SIGSEGV, libc::SIGBUS]
                    .into_iter()
                    .for_each(take_over)
            });
            INSTALLED.store(true, Ordering::Release);
        }
    }

    /// Puts our handler in the place of the one that there is.
    fn take_over(signal: libc::c_int) {
        let ours = on_fault as *const () as usize;
        // SAFETY: both structures are plain data that sigaction fills or reads; the handler is async-signal-safe: it
        // only compares and writes the context.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            if old.sa_sigaction == ours {
                // The parent had come so far when the process forked.
                return;
            }
            let before = slot(signal);
            before.handler.store(old.sa_sigaction, Ordering::Relaxed);
            before.flags.store(old.sa_flags as usize, Ordering::Relaxed);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ours;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }

    thread_local! {
        /// Whether this thread has unblocked the two signals.
        static UNBLOCKED: Cell<bool> = const { Cell::new(false) };
    }

    /// Sees to it, once a thread, that its faults reach the handler.
    #[inline]
    fn expect_faults() {
        if !UNBLOCKED.get() {
            unblock();
        }
    }

    #[cold]
    fn unblock() {
        // SAFETY: the set is initialised by sigemptyset before it is used, and the calling thread's own mask is all
        // that changes.
        unsafe {
            let mut faults: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut faults);
            libc::sigaddset(&mut faults, libc::SIGSEGV);
            libc::sigaddset(&mut faults, libc::SIGBUS);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &faults, std::ptr::null_mut());
        }
        UNBLOCKED.set(true);
    }

    /// Copies `octets` from `source` to `target`; false when either was not accessible.
    ///
    /// # Safety
    /// `target` must be memory that may be overwritten, or unmapped.
    #[inline]
    pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, octets: usize) -> bool {
        expect_faults();
        // SAFETY: the routine touches just the two ranges; faults are caught, see above.
        unsafe { weft_guarded_copy(target, source, octets) == 0 }
    }

    /// Replaces the value at `target` in one step if it is `expected`; gives the value that was
    /// there, or `None` when the address was not accessible.
    ///
    /// # Safety
    /// `target` must be memory that may be overwritten, or unmapped, and a multiple of eight.
    #[inline]
    pub(crate) unsafe fn compare_exchange(
        target: *mut u64,
        expected: u64,
        new: u64,
    ) -> Option<u64> {
        expect_faults();
        let mut found = expected;
        // SAFETY: the routine touches the target and `found`; faults are caught, see above.
        let faulted = unsafe { weft_guarded_compare_exchange(target, &raw mut found, new) };
        (faulted == 0).then_some(found)
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod imp {
    pub(crate) fn install() {}

    /// Copies without a guard: this architecture has none yet.
    ///
    /// # Safety
    /// Both ranges must be mapped, and `target` may be overwritten.
    #[inline]
    pub(crate) unsafe fn copy(target: *mut u8, source: *const u8, octets: usize) -> bool {
        // SAFETY: the caller promises: both ranges are mapped, and `target` may be overwritten.
        unsafe { std::ptr::copy(source, target, octets) };
        true
    }

    /// Compares and exchanges without a guard.
    ///
    /// # Safety
    /// `target` must be mapped, may be overwritten, and is a multiple of eight.
    #[inline]
    pub(crate) unsafe fn compare_exchange(
        target: *mut u64,
        expected: u64,
        new: u64,
    ) -> Option<u64> {
        use std::sync::atomic::{AtomicU64, Ordering};
        // SAFETY: the caller promises: `target` is mapped, may be overwritten, and is a multiple of eight; every other
        // access that matters is atomic too.
        let cell = unsafe { AtomicU64::from_ptr(target) };
        let result = cell.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst);
        Some(result.unwrap_or_else(|found| found))
    }
}

pub(crate) use imp::{compare_exchange, copy, install};
