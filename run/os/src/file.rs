//! Files and pipes that the program owns, by descriptor. Raw system calls throughout; errors are errno values.

use crate::{fork, private, sys};

/// At the file's own position.
const HERE: usize = usize::MAX;

/// Reads octets at the descriptor's own position, which moves, or at `at`; gives how many, 0 at the end.
///
/// # Errors
/// The errno of `read` or `pread`.
pub fn read(fd: i32, room: &mut [u8], at: Option<u64>) -> Result<usize, i32> {
    let (addr, len) = (room.as_mut_ptr() as usize, room.len());
    let call = match at {
        None => (libc::SYS_read, [fd as usize, addr, len, 0, 0, 0]),
        Some(at) => (
            libc::SYS_pread64,
            [fd as usize, addr, len, at as usize, 0, 0],
        ),
    };
    // SAFETY: the kernel writes to `room` only, and no more than it holds.
    unsafe { sys::call(call.0, call.1) }
}

/// Reads what is there at once.
///
/// # Errors
/// The errno of `preadv2`: EAGAIN where it would have to wait, EOPNOTSUPP where the file cannot tell.
pub fn read_now(fd: i32, room: &mut [u8]) -> Result<usize, i32> {
    let part = sys::IoVec {
        base: room.as_mut_ptr() as usize,
        len: room.len(),
    };
    now(libc::SYS_preadv2, fd, &part)
}

/// Writes what the file takes at once.
///
/// # Errors
/// The errno of `pwritev2`: EAGAIN where it would have to wait, EOPNOTSUPP where the file cannot tell.
pub fn write_now(fd: i32, octets: &[u8]) -> Result<usize, i32> {
    let part = sys::IoVec {
        base: octets.as_ptr() as usize,
        len: octets.len(),
    };
    now(libc::SYS_pwritev2, fd, &part)
}

fn now(number: i64, fd: i32, part: &sys::IoVec) -> Result<usize, i32> {
    let addr = std::ptr::from_ref(part) as usize;
    let args = [fd as usize, addr, 1, HERE, 0, libc::RWF_NOWAIT as usize];
    // SAFETY: the part is memory of the caller's, borrowed mutably where the kernel writes.
    unsafe { sys::call(number, args) }
}

/// Whether the number stands for anything.
pub fn is_open(fd: i32) -> bool {
    let args = [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: names no memory.
    unsafe { sys::call(libc::SYS_fcntl, args) }.is_ok()
}

/// Another descriptor of what `fd` stands for, which no child and no program started from here has: the lowest number
/// from `from` on, or the lowest where there may not be so many. [`close`] ends it.
pub fn duplicate(fd: i32, from: i32) -> Option<i32> {
    let copy = |from: i32| {
        let args = [
            fd as usize,
            libc::F_DUPFD_CLOEXEC as usize,
            from as usize,
            0,
            0,
            0,
        ];
        // SAFETY: names no memory.
        unsafe { sys::call(libc::SYS_fcntl, args) }
    };
    fork::watch();
    private::begin_change();
    let copied = copy(from).or_else(|_| copy(0)).ok();
    if let Some(number) = copied {
        private::mark(number);
    }
    private::end_change();
    copied.map(|number| number as i32)
}

/// Closes a descriptor that [`duplicate`] made.
pub fn close(fd: i32) {
    private::close_marked(fd as usize, || {
        // SAFETY: names no memory; the caller owns the descriptor.
        let _ = unsafe { sys::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    });
}

/// Lets go of a number that [`duplicate`] gave, without closing it: the program has closed it, and may have given it to
/// something of its own.
pub fn abandon(fd: i32) {
    private::unmark(fd as usize);
}

/// Whether the descriptor has a position of its own.
pub fn has_position(fd: i32) -> bool {
    // SAFETY: names no memory.
    unsafe {
        sys::call(
            libc::SYS_lseek,
            [fd as usize, 0, libc::SEEK_CUR as usize, 0, 0, 0],
        )
    }
    .is_ok()
}

/// Whether the descriptor is a pipe's end.
pub fn is_pipe(fd: i32) -> bool {
    // SAFETY: names no memory.
    unsafe {
        sys::call(
            libc::SYS_fcntl,
            [fd as usize, libc::F_GETPIPE_SZ as usize, 0, 0, 0, 0],
        )
    }
    .is_ok()
}

/// Whether calls on the descriptor do not wait (`O_NONBLOCK`).
pub fn does_not_wait(fd: i32) -> bool {
    // SAFETY: names no memory.
    let flags = unsafe {
        sys::call(
            libc::SYS_fcntl,
            [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0],
        )
    };
    flags.is_ok_and(|flags| flags & libc::O_NONBLOCK as usize != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};
    use std::os::fd::AsRawFd;

    #[test]
    fn files_are_read_where_they_stand_or_where_one_asks() {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(memory);
        file.write_all(b"warp and weft").unwrap();
        file.rewind().unwrap();
        let (fd, mut room) = (file.as_raw_fd(), [0; 4]);
        assert_eq!(read(fd, &mut room, Some(9)), Ok(4));
        assert_eq!(&room, b"weft");
        assert_eq!(read(fd, &mut room, None), Ok(4));
        assert_eq!(&room, b"warp");
        assert_eq!(read(fd, &mut room, Some(99)), Ok(0));
        assert!(has_position(fd) && !does_not_wait(fd) && !is_pipe(fd));
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let (from, to) = std::io::pipe().unwrap();
        let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
        assert!(!has_position(from) && is_pipe(from));
        let mut room = [0; 8];
        assert_eq!(read_now(from, &mut room), Err(libc::EAGAIN));
        assert_eq!(write_now(to, b"thread"), Ok(6));
        assert_eq!(read_now(from, &mut room), Ok(6));
        while write_now(to, &[7; 5000]).is_ok() {}
        assert_eq!(write_now(to, b"x"), Err(libc::EAGAIN));
    }
}
