use super::*;
use std::net::Ipv4Addr;
use std::vec;
use std::vec::Vec;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const NOW: Duration = Duration::from_secs(1000);

fn end(last: u8, port: u16) -> End {
    End::new([192, 0, 2, last].into(), port)
}

fn greeting(number: u8) -> Greeting {
    Greeting {
        instance: Instance(number.into()),
        nonce: [number; 16],
        policy: 0,
        takes_any_order: false,
        wants_times: false,
        without_udp: false,
        wanted: None,
    }
}

/// Two ends, and what is between them.
struct Pair {
    now: Duration,
    a: Carrier,
    b: Carrier,
    /// Events that no proof is in, of both.
    of_a: Vec<Event>,
    of_b: Vec<Event>,
    /// What a translator makes of a's address.
    translated: Option<End>,
    /// Proofs that are lost, from now on.
    lost: usize,
    proofs: usize,
    /// Somebody reads at b's sockets for whom this is a datagram.
    strange: usize,
}

/// The random bits of a channel of a's.
const fn secrets(nonce: u8) -> Secrets {
    Secrets {
        nonce: [nonce; 16],
        challenge: [0xc0 | nonce; 16],
    }
}

const SOURCE: End = End::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4000);
const TARGET: End = End::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 5000);

impl Pair {
    fn new(a: Greeting, b: Greeting) -> Pair {
        let mut pair = Pair {
            now: NOW,
            a: Carrier::new(a, [198, 51, 100, 2].into(), NOW),
            b: Carrier::new(b, [198, 51, 100, 1].into(), NOW),
            of_a: vec![],
            of_b: vec![],
            translated: None,
            lost: 0,
            proofs: 0,
            strange: 0,
        };
        pair.a.handle_greeting(b, NOW);
        pair.b.handle_greeting(a, NOW);
        pair
    }

    /// Everything that is under way arrives.
    fn settle(&mut self) {
        loop {
            if let Some(control) = self.a.poll_control() {
                self.b
                    .handle_control(control.encode().octets(), self.now)
                    .unwrap();
            } else if let Some(control) = self.b.poll_control() {
                self.a
                    .handle_control(control.encode().octets(), self.now)
                    .unwrap();
            } else if let Some(event) = self.a.poll_event() {
                match event {
                    Event::Prove { proof, from, to } => {
                        let seen_from = self.translated.unwrap_or(from);
                        self.by_udp(true, proof, to, seen_from);
                    }
                    other => self.of_a.push(other),
                }
            } else if let Some(event) = self.b.poll_event() {
                match event {
                    Event::Prove { proof, from, to } => {
                        let to = if Some(to) == self.translated {
                            SOURCE
                        } else {
                            to
                        };
                        self.by_udp(false, proof, to, from);
                    }
                    other => self.of_b.push(other),
                }
            } else {
                return;
            }
        }
    }

    fn by_udp(&mut self, to_b: bool, proof: Proof, to: End, from: End) {
        if self.lost > 0 {
            self.lost -= 1;
            return;
        }
        self.proofs += 1;
        let carrier = if to_b { &mut self.b } else { &mut self.a };
        self.strange += usize::from(!carrier.handle_proof(proof, to, from, self.now));
    }

    /// Time passes, as far as there is something to do.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        loop {
            let due = [self.a.deadline(), self.b.deadline()];
            let Some(next) = due
                .into_iter()
                .flatten()
                .min()
                .filter(|next| *next <= until)
            else {
                break;
            };
            self.now = self.now.max(next);
            self.a.handle_timeout(self.now);
            self.b.handle_timeout(self.now);
            self.settle();
        }
        self.now = until;
    }

    fn open(&mut self) -> u16 {
        let channel = self.a.open(SOURCE, TARGET, secrets(3), self.now).unwrap();
        self.settle();
        channel
    }

    fn admit(&mut self, channel: u16) {
        self.b.admit(channel, [4; 16], self.now);
        self.settle();
    }

    fn opened() -> Pair {
        let mut pair = Pair::new(greeting(1), greeting(2));
        let channel = pair.open();
        pair.admit(channel);
        assert!(pair.of_a.contains(&Event::Opened { channel: 1 }));
        (pair.of_a, pair.of_b) = (vec![], vec![]);
        pair
    }
}

