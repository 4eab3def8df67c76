//! Whether this process uses `io_uring`: what goes through its rings no hook sees.
//!
//! A ring is noted where the program makes it by the C library's `syscall`. Libraries like liburing make the system
//! call themselves, so the open descriptors are looked at as well.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::{sched, sys};

/// The process has made a ring.
static MADE: AtomicBool = AtomicBool::new(false);
/// When the descriptors were last looked at, in milliseconds, odd; 0 for never.
static LOOKED_MS: AtomicU32 = AtomicU32::new(0);
/// How often they are, at most: some ten microseconds each time.
const LOOK_EVERY_MS: u32 = 100;
/// Numbers that are looked at: a program makes its rings early, and has low numbers then.
const NUMBERS: u32 = 1024;
/// So many closed numbers in a row are the end of the open ones.
const GAP: u32 = 64;
/// What the kernel calls a ring.
const RING: &[u8] = b"anon_inode:[io_uring]";

/// The process makes a ring.
pub fn note() {
    MADE.store(true, Ordering::Relaxed);
}

/// Whether it made one. Descriptors are looked at ten times a second at most, without needing
/// one; allocates nothing.
pub fn is_used() -> bool {
    MADE.load(Ordering::Relaxed) || (is_time_to_look() && look())
}

fn is_time_to_look() -> bool {
    let now = sched::now_ms() | 1;
    let before = LOOKED_MS.load(Ordering::Relaxed);
    let is_time = before == 0 || now.wrapping_sub(before) >= LOOK_EVERY_MS;
    if is_time {
        LOOKED_MS.store(now, Ordering::Relaxed);
    }
    is_time
}

/// Whether an open descriptor is a ring.
fn look() -> bool {
    let mut closed = 0;
    for number in 0..NUMBERS {
        match is_ring(number) {
            Some(true) => {
                note();
                return true;
            }
            Some(false) => closed = 0,
            None => closed += 1,
        }
        if closed == GAP {
            break;
        }
    }
    false
}

/// Whether this descriptor is a ring; nothing where it is closed.
fn is_ring(number: u32) -> Option<bool> {
    let path = path(number);
    let mut name = [0; RING.len()];
    let at = name.as_mut_ptr();
    let args = [
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        at as usize,
        name.len(),
        0,
        0,
    ];
    // SAFETY: the path ends with a 0, and the kernel writes no more than the octets of `name`, which lives.
    let octets = unsafe { sys::call(libc::SYS_readlinkat, args) }.ok()?;
    Some(name.get(..octets) == Some(RING))
}

/// `/proc/self/fd/` and the number, with the 0 behind it.
fn path(number: u32) -> [u8; 32] {
    use std::io::Write;
    let mut path = [0; 32];
    // It is long enough for every number.
    let _ = write!(&mut path[..31], "/proc/self/fd/{number}");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_a_ring_or_not_or_closed() {
        assert_eq!(is_ring(u32::MAX), None);
        assert!(path(u32::MAX).ends_with(b"\0"));
        let mut parameters = [0u8; 120];
        // SAFETY: the kernel reads and writes its 120 octets of parameters, which live.
        let ring = unsafe {
            let args = [8, parameters.as_mut_ptr() as usize, 0, 0, 0, 0];
            sys::call(libc::SYS_io_uring_setup, args)
        };
        let file = std::fs::File::open("/dev/null").unwrap();
        use std::os::fd::AsRawFd;
        assert_eq!(is_ring(file.as_raw_fd() as u32), Some(false));
        // Many containers refuse rings.
        let Ok(ring) = ring else { return };
        assert_eq!(is_ring(ring as u32), Some(true));
        assert!(look());
        crate::file::close(ring as i32);
        assert!(
            is_used(),
            "once a program has had one it is not asked again"
        );
    }
}
