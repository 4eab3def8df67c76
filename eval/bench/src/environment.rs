//! What the machine is and what is installed on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::installed::on_path;
use crate::record::Environment;

const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

/// Programs whose figures a record may hold: name, argument, and a word of the line that has the
/// version.
const TOOLS: [(&str, &str, &str); 5] = [
    ("iperf3", "--version", "iperf"),
    ("ib_send_lat", "--version", "Version"),
    ("fi_info", "--version", "libfabric:"),
    ("ucx_info", "-v", "ersion"),
    ("valgrind", "--version", "valgrind"),
];

/// Reads the environment; whatever cannot be read is empty.
pub fn read() -> Environment {
    let cpuinfo = text("/proc/cpuinfo");
    Environment {
        kernel: [
            text("/proc/sys/kernel/osrelease"),
            text("/proc/sys/kernel/version"),
        ]
        .join(" "),
        cpu: field(&cpuinfo, "model name").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        governor: Some(text(GOVERNOR)).filter(|g| !g.is_empty()),
        virtual_machine: field(&cpuinfo, "flags")
            .is_some_and(|f| f.split(' ').any(|flag| flag == "hypervisor")),
        mitigations: mitigations(),
        load: text("/proc/loadavg")
            .split(' ')
            .take(3)
            .filter_map(|w| w.parse().ok())
            .collect(),
        memory: memory(&text("/proc/meminfo")),
        // This executable was built there, as far as its place on disk tells.
        revision: std::env::current_exe()
            .ok()
            .and_then(|exe| revision_at(exe.parent()?)),
        optimised: !cfg!(debug_assertions),
        root: rustix::process::geteuid().is_root(),
        tools: TOOLS
            .iter()
            .map(|(name, arg, word)| ((*name).to_owned(), version(name, arg, word)))
            .collect(),
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, v)| v.trim().to_owned())
}

fn memory(meminfo: &str) -> u64 {
    let kibibytes =
        field(meminfo, "MemTotal").and_then(|v| v.split(' ').next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

fn mitigations() -> BTreeMap<String, String> {
    let entries = fs::read_dir(VULNERABILITIES)
        .into_iter()
        .flatten()
        .flatten();
    entries
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                text(&entry.path().to_string_lossy()),
            )
        })
        .filter(|(_, state)| !state.is_empty() && state != "Not affected")
        .collect()
}

/// The revision of the source tree that `folder` lies in, as far as git tells.
pub fn revision_at(folder: &Path) -> Option<String> {
    let head = git(folder, &["rev-parse", "--short=12", "HEAD"])?;
    let dirty = git(folder, &["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|s| !s.is_empty());
    Some(if dirty { format!("{head}-dirty") } else { head })
}

fn git(folder: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(args)
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn version(program: &str, arg: &str, word: &str) -> Option<String> {
    if !on_path(program) {
        return None;
    }
    let output = Command::new(program).arg(arg).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| line.contains(word))?;
    Some(line.trim_start_matches(['#', ' ']).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_a_cpu_and_memory() {
        let e = read();
        assert!(
            !e.kernel.is_empty() && e.cores > 0 && e.memory > 1 << 20 && e.load.len() == 3,
            "{e:?}"
        );
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemFree:  1 kB\nMemTotal:       2048 kB\n";
        assert_eq!(field(text, "MemTotal").as_deref(), Some("2048 kB"));
        assert_eq!(memory(text), 2 << 20);
        assert_eq!(field(text, "Mem"), None);
    }

    #[test]
    fn a_program_that_is_not_there_has_no_version() {
        assert_eq!(version("no-such-program-here", "-v", ""), None);
    }
}
