//! The peer: what it sends, and what it knows to send it by.

use weft_verbs::iwarp::{
    AtomicOperation, AtomicRequest, Header, Opcode, PeerFault, QueueNumber, ReadRequest, Stag,
    Tagged, Untagged,
};

use weft_verbs::qp::Ending;

use super::{Area, Window, World};

impl World {
    fn arrive_framed(&mut self, at: usize, header: Header, body: &[u8], payload: &[u8]) {
        let mut fpdu = Vec::new();
        let peer = &mut self.ends[at].peer;
        let start = peer.begin(&mut fpdu, &header, body, payload.len());
        fpdu.extend_from_slice(payload);
        peer.seal(&mut fpdu, start);
        if self.ends[at].crc && self.random.chance(0.02) {
            let bit = self.random.below(8 * fpdu.len() as u64) as usize;
            fpdu[bit / 8] ^= 1 << (bit % 8);
            self.ends[at].damaged = true;
        }
        self.arrive(at, &fpdu);
    }

    /// STags with where what they name begins and how long it is: half the time of what is there for this peer (or for
    /// another connection), so that not every step ends the connection, else of anything there ever was.
    fn known(&mut self, at: usize) -> Vec<(Stag, u64, u64)> {
        let of_area = |area: &Area| (area.stag, area.iova, area.len);
        let of_window = |window: &Window| (window.stag, window.iova, window.len);
        let whose = match self.random.below(10) {
            0 => (at + 1) % self.ends.len(),
            _ => at,
        };
        let end = &self.ends[whose];
        let keys = [0, 1].map(|which| end.key_of_window(which));
        let bound = end.windows.iter().filter(|w| keys.contains(&w.stag));
        let bound: Vec<_> = bound.map(of_window).collect();
        let there = |area: &&Area| area.is_there && area.pd == end.pd;
        let there: Vec<_> = self.areas.iter().filter(there).map(of_area).collect();
        let windows = self.ends.iter().flat_map(|end| &end.windows);
        let ever = self.areas.iter().map(of_area);
        let ever = ever.chain(windows.map(of_window)).collect();
        match self.random.below(4) {
            0 if !bound.is_empty() => bound,
            0 | 1 if !there.is_empty() => there,
            _ => ever,
        }
    }

    /// An STag and a TO to reach into memory by, and how far it is to the end of what they name.
    fn guess(&mut self, at: usize) -> (Stag, u64, u64) {
        let known = self.known(at);
        let random = &mut self.random;
        let (mut stag, iova, len) = known[random.below(known.len() as u64) as usize];
        match random.below(16) {
            0 => stag = Stag(stag.0 ^ (1 << random.below(8))),
            1 => stag = Stag(stag.0 ^ (1 << random.below(32))),
            2 => stag = Stag(random.bits() as u32),
            _ => {}
        }
        let offset = random.below(len + 1);
        let to = match random.below(16) {
            0 => iova.wrapping_sub(1 + random.below(9)),
            1 => u64::MAX - random.below(20),
            2 => random.bits(),
            _ => iova.wrapping_add(offset),
        };
        (stag, to, len - offset)
    }

    /// A length that mostly ends where it has to.
    fn length(&mut self, room: u64) -> u64 {
        match self.random.below(12) {
            0 => room + 1 + self.random.below(8),
            1 => self.random.below(1400),
            2 => room,
            _ => self.random.below(room + 1),
        }
        .min(1400)
    }

