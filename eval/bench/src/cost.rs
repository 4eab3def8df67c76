//! What a cell costs: time on cores, switches and faults, for an operation and for an octet, and who else was on the
//! cores meanwhile. Computed anew at every report; never stored.

use crate::metric::{GOODPUT, MESSAGE_RATE, OPERATIONS};
use crate::record::{CellRecord, Outcome, RowRecord, Sample, Subject};
use crate::stats::median;

/// More cores than this that others were busy on, on the average, disturb a sample.
pub const OTHERS_CORES: f64 = 0.15;
/// More cores than this that the hypervisor took disturb a sample.
pub const STOLEN_CORES: f64 = 0.05;

/// Medians over the good samples of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Of all roles together.
    pub total: Part,
    /// Of each role, in the order of their start.
    pub roles: Vec<(String, Part)>,
    /// Time on cores in nobody's name (interrupts) for an operation, µs; none where that is not known.
    pub interrupts_us: Option<f64>,
    /// CPU of all roles for an octet, ns; none where there are none to count.
    pub per_octet_ns: Option<f64>,
}

/// What one role costs, or all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Cores that it was busy on, on the average of its life.
    pub cores: f64,
    /// What part of that was in the kernel.
    pub in_kernel: f64,
    /// CPU for an operation, µs; none where it is not known how many there were.
    pub per_operation_us: Option<f64>,
    /// Voluntary and forced context switches for an operation.
    pub switches: Option<f64>,
    /// Page faults for an operation.
    pub faults: Option<f64>,
}

/// Who else was on the cores while a sample was taken, in cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Programs of others, and the kernel's own threads.
    pub others: f64,
    /// The hypervisor, for other machines.
    pub stolen: f64,
}

impl Load {
    /// Of a sample; none where nobody looked.
    pub fn of(sample: &Sample) -> Option<Load> {
        let machine = sample.machine.as_ref()?;
        let seconds = machine.seconds.max(1e-3);
        let sum =
            |of: fn(&crate::record::CoreRecord) -> f64| machine.cores.iter().map(of).sum::<f64>();
        let roles: f64 = sample
            .roles
            .iter()
            .map(|role| role.user + role.system)
            .sum();
        let others = sum(|core| core.busy - core.interrupts) - roles - machine.bench;
        Some(Load {
            others: others.max(0.0) / seconds,
            stolen: sum(|core| core.stolen) / seconds,
        })
    }

    /// Whether it is too much to pass over in silence.
    pub fn disturbs(&self) -> bool {
        self.others > OTHERS_CORES || self.stolen > STOLEN_CORES
    }
}

/// Samples of a cell that others disturbed.
pub fn disturbed(cell: &CellRecord) -> usize {
    let loads = cell.samples.iter().filter_map(Load::of);
    loads.filter(Load::disturbs).count()
}

/// What a cell costs; none where nobody looked.
pub fn of(row: &RowRecord, cell: &CellRecord, cell_seconds: Option<u32>) -> Option<Cost> {
    let good: Vec<&Sample> = cell
        .samples
        .iter()
        .filter(|s| !s.roles.is_empty())
        .collect();
    let first = good.first()?;
    let operations: Vec<Option<f64>> = good
        .iter()
        .map(|sample| operations(row, sample, cell_seconds))
        .collect();
    let over = |value: &dyn Fn(&Sample) -> f64| -> Option<f64> {
        let each = good.iter().zip(&operations);
        let all: Option<Vec<f64>> = each.map(|(s, n)| Some(value(s) / (*n)?)).collect();
        median(&all?)
    };
    let names: Vec<String> = first.roles.iter().map(|role| role.role.clone()).collect();
    let roles = names
        .into_iter()
        .filter_map(|name| Some((name.clone(), part(&good, Some(&name), &over)?)))
        .collect();
    let total = part(&good, None, &over)?;
    let octets = size(row);
    Some(Cost {
        per_octet_ns: total
            .per_operation_us
            .zip(octets)
            .map(|(us, octets)| us * 1e3 / octets),
        interrupts_us: over(&|s| {
            let machine = s.machine.iter().flat_map(|m| &m.cores);
            machine.map(|core| core.interrupts).sum::<f64>() * 1e6
        }),
        total,
        roles,
    })
}

/// The median over the samples of what a function gives, for an operation.
type Over<'a> = dyn Fn(&dyn Fn(&Sample) -> f64) -> Option<f64> + 'a;

fn part(good: &[&Sample], name: Option<&str>, over: &Over) -> Option<Part> {
    let sum = |sample: &Sample, of: &dyn Fn(&crate::record::RoleRecord) -> f64| -> f64 {
        let roles = sample.roles.iter();
        roles
            .filter(|r| name.is_none_or(|n| n == r.role))
            .map(of)
            .sum()
    };
    let cpu = |s: &Sample| sum(s, &|r| r.user + r.system);
    let lived = |s: &Sample| {
        let roles = s.roles.iter().filter(|r| name.is_none_or(|n| n == r.role));
        roles.map(|r| r.lived).fold(1e-6, f64::max)
    };
    let of_each = |value: &dyn Fn(&Sample) -> f64| {
        median(&good.iter().map(|s| value(s)).collect::<Vec<f64>>())
    };
    Some(Part {
        cores: of_each(&|s| cpu(s) / lived(s))?,
        in_kernel: of_each(&|s| sum(s, &|r| r.system) / cpu(s).max(1e-6))?,
        per_operation_us: over(&|s| cpu(s) * 1e6),
        switches: over(&|s| sum(s, &|r| (r.voluntary_switches + r.forced_switches) as f64)),
        faults: over(&|s| sum(s, &|r| (r.minor_faults + r.major_faults) as f64)),
    })
}

