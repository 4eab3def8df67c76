//! What workloads of sockets have in common: the bench's own program, at two ends or with many clients.

use anyhow::{Context, Result};

use crate::exec::Output;
use crate::job::{Invocation, Job, Ready, Role, Seat, SERVER};
use crate::metric::{GOODPUT, OPERATIONS};
use crate::record::Metrics;
use crate::stack::{Program, Site, Stack};

/// Octets of a message in rows of throughput.
pub(super) const MESSAGE: u64 = 64 << 10;

/// A server and many clients of it, each a program of its own. `program` are the words of [`crate::raw`] that all of
/// them have.
pub(super) fn one_to_many(stack: &dyn Stack, site: &Site, clients: u32, program: &[String]) -> Job {
    let clients_of_server = [format!("--clients={clients}")];
    let server = side(stack, site, "--listen", &clients_of_server, program);
    let client = side(stack, site, "--connect", &[], program);
    many(site, clients, server, &client)
}

/// The same on a stack that tells what DDP costs programs of sockets.
pub(super) fn carried_many(
    stack: &dyn Stack,
    site: &Site,
    clients: u32,
    program: &[String],
) -> Job {
    let clients_of_server = [format!("--clients={clients}")];
    let side = |seat, role: &str, options: &[String]| {
        let words = words(site, role, options, program);
        carried(stack, seat, Program::Bench(&words))
    };
    let server = side(Seat::Server, "--listen", &clients_of_server);
    let client = side(Seat::Client, "--connect", &[]);
    many(site, clients, server, &client)
}

fn many(site: &Site, clients: u32, server: Invocation, client: &Invocation) -> Job {
    let server = Role {
        name: SERVER.to_owned(),
        host: 0,
        seat: Seat::Server,
        program: server,
        ready: Ready::Listens(site.port),
        measures: false,
        told_to_end: false,
    };
    let last = site.place.hosts.len() - 1;
    let client = |number: u32| Role {
        name: client_name(number),
        host: last,
        seat: Seat::Client,
        program: client.clone(),
        ready: Ready::AtOnce,
        measures: true,
        told_to_end: false,
    };
    Job {
        roles: std::iter::once(server)
            .chain((1..=clients).map(client))
            .collect(),
        pinned: true,
        timeout: site.timeout(),
    }
}

/// Whether a stack is one of those that tell what DDP costs programs of sockets.
pub(super) fn carries(stack: &dyn Stack) -> bool {
    stack.carry(Seat::Server, Program::Bench(&[])).is_some()
}

/// A server and its client, both the bench's own program, brought onto such a stack. `program` are the words of
/// [`crate::raw`] that both have.
pub(super) fn carried_pair(stack: &dyn Stack, site: &Site, program: &[String]) -> Job {
    let side = |seat, role: &str| {
        let words = words(site, role, &[], program);
        carried(stack, seat, Program::Bench(&words))
    };
    Job {
        timeout: site.timeout(),
        ..Job::pair(
            side(Seat::Server, "--listen"),
            side(Seat::Client, "--connect"),
            site.port,
            site.place.hosts.len(),
        )
    }
}

/// A program, brought onto such a stack.
pub(super) fn carried(stack: &dyn Stack, seat: Seat, program: Program) -> Invocation {
    stack
        .carry(seat, program)
        .expect("a stack that serves the workload carries its programs")
}

/// Name of a client, counted from 1.
pub(super) fn client_name(number: u32) -> String {
    format!("client-{number}")
}

/// One side of the program, brought onto the stack.
pub(super) fn side(
    stack: &dyn Stack,
    site: &Site,
    role: &str,
    options: &[String],
    program: &[String],
) -> Invocation {
    stack
        .launch(&words(site, role, options, program))
        .expect("a stack that serves the workload launches its program")
}

/// The words of one side of the program.
fn words(site: &Site, role: &str, options: &[String], program: &[String]) -> Vec<String> {
    let at = [
        "raw".to_owned(),
        role.to_owned(),
        site.address().to_string(),
    ];
    [&at[..], options, program].concat()
}

/// What so many clients moved together, and in how many operations.
pub(super) fn moved_together(output: &Output, clients: u32) -> Result<Metrics> {
    let mut sums = Metrics::new();
    for number in 1..=clients {
        let name = client_name(number);
        let metrics = printed(output.role(&name), &name)?;
        for key in [GOODPUT.key, OPERATIONS] {
            let own = metrics.get(key).copied();
            let own = own.with_context(|| format!("{name} printed no {key}"))?;
            *sums.entry(key.to_owned()).or_default() += own;
        }
    }
    Ok(sums)
}

/// What a client printed.
pub(super) fn printed(text: &str, who: &str) -> Result<Metrics> {
    serde_json::from_str(text).with_context(|| format!("{who} printed no metrics"))
}
