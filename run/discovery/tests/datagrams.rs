//! Questions about datagrams: who is found, and whose connections the answer names.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use common::{answer_to, free_port, question, soon, SILENCE, SOON};
use weft_discovery::answering::Owner;
use weft_discovery::{now, About, Answering, Connection, Inquiry, Learnt, Standing, TakesCarriers};
use weft_settings::DiscoveryPort;

/// A process that takes carriers, or does not yet.
struct Process(OnceLock<TakesCarriers>);

impl Owner for Process {
    fn promise(&self, _connection: &Connection, _now: Duration) -> bool {
        true
    }

    fn carriers(&self) -> Option<TakesCarriers> {
        self.0.get().copied()
    }
}

fn takes(instance: u64) -> TakesCarriers {
    TakesCarriers {
        port: 4000,
        instance,
        adapter: Some(weft_discovery::End::new([192, 0, 2, 1].into(), 22342)),
    }
}

fn answering(port: DiscoveryPort, takes: Option<TakesCarriers>) -> &'static Answering {
    let process = Process(takes.map_or_else(OnceLock::new, OnceLock::from));
    answering_for(port, Box::leak(Box::new(process)))
}

fn answering_for(port: DiscoveryPort, owner: &'static Process) -> &'static Answering {
    weft_os::process::watch();
    Box::leak(Box::new(Answering::new(port, owner).unwrap()))
}

/// A UDP socket at this address that may be asked for; nothing where the machine has no such address.
fn served(answering: &'static Answering, key: u32, at: &str) -> Option<UdpSocket> {
    let Ok(socket) = UdpSocket::bind(at) else {
        eprintln!("skipped: this machine has no {at}");
        return None;
    };
    answering.serve(key, About::Datagrams, socket.as_raw_fd());
    soon("the thread answers", || {
        answering.standing() == Standing::Answers
    });
    Some(socket)
}

fn to(address: &str, socket: &UdpSocket) -> SocketAddr {
    let port = socket.local_addr().unwrap().port();
    SocketAddr::new(address.parse().unwrap(), port)
}

/// What is learnt by asking from `socket`, once it is known.
fn learn(port: DiscoveryPort, socket: &UdpSocket, to: SocketAddr) -> Learnt {
    let mut inquiry = Inquiry::send(port, socket.as_raw_fd(), to, now()).expect("a question");
    loop {
        match inquiry.poll(now()) {
            Learnt::Waits(until) => {
                assert!(until <= now() + Duration::from_secs(1));
                std::thread::sleep(Duration::from_micros(50));
            }
            learnt => return learnt,
        }
    }
}

#[test]
fn a_socket_that_takes_datagrams_is_found_from_any_address() {
    for (at, asked) in [
        ("127.0.0.1:0", &["127.0.0.1"][..]),
        ("0.0.0.0:0", &["127.0.0.1", "127.0.0.9"]),
        ("[::]:0", &["127.0.0.1", "::1"]),
    ] {
        let port = DiscoveryPort::Agreed(free_port());
        let Some(server) = served(answering(port, Some(takes(7))), 1, at) else {
            continue;
        };
        for address in asked {
            for from in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
                let is_v4 = |address: &str| !address.contains("::");
                // A socket of one family sends to that family; only one bound to nothing has both.
                if is_v4(address) != is_v4(from) && from != "[::]:0" {
                    continue;
                }
                let Ok(client) = UdpSocket::bind(from) else {
                    continue;
                };
                assert_eq!(
                    learn(port, &client, to(address, &server)),
                    Learnt::TakesCarriers(takes(7)),
                    "{from} to {address} at {at}"
                );
            }
        }
    }
}

#[test]
fn nobody_says_yes_for_sockets_that_may_not_be_asked_for() {
    let port = DiscoveryPort::Agreed(free_port());
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let plain = UdpSocket::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    assert_eq!(
        learn(port, &client, to("127.0.0.1", &plain)),
        Learnt::Refused,
        "a plain host"
    );
    assert!(begun.elapsed() < SOON, "ICMP is not waited for");
    let answering = answering(port, Some(takes(7)));
    let server = served(answering, 1, "127.0.0.1:0").unwrap();
    assert_eq!(learn(port, &client, to("127.0.0.1", &plain)), Learnt::No);
    assert_eq!(answering.counted().unknown, 1);
    answering.leave(1);
    let left = to("127.0.0.1", &server);
    soon("its socket is left", || {
        // Nobody says so, or the port is closed by then.
        matches!(learn(port, &client, left), Learnt::No | Learnt::Refused)
    });
}

