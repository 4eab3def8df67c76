//! The processes that Weft serves.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use weft_engine::stats::{self, Snapshot};
use weft_sockets::ddp::shown::{self, Shown};
use weft_udp_offload::stat as datagrams;

use super::streams::{self, Streaming};

/// What was found.
#[derive(Debug, Default)]
pub struct Seen {
    /// In the order of their numbers.
    pub processes: Vec<Process<Snapshot>>,
    /// Those whose datagrams may travel over connections, likewise.
    pub carrying: Vec<Process<datagrams::Snapshot>>,
    /// Those that have TCP sockets which may go as DDP, likewise.
    pub streaming: Vec<Streaming>,
    /// Processes that we may not look into.
    pub barred: usize,
}

/// A process that Weft serves.
#[derive(Debug)]
pub struct Process<T> {
    /// Its number.
    pub pid: u32,
    /// Its name, as `ps` shows it.
    pub name: String,
    /// Its counts.
    pub snapshot: T,
}

/// Looks for all processes, or for the one called `only`.
pub fn find(only: Option<u32>) -> Seen {
    let mut seen = Seen::default();
    for pid in only.map_or_else(all, |pid| vec![pid]) {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        match statistics(pid, &folder) {
            Ok(kept) => {
                let name = || name_of(&folder);
                seen.processes.extend(kept.verbs.map(|snapshot| Process {
                    pid,
                    name: name(),
                    snapshot,
                }));
                seen.carrying.extend(kept.udp.map(|snapshot| Process {
                    pid,
                    name: name(),
                    snapshot,
                }));
                if !kept.tcp.is_empty() {
                    seen.streaming.push(Streaming {
                        pid,
                        program: name(),
                        sockets: kept.tcp,
                    });
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => seen.barred += 1,
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    seen
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

/// What a process keeps of its connections, of its datagrams and of its TCP sockets.
#[derive(Default)]
struct Kept {
    verbs: Option<Snapshot>,
    udp: Option<datagrams::Snapshot>,
    tcp: Vec<streams::Socket>,
}

/// What the process keeps whose folder in /proc this is.
fn statistics(pid: u32, folder: &Path) -> std::io::Result<Kept> {
    let [verbs, udp, tcp] =
        [stats::NAME, datagrams::NAME, shown::NAME].map(|name| format!("/memfd:{name} (deleted)"));
    let mut kept = Kept::default();
    let mut family = None;
    let mut sockets = HashMap::new();
    for entry in fs::read_dir(folder.join("fd"))?.flatten() {
        let path = entry.path();
        let Ok(link) = fs::read_link(&path) else {
            continue;
        };
        // A child after fork still has its parent's.
        if link.as_os_str() == verbs.as_str() {
            let read = stats::read(&path).ok();
            let own = read.filter(|snapshot| is_own(folder, snapshot.totals.pid));
            kept.verbs = kept.verbs.or(own);
        } else if link.as_os_str() == udp.as_str() {
            let read = datagrams::read(&path).ok();
            let own = read.filter(|snapshot| is_own(folder, snapshot.pid));
            kept.udp = kept.udp.or(own);
        } else if link.as_os_str() == tcp.as_str() {
            family = family.or(Shown::open(&path).ok());
        } else if let Some(inode) = link.to_str().and_then(socket_inode) {
            let fd = entry
                .file_name()
                .to_string_lossy()
                .parse()
                .unwrap_or(u32::MAX);
            let lowest = sockets.entry(inode).or_insert(fd);
            *lowest = fd.min(*lowest);
        }
    }
    if let Some(family) = family {
        // One that has ended meanwhile has no sockets.
        kept.tcp = streams::sockets(pid, &family, &sockets).unwrap_or_default();
    }
    Ok(kept)
}

/// The inode in `socket:[4711]`, as the link of a socket's descriptor reads.
fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// Whether the process calls itself `pid`; in a container that is another number than ours.
fn is_own(folder: &Path, pid: u64) -> bool {
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    own_number(&status) == Some(pid)
}

/// The number in the innermost PID namespace, from /proc/PID/status.
fn own_number(status: &str) -> Option<u64> {
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

fn name_of(folder: &Path) -> String {
    let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_a_container_knows_itself_by_its_inner_number() {
        assert_eq!(own_number("Name:\tx\nNSpid:\t4711\t12\n"), Some(12));
        assert_eq!(own_number("NSpid:\t4711\n"), Some(4711));
        assert_eq!(own_number("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_is_among_all() {
        assert!(all().contains(&std::process::id()));
        assert_eq!(
            own_number(&fs::read_to_string("/proc/self/status").unwrap()),
            Some(u64::from(std::process::id()))
        );
    }

    #[test]
    fn a_process_without_weft_is_not_seen() {
        let seen = find(Some(std::process::id()));
        assert!(seen.processes.is_empty() && seen.carrying.is_empty() && seen.streaming.is_empty());
    }
}
