//! Fork, exec, exit, and bare system calls: what gathered leaves first.
//!
//! Most are jumps, not calls: a child of `vfork` returns through the very frame it was made in, and the `execl` family
//! has as many arguments as it likes.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{mmsghdr, msghdr, pid_t, FILE};

use crate::edge::caught;
use crate::exec::{self, Environment};
use crate::send;
use crate::stack::stack;

/// Before a child that will be a process of its own: it has the sockets too from then on.
extern "C" fn before_fork() {
    if let Some(stack) = stack() {
        caught((), || stack.before_fork());
    }
}

/// Makes a call that makes a child and tells of it to nobody.
fn forking<T>(real: impl FnOnce() -> T) -> T {
    before_fork();
    let made = real();
    weft_os::forking::over();
    made
}

/// Has the C library say when the process forks, where the hooks of these functions are not called.
pub fn watch_forks() {
    // SAFETY: the function stays loaded, and does nothing that a handler of fork may not do.
    unsafe { libc::pthread_atfork(Some(prepare_to_fork), None, None) };
}

unsafe extern "C" fn prepare_to_fork() {
    before_fork();
}

/// Before this is another program, whose environment is this program's. `execle` has its own behind its arguments,
/// where it is not looked for: what has our connections then is at most the same user's.
extern "C" fn before_exec() {
    before_ending();
    exec::becoming(exec::own_environment());
}

/// Before this is another program, with this environment.
extern "C" fn before_exec_with(_: c_long, _: c_long, environment: Environment) {
    before_ending();
    exec::becoming(environment);
}

/// The same by `execveat`.
extern "C" fn before_exec_at(_: c_long, _: c_long, _: c_long, environment: Environment) {
    before_ending();
    exec::becoming(environment);
}

/// Before there is no program any more, or another one, here.
extern "C" fn before_ending() {
    if let Some(stack) = stack() {
        caught((), || stack.ending());
    }
}

/// Before the C library prints to a descriptor.
pub(crate) extern "C" fn before_printing(fd: c_int) {
    if let Some(stack) = stack() {
        caught((), || {
            stack.flush_all();
            stack.passed_by(fd);
        });
    }
}

/// Before a system call that the program makes by its number: the same as before the function of that name, as far as
/// something may have gathered or a descriptor goes away.
extern "C" fn before_syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long) {
    note_handed_on(number, b, c, d);
    let Some(stack) = stack() else { return };
    let fd = a as c_int;
    caught((), || match number {
        libc::SYS_close => stack.closing(fd),
        libc::SYS_close_range
            if c as c_int & CLOSE_RANGE_CLOEXEC == 0 && a as c_uint <= b as c_uint =>
        {
            stack.closing_range(a as c_uint, b as c_uint)
        }
        old::DUP2 | libc::SYS_dup3 if fd != b as c_int => stack.forgetting(b as c_int),
        old::FORK | old::VFORK | libc::SYS_clone | libc::SYS_clone3 => stack.before_fork(),
        libc::SYS_execve | libc::SYS_execveat | libc::SYS_exit_group => stack.ending(),
        libc::SYS_seccomp => stack.confine(),
        libc::SYS_prctl if confines(a as c_int) => stack.confine(),
        libc::SYS_io_uring_setup => {
            weft_os::io_uring::note();
            stack.kinds().streams.leave_all_listeners();
        }
        libc::SYS_accept | libc::SYS_accept4 => stack.accepting_unseen(fd),
        libc::SYS_splice => {
            stack.flush_all();
            stack.passed_by(fd);
            stack.passed_by(c as c_int);
        }
        libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwritev2
        | libc::SYS_sendfile
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_preadv2 => {
            stack.flush_all();
            stack.passed_by(fd);
        }
        libc::SYS_connect
        | libc::SYS_shutdown
        | old::POLL
        | libc::SYS_ppoll
        | old::SELECT
        | libc::SYS_pselect6
        | old::EPOLL_WAIT
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2 => stack.flush_all(),
        _ => {}
    });
}

/// Numbers of calls that newer machines than x86-64 do not have: their C libraries make others instead.
#[cfg(target_arch = "x86_64")]
mod old {
    use std::ffi::c_long;

    pub(super) const DUP2: c_long = libc::SYS_dup2;
    pub(super) const FORK: c_long = libc::SYS_fork;
    pub(super) const VFORK: c_long = libc::SYS_vfork;
    pub(super) const POLL: c_long = libc::SYS_poll;
    pub(super) const SELECT: c_long = libc::SYS_select;
    pub(super) const EPOLL_WAIT: c_long = libc::SYS_epoll_wait;
}

/// Numbers that no call has.
#[cfg(not(target_arch = "x86_64"))]
mod old {
    use std::ffi::c_long;

