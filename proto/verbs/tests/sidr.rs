//! Lookups of datagram services on virtual time: a client, a listener, and a network between them that loses, repeats
//! and delays; and strangers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use weft_verbs::sidr::requester::{Outcome, Requester};
use weft_verbs::sidr::responder::{Action, RequestKey, Responder};
use weft_verbs::sidr::{Message, Verdict, HEADER_LEN, QKEY, REPLY_OCTETS_MAX, REQUEST_OCTETS_MAX};

const NOW: Duration = Duration::from_secs(100);
const TIMEOUT: Duration = Duration::from_secs(10);
const LOOKUP: u64 = 0xFEED;
const SECRET: [u8; 16] = [3; 16];
const SERVED: Verdict = Verdict::Served {
    number: 0x1234,
    qkey: QKEY,
};

fn client(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 4000))
}

fn first_request(lookup: u64) -> Vec<u8> {
    request(lookup, 0, &[])
}

fn request(lookup: u64, cookie: u64, private_data: &[u8]) -> Vec<u8> {
    Message::Request {
        lookup,
        cookie,
        private_data,
    }
    .encode()
}

/// The cookie that the listener gives that client.
fn cookie(answerer: &mut Responder, from: SocketAddr, lookup: u64, now: Duration) -> u64 {
    match answerer.handle_datagram(&first_request(lookup), from, now) {
        Action::Send(octets) => match Message::parse(&octets) {
            Some(Message::Challenge { cookie, .. }) => cookie,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A request of a client that is where it says.
fn proven(answerer: &mut Responder, from: SocketAddr, lookup: u64, now: Duration) -> Action {
    let cookie = cookie(answerer, from, lookup, now);
    answerer.handle_datagram(&request(lookup, cookie, b"who"), from, now)
}

/// A client, its listener, and what the program there was told.
struct World {
    asker: Requester,
    answerer: Responder,
    told: Vec<(RequestKey, Vec<u8>)>,
    now: Duration,
}

impl World {
    fn new(private_data: &[u8]) -> World {
        World {
            asker: Requester::new(LOOKUP, private_data, NOW, TIMEOUT).unwrap(),
            answerer: Responder::new(SECRET, 16),
            told: Vec::new(),
            now: NOW,
        }
    }

    /// Goes on until the client has its outcome. `network` says when each of the two directions' datagrams arrive, if
    /// at all; the program decides `thinks` after it was told.
    fn run(&mut self, mut network: impl FnMut() -> Vec<Duration>, thinks: Duration) -> Outcome {
        let mut there: VecDeque<(Duration, Vec<u8>)> = VecDeque::new();
        let mut back: VecDeque<(Duration, Vec<u8>)> = VecDeque::new();
        let mut decide: VecDeque<(Duration, RequestKey)> = VecDeque::new();
        let from = client(1);
        loop {
            while let Some(octets) = self.asker.poll_transmit() {
                there.extend(
                    network()
                        .iter()
                        .map(|after| (self.now + *after, octets.clone())),
                );
            }
            let mut sent = Vec::new();
            for octets in take_due(&mut there, self.now) {
                match self.answerer.handle_datagram(&octets, from, self.now) {
                    Action::Send(octets) => sent.push(octets),
                    Action::Tell(key, private_data) => {
                        decide.push_back((self.now + thinks, key));
                        self.told.push((key, private_data));
                    }
                    Action::Wait => {}
                    Action::Drop => panic!("the client sent what is no request"),
                }
            }
            for key in take_due(&mut decide, self.now) {
                let answer = self.answerer.answer(key, SERVED, b"here", self.now);
                sent.push(answer.unwrap());
            }
            for octets in sent {
                back.extend(
                    network()
                        .iter()
                        .map(|after| (self.now + *after, octets.clone())),
                );
            }
            for octets in take_due(&mut back, self.now) {
                self.asker.handle_datagram(&octets, self.now);
            }
            if let Some(outcome) = self.asker.poll_event() {
                return outcome;
            }
            self.now += Duration::from_millis(1);
            self.asker.handle_timeout(self.now);
        }
    }
}

fn take_due<T>(queue: &mut VecDeque<(Duration, T)>, now: Duration) -> Vec<T> {
    let (due, later): (VecDeque<_>, VecDeque<_>) = queue.drain(..).partition(|(at, _)| *at <= now);
    *queue = later;
    due.into_iter().map(|(_, what)| what).collect()
}

fn answered() -> Outcome {
    Outcome::Answered(SERVED, b"here".to_vec())
}

#[test]
fn a_lookup_is_answered_with_the_private_data_of_both_sides() {
    let mut world = World::new(b"who");
    let at_once = || vec![Duration::ZERO];
    assert_eq!(world.run(at_once, Duration::ZERO), answered());
    let key = RequestKey {
        from: client(1),
        lookup: LOOKUP,
    };
    assert_eq!(world.told, [(key, b"who".to_vec())]);
    assert!(
        world.now < NOW + Duration::from_millis(10),
        "nothing was asked twice"
    );
    assert_eq!(world.asker.deadline(), None);
}

#[test]
fn a_program_that_takes_its_time_is_told_once() {
    let mut world = World::new(b"");
    let at_once = || vec![Duration::ZERO];
    assert_eq!(world.run(at_once, Duration::from_secs(9)), answered());
    assert_eq!(world.told.len(), 1);
}

/// Whatever a network does to datagrams: the client has its answer in the end, and the program was told once.
#[test]
fn datagrams_that_are_lost_repeated_and_late_change_nothing() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new(b"who");
        let network = || {
            let copies = [0, 0, 1, 1, 1, 2][random.usize(..6)];
            (0..copies)
                .map(|_| Duration::from_millis(random.u64(..300)))
                .collect()
        };
        // Six tries or more, of four datagrams each a third of which is lost.
        match world.run(network, Duration::from_millis(50)) {
            Outcome::TimedOut => assert!(world.now >= NOW + TIMEOUT, "seed {seed}"),
            outcome => assert_eq!(outcome, answered(), "seed {seed}"),
        }
        assert!(world.told.len() <= 1, "seed {seed}: told of it again");
    }
}

#[test]
fn nobody_there_is_told_in_time_and_after_few_tries() {
    let mut asker = Requester::new(LOOKUP, b"", NOW, TIMEOUT).unwrap();
    let (mut tries, mut now) = (0, NOW);
    while asker.poll_event() != Some(Outcome::TimedOut) {
        tries += usize::from(asker.poll_transmit().is_some());
        now = asker.deadline().unwrap();
        asker.handle_timeout(now);
    }
    assert_eq!(now, NOW + TIMEOUT);
    assert!((5..=10).contains(&tries), "{tries} tries");
}

#[test]
fn who_challenges_without_end_is_not_asked_without_end() {
    let mut asker = Requester::new(LOOKUP, b"", NOW, TIMEOUT).unwrap();
    let mut tries = 0;
    for cookie in 1..10_000 {
        tries += usize::from(asker.poll_transmit().is_some());
        let lookup = LOOKUP;
        asker.handle_datagram(&Message::Challenge { lookup, cookie }.encode(), NOW);
    }
    assert_eq!(tries, 64);
}

#[test]
fn answers_to_others_are_not_taken() {
    let mut asker = Requester::new(LOOKUP, b"", NOW, TIMEOUT).unwrap();
    asker.poll_transmit().unwrap();
    let answer = |lookup| Message::Reply {
        lookup,
        verdict: Verdict::Rejected,
        private_data: b"no",
    };
    asker.handle_datagram(&answer(LOOKUP ^ 1).encode(), NOW);
    let challenge = Message::Challenge {
        lookup: LOOKUP ^ 1,
        cookie: 5,
    };
    asker.handle_datagram(&challenge.encode(), NOW);
    asker.handle_datagram(&first_request(LOOKUP), NOW);
    assert_eq!((asker.poll_event(), asker.poll_transmit()), (None, None));
    asker.handle_datagram(&answer(LOOKUP).encode(), NOW);
    let rejected = Outcome::Answered(Verdict::Rejected, b"no".to_vec());
    assert_eq!(asker.poll_event(), Some(rejected));
    // It is over.
    asker.handle_datagram(&answer(LOOKUP).encode(), NOW);
    assert_eq!(asker.poll_event(), None);
}

#[test]
fn nothing_is_asked_any_more_when_it_is_over() {
    let mut asker = Requester::new(LOOKUP, b"", NOW, TIMEOUT).unwrap();
    asker.handle_timeout(NOW + TIMEOUT);
    assert_eq!(asker.poll_transmit(), None);
    assert_eq!(asker.poll_event(), Some(Outcome::TimedOut));
}

#[test]
fn too_much_private_data_is_refused_on_both_sides() {
    assert!(Requester::new(1, &[0; REQUEST_OCTETS_MAX], NOW, TIMEOUT).is_ok());
    assert!(Requester::new(1, &[0; REQUEST_OCTETS_MAX + 1], NOW, TIMEOUT).is_err());
    let mut answerer = Responder::new(SECRET, 1);
    let Action::Tell(key, _) = proven(&mut answerer, client(1), 1, NOW) else {
        panic!("not told");
    };
    let most = [0; REPLY_OCTETS_MAX + 1];
    assert!(answerer.answer(key, SERVED, &most, NOW).is_err());
    assert!(answerer.answer(key, SERVED, &most[1..], NOW).is_ok());
}

// --- strangers

/// Whoever writes another's address into a datagram costs that one no more octets than himself, and the listener
/// nothing.
#[test]
fn a_first_request_gets_no_more_octets_than_it_has_and_leaves_nothing() {
    let mut answerer = Responder::new(SECRET, 2);
    for lookup in 0..10_000 {
        let octets = first_request(lookup);
        let from = client(lookup as u8);
        match answerer.handle_datagram(&octets, from, NOW) {
            Action::Send(challenge) => assert!(challenge.len() <= octets.len()),
            other => panic!("{other:?}"),
        }
    }
    // There is room for both that come honestly.
    for last in [1, 2] {
        let told = proven(&mut answerer, client(last), 1, NOW);
        assert!(matches!(told, Action::Tell(..)), "{told:?}");
    }
}

#[test]
fn a_cookie_is_one_clients_for_one_request_and_a_while() {
    let mut answerer = Responder::new(SECRET, 2);
    let own = cookie(&mut answerer, client(1), 1, NOW);
    let mut is_taken = |from, lookup, now| {
        let mut fresh = Responder::new(SECRET, 2);
        std::mem::swap(&mut answerer, &mut fresh);
        let action = answerer.handle_datagram(&request(lookup, own, b"who"), from, now);
        matches!(action, Action::Tell(..))
    };
    let minute = NOW + Duration::from_secs(60);
    assert!(is_taken(client(1), 1, NOW));
    assert!(is_taken(client(1), 1, NOW + Duration::from_secs(8)));
    assert!(!is_taken(client(1), 1, minute), "it is old");
    assert!(!is_taken(client(2), 1, NOW), "it is another's");
    assert!(!is_taken(SocketAddr::from(([192, 0, 2, 1], 4001)), 1, NOW));
    assert!(!is_taken(client(1), 2, NOW), "it was for another request");
    let mut other = Responder::new([4; 16], 2);
    let action = other.handle_datagram(&request(1, own, b"who"), client(1), NOW);
    assert!(matches!(action, Action::Send(octets) if octets.len() == HEADER_LEN));
}

/// Where the answer stands, only its owner is told: without the cookie there is another challenge.
#[test]
fn an_answer_is_repeated_to_who_has_the_cookie_only() {
    let mut answerer = Responder::new(SECRET, 2);
    let Action::Tell(key, _) = proven(&mut answerer, client(1), 1, NOW) else {
        panic!("not told");
    };
    assert_eq!(proven(&mut answerer, client(1), 1, NOW), Action::Wait);
    let answer = answerer
        .answer(key, SERVED, &[1; REPLY_OCTETS_MAX], NOW)
        .unwrap();
    let again = proven(&mut answerer, client(1), 1, NOW);
    assert_eq!(again, Action::Send(answer));
    let without = answerer.handle_datagram(&first_request(1), client(1), NOW);
    assert!(matches!(without, Action::Send(octets) if octets.len() == HEADER_LEN));
}

#[test]
fn no_address_has_more_than_half_of_the_places() {
    let mut answerer = Responder::new(SECRET, 8);
    let told = |answerer: &mut Responder, from| {
        let told = (0..100)
            .filter(|lookup| matches!(proven(answerer, from, *lookup, NOW), Action::Tell(..)));
        told.count()
    };
    assert_eq!(told(&mut answerer, client(1)), 4);
    // One that writes from another port is no other.
    let other_port = SocketAddr::from(([192, 0, 2, 1], 4001));
    assert_eq!(told(&mut answerer, other_port), 0);
    assert_eq!(told(&mut answerer, client(2)), 4);
    assert_eq!(told(&mut answerer, client(3)), 0, "the listener is full");
    let mut answerer = Responder::new(SECRET, 8);
    for (last, wanted) in [(1, 4), (2, 0)] {
        let from = format!("[2001:db8::{last}]:4000").parse().unwrap();
        assert_eq!(told(&mut answerer, from), wanted, "one network of 64 bits");
    }
}

#[test]
fn answers_are_kept_for_a_minute_and_a_thousand_at_most() {
    let mut answerer = Responder::new(SECRET, 8);
    for lookup in 0..1025 {
        let Action::Tell(key, _) = proven(&mut answerer, client(1), lookup, NOW) else {
            panic!("not told of {lookup}");
        };
        answerer.answer(key, SERVED, b"", NOW).unwrap();
    }
    let is_kept = |answerer: &mut Responder, lookup, now| {
        matches!(proven(answerer, client(1), lookup, now), Action::Send(_))
    };
    assert!(is_kept(&mut answerer, 1, NOW));
    assert!(!is_kept(&mut answerer, 0, NOW), "the oldest made room");
    let soon = NOW + Duration::from_secs(59);
    assert!(is_kept(&mut answerer, 1024, soon));
    assert!(!is_kept(&mut answerer, 1024, NOW + Duration::from_secs(60)));
}

#[test]
fn what_is_no_request_gets_nothing() {
    let mut answerer = Responder::new(SECRET, 8);
    let challenge = Message::Challenge {
        lookup: 1,
        cookie: 1,
    };
    for octets in [&b""[..], b"hello", &[0; 32], &challenge.encode()] {
        let action = answerer.handle_datagram(octets, client(1), NOW);
        assert_eq!(action, Action::Drop);
    }
}
