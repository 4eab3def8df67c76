//! What programs that were started have taken of the machine.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// What a process and the children that it waited for have taken, from their start to their end. Children that it
/// left behind are not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a core in the programs' own code.
    pub user: Duration,
    /// Time on a core in the kernel, in the programs' names.
    pub system: Duration,
    /// Faults that took no reading from a disk.
    pub minor_faults: u64,
    /// Faults that did.
    pub major_faults: u64,
    /// Times that one gave its core away: it waited for something.
    pub voluntary_switches: u64,
    /// Times that one's core was taken away.
    pub forced_switches: u64,
    /// The most memory that one of them had, octets.
    pub peak_octets: u64,
}

impl Usage {
    /// Time on a core, in whatever code.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.user += other.user;
        self.system += other.system;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.voluntary_switches += other.voluntary_switches;
        self.forced_switches += other.forced_switches;
        self.peak_octets = self.peak_octets.max(other.peak_octets);
    }
}

/// How a child of this process ended and what it has taken; nothing while it runs. Who has asked once and got an
/// answer must not ask again: its number may be another process's by then.
///
/// # Errors
/// There is no such child.
pub fn reap(child: u32) -> io::Result<Option<(ExitStatus, Usage)>> {
    let pid = i32::try_from(child).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut status = 0;
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut taken: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to values of this function, which the kernel writes before the call returns.
        let found = unsafe { libc::wait4(pid, &mut status, libc::WNOHANG, &mut taken) };
        match found {
            0 => return Ok(None),
            found if found == pid => {
                return Ok(Some((ExitStatus::from_raw(status), usage(&taken))));
            }
            _ => {}
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn usage(taken: &libc::rusage) -> Usage {
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    let count = |n: libc::c_long| u64::try_from(n).unwrap_or_default();
    Usage {
        user: time(taken.ru_utime),
        system: time(taken.ru_stime),
        minor_faults: count(taken.ru_minflt),
        major_faults: count(taken.ru_majflt),
        voluntary_switches: count(taken.ru_nvcsw),
        forced_switches: count(taken.ru_nivcsw),
        // The kernel has it in units of 1024.
        peak_octets: count(taken.ru_maxrss) * 1024,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    #[expect(clippy::zombie_processes, reason = "`reap` waits for it")]
    fn ended(script: &str) -> (ExitStatus, Usage) {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(ended) = reap(child.id()).unwrap() {
                return ended;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_running_child_has_no_answer_and_another_process_is_no_child() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(reap(child.id()).unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(reap(child.id()).is_err());
        assert!(reap(1).is_err() && reap(u32::MAX).is_err());
    }

    #[test]
    fn the_status_comes_with_what_was_taken() {
        let (status, usage) = ended("exit 3");
        assert_eq!(status.code(), Some(3));
        assert!(
            usage.minor_faults > 0 && usage.peak_octets > 1 << 16,
            "{usage:?}"
        );
    }

    #[test]
    fn what_a_child_of_the_child_takes_is_counted_and_the_kernels_part_told_apart() {
        // Copies of a mebibyte within the kernel, by a child of the shell.
        let script = "dd if=/dev/zero of=/dev/null bs=1048576 count=2000 2>/dev/null; true";
        let (_, usage) = ended(script);
        assert!(usage.system > Duration::from_millis(5), "{usage:?}");
        assert!(usage.system > usage.user, "{usage:?}");
    }
}
