//! Octets that are handed over as they arrive: each once, behind holes too, in segments that end where their sender
//! cuts, within windows that follow what was placed.

mod common;

use std::net::SocketAddr;

use common::{hosts, lossy_hosts, pattern, Hosts, Pair};
use weft_engine::carrier::{
    Arrived, Carrier, Done, Drive, Gather, Network, SocketOptions, Transfer,
};

const AT: &str = "10.7.0.2:7471";

fn pair(hosts: &Hosts) -> Pair {
    hosts.connect(AT.parse::<SocketAddr>().unwrap())
}

/// What takes a stream in pieces.
struct Taker {
    octets: Vec<Option<u8>>,
    arrived: Arrived,
    frontier: usize,
    /// Pieces behind a hole.
    ahead: usize,
}

impl Taker {
    fn of(carrier: &dyn Carrier, len: usize) -> Taker {
        assert_eq!(carrier.pieces().unwrap().begin().unwrap(), 0);
        Taker {
            octets: vec![None; len],
            arrived: Arrived::default(),
            frontier: 0,
            ahead: 0,
        }
    }

    /// Takes what is there; what was said instead, if there is none.
    fn take(&mut self, carrier: &dyn Carrier, done: Done) -> Option<Transfer> {
        match carrier.pieces().unwrap().take(done, &mut self.arrived) {
            Transfer::Octets(octets) => {
                assert_eq!(octets, self.arrived.octets());
                self.place();
                None
            }
            other => Some(other),
        }
    }

    fn place(&mut self) {
        while let Some((at, piece)) = self.arrived.next(u64::MAX) {
            self.ahead += usize::from(at as usize > self.frontier);
            for (place, octet) in self.octets[at as usize..].iter_mut().zip(piece) {
                assert_eq!(place.replace(*octet), None, "an octet comes once");
            }
            while self.octets.get(self.frontier).is_some_and(Option::is_some) {
                self.frontier += 1;
            }
        }
    }

    fn done(&self) -> Done {
        Done {
            position: self.frontier as u64,
            placed: 0,
        }
    }

    fn has_all(&self, octets: &[u8]) -> bool {
        let all = self.octets.iter().copied().collect::<Option<Vec<u8>>>();
        all.as_deref() == Some(octets)
    }
}

#[test]
fn each_octet_comes_once_and_those_behind_a_hole_at_once() {
    // More than a window: it has to move.
    let octets = pattern(17 << 20);
    let hosts = lossy_hosts(50);
    let Pair { active, passive } = pair(&hosts);
    let mut taker = Taker::of(&*passive, octets.len());
    let mut sent = 0;
    hosts.until(|| {
        if let Transfer::Octets(more) = active.send(&octets[sent..]) {
            sent += more;
        }
        while taker.take(&*passive, taker.done()).is_none() {}
        taker.frontier == octets.len()
    });
    assert!(taker.has_all(&octets));
    assert!(hosts.lost() > 0 && taker.ahead > 0, "{}", taker.ahead);
    active.finish();
    hosts.until(|| matches!(taker.take(&*passive, taker.done()), Some(Transfer::End)));
    let mut buffer = [0; 16];
    assert!(
        matches!(passive.recv(&mut buffer), Transfer::Failed(_)),
        "pieces are all there is"
    );
}

#[test]
fn what_came_before_the_pieces_is_among_them_with_its_holes() {
    let octets = pattern(2 << 20);
    let hosts = lossy_hosts(11);
    let Pair { active, passive } = pair(&hosts);
    let mut sent = 0;
    let mut head = [0; 1000];
    hosts.until(|| {
        if let Transfer::Octets(more) = active.send(&octets[sent..]) {
            sent += more;
        }
        matches!(passive.recv(&mut head), Transfer::Octets(1000))
    });
    assert_eq!(head, octets[..1000]);
    // So that there is something behind holes.
    for _ in 0..20 {
        hosts.run();
    }
    let pieces = passive.pieces().unwrap();
    assert_eq!(pieces.begin().unwrap(), 1000);
    assert!(pieces.begin().is_err(), "once");
    let mut taker = Taker {
        octets: vec![None; octets.len()],
        arrived: Arrived::default(),
        frontier: 0,
        ahead: 0,
    };
    taker.octets[..1000].copy_from_slice(
        &octets[..1000]
            .iter()
            .map(|octet| Some(*octet))
            .collect::<Vec<_>>(),
    );
    taker.frontier = 1000;
    taker.take(&*passive, Done::default());
    let at_first = taker.octets.iter().flatten().count();
    assert!(at_first > 1000, "some had come");
    hosts.until(|| {
        if let Transfer::Octets(more) = active.send(&octets[sent..]) {
            sent += more;
        }
        while taker.take(&*passive, taker.done()).is_none() {}
        taker.frontier == octets.len()
    });
    assert!(taker.has_all(&octets));
}

