//! Processes that a program of a job started and did not wait for: what becomes of them, and what they took.
//!
//! Most are in the program's process group and end with it. A daemon leaves its group and its parent; its new parent
//! is the bench, as it asked the kernel for that, and the bench knows it by a variable in its environment.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{getpid, kill_process, set_child_subreaper, Pid, Signal};
use weft_os::usage::{reap, Usage};

/// The variable. Weft would warn of one that begins as its settings do.
const VARIABLE: &str = "ROLE_OF_WEFT_BENCH";
/// Looks for what was left behind: the children of one that was ended are found by the next look, and one that was
/// ended has to get a core before it is gone.
const LOOKS: usize = 2500;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(2);

/// Makes this process the parent of what its descendants leave behind.
pub(super) fn adopt() {
    // Where the kernel does not know it, daemons outlive their job, as they would without the bench.
    let _ = set_child_subreaper(Some(getpid()));
}

/// By what the processes of one job are known.
pub(super) struct Mark(String);

impl Mark {
    /// One that no other job has, of this bench or of another.
    pub(super) fn new() -> Mark {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let job = JOBS.fetch_add(1, Ordering::Relaxed);
        Mark(format!("{}.{job}.", getpid().as_raw_nonzero()))
    }

    /// The variable of a role, and its value.
    pub(super) fn of(&self, role: &str) -> (&'static str, String) {
        (VARIABLE, format!("{}{role}", self.0))
    }

    /// Ends what the job left behind, and tells what that took and which role it was of. `groups` are the process
    /// groups of the roles, which have been killed.
    pub(super) fn reap(&self, groups: &[(u32, String)]) -> Vec<(String, Usage)> {
        let mut reaped = Vec::new();
        // Those that were ended and have not gone yet: they have no environment any more to be known by.
        let mut going: Vec<(u32, String)> = Vec::new();
        for _ in 0..LOOKS {
            for pid in children() {
                if going.iter().any(|(known, _)| *known == pid) {
                    continue;
                }
                if let Some(role) = self.role_of(pid, groups) {
                    if let Some(pid) = Pid::from_raw(pid as i32) {
                        // ESRCH when it has ended.
                        let _ = kill_process(pid, Signal::KILL);
                    }
                    going.push((pid, role));
                }
            }
            if going.is_empty() {
                break;
            }
            going.retain(|(pid, role)| match reap(*pid) {
                Ok(None) => true,
                Ok(Some((_, usage))) => {
                    reaped.push((role.clone(), usage));
                    false
                }
                Err(_) => false,
            });
            thread::sleep(PAUSE);
        }
        reaped
    }

    /// The role that left this process behind; nothing where it is none of this job's.
    fn role_of(&self, pid: u32, groups: &[(u32, String)]) -> Option<String> {
        let group = group_of(pid)?;
        if let Some((_, role)) = groups.iter().find(|(of_role, _)| *of_role == group) {
            return Some(role.clone());
        }
        // A process that has ended has no environment any more; one that left its group and ended stays to the end of
        // the bench.
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut variables = environment.split(|octet| *octet == 0);
        variables.find_map(|variable| {
            let variable = std::str::from_utf8(variable).ok()?;
            let value = variable.strip_prefix(VARIABLE)?.strip_prefix('=')?;
            value.strip_prefix(&self.0).map(str::to_owned)
        })
    }
}

/// The children of this process, whichever of its threads started or took them.
fn children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            let numbers = text.split_ascii_whitespace().filter_map(|n| n.parse().ok());
            numbers.collect::<Vec<u32>>()
        })
        .collect()
}

/// The process group, by the fifth field of `/proc/PID/stat`; the second one is a name in brackets that may hold any.
fn group_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_job() {
        let [one, other] = [Mark::new(), Mark::new()];
        assert_ne!(one.of("server"), other.of("server"));
        assert!(one.of("server").1.ends_with(".server"));
    }

    #[test]
    fn a_group_is_the_one_the_process_was_given() {
        use std::os::unix::process::CommandExt;
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").process_group(0).spawn().unwrap();
        assert_eq!(group_of(child.id()), Some(child.id()));
        assert!(children().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(group_of(child.id()), None);
    }
}