#[test]
fn a_channel_is_used_when_both_ends_are_proven() {
    let mut pair = Pair::new(greeting(1), greeting(2));
    assert_eq!(pair.open(), 1);
    let wanted = Event::Wanted {
        channel: 1,
        source: SOURCE,
        target: TARGET,
    };
    assert_eq!(pair.of_b, [Event::Up, wanted]);
    assert_eq!(
        pair.b.handle_datagram(1, NOW),
        Err(Fault::Channel(1)),
        "nobody said it may"
    );
    pair.admit(1);
    let incoming = Event::Incoming {
        channel: 1,
        source: SOURCE,
        target: TARGET,
    };
    assert_eq!(pair.of_b[2..], [incoming]);
    assert_eq!(pair.of_a, [Event::Up, Event::Opened { channel: 1 }]);
    assert_eq!((pair.proofs, pair.strange), (2, 0));
    assert_eq!(pair.b.handle_datagram(1, NOW), Ok(Some((SOURCE, TARGET))));
    assert_eq!(pair.b.handle_datagram(2, NOW), Err(Fault::Channel(2)));
}

#[test]
fn both_ends_agree_on_the_keys() {
    let pair = Pair::opened();
    let (of_a, of_b) = (pair.a.keys().unwrap(), pair.b.keys().unwrap());
    assert_eq!(of_a, (of_b.1, of_b.0));
    assert_ne!(of_a.0, of_a.1);
}

#[test]
fn the_address_is_the_one_that_the_proof_came_from() {
    let mut pair = Pair::new(greeting(1), greeting(2));
    let seen = end(99, 61000);
    pair.translated = Some(seen);
    let channel = pair.open();
    pair.admit(channel);
    assert_eq!(pair.of_a.last(), Some(&Event::Opened { channel }));
    assert_eq!(
        pair.b.handle_datagram(channel, NOW),
        Ok(Some((seen, TARGET)))
    );
}

#[test]
fn a_lost_proof_is_sent_again_either_way() {
    for lost in [1, 2] {
        let mut pair = Pair::new(greeting(1), greeting(2));
        pair.lost = lost;
        let channel = pair.open();
        pair.admit(channel);
        assert_eq!(pair.of_a, [Event::Up]);
        pair.pass(ms(700));
        assert_eq!(
            pair.of_a,
            [Event::Up, Event::Opened { channel }],
            "{lost} lost"
        );
        let mut pair = Pair::new(greeting(1), greeting(2));
        let channel = pair.open();
        // The first arrives; what answers it does not.
        pair.b.admit(channel, [4; 16], pair.now);
        let prove = pair.b.poll_control().unwrap();
        pair.a
            .handle_control(prove.encode().octets(), pair.now)
            .unwrap();
        let Some(Event::Prove { proof, from, to }) = pair.a.poll_event() else {
            panic!("no proof");
        };
        assert!(pair.b.handle_proof(proof, to, from, pair.now));
        pair.lost = lost;
        pair.pass(ms(950));
        assert_eq!(
            pair.of_a,
            [Event::Up, Event::Opened { channel }],
            "{lost} lost back"
        );
    }
}

