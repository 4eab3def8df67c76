//! Who connects to the port of carriers and does not mean well, or not what is thought.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{discovery_port, process, process_by, run, Socket, SOON};
use weft_os::net::{BoundSocket, SocketOptions};
use weft_udp_offload::Offload;
use weft_uoe::control::Why;
use weft_uoe::deframer::Next;
use weft_uoe::greeting::{Instance, GREETING_LEN};
use weft_uoe::proof::Proof;
use weft_uoe::{Control, Deframer, End, Greeting, Head, Key};

/// The other end of a carrier, by hand.
struct Peer {
    stream: TcpStream,
    to_process: Key,
    offset: u64,
    deframer: Deframer,
    came: Vec<u8>,
}

fn connect(offload: &'static Offload) -> TcpStream {
    let begun = Instant::now();
    loop {
        if let Some(takes) = offload.takes_carriers() {
            let stream = TcpStream::connect(("127.0.0.1", takes.port)).unwrap();
            stream.set_read_timeout(Some(SOON)).unwrap();
            return stream;
        }
        assert!(begun.elapsed() < SOON, "it listens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn greeting() -> Greeting {
    Greeting {
        instance: Instance(7),
        nonce: [7; 16],
        policy: 0,
        takes_any_order: false,
        wants_times: false,
        without_udp: false,
        wanted: None,
    }
}

impl Peer {
    fn greet(offload: &'static Offload, own: Greeting) -> Peer {
        Peer::greet_on(connect(offload), own)
    }

    fn greet_on(mut stream: TcpStream, own: Greeting) -> Peer {
        stream.write_all(&own.to_octets()).unwrap();
        let mut octets = [0; GREETING_LEN];
        stream.read_exact(&mut octets).unwrap();
        let other = Greeting::parse(&octets).unwrap();
        Peer {
            stream,
            to_process: own.key_to(&other),
            offset: GREETING_LEN as u64,
            deframer: Deframer::new(other.key_to(&own), GREETING_LEN as u64),
            came: Vec::new(),
        }
    }

    fn say(&mut self, channel: u16, octets: &[u8]) {
        let head = Head::whole(channel, octets.len() as u16);
        let header = head.to_octets(self.to_process, self.offset);
        self.offset += head.frame_len() as u64;
        // A connection that was closed says so when it is read.
        let _ = self.stream.write_all(&[&header, octets].concat());
    }

    fn control(&mut self, control: Control) {
        self.say(0, control.encode().octets());
    }

    fn open(&mut self, target: End) {
        self.open_from([127, 0, 0, 1], 1, target);
    }

    /// Opens a channel of this number, for datagrams that are claimed to come from that address.
    fn open_from(&mut self, source: [u8; 4], channel: u16, target: End) {
        self.control(Control::Open {
            channel,
            source: End::new(source.into(), 4000),
            target,
            nonce: [channel as u8 ^ 9; 16],
        });
    }

    /// What the process says next; nothing where it has closed.
    fn hear(&mut self) -> Option<Control> {
        loop {
            let next = self.deframer.next(&self.came).unwrap();
            if let Next::Frame(head, range) = next {
                let control = Control::parse(&self.came[range]).unwrap();
                self.came.drain(..head.frame_len());
                return Some(control);
            }
            let mut room = [0; 4096];
            match self.stream.read(&mut room) {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.came.extend(&room[..len]),
            }
        }
    }
}

/// A connection to the port of carriers from this address of the machine.
fn connect_from(address: [u8; 4], offload: &'static Offload) -> TcpStream {
    drop(connect(offload));
    let takes = offload.takes_carriers().expect("it listens");
    let bound = BoundSocket::bind((address, 0).into(), &SocketOptions::default()).unwrap();
    let stream = bound.connect(([127, 0, 0, 1], takes.port).into()).unwrap();
    let stream = TcpStream::from(stream.as_fd().try_clone_to_owned().unwrap());
    weft_os::dgram::ready(stream.as_raw_fd(), libc::POLLOUT, 10_000);
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// How long it takes until the other end has closed.
fn closed_after(mut stream: TcpStream) -> Duration {
    let begun = Instant::now();
    let mut room = [0; 4096];
    while matches!(stream.read(&mut room), Ok(len) if len > 0) {}
    begun.elapsed()
}

/// A socket that takes carriers.
fn served() -> Socket {
    let socket = Socket::bind(process(discovery_port()), "127.0.0.1:0");
    socket.receive();
    socket
}

#[test]
fn who_speaks_something_else_is_closed_at_once_and_who_is_silent_in_a_second() {
    let socket = served();
    let mut web = connect(socket.offload);
    web.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let silent = connect(socket.offload);
    let mut half = connect(socket.offload);
    half.write_all(&greeting().to_octets()[..40]).unwrap();
    assert!(closed_after(web) < Duration::from_millis(900));
    let both = closed_after(silent) + closed_after(half);
    assert!(both < SOON);
    assert_eq!(socket.offload.counted().faults, 1);
    assert_eq!(socket.offload.counted().carriers, 0);
}

#[test]
fn silent_ones_have_so_many_places_and_no_more() {
    let discovery = discovery_port();
    let socket = Socket::bind(process(discovery), "127.0.0.1:0");
    socket.receive();
    let silent: Vec<TcpStream> = (0..60).map(|_| connect(socket.offload)).collect();
    let is_taken = |stream: &&TcpStream| {
        let mut greeting = [0; GREETING_LEN];
        let mut stream = *stream;
        stream.read_exact(&mut greeting).is_ok()
    };
    let taken = silent.iter().filter(is_taken).count();
    assert!((1..=32).contains(&taken), "{taken}");
    for stream in silent {
        assert!(closed_after(stream) < SOON);
    }
    let sender = Socket::bind(process(discovery), "127.0.0.1:0");
    run(&sender, &socket, 200, sender.at());
}

#[test]
fn a_wrong_frame_closes_its_carrier_alone() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let sender = Socket::bind(one, "127.0.0.1:0");
    let receiver = Socket::bind(two, "127.0.0.1:0");
    run(&sender, &receiver, 200, sender.at());
    let mut wrong = Peer::greet(two, greeting());
    wrong.to_process = Key::new(&[1; 16], &[2; 16]);
    wrong.control(Control::Ping { number: 1 });
    assert_eq!(wrong.hear(), None);
    assert_eq!(two.counted().faults, 1);
    run(&sender, &receiver, 200, sender.at());
    assert_eq!(one.counted().carriers, 1, "the other one lives");
}

#[test]
fn nothing_comes_on_a_channel_whose_source_is_not_proven() {
    let socket = served();
    let mut peer = Peer::greet(socket.offload, greeting());
    peer.open(socket.at().into());
    assert!(matches!(peer.hear(), Some(Control::Prove { .. })));
    peer.say(1, b"from nobody");
    assert_eq!(peer.hear(), None, "it is closed");
    assert_eq!(socket.receive(), None);
    assert_eq!(socket.offload.counted().faults, 1);
}

#[test]
fn a_channel_to_a_socket_that_may_not_have_one_is_refused() {
    let socket = served();
    let plain = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut peer = Peer::greet(socket.offload, greeting());
    peer.open(plain.local_addr().unwrap().into());
    assert!(matches!(peer.hear(), Some(Control::Refuse { .. })));
    socket.offload.leave(socket.port);
    peer.open(socket.at().into());
    assert!(matches!(peer.hear(), Some(Control::Refuse { .. })));
    assert_eq!(socket.offload.counted().refused, 2);
}

#[test]
fn what_only_looks_like_wefts_own_is_the_programs() {
    let socket = served();
    let mut peer = Peer::greet(socket.offload, greeting());
    peer.open(socket.at().into());
    let Some(Control::Prove { nonce, .. }) = peer.hear() else {
        panic!("it wants a proof");
    };
    let own = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut guessed = nonce;
    guessed[15] ^= 1;
    for nonce in [guessed, [8; 16], [0; 16]] {
        let proof = Proof::new(nonce, 0);
        own.send_to(&proof.to_octets(), socket.at()).unwrap();
        let (octets, from, _) = socket.receive().expect("it is a datagram");
        assert_eq!(octets, proof.to_octets());
        assert_eq!(from, own.local_addr().unwrap());
    }
    let proof = Proof::new(nonce, 0);
    own.send_to(&proof.to_octets(), socket.at()).unwrap();
    assert_eq!(socket.receive(), None, "this one is not the program's");
    assert!(matches!(peer.hear(), Some(Control::Accept { .. })));
    peer.say(1, b"a datagram");
    let (octets, from, is_by_carrier) = socket.receive().unwrap();
    assert_eq!((&octets[..], is_by_carrier), (&b"a datagram"[..], true));
    assert_eq!(
        from,
        own.local_addr().unwrap(),
        "where the proof came from, not what was claimed"
    );
}

#[test]
fn a_socket_that_does_not_receive_loses_and_holds_up_nobody() {
    let socket = served();
    let other = Socket::bind(socket.offload, "127.0.0.1:0");
    other.receive();
    let mut peer = Peer::greet(socket.offload, greeting());
    let own = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for (channel, to) in [(1, &socket), (2, &other)] {
        peer.control(Control::Open {
            channel,
            source: End::new([127, 0, 0, 1].into(), 4000),
            target: to.at().into(),
            nonce: [channel as u8; 16],
        });
        let Some(Control::Prove { nonce, .. }) = peer.hear() else {
            panic!("it wants a proof");
        };
        let proof = Proof::new(nonce, 0);
        own.send_to(&proof.to_octets(), to.at()).unwrap();
        assert_eq!(to.receive(), None);
        assert!(matches!(peer.hear(), Some(Control::Accept { .. })));
    }
    std::thread::sleep(Duration::from_millis(30));
    // Many times what a socket's queue has.
    for _ in 0..4000 {
        peer.say(1, &[1; 1000]);
    }
    peer.say(2, b"for the other");
    let begun = Instant::now();
    let (octets, ..) = other.receive().expect("it comes in spite of the first");
    assert_eq!(octets, b"for the other");
    assert!(begun.elapsed() < SOON);
    assert!(socket.offload.counted().dropped_received > 1000);
    let mut waited = 0;
    while socket.receive().is_some() {
        waited += 1;
    }
    let dropped = socket.offload.counted().dropped_received;
    assert_eq!(waited + dropped, 4000, "each loss is counted");
}

#[test]
fn strangers_who_prove_nothing_hold_places_for_seconds() {
    let discovery = discovery_port();
    let socket = Socket::bind(process(discovery), "127.0.0.1:0");
    socket.receive();
    let greeted: Vec<TcpStream> = (0..80)
        .filter_map(|_| {
            let mut stream = connect(socket.offload);
            stream.write_all(&greeting().to_octets()).ok()?;
            let mut theirs = [0; GREETING_LEN];
            stream.read_exact(&mut theirs).ok()?;
            Some(stream)
        })
        .collect();
    assert!((32..=64).contains(&greeted.len()), "{}", greeted.len());
    for stream in greeted {
        assert!(closed_after(stream) < Duration::from_secs(10));
    }
    let sender = Socket::bind(process(discovery), "127.0.0.1:0");
    run(&sender, &socket, 200, sender.at());
}

#[test]
fn who_asks_for_channels_in_vain_again_and_again_is_closed() {
    let socket = served();
    let plain = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut peer = Peer::greet(socket.offload, greeting());
    let mut refused = 0;
    while refused < 2000 {
        peer.open(plain.local_addr().unwrap().into());
        match peer.hear() {
            Some(Control::Refuse { .. }) => refused += 1,
            _ => break,
        }
    }
    assert!((100..1000).contains(&refused), "{refused}");
    assert_eq!(socket.offload.counted().faults, 1);
}

#[test]
fn who_pings_and_takes_no_answer_is_closed() {
    let socket = served();
    let mut peer = Peer::greet(socket.offload, greeting());
    let fd = peer.stream.as_raw_fd();
    // The kernel keeps few of the answers.
    weft_os::dgram::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 4096).unwrap();
    let ping = Control::Ping { number: 1 }.encode();
    let begun = Instant::now();
    while socket.offload.counted().faults == 0 {
        let mut pings = Vec::new();
        for _ in 0..1000 {
            let head = Head::whole(0, ping.octets().len() as u16);
            pings.extend(head.to_octets(peer.to_process, peer.offset));
            pings.extend(ping.octets());
            peer.offset += head.frame_len() as u64;
        }
        let is_sent = peer.stream.write_all(&pings).is_ok();
        assert!(is_sent || socket.offload.counted().faults == 1);
        assert!(begun.elapsed() < SOON, "its answers are kept for ever");
    }
}

#[test]
fn who_greets_with_the_instance_of_somebody_else_gets_none_of_its_datagrams() {
    let discovery = discovery_port();
    let (one, two) = (process(discovery), process(discovery));
    let (sender, receiver) = (
        Socket::bind(one, "127.0.0.1:0"),
        Socket::bind(two, "127.0.0.1:0"),
    );
    sender.receive();
    receiver.receive();
    drop(connect(two));
    let takes = two.takes_carriers().expect("it listens");
    let claimed = Greeting {
        instance: Instance(takes.instance),
        ..greeting()
    };
    // It is another host, as far as addresses go.
    let stream = connect_from([127, 0, 0, 2], one);
    let peer = Peer::greet_on(stream, claimed);
    std::thread::sleep(Duration::from_millis(50));
    run(&sender, &receiver, 200, sender.at());
    assert_eq!(
        one.counted().carriers,
        2,
        "the one that it connected and its own"
    );
    drop(peer);
}

#[test]
fn what_is_not_proven_is_taken_by_who_says_so_alone() {
    let rules = "uoe require udp-path=none port=9; uoe prefer";
    let socket = Socket::bind(process_by(rules, discovery_port()), "127.0.0.1:0");
    socket.receive();
    let without = Greeting {
        without_udp: true,
        ..greeting()
    };
    let mut peer = Peer::greet(socket.offload, without);
    peer.open(socket.at().into());
    assert!(matches!(peer.hear(), Some(Control::Refuse { .. })));
    let mut peer = Peer::greet(socket.offload, greeting());
    peer.open(socket.at().into());
    assert!(matches!(peer.hear(), Some(Control::Prove { .. })));
}

#[test]
fn a_socket_that_receives_slowly_holds_up_no_other() {
    let socket = served();
    let other = Socket::bind(socket.offload, "127.0.0.1:0");
    other.receive();
    let mut peer = Peer::greet(socket.offload, greeting());
    let own = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for (channel, to) in [(1, &socket), (2, &other)] {
        peer.control(Control::Open {
            channel,
            source: End::new([127, 0, 0, 1].into(), 4000),
            target: to.at().into(),
            nonce: [channel as u8; 16],
        });
        let Some(Control::Prove { nonce, .. }) = peer.hear() else {
            panic!("it wants a proof");
        };
        let proof = Proof::new(nonce, 0);
        own.send_to(&proof.to_octets(), to.at()).unwrap();
        assert_eq!(to.receive(), None);
        assert!(matches!(peer.hear(), Some(Control::Accept { .. })));
    }
    // It takes one now and then: often enough to count as a program that is at work.
    let slow = std::thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            socket.receive();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    peer.say(1, &[1; 1000]);
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..4000 {
        peer.say(1, &[1; 1000]);
    }
    peer.say(2, b"for the other");
    let begun = Instant::now();
    let octets = loop {
        if let Some((octets, ..)) = other.receive() {
            break octets;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "it waits for the slow one"
        );
    };
    assert_eq!(octets, b"for the other");
    slow.join().unwrap();
}

#[test]
fn so_many_channels_may_be_unproven_and_no_more() {
    let socket = served();
    let mut peer = Peer::greet(socket.offload, greeting());
    for channel in 1..=300 {
        peer.open_from([127, 0, 0, 1], channel, socket.at().into());
    }
    let said: Vec<Control> = (0..300).map_while(|_| peer.hear()).collect();
    let wanted = said
        .iter()
        .filter(|control| matches!(control, Control::Prove { .. }));
    assert_eq!((wanted.count(), said.len()), (256, 300));
}

#[test]
fn what_was_not_proven_in_time_is_forgotten() {
    let socket = served();
    let mut peer = Peer::greet(socket.offload, greeting());
    let mut nonces = Vec::new();
    for channel in 1..=256 {
        peer.open_from([127, 0, 0, 1], channel, socket.at().into());
        match peer.hear() {
            Some(Control::Prove { nonce, .. }) => nonces.push(nonce),
            said => panic!("{said:?}"),
        }
    }
    for _ in 1..=256 {
        let said = peer.hear();
        assert!(matches!(said, Some(Control::Refuse { .. })), "{said:?}");
    }
    peer.open_from([127, 0, 0, 1], 1, socket.at().into());
    let said = peer.hear();
    assert!(matches!(said, Some(Control::Prove { .. })), "{said:?}");
    // Once nothing with these random bits can be under way they are the program's again.
    let own = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    for nonce in [nonces[0], nonces[255]] {
        let octets = Proof::new(nonce, 0).to_octets();
        loop {
            own.send_to(&octets, socket.at()).unwrap();
            if socket.receive().is_some() {
                break;
            }
            assert!(begun.elapsed() < SOON, "it is known for ever");
        }
    }
}

#[test]
fn a_channel_that_is_closed_before_its_socket_can_have_it_is_not_the_next_one() {
    let socket = served();
    let other = Socket::bind(socket.offload, "127.0.0.1:0");
    other.receive();
    // No channel yet has had its receives looked at: one of them is the kernel's alone.
    assert!(socket.port.begin_plain());
    let mut peer = Peer::greet(socket.offload, greeting());
    peer.open(socket.at().into());
    peer.control(Control::Close {
        channel: 1,
        why: Why::Idle,
    });
    assert!(matches!(peer.hear(), Some(Control::Refuse { .. })));
    peer.open(other.at().into());
    let Some(Control::Prove { nonce, .. }) = peer.hear() else {
        panic!("it wants a proof");
    };
    socket.port.end_plain();
    std::thread::sleep(Duration::from_millis(20));
    let own = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    own.send_to(&Proof::new(nonce, 0).to_octets(), other.at())
        .unwrap();
    assert_eq!(other.receive(), None);
    let said = peer.hear();
    assert!(matches!(said, Some(Control::Accept { .. })), "{said:?}");
    peer.say(1, b"for the other");
    let (octets, ..) = other.receive().expect("it is the other's channel");
    assert_eq!(octets, b"for the other");
}

#[test]
fn the_rule_is_about_the_source_that_is_proven() {
    let rules = "uoe prefer address=127.0.0.9";
    let socket = Socket::bind(process_by(rules, discovery_port()), "127.0.0.1:0");
    socket.receive();
    let mut peer = Peer::greet(socket.offload, greeting());
    peer.open(socket.at().into());
    assert!(matches!(peer.hear(), Some(Control::Refuse { .. })));
    peer.open_from([127, 0, 0, 9], 1, socket.at().into());
    let Some(Control::Prove { nonce, .. }) = peer.hear() else {
        panic!("it wants a proof");
    };
    let own = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let proof = Proof::new(nonce, 0);
    own.send_to(&proof.to_octets(), socket.at()).unwrap();
    assert_eq!(socket.receive(), None);
    assert!(matches!(peer.hear(), Some(Control::Accept { .. })));
    assert!(matches!(peer.hear(), Some(Control::Refuse { .. })));
    peer.say(1, b"a datagram");
    assert_eq!(socket.receive(), None);
    assert_eq!(socket.offload.counted().taken, 0);
}

#[test]
fn a_proof_counts_at_the_socket_that_it_is_meant_for() {
    let socket = served();
    let other = Socket::bind(socket.offload, "127.0.0.1:0");
    other.receive();
    let mut peer = Peer::greet(socket.offload, greeting());
    let mut nonces = Vec::new();
    for (channel, to) in [(1, &socket), (2, &other)] {
        peer.open_from([127, 0, 0, 1], channel, to.at().into());
        match peer.hear() {
            Some(Control::Prove { nonce, .. }) => nonces.push(nonce),
            said => panic!("{said:?}"),
        }
    }
    let own = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let proof = Proof::new(nonces[0], 0);
    own.send_to(&proof.to_octets(), other.at()).unwrap();
    assert_eq!(other.receive(), None, "it is not the program's");
    let time = Some(Duration::from_millis(200));
    peer.stream.set_read_timeout(time).unwrap();
    assert_eq!(peer.hear(), None, "nothing is proven");
    peer.stream.set_read_timeout(Some(SOON)).unwrap();
    own.send_to(&proof.to_octets(), socket.at()).unwrap();
    assert_eq!(socket.receive(), None);
    assert!(matches!(
        peer.hear(),
        Some(Control::Accept { channel: 1, .. })
    ));
}

#[test]
fn answers_take_no_carrier_of_another_host() {
    let socket = served();
    drop(connect(socket.offload));
    // Its datagrams come from here, and its connection from elsewhere: a source can be forged.
    let stream = connect_from([127, 0, 0, 2], socket.offload);
    let mut peer = Peer::greet_on(stream, greeting());
    peer.open(socket.at().into());
    let Some(Control::Prove { nonce, .. }) = peer.hear() else {
        panic!("it wants a proof");
    };
    let own = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let proof = Proof::new(nonce, 0);
    own.send_to(&proof.to_octets(), socket.at()).unwrap();
    assert_eq!(socket.receive(), None);
    assert!(matches!(peer.hear(), Some(Control::Accept { .. })));
    for _ in 0..200 {
        assert!(!socket.send(own.local_addr().unwrap(), b"an answer", true));
    }
    let time = Some(Duration::from_millis(300));
    peer.stream.set_read_timeout(time).unwrap();
    assert_eq!(peer.hear(), None, "it is asked for nothing");
}

#[test]
fn who_forges_a_source_takes_no_datagrams_of_its_host() {
    let socket = served();
    let victim = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = victim.local_addr().unwrap();
    // Somebody with the address of the victim's host, as behind one translator, and a network that lets sources be
    // forged: what is sent from the victim's socket here.
    let mut peer = Peer::greet(socket.offload, greeting());
    peer.open(socket.at().into());
    let Some(Control::Prove { nonce, .. }) = peer.hear() else {
        panic!("it wants a proof");
    };
    victim
        .send_to(&Proof::new(nonce, 0).to_octets(), socket.at())
        .unwrap();
    assert_eq!(socket.receive(), None);
    assert!(matches!(peer.hear(), Some(Control::Accept { .. })));
    for _ in 0..100 {
        assert!(!socket.send(at, b"an answer", true));
    }
    // The answers are to take the carrier that the victim seems to have.
    let Some(Control::Open { channel, nonce, .. }) = peer.hear() else {
        panic!("it wants a channel");
    };
    peer.control(Control::Prove {
        channel,
        nonce: [5; 16],
    });
    victim
        .send_to(&Proof::new(nonce, 0).to_octets(), socket.at())
        .unwrap();
    assert_eq!(socket.receive(), None);
    peer.control(Control::Accept {
        channel,
        challenge: [0; 16],
    });
    assert_eq!(peer.hear(), None, "it is closed");
    assert_eq!(socket.offload.counted().faults, 1);
    assert_eq!(socket.offload.counted().opened, 0);
    assert!(!socket.send(at, b"an answer", true), "it goes plainly");
}

#[test]
fn what_is_not_proven_comes_to_the_address_of_its_connection_alone() {
    let rules = "uoe require udp-path=none";
    let offload = process_by(rules, discovery_port());
    let inside = Socket::bind(offload, "127.0.0.2:0");
    inside.receive();
    let here = Socket::bind(offload, "127.0.0.1:0");
    here.receive();
    let everywhere = Socket::bind(offload, "0.0.0.0:0");
    everywhere.receive();
    let without = Greeting {
        without_udp: true,
        ..greeting()
    };
    // The connection comes to 127.0.0.1.
    let mut peer = Peer::greet(offload, without);
    peer.open(inside.at().into());
    let said = peer.hear();
    assert!(matches!(said, Some(Control::Refuse { .. })), "{said:?}");
    // Behind a translator the peer knows this machine by another address.
    let port = everywhere.at().port();
    for (channel, target, to) in [
        (1, here.at().into(), &here),
        (2, End::new([203, 0, 113, 1].into(), port), &everywhere),
    ] {
        peer.open_from([127, 0, 0, 1], channel, target);
        let said = peer.hear();
        assert!(matches!(said, Some(Control::Accept { .. })), "{said:?}");
        peer.say(channel, b"a datagram");
        let (octets, ..) = to.receive().expect("it comes");
        assert_eq!(octets, b"a datagram");
    }
}

/// CPU time of this process, in ticks of 10 ms.
fn ticks(stat: &File) -> u64 {
    let mut octets = [0; 1000];
    let len = stat.read_at(&mut octets, 0).unwrap();
    let text = std::str::from_utf8(&octets[..len]).unwrap();
    let behind_name = text.rsplit_once(')').unwrap().1;
    let fields = behind_name.split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Descriptors that fill this process, but for one.
fn fill_up() -> Vec<File> {
    let mut all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    all.pop();
    all
}

/// The listener's port, once everything that a carrier's listener needs is open.
fn listening(socket: &Socket) -> u16 {
    drop(connect(socket.offload));
    std::thread::sleep(Duration::from_millis(50));
    socket.offload.takes_carriers().unwrap().port
}

/// In a process of its own with these limits: whether it is that one.
fn has_limits(limits: &str, name: &str) -> bool {
    const HERE: &str = "WEFT_TEST_DESCRIPTORS";
    if std::env::var_os(HERE).is_some() {
        return true;
    }
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{limits}; exec \"$0\" --exact \"$1\""))
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(HERE, "1")
        .status();
    assert!(status.unwrap().success());
    false
}