#[test]
fn segments_end_where_their_sender_cuts() {
    const EACH: usize = 3000;
    let octets = pattern(400 * EACH);
    // Two of 3,000 fit the segment of 8,948, three do not.
    let hosts = lossy_hosts(7);
    let Pair { active, passive } = pair(&hosts);
    let mut taker = Taker::of(&*passive, octets.len());
    let mut sent = 0;
    hosts.until(|| {
        if sent < octets.len() {
            let mut list = Gather::default();
            list.push(&octets[sent..(sent + 10 * EACH).min(octets.len())]);
            let first = EACH - sent % EACH;
            (first..=list.octets())
                .step_by(EACH)
                .for_each(|cut| list.cut(cut));
            if let Transfer::Octets(more) = active.send_gather(&list) {
                sent += more;
            }
        }
        let pieces = passive.pieces().unwrap();
        if let Transfer::Octets(_) = pieces.take(taker.done(), &mut taker.arrived) {
            let mut arrived = std::mem::take(&mut taker.arrived);
            while let Some((at, piece)) = arrived.next(u64::MAX) {
                assert_eq!(
                    (at as usize % EACH, piece.len() % EACH),
                    (0, 0),
                    "whole ones"
                );
                taker.arrived.push(at, piece);
                taker.place();
            }
        }
        taker.frontier == octets.len()
    });
    assert!(taker.has_all(&octets) && hosts.lost() > 0);
}

/// Octets that come where the receiver says to be done with none of them, and to have placed so many.
fn octets_offered(placed: u64, to_passive: bool) -> usize {
    let hosts = hosts();
    let pair = pair(&hosts);
    octets_offered_to(&hosts, pair, placed, to_passive)
}

fn octets_offered_to(
    hosts: &Hosts,
    Pair { active, passive }: Pair,
    placed: u64,
    to_passive: bool,
) -> usize {
    let (from, to) = match to_passive {
        true => (active, passive),
        false => (passive, active),
    };
    let pieces = to.pieces().unwrap();
    pieces.begin().unwrap();
    let octets = vec![1; 1 << 20];
    let mut arrived = Arrived::default();
    let (mut came, mut idle) = (0, 0);
    while idle < 200 {
        while let Transfer::Octets(_) = from.send(&octets) {}
        hosts.run();
        idle += 1;
        let done = Done {
            position: 0,
            placed,
        };
        if let Transfer::Octets(more) = pieces.take(done, &mut arrived) {
            (came, idle) = (came + more, 0);
            while arrived.next(u64::MAX).is_some() {}
        }
    }
    came
}

#[test]
fn the_window_follows_what_was_placed() {
    // Whoever opened the connection: the scaling that its SYN offers has to be for the largest window, too.
    for to_passive in [true, false] {
        let offered = |placed| octets_offered(placed, to_passive);
        let (none, some) = (offered(0), offered(5 << 20));
        // The window is told in steps of a segment, and moves in steps of some.
        let grew = some - none;
        assert!(grew.abs_diff(5 << 20) < 64 << 10, "from {none} to {some}");
    }
}

