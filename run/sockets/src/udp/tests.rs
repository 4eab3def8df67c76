//! Tests of the sockets of a process.

use super::*;

fn datagrams() -> Datagrams {
    assert!(process::watch());
    let rules = DatagramRules::parse("gso").unwrap();
    Datagrams::new(rules, 4, Duration::from_micros(200), None).unwrap()
}

/// A socket of this process, as descriptors begin it.
fn begun(datagrams: &Datagrams) -> &'static Record {
    let number = datagrams.begin(1, Origin::Made).unwrap();
    let record = datagrams.record(number).unwrap();
    record.references.begin(1);
    record
}

fn end(datagrams: &Datagrams, record: &Record) {
    assert!(record.references.remove());
    datagrams.end(record.number);
}

#[test]
fn a_slot_is_the_next_sockets_unless_another_process_may_have_it() {
    let datagrams = datagrams();
    for _ in 0..SLOTS_MAX + 10 {
        end(&datagrams, begun(&datagrams));
    }
    let record = begun(&datagrams);
    assert!(!record.slot().is_shared());
    datagrams.before_fork();
    let shared = record.slot();
    assert!(shared.is_shared());
    end(&datagrams, record);
    let next = begun(&datagrams);
    assert!(std::ptr::eq(next, record), "the record is used again");
    assert!(shared.is_shared() && !next.slot().is_shared());
}

/// The sockets of a process, and a program's socket among them that is connected to another one.
struct Sends {
    datagrams: &'static Datagrams,
    record: &'static Record,
    from: std::net::UdpSocket,
    _to: std::net::UdpSocket,
}

impl Sends {
    fn with(datagrams: Datagrams) -> Sends {
        let datagrams: &'static Datagrams = Box::leak(Box::new(datagrams));
        let [from, to] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        Sends {
            datagrams,
            record: begun(datagrams),
            from,
            _to: to,
        }
    }

    /// Sends a datagram of 64 octets; whether Weft took it, and not the kernel.
    fn gathers(&self) -> bool {
        let mut octets = [7; 64];
        let data = weft_os::user::OwnBuffer::from(&mut octets[..]);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&self.from);
        let mut call = Call::new(fd, None, &data, 0);
        match self.datagrams.send(self.record, &mut call) {
            Ok(crate::verdict::Verdict::Kernel) => false,
            Ok(done) => done == crate::verdict::Verdict::Done(Ok(64)) || panic!("{done:?}"),
            Err(_) => panic!("no carrier is waited for"),
        }
    }

    /// Calls of the kernel in which gathered datagrams left.
    fn calls(&self) -> u64 {
        self.datagrams.counts().sends.load(Ordering::Relaxed)
    }
}

/// Sends on a socket by these rules, and says in how many calls of the kernel 1000 datagrams left.
fn calls_for_a_thousand(rules: &str) -> u64 {
    assert!(process::watch());
    let rules = DatagramRules::parse(rules).unwrap();
    let offload = Offload::new(&weft_settings::Settings {
        udp: rules.clone(),
        discovery_port: weft_settings::DiscoveryPort::Same,
        stat: false,
        ..weft_settings::Settings::default()
    });
    let hold = Duration::from_millis(50);
    let sends = Sends::with(Datagrams::new(rules, 4, hold, offload).unwrap());
    let plain = (0..1000).filter(|_| !sends.gathers()).count();
    sends.datagrams.flush_all();
    plain as u64 + sends.calls()
}

/// A sender that fills one batch after the other needs nobody to send for it, and is not disturbed; what it leaves is
/// sent for it.
#[test]
fn what_gathers_just_now_is_left_to_its_program() {
    assert!(process::watch());
    let rules = DatagramRules::parse("gso").unwrap();
    let hold = Duration::from_secs(2);
    let sends = Sends::with(Datagrams::new(rules, 0, hold, None).unwrap());
    let datagrams = sends.datagrams;
    assert!(!sends.gathers(), "the first of a destination goes alone");
    assert!(sends.gathers() && sends.gathers());
    // The thread is as good as not there: its first tick is not over.
    datagrams.send_waiting();
    assert_eq!(sends.calls(), 0);
    let next = datagrams.next_tick().unwrap();
    assert!(next < hold, "two are no flood: {next:?}");
    std::thread::sleep(hold / 4);
    datagrams.send_waiting();
    assert_eq!(sends.calls(), 1);
    assert_eq!(datagrams.next_tick(), None, "nothing waits");
    assert!((0..64 * 8 + 1).all(|_| sends.gathers()));
    assert_eq!(sends.calls(), 9);
    assert_eq!(datagrams.next_tick(), Some(4 * hold), "a flood");
    assert!(datagrams.next_tick().unwrap() < hold, "it is over");
}

#[test]
fn a_rule_for_others_takes_no_segmentation_from_a_socket() {
    let alone = calls_for_a_thousand("gso");
    assert!(alone < 300, "{alone}");
    let beside = calls_for_a_thousand("uoe prefer port=9; gso");
    assert!(beside < 300, "{beside}, and {alone} without the other rule");
}

#[test]
fn only_sockets_made_here_are_coalesced() {
    let datagrams = datagrams();
    let number = datagrams.begin(1, Origin::Found).unwrap();
    assert!(datagrams
        .record(number)
        .unwrap()
        .rx_off
        .load(Ordering::Relaxed));
    assert!(!begun(&datagrams).rx_off.load(Ordering::Relaxed));
}

#[test]
fn what_waits_in_a_socket_that_is_gone_does_not_wait() {
    let datagrams = datagrams();
    let record = begun(&datagrams);
    datagrams.waiting.insert(record.number);
    assert!(datagrams.anything_waits());
    end(&datagrams, record);
    assert!(!datagrams.anything_waits());
}
