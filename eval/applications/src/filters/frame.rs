//! What copies of filters say to each other on a connection.
//!
//! | octets | what |
//! | --- | --- |
//! | 0..4 | the kind, see [`Kind`] |
//! | 4..8 | octets of the payload, [`PAYLOAD_MAX`] at most |
//! | 8..12 | the number of the unit of work, from 0, modulo 2^32 |
//! | 12.. | the payload |
//!
//! All numbers are in network order.

use anyhow::{bail, ensure, Result};

/// Octets before the payload.
pub(super) const HEAD: usize = 12;
/// The longest payload: a unit is far shorter.
pub(super) const PAYLOAD_MAX: usize = 1 << 20;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A unit of work begins; the payload says what is to be done.
    Begin,
    /// A unit of it.
    Unit,
    /// The sender has given all of it.
    End,
    /// The receiver has taken a unit of it; without a payload, and against the stream.
    Taken,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Kind::Begin => 1,
            Kind::Unit => 2,
            Kind::End => 3,
            Kind::Taken => 4,
        }
    }

    fn of(number: u32) -> Result<Kind> {
        let kinds = [Kind::Begin, Kind::Unit, Kind::End, Kind::Taken];
        match kinds.into_iter().find(|kind| kind.number() == number) {
            Some(kind) => Ok(kind),
            None => bail!("a frame of the unknown kind {number}"),
        }
    }
}

/// What stands before a payload of this length.
pub(super) fn head(kind: Kind, payload: usize, work: u32) -> [u8; HEAD] {
    assert!(payload <= PAYLOAD_MAX, "a unit is shorter");
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&kind.number().to_be_bytes());
    head[4..8].copy_from_slice(&(payload as u32).to_be_bytes());
    head[8..].copy_from_slice(&work.to_be_bytes());
    head
}

/// A frame that came whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: Kind,
    pub(super) work: u32,
    pub(super) payload: &'a [u8],
}

/// Finds frames in the octets of a connection.
#[derive(Debug)]
pub(super) struct Frames {
    octets: Vec<u8>,
    /// Where what is not yet given begins, and where what came ends.
    start: usize,
    end: usize,
}

impl Frames {
    /// `room`: about how many octets are read at a time.
    pub(super) fn new(room: usize) -> Frames {
        Frames {
            octets: vec![0; room.max(HEAD)],
            start: 0,
            end: 0,
        }
    }

    /// Room for what comes next, never empty: whoever fills it says how much with [`Frames::came`].
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.octets.len() {
            self.octets.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.octets.len() {
            // One frame is longer than all of it. How long it may be [`Frames::next`] has looked at.
            let longer = (2 * self.octets.len()).min(HEAD + PAYLOAD_MAX);
            self.octets.resize(longer, 0);
        }
        &mut self.octets[self.end..]
    }

    pub(super) fn came(&mut self, octets: usize) {
        self.end += octets;
    }

    /// Whether nothing of a frame is there.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The next frame that is there whole.
    ///
    /// # Errors
    /// The octets are no frame.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>> {
        let Some(head) = self.octets[self.start..self.end].first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| head[at + i]));
        let (kind, len, work) = (Kind::of(word(0))?, word(4) as usize, word(8));
        ensure!(
            len <= PAYLOAD_MAX,
            "a frame of {len} octets, of {PAYLOAD_MAX} at most"
        );
        let payload = self.start + HEAD..self.start + HEAD + len;
        if payload.end > self.end {
            return Ok(None);
        }
        self.start = payload.end;
        let payload = &self.octets[payload];
        Ok(Some(Frame {
            kind,
            work,
            payload,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, work: u32, payload: &[u8]) -> Vec<u8> {
        [&head(kind, payload.len(), work)[..], payload].concat()
    }

    /// Hands these octets over in pieces of this length, and gives what was found.
    fn found(octets: &[u8], piece: usize) -> Result<Vec<(Kind, u32, Vec<u8>)>> {
        let (mut frames, mut all) = (Frames::new(HEAD), Vec::new());
        for mut piece in octets.chunks(piece) {
            while !piece.is_empty() {
                let room = frames.room();
                let part = room.len().min(piece.len());
                room[..part].copy_from_slice(&piece[..part]);
                frames.came(part);
                piece = &piece[part..];
                while let Some(frame) = frames.next()? {
                    all.push((frame.kind, frame.work, frame.payload.to_vec()));
                }
            }
        }
        assert!(frames.is_empty(), "something is left");
        Ok(all)
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let unit: Vec<u8> = (0..5000_u32).map(|i| (i * 7) as u8).collect();
        let octets = [
            frame(Kind::Begin, 7, b"work"),
            frame(Kind::Unit, 7, &unit),
            frame(Kind::Unit, 7, &[]),
            frame(Kind::End, 7, &[]),
            frame(Kind::Taken, u32::MAX, &[]),
        ]
        .concat();
        let wanted = vec![
            (Kind::Begin, 7, b"work".to_vec()),
            (Kind::Unit, 7, unit),
            (Kind::Unit, 7, vec![]),
            (Kind::End, 7, vec![]),
            (Kind::Taken, u32::MAX, vec![]),
        ];
        for piece in [1, 2, 11, 12, 13, 100, 4096, octets.len()] {
            assert_eq!(found(&octets, piece).unwrap(), wanted, "{piece}");
        }
    }

    #[test]
    fn what_is_no_frame_is_said_so_before_it_is_there() {
        let long = [&2_u32.to_be_bytes()[..], &[0xff; 8]].concat();
        let complaint = found(&long, 12).unwrap_err().to_string();
        assert!(complaint.contains("4294967295 octets"), "{complaint}");
        let complaint = found(b"GET / HTTP/1.1\r\n", 16).unwrap_err().to_string();
        assert!(complaint.contains("unknown kind"), "{complaint}");
    }
}
