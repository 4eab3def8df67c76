//! One end of a carrier as a driver has it: the state machine, and octets to and from the pipe.

use crate::pipe::Pipe;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;
use weft_uoe::deframer::Next;
use weft_uoe::frame::CONTROL;
use weft_uoe::gather::Gather;
use weft_uoe::greeting::GREETING_LEN;
use weft_uoe::messages::Messages;
use weft_uoe::overdue::{self, Overdue};
use weft_uoe::{Carrier, Control, Deframer, Fault, Greeting, Head, Segments};

/// How frames are found.
enum Reader {
    /// The other end's greeting is not there: what came so far.
    Early(Vec<(u64, Vec<u8>)>),
    InOrder(Deframer, Vec<u8>),
    AnyOrder(Segments),
}

pub struct Side {
    pub carrier: Carrier,
    pub messages: Messages,
    /// Data frames that were put into the stream, and that came: datagrams.
    pub put: u64,
    pub came: u64,
    /// Octets that were waited for no more.
    pub forgiven: u64,
    age: Option<Duration>,
    overdue: Overdue,
    own: Greeting,
    room: usize,
    greeting_left: bool,
    gather: Option<Gather<Vec<u8>>>,
    cuts: Vec<usize>,
    /// Taken from the carrier, without room in the stream.
    control: VecDeque<Control>,
    reader: Reader,
    message: u32,
}

impl Side {
    pub fn new(
        own: Greeting,
        address: IpAddr,
        room: usize,
        age: Option<Duration>,
        now: Duration,
    ) -> Side {
        Side {
            carrier: Carrier::new(own, address, now),
            messages: Messages::new(1 << 20),
            put: 0,
            came: 0,
            forgiven: 0,
            age,
            overdue: Overdue::default(),
            own,
            room,
            greeting_left: false,
            gather: None,
            cuts: Vec::new(),
            control: VecDeque::new(),
            reader: Reader::Early(Vec::new()),
            message: 0,
        }
    }

    /// Puts what the carrier says into the stream; says whether all of it is there.
    fn put_controls(&mut self) -> bool {
        let Some(gather) = &mut self.gather else {
            return false;
        };
        self.control
            .extend(std::iter::from_fn(|| self.carrier.poll_control()));
        while let Some(control) = self.control.front() {
            let encoded = control.encode();
            let octets = encoded.octets();
            if !gather.push_cut(CONTROL, 0, octets, 1000, None, |cut| self.cuts.push(cut)) {
                return false;
            }
            self.control.pop_front();
        }
        true
    }

    /// Puts a datagram into the stream; says whether there was room.
    pub fn put(
        &mut self,
        channel: u16,
        octets: &[u8],
        segment: Option<usize>,
        now: Duration,
    ) -> bool {
        if !self.put_controls() {
            return false;
        }
        let Some(gather) = &mut self.gather else {
            return false;
        };
        let segment = segment.unwrap_or(usize::MAX);
        let wants_times = self.carrier.peer().is_some_and(|peer| peer.wants_times);
        let time = wants_times.then_some(now.as_micros() as u32);
        let put = gather.push_cut(channel, self.message, octets, segment, time, |cut| {
            self.cuts.push(cut)
        });
        if put {
            self.message += 1;
            self.put += 1;
        }
        put
    }

    /// Octets to the pipe.
    pub fn transmit(&mut self, pipe: &mut Pipe, host: usize, now: Duration) {
        if !self.greeting_left {
            let octets = self.own.to_octets();
            let taken = pipe.write(host, &octets, &mut vec![octets.len()], now);
            assert_eq!(taken, octets.len(), "there is room for a greeting");
            self.greeting_left = true;
        }
        self.put_controls();
        if let Some(gather) = &mut self.gather {
            let taken = pipe.write(host, gather.octets(), &mut self.cuts, now);
            gather.handle_taken(taken);
        }
    }

