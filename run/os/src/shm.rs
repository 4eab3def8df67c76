//! Shared memory that other processes can look into: a sealed-size memfd of 64-bit words.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use rustix::fs::{memfd_create, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use rustix::process::{getrlimit, Resource};

use crate::descriptors;
use crate::private::Private;

/// Whether the process may make a file of so many octets, in memory too (RLIMIT_FSIZE). One that goes beyond its limit
/// gets SIGXFSZ, which ends the program unless it handles that.
pub fn is_file_allowed(octets: usize) -> bool {
    getrlimit(Resource::Fsize)
        .current
        .is_none_or(|most| octets as u64 <= most)
}

/// A shared array of atomic words.
#[derive(Debug)]
pub struct SharedWords {
    addr: usize,
    count: usize,
    _fd: Private,
}

impl SharedWords {
    /// A zeroed array under `name`, visible as `/proc/PID/fd/N -> /memfd:name (deleted)`.
    ///
    /// # Errors
    /// Descriptors or memory are short, or the process may not write files of this size (RLIMIT_FSIZE).
    pub fn create(name: &str, count: usize) -> io::Result<SharedWords> {
        SharedWords::create_in(count, |flags| Ok(memfd_create(name, flags)?.into()))
    }

    /// The same in a program that asked for none: the number is apart from its own.
    ///
    /// # Errors
    /// As those of [`SharedWords::create`].
    pub fn create_apart(name: &str, count: usize) -> io::Result<SharedWords> {
        SharedWords::create_in(count, |flags| {
            descriptors::open_apart(|| memfd_create(name, flags))
        })
    }

    fn create_in(
        count: usize,
        open: impl Fn(MemfdFlags) -> io::Result<Private>,
    ) -> io::Result<SharedWords> {
        if !is_file_allowed(count * 8) {
            return Err(rustix::io::Errno::FBIG.into());
        }
        let fd = open(MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, (count * 8) as u64)?;
        // With a fixed size no reader can be made to fault by a shrinking file.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        SharedWords::map(fd, count, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps an array of another process, read only.
    ///
    /// # Errors
    /// No permission, gone, or not sealed against shrinking.
    pub fn open(path: &Path) -> io::Result<SharedWords> {
        // Whoever runs the process named the file, and may have meant a pipe to be waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let seals = rustix::fs::fcntl_get_seals(&fd)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not a statistics segment: its size is not sealed",
            ));
        }
        let octets = rustix::fs::fstat(&fd)?.st_size as usize;
        SharedWords::map(fd.into(), octets / 8, ProtFlags::READ)
    }

    fn map(fd: Private, count: usize, prot: ProtFlags) -> io::Result<SharedWords> {
        if count == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no other.
        let addr = unsafe {
            mmap(
                std::ptr::null_mut(),
                count * 8,
                prot,
                MapFlags::SHARED,
                &fd,
                0,
            )?
        };
        Ok(SharedWords {
            addr: addr as usize,
            count,
            _fd: fd,
        })
    }

    /// The words. A reader of another process's array must only load.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `count` words long, cannot shrink (sealed), lives
        // as long as `self`, and is only ever accessed as atomic words.
        unsafe { std::slice::from_raw_parts(self.addr as *const AtomicU64, self.count) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.addr as *mut _, self.count * 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn another_mapping_sees_what_is_counted() {
        let words = SharedWords::create("weft-test", 16).unwrap();
        let path = format!("/proc/self/fd/{}", words._fd.as_raw_fd());
        let reader = SharedWords::open(Path::new(&path)).unwrap();
        words.words()[3].store(42, Ordering::Relaxed);
        assert_eq!(reader.words()[3].load(Ordering::Relaxed), 42);
        assert_eq!(reader.words().len(), 16);
    }

    #[test]
    fn a_process_that_may_write_no_files_is_not_ended_for_it() {
        use std::os::unix::process::CommandExt;
        use std::process::Command;

        if std::env::var_os("WEFT_TEST_FSIZE").is_some() {
            let error = SharedWords::create("weft-test", 16).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([
            "--exact",
            "shm::tests::a_process_that_may_write_no_files_is_not_ended_for_it",
        ]);
        child.env("WEFT_TEST_FSIZE", "0");
        // SAFETY: between fork and exec the child makes one system call.
        unsafe {
            child.pre_exec(|| {
                let none = rustix::process::Rlimit {
                    current: Some(0),
                    maximum: Some(0),
                };
                Ok(rustix::process::setrlimit(Resource::Fsize, none)?)
            })
        };
        // What it prints goes into a pipe, which has no limit.
        let output = child.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    #[test]
    fn another_user_cannot_look_or_write() {
        use std::os::unix::process::CommandExt;
        use std::process::Command;

        const NOBODY: u32 = 65534;
        let words = SharedWords::create("weft-test", 16).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), words._fd.as_raw_fd());
        for script in ["cat < \"$0\"", "printf x >> \"$0\"", "ls -l \"$0\""] {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, &path]).uid(NOBODY).gid(NOBODY);
            let output = match shell.output() {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return eprintln!("skipped: only root can become another user");
                }
                output => output.unwrap(),
            };
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && said.contains("ermission denied"),
                "{script}: {said}"
            );
        }
        assert_eq!(words.words()[0].load(Ordering::Relaxed), 0);
    }
}
