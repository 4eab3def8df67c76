//! Datagrams between two sockets whose carriers are connections of adapters, on a cable that may lose frames.

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use weft_adapter::faulty::{Faults, Faulty};
use weft_adapter::{cable, Driver, Inline, Interface};
use weft_engine::carrier::Network;
use weft_settings::datagrams::DatagramRules;
use weft_settings::{interfaces, Adapter, DiscoveryPort, Settings, TransportRules};
use weft_udp_offload::{choose_network, Offload};

use common::{discovery_port, number_of, numbered, process_with, run, Socket, SOON};

/// The ends of cables that are plugged in, by the names of their interfaces.
static PLUGGED: Mutex<Option<HashMap<String, Arc<dyn Network>>>> = Mutex::new(None);

fn network(settings: &Settings) -> Result<Arc<dyn Network>, String> {
    let name = settings.interfaces.first().map(|one| one.device.name());
    let mut plugged = PLUGGED.lock().unwrap();
    let plugged = plugged.get_or_insert_default();
    let network = name.and_then(|name| plugged.remove(name));
    network.ok_or_else(|| "there is no such cable".to_owned())
}

/// A process with an adapter of its own.
struct Process {
    offload: &'static Offload,
    driver: Arc<Driver>,
    discovery: DiscoveryPort,
}

/// Two processes on a cable.
fn processes(rules: &str, faults: Faults) -> [Process; 2] {
    choose_network(network);
    let (one, two) = cable::pair().unwrap();
    let discovery = discovery_port();
    let DiscoveryPort::Agreed(number) = discovery else {
        panic!("it is agreed")
    };
    let process = |last: u8, link| {
        let interface = Interface {
            name: format!("cable{last}-{number}"),
            mac: [2, 0, 0, 0, 0, last],
            mtu: 1500,
            addresses: vec![format!("10.8.0.{last}/24").parse().unwrap()],
            routes: Vec::new(),
            dad_transmits: 0,
            rules: TransportRules::default(),
        };
        let name = interface.name.clone();
        let link = Faulty::new(link, faults, u64::from(last));
        let driver = Driver::new(interface, Box::new(link)).unwrap();
        let network = Arc::new(Inline::new(vec![driver.clone()], Vec::new()));
        let mut plugged = PLUGGED.lock().unwrap();
        plugged
            .get_or_insert_default()
            .insert(name.clone(), network);
        let interfaces = format!("packet:{name} address=10.8.0.{last}/24");
        let offload = process_with(Settings {
            udp: DatagramRules::parse(rules).unwrap(),
            adapter: Adapter::Inline,
            interfaces: interfaces::parse(&interfaces).unwrap(),
            discovery_port: discovery,
            stat: false,
            ..Settings::default()
        });
        Process {
            offload,
            driver,
            discovery,
        }
    };
    [process(1, one), process(2, two)]
}

impl Process {
    /// Frames that its adapter has had so far.
    fn frames(&self) -> u64 {
        let counters = self.driver.counters();
        counters.frames_in + counters.frames_out
    }
}

const OVER: &str = "uoe prefer over=adapter";

#[test]
fn a_busy_sender_comes_to_have_a_carrier_of_the_adapters() {
    let [one, two] = processes(OVER, Faults::default());
    let sender = Socket::bind(one.offload, "127.0.0.1:0");
    let receiver = Socket::bind(two.offload, "0.0.0.0:0");
    run(&sender, &receiver, 5000, sender.at());
    let counted = one.offload.counted();
    assert_eq!((counted.carriers, counted.opened), (1, 1), "{counted:?}");
    assert_eq!(two.offload.counted().dropped_received, 0);
    let frames = one.frames();
    assert!(frames > 1000, "{frames}");
    // The other way they take the same carrier.
    run(&receiver, &sender, 1000, receiver.at());
    let counted = two.offload.counted();
    assert_eq!((counted.carriers, counted.opened), (1, 1), "{counted:?}");
}