#[test]
fn who_takes_no_carriers_says_nothing() {
    let port = DiscoveryPort::Agreed(free_port());
    let answering = answering(port, None);
    let server = served(answering, 1, "127.0.0.1:0").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(learn(port, &client, to("127.0.0.1", &server)), Learnt::No);
    assert_eq!(answering.counted().refused, 1);
}

#[test]
fn who_takes_carriers_a_moment_later_is_found_by_the_next_question() {
    let port = DiscoveryPort::Agreed(free_port());
    let process: &'static Process = Box::leak(Box::new(Process(OnceLock::new())));
    let answering = answering_for(port, process);
    let server = served(answering, 1, "127.0.0.1:0").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = to("127.0.0.1", &server);
    let mut inquiry = Inquiry::send(port, client.as_raw_fd(), to, now()).expect("a question");
    soon("it is heard", || answering.counted().refused == 1);
    assert!(matches!(inquiry.poll(now()), Learnt::Waits(_)));
    process.0.set(takes(7)).unwrap();
    inquiry.repeat();
    soon("it is answered", || {
        inquiry.poll(now()) == Learnt::TakesCarriers(takes(7))
    });
}

#[test]
fn who_listens_a_moment_later_is_found_by_the_next_question() {
    let port = DiscoveryPort::Agreed(free_port());
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = to("127.0.0.1", &server);
    let mut inquiry = Inquiry::send(port, client.as_raw_fd(), to, now()).expect("a question");
    soon("the port is closed", || {
        inquiry.poll(now()) == Learnt::Refused
    });
    inquiry.repeat();
    soon("it still is", || inquiry.poll(now()) == Learnt::Refused);
    let answering = answering(port, Some(takes(7)));
    answering.serve(1, About::Datagrams, server.as_raw_fd());
    soon("it is answered", || {
        inquiry.repeat();
        std::thread::sleep(Duration::from_millis(1));
        inquiry.poll(now()) == Learnt::TakesCarriers(takes(7))
    });
}

/// Both hold the agreed port, and the kernel gives each question to either.
#[test]
fn whoever_gets_the_question_the_owner_is_named() {
    let port = DiscoveryPort::Agreed(free_port());
    let both = [1, 2].map(|instance| answering(port, Some(takes(instance))));
    let servers = both.map(|one| served(one, 1, "127.0.0.1:0").unwrap());
    for _ in 0..20 {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (server, instance) in servers.iter().zip([1, 2]) {
            soon("the owner is named", || {
                // Colleagues give each other 20 ms, and a machine may stand still for longer.
                learn(port, &client, to("127.0.0.1", server))
                    == Learnt::TakesCarriers(takes(instance))
            });
        }
    }
    let asked = both.map(|one| one.counted().colleagues);
    assert!(asked.iter().all(|colleagues| *colleagues > 0), "{asked:?}");
}

#[test]
fn a_question_from_behind_a_translator_is_answered_to_where_it_came_from() {
    let port = free_port();
    let server = served(
        answering(DiscoveryPort::Agreed(port), Some(takes(7))),
        1,
        "127.0.0.1:0",
    );
    let asked = question(Connection {
        about: About::Datagrams,
        client: "10.9.8.7:5000".parse::<SocketAddr>().unwrap().into(),
        server: to("127.0.0.1", &server.unwrap()).into(),
    });
    let at = SocketAddr::new([127, 0, 0, 1].into(), port);
    let answer = answer_to(&asked, [127, 0, 0, 9].into(), at, SOON).expect("an answer");
    assert_eq!(answer.len(), 52, "no longer than the question");
    let other = SocketAddr::new([127, 0, 0, 2].into(), port);
    let elsewhere = answer_to(&asked, [127, 0, 0, 9].into(), other, SILENCE);
    assert_eq!(elsewhere, None, "it came to another address than it names");
}

#[test]
fn what_has_no_port_or_no_host_is_not_asked_about() {
    use rustix::net::{socket, AddressFamily, SocketType};
    let port = DiscoveryPort::Agreed(free_port());
    let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
    let unbound = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    let ask = |port, fd, to: &str| Inquiry::send(port, fd, to.parse().unwrap(), now()).is_some();
    assert!(ask(port, bound.as_raw_fd(), "127.0.0.1:9"));
    assert!(!ask(port, unbound.as_raw_fd(), "127.0.0.1:9"));
    for nowhere in ["127.0.0.1:0", "224.0.0.1:9", "255.255.255.255:9"] {
        assert!(!ask(port, bound.as_raw_fd(), nowhere), "{nowhere}");
    }
    let same = DiscoveryPort::Same;
    assert!(
        !ask(same, bound.as_raw_fd(), "127.0.0.1:9"),
        "a plain server would get it"
    );
}
