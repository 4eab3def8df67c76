//! What the cores do while a job runs, in the programs' names or in nobody's.

use std::fs;
use std::time::Instant;

use rustix::param::clock_ticks_per_second;
use rustix::time::{clock_gettime, ClockId};

use crate::record::{CoreRecord, MachineRecord};

/// A look at the clock and at what the cores have done so far.
pub(super) struct Watch {
    at: Instant,
    cores: Vec<Core>,
    /// Seconds of a core that this process has taken.
    own: f64,
}

/// What a core has done since the machine started, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Core {
    number: usize,
    busy: u64,
    interrupts: u64,
    stolen: u64,
}

impl Watch {
    /// Begins to watch; nothing where the kernel does not tell.
    pub(super) fn begin() -> Option<Watch> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        Some(Watch {
            at: Instant::now(),
            cores: cores(&stat),
            own: own(),
        })
    }

    /// What happened since.
    pub(super) fn end(self) -> Option<MachineRecord> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
        let now = cores(&stat);
        let core = |before: &Core| {
            // One that went offline has no line any more.
            let now = now.iter().find(|core| core.number == before.number)?;
            let since = |of: fn(&Core) -> u64| seconds(of(now).saturating_sub(of(before)));
            Some(CoreRecord {
                core: before.number,
                busy: since(|c| c.busy),
                interrupts: since(|c| c.interrupts),
                stolen: since(|c| c.stolen),
            })
        };
        Some(MachineRecord {
            seconds: millis(self.at.elapsed().as_secs_f64()),
            cores: self.cores.iter().filter_map(core).collect(),
            runnable: runnable(&stat)?,
            bench: millis(own() - self.own),
        })
    }
}

/// The lines `cpuN user nice system idle iowait irq softirq steal guest guest_nice`. What guests take is in user.
fn cores(stat: &str) -> Vec<Core> {
    let core = |line: &str| {
        let (name, numbers) = line.split_once(' ')?;
        let number = name.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = numbers
            .split_ascii_whitespace()
            .map_while(|n| n.parse().ok())
            .collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = ticks[..] else {
            return None;
        };
        Some(Core {
            number,
            busy: user + nice + system + irq + softirq,
            interrupts: irq + softirq,
            stolen,
        })
    };
    stat.lines().filter_map(core).collect()
}

fn runnable(stat: &str) -> Option<u64> {
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix("procs_running "))?;
    line.trim().parse().ok()
}

fn own() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn millis(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_busy_with_all_but_waiting_and_what_was_stolen() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 20 300 4000 50000 6 70 800 9 9\nintr 5\nprocs_running 3\n";
        let core = Core {
            number: 0,
            busy: 1 + 20 + 300 + 6 + 70,
            interrupts: 76,
            stolen: 800,
        };
        assert_eq!(cores(stat), [core]);
        assert_eq!(runnable(stat), Some(3));
        assert_eq!(cores("cpu0 1 2 3\ncpux 1 2 3 4 5 6 7 8\n"), []);
    }

    #[test]
    fn this_process_is_seen_to_take_what_it_takes() {
        let watch = Watch::begin().unwrap();
        let (begin, began) = (own(), std::time::Instant::now());
        // Other threads of the process may take time too, on another core.
        while own() - begin < 0.05 || began.elapsed().as_secs_f64() < 0.05 {}
        let machine = watch.end().unwrap();
        assert!(machine.bench >= 0.05 && machine.runnable > 0, "{machine:?}");
        assert!(
            machine.seconds >= 0.05 && !machine.cores.is_empty(),
            "{machine:?}"
        );
    }
}
