//! The body of the fuzz target, to be run by the fuzzer and, over the committed corpus, by the tests: a driver, a peer
//! that speaks TCP and UDP, and between them a wire on which anything happens.
//!
//! It panics when the driver breaks a promise: that every octet of a stream is handed over once and within the window,
//! that what waits stays within what windows promised, that what is sent comes to an end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_engine::carrier::{
    Arrived, Carrier, DatagramSocket, Done, Drive, Gather, Listener, Network, SocketOptions,
    Transfer,
};
use weft_engine::settings::TransportRules;
use weft_os::device::Batch;
use weft_os::packet::OFFLOAD_LEN;

use crate::cable::{self, Cutter, End};
use crate::{Driver, Inline, Interface, Link};

/// Frames that one input may cause to be sent: more is a loop without end.
const FRAMES_MAX: usize = 100_000;
/// Frames that are remembered, to be sent again with other octets.
const HISTORY: usize = 16;
/// Octets of a stream that are looked after.
const OCTETS_MAX: usize = 1 << 20;
/// Octets beyond which a window is never moved by what was not placed.
const WINDOW_MAX: u64 = cable::WAITING_FRAMES_MAX as u64 * (64 << 10);
/// Where datagrams are sent back from.
const ECHO_PORT: u16 = 7;
/// VIRTIO_NET_HDR_F_NEEDS_CSUM: nobody looks at the checksum.
const UNCHECKED: u8 = 1;

/// Takes an input apart; gives zeros at its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn octet(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from(self.octet()) << 8 | u16::from(self.octet())
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

type Frame = ([u8; OFFLOAD_LEN], Vec<u8>);

/// A host, and the end of its cable that the input has.
struct Host {
    network: Inline,
    driver: Arc<Driver>,
    datagrams: Box<dyn DatagramSocket>,
    wire: End,
}

impl Host {
    fn new(last: u8) -> Host {
        let (link, wire) = cable::pair().expect("descriptors");
        let interface = Interface {
            name: format!("cable{last}"),
            mac: [2, 0, 0, 0, 0, last],
            mtu: 1500,
            addresses: vec![format!("10.0.0.{last}/24").parse().expect("an address")],
            routes: Vec::new(),
            dad_transmits: 0,
            rules: TransportRules::default(),
        };
        let driver = Driver::unhidden(interface, Box::new(link)).expect("descriptors");
        let network = Inline::new(vec![driver.clone()], Vec::new());
        let at = SocketAddr::from(([10, 0, 0, last], ECHO_PORT));
        let datagrams = network.datagrams(at, &SocketOptions::default(), None);
        Host {
            network,
            driver,
            datagrams: datagrams.expect("the port is free"),
            wire,
        }
    }

    /// Sends datagrams that came back to where they say that they are from.
    fn echo(&self) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(received) = self.datagrams.receive(&mut buffer) {
            let mut list = Gather::default();
            list.push(&buffer[..received.octets]);
            let segment = u16::try_from(received.segment).ok();
            // To nobody, and to whom a hardware address is not known, it may not be sent.
            let _ = self
                .datagrams
                .send(&list, received.to, received.from, segment);
        }
    }

    fn ask(&self, of: u8, octets: &[u8]) {
        let (from, to) = (
            [10, 0, 0, 3 - of].into(),
            ([10, 0, 0, of], ECHO_PORT).into(),
        );
        let mut list = Gather::default();
        list.push(octets);
        let _ = self.datagrams.send(&list, from, to, None);
    }

    fn sent(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        // Of a cable that is cut nothing comes.
        let _ = self.wire.receive(usize::MAX, &mut |frame| {
            frames.push((frame.offload, frame.octets.to_vec()));
        });
        frames
    }

    fn arrive(&mut self, (offload, octets): &Frame) {
        let mut batch = Batch::default();
        if batch.frame(offload) && batch.push(octets) {
            // As above.
            let _ = self.wire.send(&mut batch);
        }
    }
}

/// What is known of the stream that the host under test receives.
#[derive(Default)]
struct Taken {
    octets: Vec<bool>,
    frontier: usize,
    arrived: Arrived,
    /// The stream is taken in pieces.
    pieces: bool,
}

impl Taken {
    fn take(&mut self, carrier: &dyn Carrier, placed: u64) {
        let Some(pieces) = carrier.pieces().filter(|_| self.pieces) else {
            let mut buffer = [0; 3000];
            if let Transfer::Octets(octets) = carrier.recv(&mut buffer) {
                assert!(octets > 0 && octets <= buffer.len());
                self.note(self.frontier as u64, octets);
            }
            return;
        };
        let done = Done {
            position: self.frontier as u64,
            placed,
        };
        if let Transfer::Octets(octets) = pieces.take(done, &mut self.arrived) {
            assert_eq!(octets, self.arrived.octets());
            let mut arrived = std::mem::take(&mut self.arrived);
            while let Some((at, octets)) = arrived.next(self.frontier as u64) {
                assert!(at + octets.len() as u64 <= self.frontier as u64 + 4 * WINDOW_MAX);
                self.note(at, octets.len());
            }
            self.arrived = arrived;
        }
    }

