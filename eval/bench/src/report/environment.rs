//! What a run was asked for, and the machine that it ran on.

use super::{beside, heading, list, Format};
use crate::record::{Environment, HostRecord, Run, SlideRecord};

pub(super) fn lines(run: &Run, format: Format) -> String {
    let e = &run.environment;
    let options = &run.options;
    let cores = options.cores.map_or("not pinned".to_owned(), |(s, c)| {
        format!("server on core {s}, client on core {c}")
    });
    let mut lines = vec![
        format!(
            "{}{}",
            run.started,
            if run.interrupted {
                ", INTERRUPTED before the plan was through"
            } else {
                ""
            }
        ),
        format!("{}, {cores}", beside::how_often(options)),
        machine(e),
        format!("Linux {}", e.kernel),
    ];
    lines.extend(
        run.paths
            .iter()
            .flat_map(|path| &path.hosts)
            .filter_map(host),
    );
    lines.extend(run.slide.as_ref().map(SlideRecord::describe));
    if let Some(path) = run.paths.iter().find(|p| !p.sysctls.is_empty()) {
        let of_interest = [
            "net.ipv4.tcp_congestion_control",
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_wmem",
        ];
        let known = of_interest
            .iter()
            .filter_map(|name| Some(format!("{name} = {}", path.sysctls.get(*name)?)));
        lines.push(known.collect::<Vec<_>>().join(", "));
    }
    let tools = e.tools.iter().map(|(name, version)| match version {
        Some(version) => format!("{name}: {version}"),
        None => format!("{name}: not installed"),
    });
    lines.push(tools.collect::<Vec<_>>().join(", "));
    match run.builds.is_empty() {
        true => lines.push(format!(
            "weft {}",
            e.revision.as_deref().unwrap_or("of unknown revision")
        )),
        false => lines.extend(run.builds.iter().map(beside::build)),
    }
    if !e.optimised && run.builds.is_empty() {
        lines.push(
            "BUILT WITHOUT OPTIMISATION: these figures say nothing about Weft or raw TCP"
                .to_owned(),
        );
    }
    heading("Environment", format) + &list(lines, format)
}

/// A host that is a machine of its own, in a line.
fn host(host: &HostRecord) -> Option<String> {
    let e = host.environment.as_ref()?;
    let revision = e.revision.as_deref().unwrap_or("of unknown revision");
    Some(format!(
        "host {} ({}): {}, Linux {}, weft {revision}",
        host.name,
        host.address,
        machine(e),
        e.kernel
    ))
}

/// The machine in a line.
pub(super) fn machine(e: &Environment) -> String {
    let kind = if e.virtual_machine {
        ", virtual machine"
    } else {
        ""
    };
    let governor = e
        .governor
        .as_ref()
        .map(|g| format!(", governor {g}"))
        .unwrap_or_default();
    let load = e
        .load
        .iter()
        .map(f64::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    let memory = e.memory >> 20;
    format!(
        "{}, {} cores{kind}{governor}, {memory} MiB, load at the start {load}",
        e.cpu, e.cores
    )
}