#[test]
fn who_cannot_be_accepted_costs_no_time_and_is_accepted_later() {
    let name = "who_cannot_be_accepted_costs_no_time_and_is_accepted_later";
    if !has_limits("ulimit -n 300", name) {
        return;
    }
    let socket = served();
    let port = listening(&socket);
    let stat = File::open("/proc/self/stat").unwrap();
    let all = fill_up();
    let mut waits = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let before = ticks(&stat);
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks(&stat) - before;
    assert!(used < 10, "{used} of 100 ticks for one that waits");
    drop(all);
    waits.set_read_timeout(Some(SOON)).unwrap();
    let mut theirs = [0; GREETING_LEN];
    waits.read_exact(&mut theirs).expect("it is accepted");
}

#[test]
fn the_soft_limit_gives_way_to_who_connects() {
    let name = "the_soft_limit_gives_way_to_who_connects";
    if !has_limits("ulimit -Hn 1600; ulimit -Sn 800", name) {
        return;
    }
    let socket = served();
    let port = listening(&socket);
    let _all = fill_up();
    let mut waits = TcpStream::connect(("127.0.0.1", port)).unwrap();
    waits.set_read_timeout(Some(SOON)).unwrap();
    let mut theirs = [0; GREETING_LEN];
    waits.read_exact(&mut theirs).expect("it is accepted");
}