#[test]
fn without_a_proof_there_is_no_channel() {
    let mut pair = Pair::new(greeting(1), greeting(2));
    pair.lost = 100;
    let channel = pair.open();
    pair.admit(channel);
    pair.pass(PROOF_TIMEOUT);
    let why = Why::NoProof;
    assert_eq!(pair.of_a, [Event::Up, Event::Lost { channel, why }]);
    let [Event::Up, Event::Wanted { .. }, finished] = pair.of_b[..] else {
        panic!("{:?}", pair.of_b);
    };
    let mark = None;
    assert_eq!(finished, Event::Finished { channel, mark });
    assert_eq!(pair.b.handle_datagram(channel, pair.now), Ok(None));
    assert_eq!(100 - pair.lost, 4, "four tries");
}

#[test]
fn without_udp_at_both_ends_the_address_of_the_carrier_counts() {
    let without = |number| Greeting {
        without_udp: true,
        ..greeting(number)
    };
    let mut pair = Pair::new(without(1), without(2));
    let channel = pair.open();
    pair.admit(channel);
    assert_eq!(pair.of_a.last(), Some(&Event::Opened { channel }));
    let source = End::new([198, 51, 100, 1].into(), 4000);
    assert_eq!(
        pair.b.handle_datagram(channel, NOW),
        Ok(Some((source, TARGET)))
    );
    assert_eq!(pair.proofs, 0);
    // One end alone cannot do without.
    for (a, b) in [(without(1), greeting(2)), (greeting(1), without(2))] {
        let mut pair = Pair::new(a, b);
        let channel = pair.open();
        pair.admit(channel);
        assert_eq!(pair.proofs, 2);
        let challenge = [0; 16];
        let accept = Control::Accept { channel, challenge };
        let mut pair = Pair::new(a, b);
        pair.open();
        let forged = pair.a.handle_control(accept.encode().octets(), NOW);
        assert_eq!(forged, Err(Fault::Channel(channel)));
    }
}

#[test]
fn a_proof_counts_for_its_channel_at_its_socket_and_from_its_end() {
    let mut pair = Pair::new(greeting(1), greeting(2));
    let channel = pair.open();
    pair.b.admit(channel, [4; 16], NOW);
    let proof = |octet: u8, number| Proof::new([octet; 16], number);
    // Guessed, at another socket of b's, a mark before the proof.
    for (octet, number, to) in [(5, 0, TARGET), (4, 0, end(2, 5001)), (4, 1, TARGET)] {
        assert!(!pair.b.handle_proof(proof(octet, number), to, SOURCE, NOW));
    }
    assert!(pair.b.handle_proof(proof(4, 0), TARGET, SOURCE, NOW));
    assert!(
        !pair.b.handle_proof(proof(4, 0), TARGET, end(9, 9), NOW),
        "from elsewhere"
    );
    assert!(
        !pair.b.handle_proof(proof(4, 1), TARGET, end(9, 9), NOW),
        "a mark from elsewhere"
    );
    for _ in 0..100 {
        assert!(pair.b.handle_proof(proof(4, 0), TARGET, SOURCE, NOW));
    }
    let events = std::iter::from_fn(|| pair.b.poll_event());
    let answers = events
        .filter(|event| matches!(event, Event::Prove { .. }))
        .count();
    assert_eq!(answers, 4, "a replay is not answered for ever");
    // The target's proof, at the source: from elsewhere, to elsewhere, a mark.
    assert!(!pair.a.handle_proof(proof(3, 0), SOURCE, end(9, 9), NOW));
    assert!(!pair.a.handle_proof(proof(3, 0), end(1, 4001), TARGET, NOW));
    assert!(!pair.a.handle_proof(proof(3, 1), SOURCE, TARGET, NOW));
    assert!(pair.a.handle_proof(proof(3, 0), SOURCE, TARGET, NOW));
    assert_eq!(pair.a.poll_event(), None, "proven, and not accepted");
}

