//! What an interrupted wait should do.

/// Whether a wait that a signal interrupted should be taken up again.
///
/// A program that blocks in a verbs call expects what `read` on the channel would do: restart
/// if the handler was installed with `SA_RESTART`, else EINTR. Which handler ran is not known
/// afterwards, so the wait restarts only if every handler installed wants restarts.
pub fn restart_after_interrupt() -> bool {
    (1..=31).all(|signal| {
        // SAFETY: sigaction with a null new action only fills `action`.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut action) != 0 {
                return true;
            }
            action
        };
        let own = matches!(signal, libc::SIGSEGV | libc::SIGBUS);
        let unhandled = matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        own || unhandled || action.sa_flags & libc::SA_RESTART != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn handler(_: i32) {}

    fn install(flags: i32) {
        // SAFETY: a handler that does nothing, for a signal nobody sends here.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = flags;
            libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
        }
    }

    #[test]
    fn one_handler_without_restart_decides() {
        install(libc::SA_RESTART);
        assert!(restart_after_interrupt());
        install(0);
        assert!(!restart_after_interrupt());
        install(libc::SA_RESTART);
    }
}
