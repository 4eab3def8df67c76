//! System calls whose arguments name memory that Rust must not have references to.

use std::io;

/// An element of a gather or scatter list, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoVec {
    pub(crate) base: usize,
    pub(crate) len: usize,
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn syscall3(number: i64, a: usize, b: usize, c: usize) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for what the system call does with its arguments; the kernel
    // preserves every register but rax, rcx and r11, which are named here.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn syscall3(number: i64, a: usize, b: usize, c: usize) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for what the system call does with its arguments; the kernel
    // preserves every register but x0, which is named here.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b,
            in("x2") c,
            options(nostack)
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
unsafe fn syscall3(number: i64, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: as above; `syscall` itself is not a name that the sockets face interposes.
    let result = unsafe { libc::syscall(number, a, b, c) };
    if result < 0 {
        -(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO) as isize)
    } else {
        result as isize
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn syscall6(number: i64, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: as above, with the three further argument registers.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn syscall6(number: i64, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: as above, with the three further argument registers.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack)
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
unsafe fn syscall6(number: i64, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    // SAFETY: as above.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 {
        -(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO) as isize)
    } else {
        result as isize
    }
}

/// Any system call; the result or the errno.
///
/// # Safety
/// As for the system call: addresses among the arguments must be fit for what it does with them.
#[inline]
pub(crate) unsafe fn call(number: i64, args: [usize; 6]) -> Result<usize, i32> {
    // SAFETY: the caller vouches for the arguments.
    let result = unsafe { syscall6(number, args) };
    if result < 0 {
        Err(-result as i32)
    } else {
        Ok(result as usize)
    }
}

fn outcome(result: isize) -> io::Result<usize> {
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result as i32))
    } else {
        Ok(result as usize)
    }
}

/// `sendmsg` with `MSG_DONTWAIT | MSG_NOSIGNAL`.
///
/// # Safety
/// None of the addresses may be memory whose secrecy or liveness Rust relies on; the kernel only
/// reads them and answers EFAULT where nothing is mapped.
pub(crate) unsafe fn sendmsg(fd: i32, vec: &[IoVec]) -> io::Result<usize> {
    // SAFETY: an all-zero msghdr is a valid empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vec.as_ptr().cast_mut().cast();
    message.msg_iovlen = vec.len() as _;
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    // SAFETY: `message` and `vec` outlive the call; the caller vouches for the addresses in it.
    outcome(unsafe {
        syscall3(
            libc::SYS_sendmsg,
            fd as usize,
            std::ptr::from_ref(&message) as usize,
            flags,
        )
    })
}

/// `recvmsg` with `MSG_DONTWAIT`.
///
/// # Safety
/// Every address must be memory that may be overwritten with arbitrary octets.
pub(crate) unsafe fn recvmsg(fd: i32, vec: &[IoVec]) -> io::Result<usize> {
    // SAFETY: an all-zero msghdr is a valid empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vec.as_ptr().cast_mut().cast();
    message.msg_iovlen = vec.len() as _;
    // SAFETY: `message` and `vec` outlive the call; the caller vouches for the addresses in it.
    outcome(unsafe {
        syscall3(
            libc::SYS_recvmsg,
            fd as usize,
            std::ptr::from_mut(&mut message) as usize,
            libc::MSG_DONTWAIT as usize,
        )
    })
}
