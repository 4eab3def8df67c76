//! Questions between machines: two network namespaces with a veth pair, or with a router between.
//!
//! They take root and `ip`; without, each test says that it is skipped.

mod common;

use std::process::Command;

use common::role::Role;

/// The port of every namespace: nobody else is there.
const UDP: u16 = 22_342;

/// Not a test by itself: what the other processes do.
#[test]
fn role() {
    common::role::play();
}

/// Namespaces that go with this object.
struct Network {
    prefix: String,
    names: Vec<String>,
}

fn ip(words: &str) -> Result<(), String> {
    let done = Command::new("ip").args(words.split(' ')).output();
    let done = done.map_err(|error| format!("ip: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {words}: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        )),
    }
}

impl Network {
    /// Nothing, said aloud, where namespaces cannot be made.
    fn new(label: &str) -> Option<Network> {
        let mut network = Network {
            prefix: format!("weft-disc-{}-{label}", std::process::id()),
            names: Vec::new(),
        };
        match network.add("probe") {
            Ok(()) => Some(network),
            Err(why) => {
                eprintln!("skipped: no network namespaces here ({why})");
                None
            }
        }
    }

    fn add(&mut self, label: &str) -> Result<(), String> {
        let name = self.name(label);
        ip(&format!("netns add {name}"))?;
        self.names.push(name.clone());
        ip(&format!("-n {name} link set lo up"))
    }

    fn name(&self, label: &str) -> String {
        format!("{}-{label}", self.prefix)
    }

    /// Runs `ip` in a namespace.
    fn ip(&self, label: &str, words: &str) {
        ip(&format!("-n {} {words}", self.name(label))).unwrap();
    }

    /// A veth pair between two namespaces, with these devices and addresses.
    fn join(&self, one: (&str, &str, &[&str]), other: (&str, &str, &[&str])) {
        let [(here, device, _), (there, device_there, _)] = [one, other];
        let (here, there) = (self.name(here), self.name(there));
        ip(&format!(
            "link add {device} netns {here} type veth peer name {device_there} netns {there}"
        ))
        .unwrap();
        for (label, device, addresses) in [one, other] {
            for address in addresses {
                let nodad = if address.contains(':') { " nodad" } else { "" };
                self.ip(label, &format!("address add {address} dev {device}{nodad}"));
            }
            self.ip(label, &format!("link set {device} up"));
        }
    }

    /// A command in a namespace; whether it went well.
    fn run(&self, label: &str, words: &str) -> Result<(), String> {
        ip(&format!("netns exec {} {words}", self.name(label)))
    }

    fn role(&self, label: &str, role: &str) -> Role {
        Role::start(&["ip", "netns", "exec", &self.name(label)], role)
    }

    /// A server at this address and port, in the namespace `server`.
    fn serve(&self, at: &str) -> Role {
        let mut role = self.role("server", &format!("server {UDP} {at}"));
        role.hear("at:");
        role
    }

    /// Whether a client in a namespace that connects to this address is told yes. It waits for long: nobody wants to
    /// know here how busy the machine is.
    fn ask(&self, label: &str, to: &str) -> bool {
        self.role(label, &format!("patient {UDP} {to}"))
            .hear("said:")
            == "true"
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

/// Two machines, with addresses of both families.
fn two_machines(label: &str) -> Option<Network> {
    let mut network = Network::new(label)?;
    network.add("client").unwrap();
    network.add("server").unwrap();
    network.join(
        (
            "client",
            "eth0",
            &["192.0.2.1/24", "2001:db8::1/64", "fe80::1:1/64"],
        ),
        (
            "server",
            "eth0",
            &["192.0.2.2/24", "2001:db8::2/64", "fe80::1:2/64"],
        ),
    );
    Some(network)
}

#[test]
fn machines_ask_each_other_by_every_sort_of_address() {
    let Some(network) = two_machines("sorts") else {
        return;
    };
    for (listens, asks) in [
        ("192.0.2.2:80", "192.0.2.2:80"),
        ("0.0.0.0:81", "192.0.2.2:81"),
        ("[::]:82", "192.0.2.2:82"),
        ("[::]:83", "[::ffff:192.0.2.2]:83"),
        ("[2001:db8::2]:84", "[2001:db8::2]:84"),
        ("[::]:85", "[2001:db8::2]:85"),
        // The index of the device is its number in each namespace: 2, behind lo.
        ("[::]:86", "[fe80::1:2%2]:86"),
        ("[fe80::1:2%2]:87", "[fe80::1:2%2]:87"),
    ] {
        let _server = network.serve(listens);
        assert!(network.ask("client", asks), "{asks} at {listens}");
    }
}

#[test]
fn a_network_that_drops_questions_costs_a_moment() {
    let Some(network) = two_machines("drops") else {
        return;
    };
    let _server = network.serve("192.0.2.2:80");
    // Before the rule that delivers to this machine itself.
    let rules = [
        "rule add pref 100 lookup local",
        "rule delete pref 0",
        "rule add pref 10 ipproto udp dport 22342 blackhole",
    ];
    for rule in rules {
        network.ip("server", rule);
    }
    let mut client = network.role("client", &format!("prompt {UDP} 192.0.2.2:80"));
    assert_eq!(client.hear("said:"), "false");
    let ms: u64 = client.hear("milliseconds:").parse().unwrap();
    // A machine that stands still adds to it.
    assert!((5..2000).contains(&ms), "{ms} ms");
    network.ip("server", "rule delete pref 10");
    assert!(
        network.ask("client", "192.0.2.2:80"),
        "where they pass there is an answer"
    );
}

/// A router that gives the server another address: the client connects to 192.0.2.9, and the server sees 198.51.100.2.
#[test]
fn nobody_answers_through_a_translator() {
    let Some(mut network) = Network::new("nat") else {
        return;
    };
    for label in ["client", "router", "server"] {
        network.add(label).unwrap();
    }
    network.join(
        ("client", "eth0", &["192.0.2.1/24"]),
        ("router", "in", &["192.0.2.254/24"]),
    );
    network.join(
        ("server", "eth0", &["198.51.100.2/24"]),
        ("router", "out", &["198.51.100.254/24"]),
    );
    network.ip("client", "route add default via 192.0.2.254");
    network.ip("server", "route add default via 198.51.100.254");
    network
        .run("router", "sysctl -qw net.ipv4.ip_forward=1")
        .unwrap();
    // The client takes the address for one on its network, and the router answers for it.
    network.ip("router", "neigh add proxy 192.0.2.9 dev in");
    let (outer, inner) = ("192.0.2.9/32", "198.51.100.2/32");
    let filter = "tc filter add dev in";
    let nat = [
        "tc qdisc add dev in clsact".to_owned(),
        format!("{filter} ingress protocol ip u32 match ip dst {outer} action nat ingress {outer} 198.51.100.2"),
        format!("{filter} egress protocol ip u32 match ip src {inner} action nat egress {inner} 192.0.2.9"),
    ];
    if let Some(why) = nat
        .iter()
        .find_map(|words| network.run("router", words).err())
    {
        eprintln!("skipped: this kernel translates no addresses for us ({why})");
        return;
    }
    let mut server = network.serve("0.0.0.0:80");
    let is_weft = network.ask("client", "192.0.2.9:80");
    assert!(
        !is_weft,
        "the names of the question are not those that the server sees"
    );
    assert_eq!(server.ask("answered"), "0");
    // Without the translator the way is open.
    assert!(network.ask("client", "198.51.100.2:80"));
}

#[test]
fn namespaces_with_the_same_ports_are_machines_of_their_own() {
    let Some(network) = two_machines("same") else {
        return;
    };
    let _server = network.serve("0.0.0.0:80");
    // The same port of the same user, in the client's namespace: a machine of its own.
    let mut other = network.role("client", &format!("server {UDP} 0.0.0.0:80"));
    other.hear("at:");
    for to in ["192.0.2.2:80", "192.0.2.1:80"] {
        assert!(network.ask("client", to), "{to}");
    }
    assert_eq!(other.ask("answered"), "1");
}