#[test]
fn who_does_not_receive_at_the_target_has_no_channel_to_it() {
    // The other end of the connection knows every nonce, and forges the target's proof.
    let opening = || {
        let mut pair = Pair::new(greeting(1), greeting(2));
        let channel = pair.open();
        let prove = Control::Prove {
            channel,
            nonce: [4; 16],
        };
        pair.a.handle_control(prove.encode().octets(), NOW).unwrap();
        assert!(pair
            .a
            .handle_proof(Proof::new([3; 16], 0), SOURCE, TARGET, NOW));
        let sent = std::iter::from_fn(|| pair.a.poll_event()).find_map(|event| match event {
            Event::Prove { proof, .. } => Some(proof),
            _ => None,
        });
        (pair, channel, sent.expect("a proof of the source"))
    };
    for guessed in [[0; 16], [3; 16], [4; 16]] {
        let (mut pair, channel, _) = opening();
        let accept = Control::Accept {
            channel,
            challenge: guessed,
        };
        let said = pair.a.handle_control(accept.encode().octets(), NOW);
        assert_eq!(said, Err(Fault::Challenge(channel)));
        assert_eq!(pair.a.poll_event(), None, "it is not open");
    }
    let (mut pair, channel, sent) = opening();
    let accept = Control::Accept {
        channel,
        challenge: sent.challenge,
    };
    let said = pair.a.handle_control(accept.encode().octets(), NOW);
    assert_eq!(said, Ok(()));
    assert_eq!(pair.a.poll_event(), Some(Event::Opened { channel }));
}

#[test]
fn who_is_refused_is_told_why() {
    let mut pair = Pair::new(greeting(1), greeting(2));
    let channel = pair.open();
    pair.b.refuse(channel, Why::NoSocket, NOW);
    pair.settle();
    let why = Why::NoSocket;
    assert_eq!(pair.of_a.last(), Some(&Event::Lost { channel, why }));
    // What was under way meanwhile is dropped; the number may be used again.
    assert_eq!(pair.b.handle_datagram(channel, NOW), Ok(None));
    assert_eq!(pair.open(), channel);
}

#[test]
fn a_peer_that_says_what_makes_no_sense_is_at_fault() {
    let open = Control::Open {
        channel: 1,
        source: SOURCE,
        target: TARGET,
        nonce: [9; 16],
    };
    let prove = Control::Prove {
        channel: 1,
        nonce: [9; 16],
    };
    let beyond = Control::Open {
        channel: CHANNELS_MAX as u16 + 1,
        source: SOURCE,
        target: TARGET,
        nonce: [9; 16],
    };
    let accept = Control::Accept {
        channel: 1,
        challenge: secrets(3).challenge,
    };
    let number = 1;
    for (control, said) in [
        (open, vec![open]),
        (beyond, vec![]),
        (prove, vec![]),
        (accept, vec![]),
        (Control::Barrier { channel: 1, number }, vec![open]),
        (Control::Behind { channel: 1, number }, vec![]),
    ] {
        let mut pair = Pair::new(greeting(1), greeting(2));
        for before in said {
            pair.b
                .handle_control(before.encode().octets(), NOW)
                .unwrap();
        }
        let said = pair.b.handle_control(control.encode().octets(), NOW);
        assert!(
            matches!(said, Err(Fault::Channel(_))),
            "{control:?}: {said:?}"
        );
    }
    let mut pair = Pair::opened();
    let again = pair.a.handle_control(prove.encode().octets(), NOW);
    assert_eq!(again, Err(Fault::Channel(1)), "it was proven");
    let again = pair.a.handle_control(accept.encode().octets(), NOW);
    assert_eq!(again, Err(Fault::Channel(1)), "it was accepted");
    let none = pair.a.handle_control(&[99], NOW);
    assert!(matches!(none, Err(Fault::Control(_))));
}

#[test]
fn who_asks_and_takes_no_answer_is_at_fault() {
    let mut pair = Pair::opened();
    let ping = Control::Ping { number: 1 }.encode();
    for _ in 0..CONTROLS_MAX {
        assert_eq!(pair.b.handle_control(ping.octets(), NOW), Ok(()));
    }
    let said = pair.b.handle_control(ping.octets(), NOW);
    assert_eq!(said, Err(Fault::Controls(CONTROLS_MAX)));
}

