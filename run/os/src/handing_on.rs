//! A descriptor that only some of the programs started from here may have: those of ours, under the same user.
//!
//! It is closed by every exec, unless it was opened for that one. Who may have it follows from the file: its owner and
//! group are those of the process that made it.

use std::os::fd::BorrowedFd;

use rustix::fs::{fstat, Stat};

/// The descriptor, and which file it is of.
#[derive(Clone, Copy, Debug)]
pub struct HandedOn {
    fd: i32,
    device: u64,
    inode: u64,
}

impl HandedOn {
    /// The file behind `fd`, which every exec closes from now on; nothing where there is none.
    pub fn new(fd: i32) -> Option<HandedOn> {
        let stat = stat(fd)?;
        let handed_on = HandedOn {
            fd,
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        handed_on.set(false);
        Some(handed_on)
    }

    /// Whether the program that the next exec starts has the file: only if it `is_wanted` there, and this process is
    /// nobody but whom the file belongs to. One that has given its rights away, or can take others, keeps it to itself.
    pub fn set(&self, is_wanted: bool) {
        // The program may have given the number to something of its own.
        let Some(stat) = stat(self.fd).filter(|stat| self.is(stat)) else {
            return;
        };
        let flags = match is_wanted && is_owner_alone(&stat) {
            true => 0,
            false => libc::FD_CLOEXEC,
        };
        let args = [
            self.fd as usize,
            libc::F_SETFD as usize,
            flags as usize,
            0,
            0,
            0,
        ];
        // SAFETY: names no memory.
        let _ = unsafe { crate::sys::call(libc::SYS_fcntl, args) };
    }

    fn is(&self, stat: &Stat) -> bool {
        (stat.st_dev, stat.st_ino) == (self.device, self.inode)
    }
}

fn stat(fd: i32) -> Option<Stat> {
    if fd < 0 {
        return None;
    }
    // SAFETY: used for one call, which fails where the number is closed.
    fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()
}

/// Whether this process's users are all the file's, and its groups.
fn is_owner_alone(stat: &Stat) -> bool {
    is_each(libc::SYS_getresuid, stat.st_uid) && is_each(libc::SYS_getresgid, stat.st_gid)
}

/// Whether the real, the effective and the saved number are all this one.
fn is_each(call: i64, number: u32) -> bool {
    let mut numbers = [0u32; 3];
    let at = numbers.as_mut_ptr() as usize;
    // SAFETY: the kernel writes the three numbers.
    let result = unsafe { crate::sys::call(call, [at, at + 4, at + 8, 0, 0, 0]) };
    result.is_ok() && numbers == [number; 3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::fs::{memfd_create, MemfdFlags};
    use rustix::io::{fcntl_getfd, FdFlags};

    fn file() -> OwnedFd {
        memfd_create("handed-on", MemfdFlags::empty()).unwrap()
    }

    fn is_closed_by_exec(file: &OwnedFd) -> bool {
        fcntl_getfd(file).unwrap().contains(FdFlags::CLOEXEC)
    }

    /// What `work` says in a forked child, which has descriptors and users of its own.
    fn in_child(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child makes system calls only, and leaves at once.
        let child = unsafe { crate::forking::bare_fork() };
        if child == 0 {
            let status = i32::from(!work());
            // SAFETY: leaves without running anybody's handlers.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &mut status, 0) };
        status == 0
    }

    #[test]
    fn only_who_is_wanted_has_it() {
        let file = file();
        let handed_on = HandedOn::new(file.as_raw_fd()).unwrap();
        assert!(is_closed_by_exec(&file));
        handed_on.set(true);
        assert!(!is_closed_by_exec(&file));
        handed_on.set(false);
        assert!(is_closed_by_exec(&file));
    }

    #[test]
    fn a_number_that_is_something_else_by_now_is_left_alone() {
        let (first, other) = (file(), file());
        let handed_on = HandedOn::new(first.as_raw_fd()).unwrap();
        let mut number = first;
        rustix::io::dup2(&other, &mut number).unwrap();
        handed_on.set(false);
        assert!(!is_closed_by_exec(&number));
        drop(number);
        handed_on.set(true);
        assert!(HandedOn::new(-1).is_none());
    }

    #[test]
    fn a_process_that_is_another_user_or_can_be_keeps_it_to_itself() {
        let file = file();
        let handed_on = HandedOn::new(file.as_raw_fd()).unwrap();
        let own = fstat(&file).unwrap();
        let (mut user, mut group) = (own, own);
        user.st_uid += 1;
        group.st_gid += 1;
        assert!(is_owner_alone(&own) && !is_owner_alone(&user) && !is_owner_alone(&group));
        if own.st_uid != 0 {
            return;
        }
        for users in [[-1i32, -1, 9], [9, -1, -1], [-1, 9, -1]] {
            let keeps_it = in_child(|| {
                // SAFETY: changes the child's users alone, by the bare call.
                unsafe { libc::syscall(libc::SYS_setresuid, users[0], users[1], users[2]) };
                handed_on.set(true);
                is_closed_by_exec(&file)
            });
            assert!(keeps_it, "{users:?}");
        }
    }
}