/// What an interface keeps is promised once: to several connections in parts.
#[test]
fn windows_of_several_connections_share_what_is_promised() {
    let alone = octets_offered(0, true);
    let hosts = hosts();
    let at = |port: u16| SocketAddr::new("10.7.0.2".parse().unwrap(), port);
    let others: Vec<Pair> = (1..4).map(|port| hosts.connect(at(port))).collect();
    let pair = pair(&hosts);
    let shared = octets_offered_to(&hosts, pair, 0, true);
    assert!(
        shared.abs_diff(alone / 4) < 64 << 10,
        "{alone} and {shared}"
    );
    drop(others);
}

/// Strangers who connect and say nothing, and whom no queue pair has.
#[test]
fn who_only_connects_takes_nothing_from_a_window() {
    let alone = octets_offered(0, true);
    let hosts = hosts();
    let at: SocketAddr = "10.7.0.2:7000".parse().unwrap();
    let listener = hosts.two.bind(at).listen(100).unwrap();
    let connect = |_| {
        let options = SocketOptions::default();
        hosts.one.network.connect(at, &options).unwrap()
    };
    let strangers: Vec<_> = (0..64).map(connect).collect();
    hosts.until(|| strangers.iter().all(|stranger| stranger.is_connected()));
    // Some were accepted, as the engine accepts whoever has still to send its MPA Request.
    let accepted: Vec<_> = (0..32)
        .map(|_| listener.accept().unwrap().unwrap())
        .collect();
    let beside = octets_offered_to(&hosts, pair(&hosts), 0, true);
    assert!(beside.abs_diff(alone) < 64 << 10, "{alone} and {beside}");
    drop((strangers, accepted));
}

/// What a stranger may send before it has shown that it is none.
#[test]
fn who_only_connects_is_offered_little() {
    let hosts = hosts();
    let at: SocketAddr = AT.parse().unwrap();
    let listener = hosts.two.bind(at).listen(8).unwrap();
    let options = SocketOptions::default();
    let stranger = hosts.one.network.connect(at, &options).unwrap();
    hosts.until(|| stranger.is_connected() && listener.has_waiting());
    let (accepted, _) = listener.accept().unwrap().unwrap();
    let octets = vec![1; 1 << 20];
    while let Transfer::Octets(_) = stranger.send(&octets) {}
    for _ in 0..200 {
        hosts.run();
    }
    let mut buffer = vec![0; 1 << 20];
    let Transfer::Octets(came) = accepted.recv(&mut buffer) else {
        panic!("nothing came");
    };
    // What the SYN offered, without scaling, at most.
    assert!(came <= 64 << 10, "{came}");
}

#[test]
fn who_wants_no_more_lets_its_peer_finish() {
    let hosts = hosts();
    let Pair { active, passive } = pair(&hosts);
    let pieces = passive.pieces().unwrap();
    pieces.begin().unwrap();
    let octets = vec![1; 40 << 20];
    let mut arrived = Arrived::default();
    let mut sent = 0;
    hosts.until(|| {
        if let Transfer::Octets(more) = active.send(&octets[sent..]) {
            sent += more;
            if sent == octets.len() {
                active.finish();
            }
        }
        let done = Done {
            position: u64::MAX,
            placed: 0,
        };
        let end = pieces.take(done, &mut arrived);
        while arrived.next(u64::MAX).is_some() {}
        matches!(end, Transfer::End)
    });
}

#[test]
fn a_turn_takes_no_more_than_its_share() {
    let hosts = hosts();
    let Pair { active, passive } = pair(&hosts);
    let octets = pattern(8 << 20);
    let mut taker = Taker::of(&*passive, octets.len());
    let mut sent = 0;
    let mut most = 0;
    hosts.until(|| {
        if let Transfer::Octets(more) = active.send(&octets[sent..]) {
            sent += more;
        }
        // All that the sender's window lets leave waits at the cable; one turn takes a part.
        assert!((0..20).all(|_| hosts.one.driver.run()));
        let before = taker.octets.iter().flatten().count();
        taker.take(&*passive, taker.done());
        most = most.max(taker.octets.iter().flatten().count() - before);
        taker.frontier == octets.len()
    });
    assert!(taker.has_all(&octets));
    // One by `until`, and one by who takes.
    assert!((256 << 10..=1 << 20).contains(&most), "{most}");
}