#[test]
fn a_carrier_without_a_greeting_ends_soon() {
    let mut carrier = Carrier::new(greeting(1), [192, 0, 2, 2].into(), NOW);
    assert_eq!(carrier.open(SOURCE, TARGET, secrets(3), NOW), None);
    assert_eq!(carrier.deadline(), Some(NOW + GREETING_TIMEOUT));
    carrier.handle_timeout(NOW + GREETING_TIMEOUT - ms(1));
    assert_eq!(carrier.poll_event(), None);
    carrier.handle_timeout(NOW + GREETING_TIMEOUT);
    assert_eq!(carrier.poll_event(), Some(Event::Closed(Why::Ends)));
    carrier.handle_greeting(greeting(2), NOW + GREETING_TIMEOUT);
    assert_eq!((carrier.poll_event(), carrier.deadline()), (None, None));
}

#[test]
fn a_carrier_that_is_not_used_ends() {
    let mut pair = Pair::opened();
    pair.pass(IDLE_TIMEOUT - ms(1));
    assert_eq!((pair.of_a.len(), pair.of_b.len()), (0, 0));
    // A datagram is use at both ends.
    pair.a.handle_sent(pair.now);
    pair.b.handle_datagram(1, pair.now).unwrap();
    pair.pass(IDLE_TIMEOUT - ms(1));
    assert_eq!((pair.of_a.len(), pair.of_b.len()), (0, 0));
    pair.pass(ms(1));
    let why = Why::Idle;
    assert_eq!(
        pair.of_a,
        [Event::Lost { channel: 1, why }, Event::Closed(why)]
    );
    let (channel, mark) = (1, None);
    assert_eq!(
        pair.of_b,
        [Event::Finished { channel, mark }, Event::Closed(why)]
    );
    assert_eq!((pair.a.deadline(), pair.b.deadline()), (None, None));
}

#[test]
fn who_asks_for_channels_in_vain_has_no_carrier_for_long() {
    let mut pair = Pair::new(greeting(1), greeting(2));
    let begun = pair.now;
    while pair.now < begun + UNPROVEN_TIMEOUT - ms(500) {
        let channel = pair.open();
        pair.b.refuse(channel, Why::NoSocket, pair.now);
        pair.pass(ms(500));
    }
    assert!(pair.b.is_up());
    pair.pass(begun + UNPROVEN_TIMEOUT - pair.now);
    assert!(pair.a.is_closed() && pair.b.is_closed());
    // One that has had a channel stays without one.
    let mut pair = Pair::opened();
    pair.a.close(1, Why::Ends, pair.now);
    pair.pass(UNPROVEN_TIMEOUT * 2);
    assert!(pair.a.is_up() && pair.b.is_up());
}

#[test]
fn a_peer_that_says_nothing_is_asked_and_then_given_up() {
    let mut pair = Pair::opened();
    let mut now = pair.now;
    pair.a.handle_sent(now);
    assert_eq!(pair.a.deadline(), Some(now + PING_AFTER));
    now += PING_AFTER;
    pair.a.handle_timeout(now);
    assert_eq!(pair.a.poll_control(), Some(Control::Ping { number: 1 }));
    assert_eq!(pair.a.deadline(), Some(now + PING_TIMEOUT));
    let pong = Control::Pong { number: 1 }.encode();
    pair.a.handle_control(pong.octets(), now).unwrap();
    assert!(pair.a.deadline() > Some(now + PING_TIMEOUT), "it is there");
    pair.a.handle_sent(now);
    pair.a.handle_timeout(now + PING_AFTER);
    pair.a.handle_timeout(now + PING_AFTER + PING_TIMEOUT);
    let why = Why::Ends;
    assert_eq!(pair.a.poll_event(), Some(Event::Lost { channel: 1, why }));
    assert_eq!(pair.a.poll_event(), Some(Event::Closed(why)));
}

