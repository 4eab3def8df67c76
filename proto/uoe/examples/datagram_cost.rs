//! What a datagram on a carrier costs in instructions, each way, without system calls.
//!
//!     cargo build --release -p weft-uoe --example datagram_cost
//!     valgrind --tool=callgrind target/release/examples/datagram_cost send 100000 64
//!     valgrind --tool=callgrind target/release/examples/datagram_cost both 100000 64
//!
//! Divide the difference of two counts by the difference of their numbers: start-up falls out. `send` has what a send
//! does: the destination is looked up, the way is chosen, the datagram framed. `both` has that and what a receive does:
//! the frame is found, the channel's ends looked up, the octets copied to the program. What is beyond `send` is the
//! receive.

use std::convert::Infallible;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;
use weft_uoe::carrier::{Event, Secrets};
use weft_uoe::deframer::Next;
use weft_uoe::destinations::{Destinations, Known};
use weft_uoe::gather::{Gather, GATHERED_OCTETS};
use weft_uoe::greeting::Instance;
use weft_uoe::way::{Chooser, Send};
use weft_uoe::{Carrier, Deframer, End, Greeting};

const START: Duration = Duration::from_secs(1);

/// Two carriers with one open channel.
fn opened(source: End, target: End) -> (Carrier, Carrier) {
    let greeting = |octet: u8| Greeting {
        instance: Instance(octet.into()),
        nonce: [octet; 16],
        policy: 0,
        takes_any_order: false,
        wants_times: false,
        without_udp: true,
        wanted: None,
    };
    let mut a = Carrier::new(greeting(1), target.address(), START);
    let mut b = Carrier::new(greeting(2), source.address(), START);
    a.handle_greeting(greeting(2), START);
    b.handle_greeting(greeting(1), START);
    let secrets = Secrets {
        nonce: [3; 16],
        challenge: [4; 16],
    };
    a.open(source, target, secrets, START).expect("a channel");
    let open = a.poll_control().expect("what opens it").encode();
    b.handle_control(open.octets(), START)
        .expect("an honest peer");
    b.admit(1, [4; 16], START);
    let accept = b.poll_control().expect("what accepts it").encode();
    a.handle_control(accept.octets(), START)
        .expect("an honest peer");
    assert!(
        std::iter::from_fn(|| a.poll_event()).any(|event| event == Event::Opened { channel: 1 })
    );
    (a, b)
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, kind, count, len] = &words[..] else {
        panic!("usage: datagram_cost send|both DATAGRAMS OCTETS");
    };
    let receives = kind == "both";
    let (count, len): (u32, usize) = (
        count.parse().expect("a number"),
        len.parse().expect("a number"),
    );
    let end = |last: u8| End::new(IpAddr::from([192, 0, 2, last]), 5000);
    let (source, target) = (end(1), end(2));
    let (mut a, mut b) = opened(source, target);
    let mut destinations = Destinations::new(7, START);
    destinations.handle_send(target, START);
    destinations.handle_channel(target, 1);
    let mut chooser = Chooser::default();
    chooser.handle_opened();
    let (to_peer, _) = a.keys().expect("a greeting");
    let mut gather = Gather::new(vec![0; GATHERED_OCTETS], to_peer, 64);
    let mut deframer = Deframer::new(to_peer, 64);
    let (datagram, mut program) = (vec![7; len], vec![0; len]);
    let mut received = 0;
    for number in 0..count {
        let now = START + Duration::from_nanos(100) * number;
        let Known::Channel(channel) = destinations.handle_send(black_box(target), now) else {
            panic!("it has a channel");
        };
        let send = Send {
            len,
            is_busy: true,
            packet: 1472,
        };
        black_box(chooser.choose(send));
        let fill = |room: &mut [u8]| {
            room.copy_from_slice(black_box(&datagram));
            Ok::<(), Infallible>(())
        };
        let put = gather.push(channel as u16, len, fill);
        assert_eq!(put, Ok(true));
        a.handle_sent(now);
        if gather.octets().len() + len + 8 <= GATHERED_OCTETS && number + 1 < count {
            continue;
        }
        // What one call of the driver would move.
        let octets = gather.octets();
        let mut at = 0;
        while receives && at < octets.len() {
            let Ok(Next::Frame(head, range)) = deframer.next(&octets[at..]) else {
                panic!("a frame");
            };
            let ends = b
                .handle_datagram(head.channel, now)
                .expect("an honest peer");
            assert!(ends.is_some() && !b.is_behind(head.channel, now));
            program.copy_from_slice(&octets[at..][range]);
            black_box(&program);
            at += head.frame_len();
            received += 1;
        }
        let taken = octets.len();
        gather.handle_taken(taken);
    }
    assert_eq!(received, if receives { count } else { 0 });
}