/// How many operations a sample is of: as its program counted them, else by the rate over the time that it was meant
/// to measure.
fn operations(row: &RowRecord, sample: &Sample, cell_seconds: Option<u32>) -> Option<f64> {
    let Outcome::Metrics(metrics) = &sample.outcome else {
        return None;
    };
    let by_rate = || {
        let seconds = f64::from(cell_seconds?);
        let rate = metrics.get(MESSAGE_RATE.key).copied();
        let by_goodput = || Some(metrics.get(GOODPUT.key)? * 1e9 / 8.0 / size(row)?);
        // A latency is measured for as many round trips as its program was told, not for a time.
        let timed = [GOODPUT, MESSAGE_RATE].contains(&row.metric);
        timed
            .then(|| rate.or_else(by_goodput))?
            .map(|rate| rate * seconds)
    };
    let counted = metrics.get(OPERATIONS).copied();
    counted.or_else(by_rate).filter(|n| *n >= 1.0)
}

/// Octets of an operation.
fn size(row: &RowRecord) -> Option<f64> {
    match &row.workload {
        Subject::Verbs(verbs) => verbs.size().map(|octets| octets as f64),
        Subject::Named { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{CoreRecord, MachineRecord, RoleRecord};
    use crate::summary::tests::{cell_of, row_of};
    use crate::verbs::{Mode, Op, Verbs};

    const BULK: Verbs = Verbs::Bulk {
        op: Op::Write,
        size: 1000,
        mode: Mode::Polling,
    };

    fn role(name: &str, user: f64, system: f64) -> RoleRecord {
        RoleRecord {
            role: name.to_owned(),
            lived: 2.0,
            user,
            system,
            voluntary_switches: 3000,
            forced_switches: 1000,
            minor_faults: 500,
            major_faults: 0,
            peak_octets: 1,
        }
    }

    fn machine(busy: f64, interrupts: f64, stolen: f64) -> MachineRecord {
        let core = |core| CoreRecord {
            core,
            busy,
            interrupts,
            stolen,
        };
        MachineRecord {
            seconds: 2.0,
            cores: vec![core(0), core(1)],
            runnable: 3,
            bench: 0.1,
        }
    }

    fn row(metric: &str, value: f64) -> RowRecord {
        let mut cell = cell_of("raw-tcp", metric, &[Some(value)]);
        cell.samples[0].roles = vec![role("server", 0.25, 0.75), role("client", 0.5, 0.5)];
        cell.samples[0].machine = Some(machine(1.1, 0.05, 0.0));
        row_of("loopback", BULK, vec![cell])
    }

    #[test]
    fn cost_is_for_what_was_done() {
        // 8 Gbit/s for two seconds are two million operations of a thousand octets.
        let row = row("goodput_gbit_s", 8.0);
        let cost = of(&row, &row.cells[0], Some(2)).unwrap();
        assert_eq!(cost.total.per_operation_us, Some(1.0));
        assert_eq!(cost.per_octet_ns, Some(1.0));
        assert_eq!(cost.total.switches, Some(8000.0 / 2e6));
        assert_eq!(cost.interrupts_us, Some(0.05));
        let (name, server) = &cost.roles[0];
        assert_eq!(
            (name.as_str(), server.cores, server.in_kernel),
            ("server", 0.5, 0.75)
        );
        assert_eq!(server.per_operation_us, Some(0.5));
        // Without the time there is no count, and the rest stands.
        let cost = of(&row, &row.cells[0], None).unwrap();
        assert_eq!((cost.total.per_operation_us, cost.total.cores), (None, 1.0));
    }

    #[test]
    fn what_the_program_counted_goes_before_an_estimate() {
        let mut row = row("goodput_gbit_s", 8.0);
        let Outcome::Metrics(metrics) = &mut row.cells[0].samples[0].outcome else {
            panic!("it has metrics");
        };
        metrics.insert(OPERATIONS.to_owned(), 4e6);
        let cost = of(&row, &row.cells[0], Some(2)).unwrap();
        assert_eq!(cost.total.per_operation_us, Some(0.5));
    }

    #[test]
    fn others_are_what_the_cores_did_beyond_the_programs_the_bench_and_interrupts() {
        let mut row = row("goodput_gbit_s", 8.0);
        // 2.2 busy, less 0.1 in interrupts, 2.0 by the roles and 0.1 by the bench.
        let sample = &mut row.cells[0].samples[0];
        let load = Load::of(sample).unwrap();
        assert!(load.others < 1e-9 && !load.disturbs(), "{load:?}");
        sample.machine = Some(machine(1.4, 0.05, 0.0));
        let load = Load::of(sample).unwrap();
        assert!(
            (load.others - 0.3).abs() < 1e-9 && load.disturbs(),
            "{load:?}"
        );
        sample.machine = Some(machine(1.1, 0.05, 0.1));
        assert!(Load::of(sample).unwrap().disturbs());
        assert_eq!(disturbed(&row.cells[0]), 1);
        row.cells[0].samples[0].machine = None;
        assert_eq!(disturbed(&row.cells[0]), 0);
    }
}