#[test]
fn of_two_carriers_one_stays_and_the_other_ends_with_its_last_channel() {
    assert!(stays(Instance(1), Instance(2)) && !stays(Instance(2), Instance(1)));
    let mut pair = Pair::opened();
    pair.a.drain(Why::Twice, pair.now);
    assert_eq!(pair.a.open(SOURCE, TARGET, secrets(8), pair.now), None);
    // What the other end opens meanwhile is refused.
    assert_eq!(pair.b.open(TARGET, SOURCE, secrets(8), pair.now), Some(1));
    pair.settle();
    assert!(matches!(pair.of_b[..], [Event::Lost { channel: 1, .. }]));
    assert!(!pair.a.is_closed());
    pair.a.close(1, Why::Ends, pair.now);
    pair.settle();
    assert_eq!(pair.of_b.last(), Some(&Event::Closed(Why::Twice)));
    assert!(pair.a.is_closed() && pair.b.is_closed());
    let mut unused = Pair::new(greeting(1), greeting(2));
    unused.b.drain(Why::Twice, NOW);
    unused.settle();
    assert!(unused.a.is_closed());
}

#[test]
fn datagrams_wait_for_the_mark_behind_plain_ones() {
    let mut pair = Pair::opened();
    let mark = pair.a.behind(1, 1, pair.now).unwrap();
    pair.settle();
    assert!(pair.b.is_behind(1, pair.now));
    assert!(pair.b.handle_proof(mark, TARGET, SOURCE, pair.now));
    assert!(!pair.b.is_behind(1, pair.now));
    // The mark may be faster than the carrier.
    let mark = pair.a.behind(1, 2, pair.now).unwrap();
    assert!(pair.b.handle_proof(mark, TARGET, SOURCE, pair.now));
    pair.settle();
    assert!(!pair.b.is_behind(1, pair.now));
    // And it may be lost.
    pair.a.behind(1, 3, pair.now).unwrap();
    pair.settle();
    assert_eq!(pair.b.deadline(), Some(pair.now + MARK_TIMEOUT));
    assert!(pair.b.is_behind(1, pair.now + MARK_TIMEOUT - ms(1)));
    assert!(!pair.b.is_behind(1, pair.now + MARK_TIMEOUT));
    pair.pass(MARK_TIMEOUT);
    assert!(pair.b.deadline() > Some(pair.now + MARK_TIMEOUT));
    // Or be late, which who looks into the socket's queue can tell.
    let mark = pair.a.behind(1, 4, pair.now).unwrap();
    pair.settle();
    let late_at = pair.now + MARK_TIMEOUT;
    assert!(!pair.b.is_mark_late(1, late_at - ms(1)) && pair.b.is_mark_late(1, late_at));
    pair.b.wait_for_late_mark(1, late_at);
    pair.b.handle_timeout(late_at);
    assert!(pair.b.is_behind(1, late_at) && !pair.b.is_mark_late(1, late_at));
    assert!(pair.b.handle_proof(mark, TARGET, SOURCE, late_at));
    assert!(!pair.b.is_behind(1, late_at) && !pair.b.is_mark_late(1, late_at + MARK_TIMEOUT));
    pair.b.wait_for_late_mark(1, late_at);
    assert!(!pair.b.is_behind(1, late_at), "nothing is waited for");
}

#[test]
fn who_says_again_that_datagrams_wait_makes_them_wait_no_longer() {
    let mut pair = Pair::opened();
    let begun = pair.now;
    for number in 1..=4 {
        pair.a.behind(1, number, pair.now).unwrap();
        pair.pass(MARK_TIMEOUT / 4);
    }
    assert_eq!(pair.now, begun + MARK_TIMEOUT);
    assert!(!pair.b.is_behind(1, pair.now), "no mark came");
}

