//! What lies under verbs on an adapter, by the bench's own program: what its device takes, and what its TCP takes.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::adapters::beside;
use super::{Programs, Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job, Ready, CLIENT, SERVER};
use crate::path::{Host, PathKind};
use crate::record::Metrics;
use crate::verbs::{Mode, Op, Verbs};

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// Frames alone.
    Device,
    /// Octets of a stream, without verbs.
    Tcp,
}

/// Octets that a message of verbs has around it: MPA's length and CRC (2 and 4) and the header of an untagged DDP
/// segment (18), in a stream.
const IN_STREAM: u64 = 24;
/// And in a frame: Ethernet (14), IPv4 (20), and TCP with time stamps (32).
const IN_FRAME: u64 = IN_STREAM + 66;

/// The program that looks at one.
pub(super) struct Probe {
    bench: (PathBuf, Vec<OsString>),
    layer: Layer,
}

impl Probe {
    pub(super) fn new(programs: &Programs, layer: Layer) -> Probe {
        Probe {
            bench: programs.bench.clone(),
            layer,
        }
    }

    fn side(&self, workload: &Verbs, site: &Site, host: &Host, own: Option<u64>) -> Invocation {
        let size = workload.size().unwrap_or_default();
        let interface = &host.side.interface;
        let (around, words) = match self.layer {
            Layer::Device => (
                IN_FRAME,
                vec!["device".to_owned(), format!("--interface={interface}")],
            ),
            Layer::Tcp => {
                let server = beside(site.place.server());
                let address = beside(host);
                (
                    IN_STREAM,
                    vec![
                        "tcp".to_owned(),
                        format!("--interface=packet:{interface} address={address}/24"),
                        format!("--server={server}:{}", site.port),
                    ],
                )
            }
        };
        let iterations = own.map(|count| format!("--iterations={count}"));
        Invocation::new(&self.bench.0, &self.bench.1)
            .args(["probe".to_owned(), format!("--size={}", size + around)])
            .args(iterations)
            .args(words)
    }
}

impl Stack for Probe {
    fn name(&self) -> String {
        match self.layer {
            Layer::Device => "inline, frames alone",
            Layer::Tcp => "inline, TCP alone",
        }
        .to_owned()
    }

    fn serves(&self, workload: &Verbs, path: PathKind) -> bool {
        let telling = matches!(
            workload,
            Verbs::Latency {
                op: Op::Send,
                mode: Mode::Polling,
                pinned: true,
                ..
            }
        );
        path == PathKind::Adapter && telling
    }

    fn beside_adapters(&self) -> bool {
        true
    }

    fn ready(&self) -> Result<()> {
        Ok(())
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let count = match *workload {
            Verbs::Latency {
                op,
                size,
                mode,
                pinned,
            } => site.round_trips(op, size, mode, pinned),
            _ => 0,
        };
        let server = self.side(workload, site, site.place.server(), None);
        let client = self.side(workload, site, site.place.client(), Some(count));
        let mut job = site.job(workload, server, client);
        for role in &mut job.roles {
            match role.name.as_str() {
                SERVER => {
                    role.ready = Ready::Says("ready".to_owned());
                    role.told_to_end = true;
                }
                CLIENT => role.ready = Ready::AtOnce,
                _ => {}
            }
        }
        job
    }

    fn parse(&self, _: &Verbs, output: &Output) -> Result<Metrics> {
        serde_json::from_str(output.client()).context("the probe printed no metrics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Side;
    use crate::path::Place;

    #[test]
    fn each_layer_has_as_many_octets_as_a_message_of_verbs_has_there() {
        let host = |interface: &str, address: &str| Host {
            name: interface.to_owned(),
            side: Side {
                namespace: None,
                interface: interface.to_owned(),
            },
            address: address.parse().unwrap(),
            far: None,
        };
        let place = Place {
            hosts: vec![host("weft-s", "192.0.2.1"), host("weft-c", "192.0.2.2")],
            cores: None,
            round_trip_us: 0.0,
        };
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 1,
        };
        let programs = Programs {
            bench: ("/opt/weft".into(), vec!["bench".into()]),
            weft: super::super::Weft::new("/opt/weft"),
            scratch: "/tmp".into(),
        };
        let send = Verbs::Latency {
            op: Op::Send,
            size: 64,
            mode: Mode::Polling,
            pinned: true,
        };
        let of = |layer| {
            let job = Probe::new(&programs, layer).job(&send, &site);
            [SERVER, CLIENT].map(|role| job.program(role).unwrap().display())
        };
        let [server, client] = of(Layer::Device);
        assert_eq!(
            server,
            "weft bench probe --size=154 device --interface=weft-s"
        );
        assert!(
            client.starts_with("weft bench probe --size=154 --iterations="),
            "{client}"
        );
        let [server, client] = of(Layer::Tcp);
        assert_eq!(
            server,
            "weft bench probe --size=88 tcp --interface=packet:weft-s address=192.0.2.129/24 --server=192.0.2.129:7000"
        );
        assert!(
            client.ends_with("address=192.0.2.130/24 --server=192.0.2.129:7000"),
            "{client}"
        );
    }
}
