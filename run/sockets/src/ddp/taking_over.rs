//! Parts of a connection whose holder died.
//!
//! A process that is killed dies between two instructions or in a system call. What a connection knows is whole all the
//! while, as it was before a call or as it is behind it ([`Held`]), and the kernel's counts tell what became of the
//! call.

use weft_os::shared::{Holding, Shared, Taken};
use weft_os::stream;
use weft_stream::plan::Unfinished;
use zerocopy::FromBytes;

use super::directions::{shut_down, Held, HeldReceiving, HeldSending};
use super::sending::FRAMES_MAX;
use super::slot::{State, PAYLOAD_MAX};
use super::spans::FRAMING_MAX;
use super::starting::FRAME_MAX;
use super::Connection;
use crate::Errno;

const DIED: &str = "a process ended in the middle of a call";

impl Connection<'_> {
    /// Takes the sending direction. What its holder was doing that died is done.
    pub(super) fn take_sending(&self) -> Result<HeldSending<'_>, Errno> {
        match self.ask_for(&self.slot.sending)? {
            Taken::Held(sending) => Ok(Held::new(sending)),
            // A signal handler interrupted a call on the same connection: it is told to come again.
            Taken::Again => Err(libc::EINTR),
            Taken::Inherited(sending) => {
                let mut sending = Held::new(sending);
                self.finish_sending(&mut sending)?;
                Ok(sending)
            }
        }
    }

    /// The same of the receiving direction.
    pub(super) fn take_receiving(&self) -> Result<HeldReceiving<'_>, Errno> {
        match self.ask_for(&self.slot.receiving)? {
            Taken::Held(receiving) => Ok(Held::new(receiving)),
            Taken::Again => Err(libc::EINTR),
            Taken::Inherited(receiving) => {
                let mut receiving = Held::new(receiving);
                self.finish_receiving(&mut receiving)?;
                Ok(receiving)
            }
        }
    }

    fn ask_for<'b, T: FromBytes>(&self, part: &'b Shared<T>) -> Result<Taken<'b, T>, Errno> {
        match self.leaves_alone {
            true => part.try_take().ok_or(libc::EAGAIN),
            false => Ok(part.take()),
        }
    }

    /// Takes octets that belong to a direction, which is held: what is in them is as whole as that is.
    pub(super) fn take_octets<'b, T: FromBytes>(
        &self,
        part: &'b Shared<T>,
    ) -> Result<Holding<'b, T>, Errno> {
        match self.ask_for(part)? {
            Taken::Held(octets) | Taken::Inherited(octets) => Ok(octets),
            Taken::Again => Err(libc::EINTR),
        }
    }

    /// From now on what the socket takes and gives is counted: it has carried so much, but for the octets that are
    /// still to be taken of the start.
    pub(super) fn begin_counting(
        &self,
        receiving: &mut HeldReceiving<'_>,
        sending: &mut HeldSending<'_>,
        start: usize,
    ) -> Result<(), Errno> {
        if let Some(counts) = self.counts()? {
            let base = counts.received.wrapping_add(start as u32);
            (receiving.beside().base, receiving.beside().is_counted) = (base, 1);
            (sending.beside().base, sending.beside().is_counted) = (counts.sent, 1);
        }
        Ok(())
    }

    fn counts(&self) -> Result<Option<stream::Counts>, Errno> {
        stream::counts(self.fd).map_err(|errno| self.failed(errno))
    }

    /// Goes on with the start as if nobody had died, where nothing of the peer's was taken; whether that is so.
    /// It notes a Request that has left.
    fn resumes_the_start(&self, counts: &stream::Counts) -> bool {
        let state = self.slot.state();
        // The kernel counts the SYN as an octet sent.
        let (has_said, has_taken) = (counts.sent > 1, counts.received > 0);
        match state {
            _ if has_taken => false,
            State::Connecting if has_said && !self.slot.goes_plain() => {
                // Its Request has left, and it died before it noted that.
                self.slot.advance(state, State::Asked)
            }
            State::Asked => has_said,
            State::Connecting | State::Accepted | State::Answering => !has_said,
            _ => false,
        }
    }

    fn finish_sending(&self, sending: &mut HeldSending<'_>) -> Result<(), Errno> {
        let is_open = matches!(self.slot.state(), State::Open | State::Listening);
        let is_counted = is_open && sending.beside().is_counted != 0;
        let counts = self.counts()?;
        if counts.is_some_and(|counts| self.resumes_the_start(&counts)) {
            return Ok(());
        }
        let Some(counts) = counts.filter(|_| is_counted) else {
            return Err(self.break_off(&DIED));
        };
        let before = sending.wire.wrapping_sub(sending.rest_len);
        let mut taken = counts
            .sent
            .wrapping_sub(sending.beside().base)
            .wrapping_sub(before) as usize;
        // The end is counted as an octet.
        if sending.shut_down == shut_down::DONE {
            taken = taken.saturating_sub(1);
        }
        let planned = std::mem::take(&mut sending.planned) as usize;
        if planned == 0 {
            if taken > sending.rest_len as usize {
                return Err(self.break_off(&DIED));
            }
            sending.rest_at += taken as u32;
            sending.rest_len -= taken as u32;
            if sending.rest_len == 0 {
                sending.rest_at = 0;
            }
            // It died as its last word of the start left.
            if sending.early > 0 {
                self.send_kept(sending)?;
            }
            return Ok(());
        }
        let progress = sending
            .sender
            .plan(planned, PAYLOAD_MAX, FRAMES_MAX)
            .taken(taken);
        sending.sender = progress.sender;
        match progress.unfinished {
            // The rest of it is gone with the memory that it was in.
            Some(Unfinished::Write { .. }) => return Err(self.break_off(&DIED)),
            Some(Unfinished::Message { message, taken }) => {
                self.queue(sending, &message[taken..])?;
            }
            None => {}
        }
        self.announce(sending, progress.octets, taken)
    }

    fn finish_receiving(&self, receiving: &mut HeldReceiving<'_>) -> Result<(), Errno> {
        let is_open = matches!(self.slot.state(), State::Open | State::Listening);
        let is_counted = is_open && receiving.beside().is_counted != 0;
        let counts = self.counts()?;
        if counts.is_some_and(|counts| self.resumes_the_start(&counts)) {
            return Ok(());
        }
        let Some(counts) = counts.filter(|_| is_counted) else {
            return Err(self.break_off(&DIED));
        };
        let of_start = receiving.beside().base.wrapping_sub(counts.received) as usize;
        if (1..=FRAME_MAX).contains(&of_start) {
            // It died before it took the peer's part of the start, and has said its own, or else this fails.
            drop(self.take_sending()?);
            return self.take_start(receiving, of_start);
        }
        let taken = counts
            .received
            .wrapping_sub(receiving.beside().base)
            .wrapping_sub(receiving.taken);
        // They stay: who takes this over may die, too.
        let spans = receiving.beside().spans;
        let is_unseen = receiving.beside().takes_unseen != 0;
        self.tell_mark_again(receiving);
        // It died in a call that takes nothing, or before one that does. These are of one before that, which is done.
        if taken == 0 {
            return Ok(());
        }
        let most = match is_unseen {
            true => FRAMING_MAX,
            false => spans.payload() + spans.framing(),
        };
        if taken as usize > most {
            return Err(self.break_off(&DIED));
        }
        // What of it was the stream's is gone, as it is with the kernel.
        match is_unseen {
            true => self.account_unseen(receiving, taken as usize, None)?,
            false => self.account(receiving, &spans, taken as usize)?,
        };
        self.keep_mark(receiving);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::receiving::Steps;
    use super::super::spans::Spans;
    use super::super::testing::{open, pair, pair_of};
    use super::super::{Received, Settled, Slot};
    use super::*;
    use std::os::fd::AsRawFd;
    use weft_os::dgram::{get_int, ready, set_int};
    use weft_os::testing::{await_child, fork, halt, killed_after};
    use weft_os::user::OwnBuffer;

    #[test]
    fn who_died_when_the_socket_had_taken_everything_leaves_a_connection_that_goes_on() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        for crc in [false, true] {
            let (slots, sockets) = (Slot::make(2).unwrap(), pair());
            slots.iter().for_each(|slot| slot.set_wants_crc(crc));
            let [client, server] = open(slots, &sockets);
            let mut octets = [7; 100];
            assert!(await_child(fork(|| {
                let Taken::Held(sending) = client.slot().sending.take() else {
                    return false;
                };
                let (mut sending, data) = (Held::new(sending), OwnBuffer::from(&mut octets[..]));
                let kept = client.keep_copied(&mut sending, &data, 0, 100);
                sending.commit();
                let rest = client.take_octets(&client.slot().rest).unwrap();
                let mut sends = weft_os::parts::Sends::new();
                let len = sending.rest_len as usize;
                let is_sent = sends.own(&rest[..len]) && sends.send(client.fd(), 0) == Ok(len);
                std::mem::forget(sending);
                kept == Ok(100) && is_sent
            })));
            let mut received = [0; 300];
            for expected in [100, 100] {
                ready(server.fd(), libc::POLLIN, 1000);
                let room = OwnBuffer::from(&mut received[..]);
                assert_eq!(server.receive(&room, 0), Ok(Received::Octets(expected)));
                let _ = client.send(&OwnBuffer::from(&mut octets[..]), 0, 0);
            }
        }
    }

    #[test]
    fn who_died_in_a_look_leaves_what_was_before() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        let (slots, sockets) = (Slot::make(2).unwrap(), pair());
        let [client, server] = open(slots, &sockets);
        let mut octets = [7; 100];
        let send = |octets: &mut [u8]| client.send(&OwnBuffer::from(octets), 0, 0).unwrap();
        assert_eq!(send(&mut octets), 100);
        ready(server.fd(), libc::POLLIN, 1000);
        let receive = |room: &mut [u8]| server.receive(&OwnBuffer::from(room), 0).unwrap();
        for part in [40, 60] {
            assert_eq!(receive(&mut octets[..part]), Received::Octets(part));
        }
        assert!(await_child(fork(|| {
            std::mem::forget(server.slot().receiving.take());
            true
        })));
        assert_eq!(receive(&mut octets), Received::Nothing);
        assert_eq!(send(&mut octets[..50]), 50);
        ready(server.fd(), libc::POLLIN, 1000);
        assert_eq!(receive(&mut octets), Received::Octets(50));
    }

    /// A call takes what came in steps. Whoever is killed between two of them, at whatever instruction, has taken what
    /// the first of them took.
    #[test]
    fn who_died_between_two_steps_leaves_a_connection_that_goes_on() {
        const INSTRUCTIONS_MAX: usize = 100_000;
        weft_os::process::watch();
        weft_os::user::guard_copies();
        for (crc, is_unseen) in [(false, false), (false, true), (true, false)] {
            let (slots, sockets) = (Slot::make(2).unwrap(), pair());
            slots.iter().for_each(|slot| slot.set_wants_crc(crc));
            let [client, server] = open(slots, &sockets);
            let mut room = [0; 300];
            // What the start has left goes with the first octets.
            assert_eq!(client.send(&OwnBuffer::from(&mut [7][..]), 0, 0), Ok(1));
            ready(server.fd(), libc::POLLIN, 1000);
            let first = server.receive(&OwnBuffer::from(&mut room[..]), 0);
            assert_eq!(first, Ok(Received::Octets(1)));
            for instructions in 0..INSTRUCTIONS_MAX {
                for mut octets in [vec![7; 100], vec![9; 37]] {
                    let sent = client.send(&OwnBuffer::from(&mut octets[..]), 0, 0);
                    assert_eq!(sent, Ok(octets.len()));
                }
                while stream::unread(server.fd()) < 137 + 32 {}
                let was_killed = killed_after(instructions, || {
                    let mut receiving = server.take_receiving().unwrap();
                    let room = OwnBuffer::from(&mut room[..100]);
                    let mut steps = Steps::default();
                    let step = server.bounded_step(&mut receiving, &room, 0, &mut steps);
                    halt();
                    match is_unseen {
                        true => receiving.begin_to_take_unseen(),
                        false => receiving.begin_to_take(Spans::of_payload(1000)),
                    }
                    std::mem::forget(receiving);
                    step == Ok(Received::Octets(100))
                });
                let Some(was_killed) = was_killed else {
                    println!("nobody may trace a child here: not tested");
                    return;
                };
                let received = server
                    .without_waiting()
                    .receive(&OwnBuffer::from(&mut room[..]), 0);
                let case = format!("{instructions} instructions, crc {crc}, {is_unseen}");
                assert_eq!(received, Ok(Received::Octets(37)), "{case}");
                assert_eq!(room[..37], [9; 37], "{case}");
                if !was_killed {
                    break;
                }
            }
        }
    }

    /// Instructions of a call, from its first to beyond its last: fewer and fewer of a long one, or each where nobody
    /// is in a hurry (`EVERY_INSTRUCTION`).
    fn instructions() -> impl Iterator<Item = usize> {
        let is_every = std::env::var_os("EVERY_INSTRUCTION").is_some();
        let next = move |at: &usize| Some(at + if is_every { 1 } else { 41 + at / 16 });
        std::iter::successors(Some(0), next)
    }

    fn numbered(octets: std::ops::Range<usize>) -> Vec<u8> {
        octets.map(|at| (at % 251) as u8).collect()
    }

    /// All that comes without waiting.
    fn receive_all(at: &Connection<'_>) -> Vec<u8> {
        let (mut all, mut room) = (Vec::new(), [0; 3000]);
        while let Received::Octets(octets) = at
            .without_waiting()
            .receive(&OwnBuffer::from(&mut room[..]), 0)
            .unwrap()
        {
            all.extend(&room[..octets]);
        }
        all
    }

    /// Takes so many octets of the stream, and tells whether that were all.
    type Take = fn(&Connection<'_>, usize) -> bool;

    fn receives(at: &Connection<'_>, octets: usize) -> bool {
        let mut room = vec![0; octets];
        halt();
        at.receive(&OwnBuffer::from(&mut room[..]), 0) == Ok(Received::Octets(octets))
    }

    fn discards(at: &Connection<'_>, octets: usize) -> bool {
        halt();
        at.discard(octets) == Ok(Received::Octets(octets))
    }

    fn splices(at: &Connection<'_>, octets: usize) -> bool {
        halt();
        at.receive_written(octets, |seen| Ok(seen.len())) == Ok(Received::Octets(octets))
    }

    #[test]
    fn who_died_in_a_receive_leaves_what_it_has_not_taken() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        // Octets of two sends, and how many are taken: a splice takes of one.
        let ways: [(Take, [usize; 2], usize); 4] = [
            (receives, [100, 37], 137),
            (receives, [900, 700], 1600),
            (discards, [100, 37], 137),
            (splices, [100, 37], 100),
        ];
        for ((take, [first, second], taken), crc) in
            ways.iter().flat_map(|way| [(way, false), (way, true)])
        {
            let (slots, sockets) = (Slot::make(2).unwrap(), pair());
            slots.iter().for_each(|slot| slot.set_wants_crc(crc));
            let [client, server] = open(slots, &sockets);
            let octets = numbered(0..first + second);
            for instructions in instructions() {
                for part in [0..*first, *first..octets.len()] {
                    let mut part = octets[part].to_vec();
                    let sent = client.send(&OwnBuffer::from(&mut part[..]), 0, 0);
                    assert_eq!(sent, Ok(part.len()));
                }
                while stream::unread(server.fd()) < octets.len() + 32 {}
                let was_killed = killed_after(instructions, || take(&server, *taken));
                let left = receive_all(&server);
                let case = format!("{instructions} instructions, {taken}, crc {crc}");
                assert!(octets.ends_with(&left), "{case}: {left:?}");
                match was_killed {
                    Some(true) => {}
                    Some(false) => {
                        assert_eq!(left, octets[*taken..], "{case}");
                        break;
                    }
                    None => return println!("nobody may trace a child here: not tested"),
                }
            }
        }
    }

    #[test]
    fn who_died_in_a_send_has_sent_all_of_it_or_nothing() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        for crc in [false, true] {
            let (slots, sockets) = (Slot::make(2).unwrap(), pair());
            slots.iter().for_each(|slot| slot.set_wants_crc(crc));
            let [client, server] = open(slots, &sockets);
            let send = |by: &Connection<'_>, mut octets: Vec<u8>| {
                by.send(&OwnBuffer::from(&mut octets[..]), 0, 0)
            };
            for instructions in instructions() {
                let (all, next) = (numbered(0..137), numbered(100..137));
                let was_killed = killed_after(instructions, || {
                    halt();
                    send(&client, numbered(0..100)) == Ok(100)
                });
                let case = format!("{instructions} instructions, crc {crc}");
                assert_eq!(
                    send(&client.without_waiting(), next.clone()),
                    Ok(37),
                    "{case}"
                );
                let mut came = Vec::new();
                while !came.ends_with(&next) {
                    assert_ne!(
                        ready(server.fd(), libc::POLLIN, 1000),
                        0,
                        "{case}: {came:?}"
                    );
                    came.extend(receive_all(&server));
                }
                assert!(came == all || came == next, "{case}: {came:?}");
                match was_killed {
                    Some(true) => {}
                    Some(false) => {
                        assert_eq!(came, all, "{case}");
                        break;
                    }
                    None => return println!("nobody may trace a child here: not tested"),
                }
            }
        }
    }

    /// A part of the start, by one of the ends, the client first.
    type Part = fn(&[Connection<'_>; 2]) -> bool;

    fn asks([client, _]: &[Connection<'_>; 2]) -> bool {
        client.ask().is_ok()
    }

    fn answers([_, server]: &[Connection<'_>; 2]) -> bool {
        server.answer().is_ok() && server.settle() == Ok(Settled::Open)
    }

    fn hears([client, _]: &[Connection<'_>; 2]) -> bool {
        client.settle() == Ok(Settled::Open)
    }

    fn settle(ends: &[Connection<'_>; 2], case: &str) -> Result<(), Errno> {
        ends[0].ask()?;
        ends[1].answer()?;
        for end in [&ends[1], &ends[0], &ends[1]] {
            while end.settle()? != Settled::Open {
                // A Reply is to wake nobody.
                ready(end.fd(), libc::POLLIN, 1);
                // The server's program receives.
                if ends[1].slot().is_open() {
                    ends[1].look()?;
                }
                let states = ends.map(|end| end.slot().state());
                assert!(end.slot().age_ms() < 2000, "{states:?}, {case}");
            }
        }
        Ok(())
    }

    /// But for a few instructions, between that it holds what is agreed and that it says so.
    #[test]
    fn who_died_in_the_start_leaves_a_connection_that_begins() {
        const BROKEN_MAX: usize = 1;
        weft_os::process::watch();
        weft_os::user::guard_copies();
        let parts: [Part; 3] = [asks, answers, hears];
        for (number, crc) in (0..3).flat_map(|number| [(number, false), (number, true)]) {
            let mut broken = 0;
            for instructions in instructions().step_by(2) {
                let (slots, sockets) = (Slot::make(2).unwrap(), pair());
                slots[0].begin(State::Connecting, crc, None);
                slots[1].begin(State::Accepted, crc, None);
                let ends = [0, 1].map(|at| Connection::new(&slots[at], sockets[at].as_raw_fd()));
                for part in &parts[..number] {
                    assert!(part(&ends));
                }
                let mut early = *b"early";
                let kept = match number {
                    0 => 0,
                    _ => ends[0]
                        .send(&OwnBuffer::from(&mut early[..]), 0, 0)
                        .unwrap(),
                };
                let was_killed = killed_after(instructions, || {
                    halt();
                    parts[number](&ends)
                });
                let case = format!("part {number}, {instructions} instructions, crc {crc}");
                match settle(&ends, &case) {
                    Ok(()) => {}
                    Err(_) if was_killed == Some(true) => {
                        broken += 1;
                        continue;
                    }
                    Err(errno) => panic!("{case}: {errno}"),
                }
                for (from, to, expected) in [(0, 1, kept + 37), (1, 0, 37)] {
                    let mut octets = [7; 37];
                    let sent = ends[from].send(&OwnBuffer::from(&mut octets[..]), 0, 0);
                    assert_eq!(sent, Ok(37), "{case}");
                    let mut came = Vec::new();
                    while came.len() < expected {
                        assert_ne!(
                            ready(ends[to].fd(), libc::POLLIN, 1000),
                            0,
                            "{case}: {came:?}"
                        );
                        came.extend(receive_all(&ends[to]));
                    }
                    assert_eq!(
                        came,
                        [&early[..expected - 37], &octets[..]].concat(),
                        "{case}"
                    );
                }
                match was_killed {
                    Some(true) => {}
                    Some(false) => break,
                    None => return println!("nobody may trace a child here: not tested"),
                }
            }
            assert!(broken <= BROKEN_MAX, "part {number}, crc {crc}: {broken}");
        }
    }

    #[test]
    fn who_died_before_the_kernel_was_told_of_a_mark_keeps_nobody_waiting() {
        weft_os::process::watch();
        weft_os::user::guard_copies();
        let (slots, sockets) = (Slot::make(2).unwrap(), pair());
        let [client, server] = open(slots, &sockets);
        let mark = || get_int(server.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT);
        let before = mark();
        // It had waited for an FPDU of so many octets, and had noted what is less.
        set_int(server.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, 60_000).unwrap();
        assert!(await_child(fork(|| {
            std::mem::forget(server.slot().receiving.take());
            true
        })));
        let mut octets = [7; 100];
        let room = OwnBuffer::from(&mut octets[..]);
        assert_eq!(server.receive(&room, 0), Ok(Received::Nothing));
        assert_eq!(mark(), before);
        let sent = OwnBuffer::from(&mut octets[..50]);
        assert_eq!(client.send(&sent, 0, 0), Ok(50));
        assert_ne!(ready(server.fd(), libc::POLLIN, 1000) & libc::POLLIN, 0);
    }

    /// What the socket has taken the peer gets, whatever becomes of the sender; what it has not goes with it, unless
    /// somebody else makes a call.
    #[test]
    fn what_was_sent_hardly_ever_stays_with_the_sender_where_the_socket_is_full() {
        const SEGMENT_MAX: usize = 1300;
        weft_os::process::watch();
        weft_os::user::guard_copies();
        // A peer's window of a few KiB makes the kernel's segments short.
        let receive_buffers = [None, Some(2 << 10), Some(5 << 10), Some(20 << 10)];
        let cases = [false, true].into_iter();
        let cases = cases.flat_map(|crc| receive_buffers.map(|octets| (crc, octets)));
        for (crc, receive_buffer) in cases {
            let mut rests = Vec::new();
            for step in 1..40 {
                let mut octets = vec![7; 1777 * step];
                let (slots, sockets) = (Slot::make(2).unwrap(), pair_of(receive_buffer));
                slots.iter().for_each(|slot| slot.set_wants_crc(crc));
                let [client, _server] = open(slots, &sockets);
                let send = |octets: &mut [u8]| client.send(&OwnBuffer::from(octets), 0, 0);
                while send(&mut octets).is_ok() {}
                let Taken::Held(sending) = client.slot().sending.take() else {
                    panic!("nobody else has it");
                };
                rests.push(Held::new(sending).rest_len as usize);
            }
            rests.retain(|left| *left > 0);
            assert!(rests.iter().all(|left| *left <= SEGMENT_MAX), "{rests:?}");
            assert!(rests.is_empty(), "{rests:?}, crc {crc}, {receive_buffer:?}");
        }
    }
}