#[test]
fn a_channel_that_is_over_tells_of_the_mark_that_its_last_datagrams_wait_for() {
    for (is_taken, is_gone) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut pair = Pair::opened();
        let proof = pair.a.behind(1, 7, pair.now).unwrap();
        pair.settle();
        if is_taken {
            assert!(pair.b.handle_proof(proof, TARGET, SOURCE, pair.now));
        }
        match is_gone {
            true => pair.b.handle_gone(),
            false => pair.a.close(1, Why::Ends, pair.now),
        }
        pair.settle();
        let (channel, mark) = (1, (!is_taken).then_some(7));
        assert_eq!(pair.of_b[0], Event::Finished { channel, mark });
    }
}

#[test]
fn a_barrier_is_answered_when_it_is_passed() {
    let mut pair = Pair::opened();
    pair.a.barrier(1, 7, pair.now);
    pair.settle();
    let (channel, number) = (1, 7);
    assert_eq!(pair.of_b, [Event::Barrier { channel, number }]);
    assert_eq!(pair.of_a, []);
    pair.b.pass(channel, number, pair.now);
    pair.settle();
    assert_eq!(pair.of_a, [Event::Passed { channel, number }]);
}

#[test]
fn channels_have_a_bound() {
    let mut pair = Pair::new(greeting(1), greeting(2));
    let opened = (0..2000).filter(|_| pair.a.open(SOURCE, TARGET, secrets(3), NOW).is_some());
    assert_eq!(opened.count(), CHANNELS_MAX);
    pair.settle();
    assert_eq!(pair.of_b.len(), CHANNELS_MAX + 1);
}

#[test]
fn a_number_is_free_when_both_ends_have_closed_the_channel() {
    let mut pair = Pair::new(greeting(1), greeting(2));
    let channel = pair.open();
    // Both at once: what the receiver said before the close is under way, and is not about the next channel.
    pair.b.admit(channel, [4; 16], NOW);
    pair.b.refuse(channel, Why::TooMany, NOW);
    pair.a.close(channel, Why::Ends, NOW);
    assert_eq!(
        pair.a.open(SOURCE, TARGET, secrets(5), NOW),
        Some(channel + 1)
    );
    pair.settle();
    assert_eq!(pair.of_a, [Event::Up], "who closed is told nothing");
    pair.admit(channel + 1);
    assert_eq!(
        pair.of_a[1..],
        [Event::Opened {
            channel: channel + 1
        }]
    );
    assert_eq!(pair.open(), channel);
    let refuse = Control::Refuse {
        channel: 9,
        why: Why::Ends,
    }
    .encode();
    assert_eq!(
        pair.a.handle_control(refuse.octets(), NOW),
        Err(Fault::Channel(9))
    );
}

#[test]
fn who_can_be_woken_by_its_peer_alone_is() {
    let mut pair = Pair::new(greeting(1), greeting(2));
    let channel = pair.open();
    pair.admit(channel);
    let before = pair.proofs;
    pair.b.ring(channel, pair.now);
    pair.settle();
    assert_eq!(pair.proofs, before + 1, "a bell was sent");
    assert_eq!(pair.strange, 0, "and no program saw it");
    // A bell is no mark: what waits for one goes on waiting.
    let mark = pair.a.behind(channel, 1, pair.now).unwrap();
    pair.settle();
    pair.b.ring(channel, pair.now);
    pair.settle();
    assert!(pair.b.is_behind(channel, pair.now));
    assert!(pair.b.handle_proof(mark, TARGET, SOURCE, pair.now));
    assert!(!pair.b.is_behind(channel, pair.now));
    // Who asks for a bell of a channel that is closed gets none.
    pair.a.close(channel, Why::Idle, pair.now);
    pair.b.ring(channel, pair.now);
    let before = pair.proofs;
    pair.settle();
    assert_eq!(pair.proofs, before);
}
