//! Two ends of a stream in memory: whatever a socket takes of a send and whatever it has for a receive, the octets come
//! out as they went in.

use std::collections::VecDeque;

use proptest::prelude::*;
use weft_stream::frame::{self, trailer, TRAILER_LEN_MAX};
use weft_stream::plan::{Frame, Unfinished};
use weft_stream::receiver::Check;
use weft_stream::start::Agreed;
use weft_stream::{start, ConnectionData, Event, Next, Receiver, Sender, Target, Word};

/// A direction of a socket.
#[derive(Default)]
struct Pipe {
    octets: VecDeque<u8>,
    room: usize,
}

impl Pipe {
    /// Takes as many as there is room for.
    fn take(&mut self, octets: &[u8]) -> usize {
        let taken = octets.len().min(self.room);
        self.octets.extend(&octets[..taken]);
        self.room -= taken;
        taken
    }

    fn peek(&mut self, octets: usize) -> &[u8] {
        let octets = octets.min(self.octets.len());
        &self.octets.make_contiguous()[..octets]
    }

    fn drop(&mut self, octets: usize) {
        self.octets.drain(..octets);
        self.room += octets;
    }
}

/// One end, as the sockets drive it.
struct End {
    sender: Sender,
    receiver: Receiver,
    /// What has to leave before anything else.
    rest: Vec<u8>,
}

fn wire_of(frame: &Frame, octets: &[u8], crc: bool) -> Vec<u8> {
    let mut wire = frame.header.to_vec();
    wire.extend_from_slice(&octets[frame.payload.clone()]);
    let len = frame.payload.len();
    let padding = frame.trailer_len() - 4;
    let mut covered = wire.clone();
    covered.resize(covered.len() + padding, 0);
    let crc = if crc {
        weft_iwarp::mpa::crc::crc32c(&covered)
    } else {
        0
    };
    let (trailer, trailer_len): ([u8; TRAILER_LEN_MAX], usize) = trailer(len, crc);
    wire.extend_from_slice(&trailer[..trailer_len]);
    wire
}

impl End {
    fn new(own: &ConnectionData, agreed: &Agreed, mulpdu: usize) -> End {
        End {
            sender: Sender::new(&agreed.peer, mulpdu, agreed.crc),
            receiver: Receiver::new(own, &agreed.peer, agreed.crc),
            rest: Vec::new(),
        }
    }

    /// Sends what was left over; whether all of it is gone.
    fn finish(&mut self, pipe: &mut Pipe) -> bool {
        let taken = pipe.take(&self.rest);
        self.rest.drain(..taken);
        self.rest.is_empty()
    }

    /// Sends octets of the stream, as many as the socket takes.
    fn send(&mut self, octets: &[u8], payload: usize, pipe: &mut Pipe) -> usize {
        if !self.finish(pipe) {
            return 0;
        }
        let crc = self.sender.has_crc();
        let plan = self.sender.plan(octets.len(), payload, 5);
        let frames = plan.frames();
        let mut wire: Vec<u8> = frames
            .flat_map(|frame| wire_of(&frame, octets, crc))
            .collect();
        wire.extend(plan.message().into_iter().flatten());
        let progress = plan.taken(pipe.take(&wire));
        self.sender = progress.sender;
        match progress.unfinished {
            Some(Unfinished::Write { frame, taken }) => {
                self.rest
                    .extend_from_slice(&wire_of(&frame, octets, crc)[taken..]);
            }
            Some(Unfinished::Message { message, taken }) => {
                self.rest.extend_from_slice(&message[taken..]);
            }
            None => {}
        }
        if let Some(message) = self.sender.announce() {
            self.rest.extend_from_slice(&message);
        }
        progress.octets
    }

    /// Receives octets of the stream, as many as there are and the reader has room for.
    fn receive(&mut self, room: usize, pipe: &mut Pipe, out: &mut Vec<u8>) {
        let mut room = room;
        loop {
            let want = match self.receiver.check(pipe.peek(1)).unwrap() {
                Check::Good(_) => usize::MAX,
                Check::Need(octets) => octets,
            };
            let octets = pipe.peek(want);
            let octets = match self.receiver.check(octets).unwrap() {
                Check::Need(more) if more > octets.len() => {
                    match self.receiver.check(pipe.peek(more)) {
                        Ok(Check::Good(good)) => pipe.peek(good),
                        _ => return,
                    }
                }
                Check::Need(_) => return,
                Check::Good(good) => &octets[..good],
            };
            match self.receiver.next() {
                _ if octets.is_empty() => return,
                Next::Nothing => return,
                Next::Mapped { .. } => panic!("nothing was mapped"),
                Next::Payload(left) => {
                    let now = (left as usize).min(octets.len()).min(room);
                    if now == 0 {
                        return;
                    }
                    out.extend_from_slice(&octets[..now]);
                    self.receiver.take_payload(now as u32);
                    room -= now;
                    pipe.drop(now);
                }
                Next::Framing(_) => {
                    let framing = self.receiver.take_framing(octets).unwrap();
                    match framing.event {
                        Some(Event::Limit(limit)) => self.sender.set_limit(limit),
                        Some(Event::Target(index, target)) => self.sender.set_target(index, target),
                        Some(Event::End) | None => {}
                        Some(other) => panic!("{other:?}"),
                    }
                    pipe.drop(framing.taken);
                }
            }
        }
    }