    fn note(&mut self, at: u64, octets: usize) {
        let at = at as usize;
        let end = (at + octets).min(OCTETS_MAX);
        if self.octets.len() < end {
            self.octets.resize(end, false);
        }
        for place in self.octets.iter_mut().take(end).skip(at) {
            assert!(!std::mem::replace(place, true), "an octet comes once");
        }
        while self.octets.get(self.frontier) == Some(&true) {
            self.frontier += 1;
        }
    }
}

/// Both hosts and the wire.
struct Bed {
    host: Host,
    peer: Host,
    cutter: Cutter,
    history: VecDeque<Frame>,
    late: Option<Frame>,
    sent: usize,
}

impl Bed {
    fn new() -> Bed {
        let host = Host::new(1);
        Bed {
            cutter: host.wire.cutter(),
            host,
            peer: Host::new(2),
            history: VecDeque::new(),
            late: None,
            sent: 0,
        }
    }

    fn count(&mut self, frames: usize) {
        self.sent += frames;
        assert!(self.sent < FRAMES_MAX, "frames without end");
    }

    /// Both run once, and what they send arrives; of the frames for the host under test the first is treated so.
    fn run(&mut self, first: u8) {
        self.host.driver.run();
        let sent = self.host.sent();
        self.count(sent.len());
        sent.iter().for_each(|frame| self.peer.arrive(frame));
        self.peer.driver.run();
        let sent = self.peer.sent();
        self.count(sent.len());
        let late = self.late.take();
        for (at, frame) in sent.into_iter().enumerate() {
            self.history.push_back(frame.clone());
            while self.history.len() > HISTORY {
                self.history.pop_front();
            }
            match first {
                1 if at == 0 => {}
                2 if at == 0 => self.late = Some(frame),
                3 if at == 0 => [&frame, &frame]
                    .iter()
                    .for_each(|frame| self.host.arrive(frame)),
                _ => self.host.arrive(&frame),
            }
        }
        if let Some(frame) = late {
            self.host.arrive(&frame);
        }
        self.host.driver.run();
        self.host.echo();
        assert!(self.host.driver.waiting_octets_max() <= 4 * WINDOW_MAX as usize);
    }

    /// A frame that came before, with some of its octets changed, or cut off.
    fn inject(&mut self, input: &mut Input<'_>) {
        let which = usize::from(input.octet()) % HISTORY;
        let Some((offload, mut octets)) = self.history.iter().rev().nth(which).cloned() else {
            return;
        };
        for _ in 0..input.octet() & 7 {
            let (at, octet) = (usize::from(input.octet()), input.octet());
            if let Some(place) = octets.get_mut(at) {
                *place = octet;
            }
        }
        let shorter = usize::from(input.octet()) * 8;
        octets.truncate(octets.len().saturating_sub(shorter));
        let mut offload = offload;
        offload[0] |= UNCHECKED;
        self.host.arrive(&(offload, octets));
    }
}

/// A driver, its peer and the wire. Input: flags (bit 0 pieces, 1 the driver connects), then operations.
pub fn frames(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.octet();
    let mut bed = Bed::new();
    let mut ends = Ends::default();
    ends.begin(&bed, flags & 2 != 0);
    for _ in 0..8 {
        bed.run(0);
        ends.accept();
    }
    let mut taken = Taken::default();
    if let (Some(carrier), true) = (&ends.own, flags & 1 != 0) {
        let begun = carrier.pieces().map(|pieces| pieces.begin());
        taken.pieces = begun.is_some_and(|begun| begun.is_ok());
    }
    while !input.0.is_empty() {
        operate(&mut input, &mut bed, &mut ends, &mut taken);
        bed.host.driver.run();
    }
    drop(ends);
    for _ in 0..4 {
        bed.run(0);
    }
}