    pub(super) const DUP2: c_long = -1;
    pub(super) const FORK: c_long = -2;
    pub(super) const VFORK: c_long = -3;
    pub(super) const POLL: c_long = -4;
    pub(super) const SELECT: c_long = -5;
    pub(super) const EPOLL_WAIT: c_long = -6;
}

/// The same where another program or process is about to have something of this one's.
fn note_handed_on(number: c_long, b: c_long, c: c_long, d: c_long) {
    match number {
        libc::SYS_execve => exec::becoming(c as Environment),
        libc::SYS_execveat => exec::becoming(d as Environment),
        libc::SYS_sendmsg => send::note_passed(b as *const msghdr),
        libc::SYS_sendmmsg => send::note_all_passed(b as *const mmsghdr, c as c_uint),
        _ => {}
    }
}

pub const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// Whether this operation of `prctl` is one that a sandbox is built of; what comes after may be forbidden.
fn confines(option: c_int) -> bool {
    matches!(option, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS)
}

/// Calls `before`, finds the real function and jumps there; keeps every register that an argument may be in, and al,
/// which counts floating-point ones.
#[cfg(target_arch = "x86_64")]
macro_rules! forward {
    () => {
        "endbr64
        sub rsp, 72
        mov [rsp], rdi
        mov [rsp + 8], rsi
        mov [rsp + 16], rdx
        mov [rsp + 24], rcx
        mov [rsp + 32], r8
        mov [rsp + 40], r9
        mov [rsp + 48], rax
        call {before}
        lea rdi, [rip + {real}]
        call {found}
        mov [rsp + 56], rax
        mov rdi, [rsp]
        mov rsi, [rsp + 8]
        mov rdx, [rsp + 16]
        mov rcx, [rsp + 24]
        mov r8, [rsp + 32]
        mov r9, [rsp + 40]
        mov rax, [rsp + 48]
        mov r11, [rsp + 56]
        add rsp, 72
        jmp r11"
    };
}

/// Calls `before`, finds the real function and jumps there; keeps every register that an argument may be in, but those
/// of floating-point numbers: none of these functions has such arguments.
#[cfg(target_arch = "aarch64")]
macro_rules! forward {
    () => {
        "hint 34
        stp x29, x30, [sp, #-96]!
        mov x29, sp
        stp x0, x1, [sp, #16]
        stp x2, x3, [sp, #32]
        stp x4, x5, [sp, #48]
        stp x6, x7, [sp, #64]
        str x8, [sp, #80]
        bl {before}
        adrp x0, {real}
        add x0, x0, :lo12:{real}
        bl {found}
        mov x16, x0
        ldp x0, x1, [sp, #16]
        ldp x2, x3, [sp, #32]
        ldp x4, x5, [sp, #48]
        ldp x6, x7, [sp, #64]
        ldr x8, [sp, #80]
        ldp x29, x30, [sp], #96
        br x16"
    };
}

/// `jump!(before: name, ...)`: exports functions that call `before` with the arguments and then are the C library's,
/// arguments, stack and all.
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
                std::arch::naked_asm!(
                    forward!(),
                    real = sym REAL,
                    found = sym found,
                    before = sym $before,
                )
            }
        )*
    };
}

hook!(fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, real => {
    if confines(option) {
        if let Some(stack) = stack() {
            caught((), || stack.confine());
        }
    }
    real()
});

/// The address to jump to.
pub(crate) extern "C" fn found(
    real: &crate::real::Real<unsafe extern "C" fn()>,
) -> unsafe extern "C" fn() {
    real.get()
}

jump!(before_fork: fork, __fork, __libc_fork, _Fork, clone, __clone, forkpty, daemon);

jump!(before_fork: vfork, __vfork);

jump!(before_exec: execl, execle, execlp, execv, execvp);

jump!(before_exec_with: execve, execvpe, fexecve);

jump!(before_exec_at: execveat);

jump!(before_ending: _exit, _Exit, quick_exit);

jump!(before_syscall: syscall);

type Words = *const *mut c_char;

hook!(fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Words,
    environment: Environment,
) -> c_int, real => {
    forking(|| exec::starting(environment, real))
});

hook!(fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Words,
    environment: Environment,
) -> c_int, real => {
    forking(|| exec::starting(environment, real))
});

hook!(fn system(command: *const c_char) -> c_int, real => {
    forking(|| exec::starting(exec::own_environment(), real))
});

hook!(fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE, real => {
    forking(|| exec::starting(exec::own_environment(), real))
});

hook!(fn _IO_popen(command: *const c_char, mode: *const c_char) -> *mut FILE, real => {
    forking(|| exec::starting(exec::own_environment(), real))
});
