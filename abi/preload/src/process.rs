//! Fork, exec, exit: what gathered leaves first.
//!
//! These are jumps, not calls: a child of `vfork` returns through the very frame it was made in, and the `execl` family
//! has as many arguments as it likes.

use std::ffi::{c_int, c_ulong};

use crate::edge::caught;
use crate::start::stack;

/// Before a child that will be a process of its own: it has the sockets too from then on.
extern "C" fn before_fork() {
    if let Some(stack) = stack() {
        caught((), || stack.before_fork());
    }
}

/// Before another program takes over, here or in a child, or before there is none.
extern "C" fn before_leaving() {
    if let Some(stack) = stack() {
        caught((), || stack.flush_all());
    }
}

/// `jump!(before: name, ...)`: exports functions that call `before` and then are the C library's, arguments, stack and
/// all.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($before:ident: $($name:ident),* $(,)?) => {
        $(
            /// # Safety
            /// As for the C library's function.
            #[unsafe(naked)]
            #[no_mangle]
            pub unsafe extern "C" fn $name() {
                static REAL: $crate::real::Real<unsafe extern "C" fn()> =
                    $crate::real::Real::new(match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => panic!(),
                    });
                listed!(REAL);
                // Every register an argument may be in, and al, which counts floating-point ones.
                std::arch::naked_asm!(
                    "endbr64",
                    "sub rsp, 72",
                    "mov [rsp], rdi",
                    "mov [rsp + 8], rsi",
                    "mov [rsp + 16], rdx",
                    "mov [rsp + 24], rcx",
                    "mov [rsp + 32], r8",
                    "mov [rsp + 40], r9",
                    "mov [rsp + 48], rax",
                    "lea rdi, [rip + {real}]",
                    "call {found}",
                    "mov [rsp + 56], rax",
                    "call {before}",
                    "mov rdi, [rsp]",
                    "mov rsi, [rsp + 8]",
                    "mov rdx, [rsp + 16]",
                    "mov rcx, [rsp + 24]",
                    "mov r8, [rsp + 32]",
                    "mov r9, [rsp + 40]",
                    "mov rax, [rsp + 48]",
                    "mov r11, [rsp + 56]",
                    "add rsp, 72",
                    "jmp r11",
                    real = sym REAL,
                    found = sym found,
                    before = sym $before,
                )
            }
        )*
    };
}

// A sandbox is built of these; what comes after may be forbidden.
hook!(fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, real => {
    if matches!(option, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS) {
        if let Some(stack) = stack() {
            caught((), || stack.confine());
        }
    }
    real()
});

/// The address to jump to.
#[cfg(target_arch = "x86_64")]
extern "C" fn found(real: &crate::real::Real<unsafe extern "C" fn()>) -> unsafe extern "C" fn() {
    real.get()
}

#[cfg(target_arch = "x86_64")]
jump!(before_fork: fork, __fork, __libc_fork, _Fork, clone, __clone, forkpty, daemon);

#[cfg(target_arch = "x86_64")]
jump!(
    before_leaving: vfork, __vfork, posix_spawn, posix_spawnp, system, popen, execl, execle, execlp,
    execv, execve, execveat, execvp, execvpe, fexecve, _exit, _Exit, quick_exit,
);