    /// Gives the peer more room, where that is due.
    fn renew(&mut self) {
        if let Some(renewal) = self.receiver.renewal() {
            let (octets, len) = self.sender.renew(&renewal);
            self.rest.extend_from_slice(&octets[..len]);
            self.receiver.renewed(&renewal);
        }
    }
}

/// Two ends that started with each other.
fn pair(weft: bool, crc: bool, mulpdu: usize) -> (End, End) {
    let own = |stag: u32, len: u32| {
        let mut own = Receiver::connection_data(stag, 0x10_0000, stag + 1, 0x20_0000);
        own.weft = weft;
        if !weft {
            own.data.len = len;
        }
        own
    };
    let (left, right) = (own(10, 1 << 30), own(20, 1 << 30));
    let asked = start::request(&left, crc);
    let request = start::read_request(&asked).unwrap().unwrap();
    let (reply, len, of_right) = request.accept(&right, false);
    let (of_left, _) = start::read_reply(&reply[..len], crc).unwrap().unwrap();
    (
        End::new(&left, &of_left, mulpdu),
        End::new(&right, &of_right, mulpdu),
    )
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Receive(usize),
    Room(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1usize..700).prop_map(Step::Send),
        (1usize..700).prop_map(Step::Receive),
        (1usize..500).prop_map(Step::Room),
    ]
}

proptest! {
    #[test]
    fn octets_come_out_as_they_went_in(
        steps in proptest::collection::vec(step(), 1..200),
        weft: bool, crc: bool, payload in 1usize..300, mulpdu in 128usize..600,
    ) {
        let (mut left, mut right) = pair(weft, crc, mulpdu);
        let (mut there, mut back) = (Pipe::default(), Pipe { room: 1 << 20, ..Pipe::default() });
        let stream: Vec<u8> = (0..200 * 700usize).map(|at| (at * 7 + at / 251) as u8).collect();
        let (mut sent, mut received) = (0, Vec::new());
        for step in steps {
            match step {
                Step::Send(octets) => {
                    let octets = &stream[sent..sent + octets];
                    sent += left.send(octets, payload, &mut there);
                }
                Step::Receive(room) => right.receive(room, &mut there, &mut received),
                Step::Room(octets) => there.room += octets,
            }
            right.renew();
            right.finish(&mut back);
            left.receive(0, &mut back, &mut Vec::new());
        }
        there.room = usize::MAX / 2;
        left.finish(&mut there);
        let end = left.sender.control(Word::Shutdown);
        prop_assert_eq!(there.take(&end), end.len());
        right.receive(usize::MAX, &mut there, &mut received);
        prop_assert_eq!(&received[..], &stream[..sent]);
        prop_assert!(right.receiver.has_ended() && right.receiver.is_between_fpdus());
    }

    /// A peer may send anything: it is read or refused, and no octet comes out that is not one of a Write's payload.
    #[test]
    fn whatever_a_peer_sends_is_read_or_refused(octets in proptest::collection::vec(any::<u8>(), 0..300), crc: bool) {
        let (mut left, _) = pair(true, crc, 1442);
        left.receiver.begin_mapping();
        let mut at = 0;
        while at < octets.len() {
            let Ok(Check::Good(good)) = left.receiver.check(&octets[at..]) else { break };
            match left.receiver.next() {
                Next::Nothing => break,
                Next::Payload(octets) => {
                    let now = (octets as usize).min(good);
                    left.receiver.take_payload(now as u32);
                    at += now;
                }
                Next::Mapped { left: octets, .. } => {
                    let now = (octets as usize).min(good);
                    left.receiver.take_mapped(now as u32);
                    at += now;
                }
                Next::Framing(wanted) => {
                    prop_assert!(wanted > 0);
                    let Ok(framing) = left.receiver.take_framing(&octets[at..at + good]) else { break };
                    prop_assert!(framing.taken > 0);
                    at += framing.taken;
                }
            }
        }
    }
}

/// An rsockets sender with two small targets that are given again in turn, and a Weft receiver that gives targets of
/// 1 GiB: here the other way round, a Weft sender that fills small targets.
#[test]
fn a_sender_waits_for_window_and_goes_on_in_the_next_target() {
    let (mut left, _) = pair(false, false, 1442);
    let small = |to: u64| Target {
        to,
        stag: 5,
        len: 100,
    };
    left.sender.set_target(0, small(0x1000));
    let mut pipe = Pipe {
        room: 1 << 20,
        ..Pipe::default()
    };
    assert_eq!(left.send(&[1; 250], 80, &mut pipe), 100);
    assert_eq!(left.send(&[1; 250], 80, &mut pipe), 0);
    left.sender.set_target(1, small(0x2000));
    left.sender.set_target(0, small(0x1000));
    assert_eq!(left.send(&[1; 150], 80, &mut pipe), 100);
    assert_eq!(left.send(&[1; 50], 80, &mut pipe), 50);
    let header = frame::write_header(5, 0x1000, 50);
    let octets = pipe.octets.make_contiguous();
    let last = octets.windows(16).rposition(|octets| octets == header);
    assert!(last.is_some(), "the first target is used again");
}