    /// Octets from the pipe; gives the datagrams.
    pub fn receive(
        &mut self,
        offset: u64,
        octets: Vec<u8>,
        now: Duration,
    ) -> Result<Vec<(u16, Vec<u8>)>, Fault> {
        let mut seen = Vec::new();
        if self.carrier.is_closed() {
            return Ok(seen);
        }
        let pieces = match &mut self.reader {
            Reader::Early(pieces) => {
                pieces.push((offset, octets));
                pieces.sort();
                match greeting(pieces)? {
                    None => return Ok(seen),
                    Some(peer) => self.begin(peer, now),
                }
            }
            _ => vec![(offset, octets)],
        };
        for (offset, octets) in pieces {
            let mut frames: Vec<(Head, Vec<u8>)> = Vec::new();
            match &mut self.reader {
                Reader::AnyOrder(segments) => {
                    segments.handle_segment(offset, &octets, now, &mut |frame| {
                        frames.push((frame.0, frame.1.to_vec()));
                        Ok(())
                    })?
                }
                Reader::InOrder(deframer, buffer) => {
                    buffer.extend(octets);
                    let mut at = 0;
                    while let Next::Frame(head, range) = deframer.next(&buffer[at..])? {
                        frames.push((head, buffer[at..][range].to_vec()));
                        at += head.frame_len();
                    }
                    buffer.drain(..at);
                }
                Reader::Early(_) => unreachable!("the greeting is there"),
            }
            for (head, octets) in frames {
                self.take(head, octets, now, &mut seen)?;
            }
        }
        Ok(seen)
    }

    /// What is missing for too long is waited for no more.
    pub fn forgive(&mut self, pipe: &mut Pipe, host: usize, now: Duration) {
        let (Some(age), Reader::AnyOrder(segments)) = (self.age, &mut self.reader) else {
            return;
        };
        self.messages.give_up(age, now);
        let wait = overdue::wait(age, pipe.round_trip(host));
        let (frontier, end) = (segments.frontier(), segments.end());
        let before = self.overdue.look(frontier, end, wait, now);
        let mut controls: Vec<Vec<u8>> = Vec::new();
        let forgiven = segments.forgive(before, &mut |(_, octets)| {
            controls.push(octets.to_vec());
            Ok(())
        });
        let forgiven = forgiven.expect("nothing is wrong with it");
        for octets in controls {
            let handled = self.carrier.handle_control(&octets, now);
            handled.expect("an honest peer");
        }
        if let Some(forgiven) = forgiven {
            self.forgiven += forgiven.octets;
            pipe.forgive(host, forgiven.before, now);
        }
    }

    fn begin(&mut self, peer: Greeting, now: Duration) -> Vec<(u64, Vec<u8>)> {
        self.carrier.handle_greeting(peer, now);
        let (to_peer, from_peer) = self.carrier.keys().expect("there is a greeting");
        let first = GREETING_LEN as u64;
        let gather = Gather::new(vec![0; self.room], to_peer, first);
        self.gather = Some(match self.own.takes_any_order {
            true => gather.counting(),
            false => gather,
        });
        let reader = match self.own.takes_any_order {
            true => {
                let mut segments = Segments::new(from_peer, first, 8 << 20);
                segments.set_age(self.age, now);
                Reader::AnyOrder(segments)
            }
            false => Reader::InOrder(Deframer::new(from_peer, first), Vec::new()),
        };
        let Reader::Early(pieces) = std::mem::replace(&mut self.reader, reader) else {
            unreachable!("it was early");
        };
        let behind = |(offset, octets): (u64, Vec<u8>)| {
            let cut = GREETING_LEN
                .saturating_sub(offset as usize)
                .min(octets.len());
            (offset + cut as u64, octets[cut..].to_vec())
        };
        pieces.into_iter().map(behind).collect()
    }

    fn take(
        &mut self,
        head: Head,
        octets: Vec<u8>,
        now: Duration,
        seen: &mut Vec<(u16, Vec<u8>)>,
    ) -> Result<(), Fault> {
        if head.channel == CONTROL {
            return self.carrier.handle_control(&octets, now);
        }
        let whole = match head.is_part {
            true => self.messages.handle_part(head.channel, &octets, now)?,
            false => Some(octets),
        };
        if let Some(octets) = whole {
            self.came += 1;
            seen.push((head.channel, octets));
        }
        Ok(())
    }
}

/// The greeting, once all of it is there.
fn greeting(pieces: &[(u64, Vec<u8>)]) -> Result<Option<Greeting>, Fault> {
    let mut octets = Vec::new();
    for (offset, piece) in pieces {
        if *offset as usize == octets.len() && octets.len() < GREETING_LEN {
            octets.extend_from_slice(piece);
        }
    }
    match octets.first_chunk::<GREETING_LEN>() {
        Some(octets) => Ok(Some(Greeting::parse(octets)?)),
        None => Ok(None),
    }
}
