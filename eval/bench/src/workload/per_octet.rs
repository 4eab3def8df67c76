//! What cores did for each octet that arrived: those of each end in its name, and all of them in whosever name.

use crate::exec::Output;
use crate::job::{CLIENT, SERVER};
use crate::metric::{BUSY_PER_OCTET, CPU_PER_OCTET, OPERATIONS};
use crate::record::Metrics;

/// Puts it beside what the client told of messages of `size` octets; what nobody looked at is left out.
pub(super) fn put(metrics: &mut Metrics, output: &Output, size: u64) {
    let Some(messages) = metrics.get(OPERATIONS).filter(|n| **n >= 1.0) else {
        return;
    };
    let each = 1e9 / (messages * size as f64);
    let roles = [
        (SERVER, "server_cpu_ns_octet"),
        (CLIENT, "client_cpu_ns_octet"),
    ];
    let mut both = 0.0;
    for (name, key) in roles {
        let taken = output.roles.iter().map(|role| &role.taken);
        if let Some(role) = taken.into_iter().find(|role| role.role == name) {
            let own = (role.user + role.system) * each;
            metrics.insert(key.to_owned(), own);
            both += own;
        }
    }
    if both > 0.0 {
        metrics.insert(CPU_PER_OCTET.key.to_owned(), both);
    }
    if let Some(machine) = &output.machine {
        let busy: f64 = machine.cores.iter().map(|core| core.busy).sum();
        let busy = (busy - machine.bench).max(0.0);
        metrics.insert(BUSY_PER_OCTET.to_owned(), busy * each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{CoreRecord, MachineRecord};

    #[test]
    fn cores_are_counted_whosever_name_they_work_in_but_the_benchs() {
        let mut output = Output::of(&[(SERVER, ""), (CLIENT, "")]);
        output.roles[0].taken.user = 0.5;
        output.roles[1].taken.system = 1.0;
        let core = |core| CoreRecord {
            core,
            busy: 1.2,
            interrupts: 0.3,
            stolen: 0.0,
        };
        output.machine = Some(MachineRecord {
            seconds: 2.0,
            cores: vec![core(0), core(1)],
            runnable: 1,
            bench: 0.4,
        });
        let mut metrics = Metrics::from([(OPERATIONS.to_owned(), 1e6)]);
        put(&mut metrics, &output, 1000);
        let of = |key: &str| (metrics[key] * 1e6).round() / 1e6;
        assert_eq!(of("server_cpu_ns_octet"), 0.5);
        assert_eq!(of("client_cpu_ns_octet"), 1.0);
        assert_eq!(of("cpu_ns_per_octet"), 1.5);
        assert_eq!(of("busy_ns_octet"), 2.0);
    }

    #[test]
    fn without_a_count_nothing_is_told() {
        let mut metrics = Metrics::new();
        put(&mut metrics, &Output::of_client(""), 1000);
        assert!(metrics.is_empty());
    }
}