/// The next operation.
fn operate(input: &mut Input<'_>, bed: &mut Bed, ends: &mut Ends, taken: &mut Taken) {
    let operation = input.octet();
    let octets = vec![7; usize::from(input.octet()) * 64 + 1];
    match operation % 16 {
        way @ 0..=3 => bed.run(way),
        4 | 5 => bed.inject(input),
        6 => {
            let len = input.word();
            let frame = input.take(len.into()).to_vec();
            bed.host.arrive(&([UNCHECKED; OFFLOAD_LEN], frame));
        }
        8 => bed.peer.ask(1, &octets),
        7 => drop(ends.theirs.as_ref().map(|carrier| carrier.send(&octets))),
        9 => drop(ends.own.as_ref().map(|carrier| carrier.send(&octets))),
        10 | 11 => {
            if let Some(carrier) = &ends.own {
                taken.take(&**carrier, octets.len() as u64 - 1);
            }
        }
        12 => {
            let time = Duration::from_millis(octets.len() as u64);
            bed.host.driver.pass(time);
            bed.peer.driver.pass(time);
        }
        13 => ends.theirs.iter().for_each(|carrier| carrier.finish()),
        14 => match octets.len() & 64 {
            0 => ends.own.iter().for_each(|carrier| carrier.finish()),
            _ => ends.own = None,
        },
        _ => match octets.len() > 15_000 {
            true => bed.cutter.cut(),
            false => ends.accept(),
        },
    }
}

/// Both ends of a connection, and who listens.
#[derive(Default)]
struct Ends {
    own: Option<Box<dyn Carrier>>,
    theirs: Option<Box<dyn Carrier>>,
    listener: Option<Box<dyn Listener>>,
    /// The host under test is the one that connects.
    connects: bool,
}

impl Ends {
    /// One of the two listens, the other connects.
    fn begin(&mut self, bed: &Bed, connects: bool) {
        let options = SocketOptions::default();
        let (from, to, at) = match connects {
            true => (&bed.host, &bed.peer, "10.0.0.2:7471"),
            false => (&bed.peer, &bed.host, "10.0.0.1:7471"),
        };
        let at: SocketAddr = at.parse().expect("an address");
        let bound = to.network.bind(at, &options).expect("a free address");
        self.listener = Some(bound.listen(2).expect("nobody listens"));
        self.connects = connects;
        let carrier = from.network.connect(at, &options).expect("a way");
        *(if connects {
            &mut self.own
        } else {
            &mut self.theirs
        }) = Some(carrier);
    }

    /// Takes the connection, if one waits and none was taken.
    fn accept(&mut self) {
        let passive = match self.connects {
            true => &mut self.theirs,
            false => &mut self.own,
        };
        if passive.is_none() {
            let accepted = self
                .listener
                .as_ref()
                .and_then(|listener| listener.accept().ok());
            *passive = accepted.flatten().map(|(carrier, _)| carrier);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn corpus_of_adapter_frames() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/adapter_frames");
        let files = std::fs::read_dir(&corpus).expect("corpus folder");
        let count = files
            .map(|file| frames(&std::fs::read(file.expect("an entry").path()).expect("a file")))
            .count();
        assert!(count > 3, "{count}");
    }

    /// The input reaches an established connection, and octets behind a hole.
    #[test]
    fn a_stream_with_a_hole_is_taken_in_pieces() {
        let mut bed = Bed::new();
        let mut ends = Ends::default();
        ends.begin(&bed, false);
        for _ in 0..8 {
            bed.run(0);
            ends.accept();
        }
        let (own, theirs) = (ends.own.expect("accepted"), ends.theirs.expect("connected"));
        let mut taken = Taken {
            pieces: true,
            ..Taken::default()
        };
        own.pieces().expect("pieces").begin().expect("a connection");
        for way in [1, 0] {
            assert!(matches!(theirs.send(&[7; 3000]), Transfer::Octets(3000)));
            bed.run(way);
        }
        taken.take(&*own, 0);
        assert_eq!(taken.frontier, 0);
        assert!(taken.octets.iter().filter(|there| **there).count() >= 3000);
        // What the peer hears of that lets it send again what was lost.
        for _ in 0..10 {
            bed.host.driver.pass(Duration::from_millis(10));
            bed.peer.driver.pass(Duration::from_millis(10));
            bed.run(0);
        }
        taken.take(&*own, 0);
        assert_eq!(taken.frontier, 6000);
    }

    /// And datagrams, in fragments.
    #[test]
    fn a_datagram_comes_back() {
        let mut bed = Bed::new();
        let asked = [7; 3000];
        bed.peer.ask(1, b"who are you");
        bed.run(0);
        bed.peer.ask(1, &asked);
        for _ in 0..4 {
            bed.run(0);
        }
        let mut buffer = [0; 4000];
        let mut came = Vec::new();
        while let Ok(received) = bed.peer.datagrams.receive(&mut buffer) {
            came.push(buffer[..received.octets].to_vec());
        }
        assert!(came == [b"who are you".to_vec(), asked.to_vec()]);
    }

    #[test]
    fn any_octets_are_an_input() {
        let mut word = 1u64;
        for _ in 0..300 {
            let octets: Vec<u8> = (0..400)
                .map(|_| {
                    word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (word >> 33) as u8
                })
                .collect();
            frames(&octets);
        }
    }
}