    fn payload(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.random.bits() as u8 & 0x7F).collect()
    }

    fn untagged(&mut self, at: usize, opcode: Opcode, qn: QueueNumber) -> Untagged {
        let mut untagged = Untagged {
            last: true,
            opcode,
            invalidate: 0,
            qn,
            msn: self.ends[at].peer.next_msn(qn),
            mo: 0,
        };
        if self.random.chance(0.03) {
            untagged.msn = untagged.msn.next();
        }
        if self.random.chance(0.03) {
            untagged.mo = self.random.below(2000) as u32;
        }
        untagged
    }

    /// The peer reaches for something.
    pub(super) fn attack(&mut self, at: usize) {
        match self.random.below(13) {
            0..=3 => self.attack_by_write(at),
            4..=6 => self.attack_by_read(at),
            7 => self.attack_by_atomic(at),
            8 | 9 => self.attack_by_send(at),
            10 => self.attack_by_response(at),
            11 => self.attack_by_invalidation(at),
            _ => {
                let len = self.random.below(100);
                let octets: Vec<u8> = (0..len).map(|_| self.random.bits() as u8 & 0x7F).collect();
                // Without a CRC headers would be taken for payload, and look like secrets when they come back.
                if self.ends[at].crc && self.random.chance(0.2) {
                    self.ends[at].damaged = true;
                    self.arrive(at, &octets);
                }
            }
        }
    }

    fn attack_by_write(&mut self, at: usize) {
        let segments = 1 + self.random.below(3);
        let (mut stag, mut to, mut room) = self.guess(at);
        for segment in 1..=segments {
            let len = self.length(room);
            let header = Header::Tagged(Tagged {
                last: segment == segments,
                opcode: Opcode::WRITE,
                stag,
                to,
            });
            let payload = self.payload(len);
            self.arrive_framed(at, header, &[], &payload);
            to = to.wrapping_add(len);
            room = room.saturating_sub(len);
            if self.random.chance(0.2) {
                (stag, to, room) = self.guess(at);
            }
        }
    }

    fn attack_by_read(&mut self, at: usize) {
        let (source_stag, source_to, room) = self.guess(at);
        let most = 1 + self.random.below(2) * self.random.below(8);
        for _ in 0..most {
            let size = self.length(room) as u32;
            self.ask(at, (source_stag, source_to), size);
        }
    }

    /// The peer sends a Read Request.
    pub(super) fn ask(&mut self, at: usize, (source_stag, source_to): (Stag, u64), size: u32) {
        let request = ReadRequest {
            sink_stag: Stag(self.random.bits() as u32),
            sink_to: self.random.bits() >> 1,
            size,
            source_stag,
            source_to,
        };
        let header = self.untagged(at, Opcode::READ_REQUEST, QueueNumber::READ_REQUEST);
        self.arrive_framed(at, Header::Untagged(header), &request.to_octets(), &[]);
        self.count_request(at);
    }

    fn attack_by_atomic(&mut self, at: usize) {
        let (stag, to, _) = self.guess(at);
        let to = if self.random.chance(0.8) { to & !7 } else { to };
        let request = AtomicRequest {
            operation: AtomicOperation::CompareSwap {
                swap: self.random.bits() & 0x7F7F_7F7F_7F7F_7F7F,
                swap_mask: u64::MAX,
                compare: 0,
                compare_mask: 0,
            },
            identifier: self.random.bits() as u32,
            stag,
            to,
        };
        let most = 1 + self.random.below(2) * self.random.below(8);
        for _ in 0..most {
            let header = self.untagged(at, Opcode::ATOMIC_REQUEST, QueueNumber::READ_REQUEST);
            self.arrive_framed(at, Header::Untagged(header), &request.to_octets(), &[]);
            self.count_request(at);
        }
    }

    fn attack_by_send(&mut self, at: usize) {
        let header = match self.ends[at].open.take() {
            Some(open) if self.random.chance(0.95) => open,
            _ => {
                let invalidates = self.random.chance(0.2);
                let opcode = Opcode::send(false, invalidates);
                let mut header = self.untagged(at, opcode, QueueNumber::SEND);
                if invalidates {
                    header.invalidate = self.guess(at).0 .0;
                }
                header
            }
        };
        let last = self.random.chance(0.6);
        // Empty segments are allowed anywhere in a message, at its beginning too.
        let len = match self.random.below(3) {
            0 => 0,
            _ => self.random.below(700),
        };
        let header = Untagged { last, ..header };
        self.ends[at].open = (!last).then_some(Untagged {
            mo: header.mo.wrapping_add(len as u32),
            ..header
        });
        let payload = self.payload(len);
        self.arrive_framed(at, Header::Untagged(header), &[], &payload);
    }

    /// STags that were never opened to this peer: of regions that the program has for itself or for another domain, of
    /// other connections' windows, and of windows before anybody bound them.
    fn not_for(&self, at: usize) -> Vec<Stag> {
        let regions = self.areas.iter().map(|area| area.stag);
        let windows = self.ends.iter().flat_map(|end| {
            let bound = end.grants.bound.iter().map(|bind| bind.rkey);
            end.window.into_iter().chain(bound)
        });
        let opened = &self.ends[at].grants.opened;
        let all = regions.chain(windows);
        all.filter(|stag| !opened.contains(stag)).collect()
    }

    /// A Send with Invalidate, faultless but for what it names: the receive it takes fails, the connection ends with
    /// the code for it, and what the STag names serves on. What nobody was ever given does not exist for a peer.
    fn attack_by_invalidation(&mut self, at: usize) {
        let waits = self.ends[at].receives.is_empty();
        if self.ends[at].open.is_some() || (waits && self.random.chance(0.8)) {
            return self.attack_by_send(at);
        }
        let stags = self.not_for(at);
        let stag = stags[self.random.below(stags.len() as u64) as usize];
        let header = Untagged {
            last: true,
            opcode: Opcode::send(false, true),
            invalidate: stag.0,
            qn: QueueNumber::SEND,
            msn: self.ends[at].peer.next_msn(QueueNumber::SEND),
            mo: 0,
        };
        self.arrive_framed(at, Header::Untagged(header), &[], &[]);
        let fault = self.note_faults(at);
        if waits || self.ends[at].damaged {
            return;
        }
        let somebodys = self.ends.iter().any(|e| e.grants.opened.contains(&stag));
        let refused = match fault {
            Some(PeerFault::InvalidateStag) => true,
            Some(PeerFault::InvalidateStream) => somebodys,
            _ => false,
        };
        assert!(refused, "invalidating {stag:?}: {fault:?}");
    }

    /// An answer to a Read that the program asked for, or that it did not: only what goes on with the oldest is taken.
    fn attack_by_response(&mut self, at: usize) {
        let (mut stag, mut to, mut size) = self.guess(at);
        let end = &self.ends[at];
        let oldest = end.asked.front().map(|asked| {
            let to = asked.sink_to.wrapping_add(end.answered);
            (asked.sink_stag, to, u64::from(asked.size) - end.answered)
        });
        if let Some(oldest) = oldest.filter(|_| self.random.chance(0.9)) {
            (stag, to, size) = oldest;
        }
        match self.random.below(20) {
            0 => (stag, to, _) = self.guess(at),
            1 => to = to.wrapping_add(1 + self.random.below(8)),
            2 => stag = Stag(stag.0 ^ 1),
            _ => {}
        }
        let len = if self.random.chance(0.8) {
            size.min(1400)
        } else {
            self.length(size)
        };
        let last = len == size || self.random.chance(0.1);
        let header = Header::Tagged(Tagged {
            last,
            opcode: Opcode::READ_RESPONSE,
            stag,
            to,
        });
        let payload = self.payload(len);
        self.arrive_framed(at, header, &[], &payload);
        let end = &mut self.ends[at];
        if end.qp.ending() != Ending::Open || end.damaged {
            return;
        }
        let fits = oldest.is_some_and(|(asked_stag, asked_to, left)| {
            let right_place = len == 0 || (stag, to) == (asked_stag, asked_to);
            right_place && len <= left && (!last || len == left)
        });
        assert!(
            fits,
            "{len} octets at {stag:?} {to:#x}, last: {last}, were taken for {oldest:?}"
        );
        end.answered += len;
        if last {
            end.asked.pop_front();
            end.answered = 0;
        }
    }
}