/// What came of datagrams that were sent.
#[derive(Debug)]
struct Came {
    /// How many.
    all: u32,
    /// How many of these by a carrier.
    by_carrier: u32,
    /// By how much the latest one came behind others that were sent after it.
    late: u32,
}

/// Sends so many datagrams, `under_way` of them at a time, and takes in what comes: each whole, once, and all that the
/// ends have not dropped.
fn flood(sender: &Socket, receiver: &Socket, many: u32, len: usize, under_way: u32) -> Came {
    let begun = Instant::now();
    let dropped = || {
        let full = sender.offload.counted().dropped_full;
        (full + receiver.offload.counted().dropped_received) as u32
    };
    let before = dropped();
    let mut seen = vec![false; many as usize];
    let (mut came, mut last, mut sent) = (
        Came {
            all: 0,
            by_carrier: 0,
            late: 0,
        },
        0,
        0,
    );
    while came.all + (dropped() - before) < many {
        while sent < many && sent < came.all + (dropped() - before) + under_way {
            sender.send(receiver.at(), &numbered(sent, len), true);
            sent += 1;
        }
        sender.flush();
        while let Some((octets, _, is_by_carrier)) = receiver.receive_now() {
            let number = number_of(&octets);
            assert_eq!(octets.len(), len);
            assert!(!std::mem::replace(&mut seen[number as usize], true), "once");
            came.late = came.late.max(u32::saturating_sub(last, number));
            last = last.max(number);
            came.all += 1;
            came.by_carrier += u32::from(is_by_carrier);
        }
        assert!(
            begun.elapsed() < SOON,
            "{came:?} of {sent}: {:?}, {:?}",
            sender.offload.counted(),
            receiver.offload.counted()
        );
    }
    came
}

#[test]
fn datagrams_behind_a_lost_frame_do_not_wait_for_it() {
    let faults = Faults {
        lost: 20,
        ..Faults::default()
    };
    let [one, two] = processes(OVER, faults);
    let sender = Socket::bind(one.offload, "127.0.0.1:0");
    let receiver = Socket::bind(two.offload, "127.0.0.1:0");
    let begun = Instant::now();
    receiver.receive();
    while one.offload.counted().opened == 0 {
        flood(&sender, &receiver, 64, 500, 64);
        assert!(begun.elapsed() < SOON, "{:?}", one.offload.counted());
    }
    for len in [64, 1400] {
        let came = flood(&sender, &receiver, 5000, len, 64);
        assert!(came.by_carrier > 4000, "{came:?}");
        assert!(came.late > 0, "what came behind a lost frame was given");
    }
    assert_eq!(one.offload.counted().faults, 0);
    assert_eq!(two.offload.counted().faults, 0);
}

#[test]
fn datagrams_that_no_segment_holds_come_in_parts() {
    let faults = Faults {
        lost: 5,
        doubled: 5,
        late: 20,
    };
    let [one, two] = processes("uoe require over=adapter", faults);
    let sender = Socket::bind(one.offload, "127.0.0.1:0");
    let receiver = Socket::bind(two.offload, "127.0.0.1:0");
    receiver.receive();
    for len in [1450, 8000, 65_507] {
        let came = flood(&sender, &receiver, 200, len, 2);
        assert_eq!(came.by_carrier, came.all);
        assert!(came.all > 150, "{came:?}");
    }
    assert!(one.frames() > 1000, "{}", one.frames());
    assert_eq!(two.offload.counted().faults, 0);
}

#[test]
fn without_an_adapter_at_the_other_end_carriers_are_the_kernels() {
    choose_network(network);
    let [one, _] = processes(OVER, Faults::default());
    let sender = Socket::bind(one.offload, "127.0.0.1:0");
    let plain = process_with(Settings {
        udp: DatagramRules::parse("uoe prefer").unwrap(),
        discovery_port: one.discovery,
        stat: false,
        ..Settings::default()
    });
    let receiver = Socket::bind(plain, "127.0.0.1:0");
    run(&sender, &receiver, 1000, sender.at());
    assert_eq!(one.offload.counted().carriers, 1);
    assert!(one.frames() < 10, "{}", one.frames());
}
