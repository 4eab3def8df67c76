//! Messages one way over an emulated link, each with the times at which it was given away and at which it was there: a
//! small C program, on plain sockets, on Weft over the kernel's TCP, or on Weft with a TCP of its own.

use std::path::PathBuf;

use anyhow::{bail, Result};

use super::adapters::beside;
use super::compiled::{Source, CC};
use super::{on_off, Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::{adapter, Host, PathKind};
use crate::record::Metrics;
use crate::verbs::Verbs;

const SOURCE: Source = Source {
    name: "transfer",
    compiler: CC,
    text: include_str!("../../c/transfer.c"),
    libraries: &["-lrdmacm", "-libverbs", "-lpthread"],
};

/// Name of plain sockets.
pub const SOCKETS: &str = "sockets";
/// Name of Weft over the kernel's TCP.
pub const ON_KERNEL_TCP: &str = "weft on kernel TCP";
/// Name of an adapter that places what it receives in the order of the stream.
pub const IN_ORDER: &str = "weft inline in order";
/// Name of an adapter that places what it receives as it comes.
pub const AS_IT_COMES: &str = "weft inline out of order";

/// Name of one that sends at a fixed rate, as rows want it.
pub const AT_A_RATE: &str = "weft inline at a rate";
/// Name of one that does so and places in the order of the stream.
pub const AT_A_RATE_IN_ORDER: &str = "weft inline at a rate, in order";

/// What the messages go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// The kernel's TCP, by a program of sockets.
    Sockets,
    /// The kernel's TCP under Weft.
    Kernel,
    /// A TCP of Weft's own at both ends, with this placement.
    Inline { place: &'static str },
    /// The same, for rows that have it send at a rate.
    Rate { place: &'static str },
}

/// What is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Octets of a message.
    pub size: u64,
    /// Messages under way at most; plain sockets have what their buffers hold.
    pub depth: u32,
    /// Connections at once.
    pub connections: u16,
    /// Rules by which adapters send, of the client and of the server.
    pub tcp: [String; 2],
    /// Beyond half of the time the first connection sends by this.
    pub then: Option<String>,
}

/// The program over one of them.
pub(super) struct Transferring {
    weft: Weft,
    scratch: PathBuf,
    carrier: Carrier,
}

impl Transferring {
    pub(super) fn new(programs: &Programs, carrier: Carrier) -> Transferring {
        Transferring {
            weft: programs.weft.clone(),
            scratch: programs.scratch.clone(),
            carrier,
        }
    }

    /// The program under what carries it, and the address that it has at this host.
    fn side(&self, host: &Host, tcp: &str) -> (Invocation, String) {
        let program = SOURCE.program(&self.scratch);
        let none = [""; 0];
        let kernel = host.address.to_string();
        let (program, address) = match self.carrier {
            Carrier::Sockets => {
                return (Invocation::new(program, none).args(["-k"]), kernel);
            }
            Carrier::Kernel => (self.weft.run(&[]), kernel),
            Carrier::Inline { place } | Carrier::Rate { place } => {
                let address = beside(host);
                let options = [
                    "--adapter=inline".to_owned(),
                    format!("--interface=packet:{}", host.side.interface),
                    format!("--address={address}/24"),
                    format!("--place={place}"),
                    format!("--tcp={tcp}"),
                ];
                let options: Vec<&str> = options
                    .iter()
                    .map(String::as_str)
                    .filter(|option| !option.ends_with('='))
                    .collect();
                (self.weft.run(&options), address.to_string())
            }
        };
        let stat = format!(
            "env -u LD_PRELOAD -u LD_LIBRARY_PATH {} stat --json",
            self.weft.command.display()
        );
        // Two processes of one machine would have memory between them, and not the link.
        let program = program
            .args([SOURCE.program(&self.scratch)])
            .env("WEFT_CRC", on_off(false))
            .env("WEFT_SAME_HOST", "off")
            .env("TRANSFER_STAT", stat);
        (program, address)
    }
}

impl Stack for Transferring {
    fn name(&self) -> String {
        match self.carrier {
            Carrier::Sockets => SOCKETS,
            Carrier::Kernel => ON_KERNEL_TCP,
            Carrier::Inline { place: "in-order" } => IN_ORDER,
            Carrier::Inline { .. } => AS_IT_COMES,
            Carrier::Rate { place: "in-order" } => AT_A_RATE_IN_ORDER,
            Carrier::Rate { .. } => AT_A_RATE,
        }
        .to_owned()
    }

    fn serves(&self, _: &Verbs, _: PathKind) -> bool {
        false
    }

    fn ready(&self) -> Result<()> {
        self.weft.ready()?;
        SOURCE.compile(&self.scratch)
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let none = || Invocation::new(SOURCE.program(&self.scratch), [""; 0]);
        site.job(workload, none(), none())
    }

    fn parse(&self, workload: &Verbs, _: &Output) -> Result<Metrics> {
        bail!("this program does not measure {}", workload.id())
    }

    fn transfer(&self, what: &Transfer, site: &Site) -> Option<(&Weft, [Invocation; 2])> {
        let words = |program: Invocation, own: &[String]| {
            let ports = (0..what.connections).map(|number| (site.port + number).to_string());
            program
                .args([format!("-s{}", what.size), format!("-d{}", what.depth)])
                .args(own)
                .args(ports)
        };
        let [at_client, at_server] = &what.tcp;
        let (server, address) = self.side(site.place.host(adapter::RECEIVER), at_server);
        let (client, _) = self.side(site.place.host(adapter::SENDER), at_client);
        let time = format!("-t{}", site.seconds);
        let mut own = vec![format!("-c{address}"), time.clone()];
        own.extend(what.then.iter().map(|policy| format!("-p{policy}")));
        Some((&self.weft, [words(server, &[time]), words(client, &own)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Side;
    use crate::path::Place;

    #[test]
    fn both_ends_of_an_adapter_have_the_link_and_addresses_of_their_own() {
        let host = |name: &str, address: &str| Host {
            name: name.to_owned(),
            side: Side {
                namespace: None,
                interface: format!("if-{name}"),
            },
            address: address.parse().unwrap(),
            far: None,
        };
        let place = Place {
            hosts: ["server", "receiver", "middle", "sender", "client"]
                .iter()
                .enumerate()
                .map(|(number, name)| host(name, &format!("192.0.2.{}", number + 1)))
                .collect(),
            cores: None,
            round_trip_us: 0.0,
        };
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 20,
        };
        let programs = Programs {
            bench: ("/opt/weft".into(), vec!["bench".into()]),
            weft: Weft::new("/opt/weft"),
            scratch: "/tmp".into(),
        };
        let what = Transfer {
            size: 1000,
            depth: 4,
            connections: 2,
            tcp: ["rate=1Gbit".to_owned(), String::new()],
            then: None,
        };
        let of = |carrier| {
            let stack = Transferring::new(&programs, carrier);
            let (_, pair) = stack.transfer(&what, &site).unwrap();
            pair.map(|program| program.display())
        };
        assert_eq!(
            of(Carrier::Sockets),
            [
                "transfer -k -s1000 -d4 -t20 7000 7001",
                "transfer -k -s1000 -d4 -c192.0.2.2 -t20 7000 7001"
            ]
        );
        let [server, client] = of(Carrier::Inline { place: "safe" });
        assert!(
            server.contains(
                "--interface=packet:if-receiver --address=192.0.2.130/24 --place=safe -- transfer"
            ),
            "{server}"
        );
        assert!(
            client.contains("--place=safe --tcp=rate=1Gbit -- transfer"),
            "{client}"
        );
        assert!(client.ends_with("-c192.0.2.130 -t20 7000 7001"), "{client}");
        for side in of(Carrier::Kernel) {
            assert!(side.contains("WEFT_SAME_HOST=off"), "{side}");
        }
    }
}
