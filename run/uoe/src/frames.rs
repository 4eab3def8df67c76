//! Frames that wait to leave by the adapter: segments end where frames do.
//!
//! Where the other end wants to know how old datagrams are, frames that were put in within a millisecond leave as a
//! *batch* that a segment holds, with the time before it.

use std::collections::VecDeque;
use std::time::Duration;

use weft_os::dgram;
use weft_uoe::frame::{CONTROL, HEADER_LEN};
use weft_uoe::gather::{Gather, GATHERED_OCTETS, TIME_FRAME_LEN};

/// Frames that wait at most: there is memory for their lengths once, and a program's send takes none.
const FRAMES_MAX: usize = GATHERED_OCTETS / HEADER_LEN;
/// How long frames are added to a batch that has begun.
const BATCH_WITHIN: Duration = Duration::from_millis(1);

/// What is kept of frames that leave by the adapter.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Octets of each frame or batch that wait to leave, of the first those that are left. Segments end behind one of
    /// them.
    lengths: VecDeque<usize>,
    /// Octets that a segment holds: longer datagrams leave in parts.
    segment: usize,
    /// The number of the next datagram that leaves so.
    message: u32,
    /// Memory for a datagram that is to be cut.
    whole: Vec<u8>,
    /// The other end wants to know when datagrams were sent.
    says_times: bool,
    /// When the last batch began, in nanoseconds, while frames may be added to it.
    batch: Option<u64>,
}

impl Frames {
    /// None yet.
    pub(crate) fn new(segment: usize, says_times: bool) -> Frames {
        Frames {
            lengths: VecDeque::with_capacity(FRAMES_MAX + 1),
            segment,
            message: 0,
            whole: vec![0; usize::from(u16::MAX)],
            says_times,
            batch: None,
        }
    }

    /// A segment holds so many octets from now on.
    pub(crate) fn set_segment(&mut self, octets: usize) {
        self.segment = octets;
    }

    /// Octets of each frame or batch that waits, of the first those that are left.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.lengths.iter().copied()
    }

    /// So many octets have left.
    pub(crate) fn handle_taken(&mut self, mut octets: usize) {
        if octets > 0 {
            self.batch = None;
        }
        while let Some(first) = self.lengths.front_mut() {
            if *first > octets {
                *first -= octets;
                return;
            }
            octets -= *first;
            self.lengths.pop_front();
        }
    }

    /// Puts a datagram in, or a control message: each segment begins with a frame, so what no segment holds leaves in
    /// parts. Says whether there was room.
    ///
    /// # Errors
    /// What `fill` says; nothing of the datagram was put in then.
    #[inline]
    pub(crate) fn push<E>(
        &mut self,
        gather: &mut Gather<Vec<u8>>,
        channel: u16,
        len: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.lengths.len() >= FRAMES_MAX {
            return Ok(false);
        }
        let time_len = if self.says_times { TIME_FRAME_LEN } else { 0 };
        if time_len + HEADER_LEN + len <= self.segment || channel == CONTROL {
            if !gather.make_room(time_len + HEADER_LEN + len) {
                return Ok(false);
            }
            if self.says_times {
                self.begin_batch(gather, HEADER_LEN + len, dgram::now());
            }
            let is_in = gather.push(channel, len, fill)?;
            match self.lengths.back_mut() {
                _ if !is_in => {}
                Some(batch) if self.says_times => *batch += HEADER_LEN + len,
                _ => self.lengths.push_back(HEADER_LEN + len),
            }
            return Ok(is_in);
        }
        let time = self.says_times.then(|| micros(dgram::now()));
        let Frames {
            lengths,
            segment,
            message,
            whole,
            ..
        } = self;
        let Some(whole) = whole.get_mut(..len) else {
            return Ok(false);
        };
        fill(whole)?;
        let is_in = gather.push_cut(channel, *message, whole, *segment, time, |len| {
            lengths.push_back(len);
        });
        *message = message.wrapping_add(u32::from(is_in));
        self.batch = None;
        Ok(is_in)
    }

    /// Begins a batch with the time, unless so many octets more may be added to the last one.
    fn begin_batch(&mut self, gather: &mut Gather<Vec<u8>>, octets: usize, now: u64) {
        let is_new = |begun: u64| u128::from(now.saturating_sub(begun)) < BATCH_WITHIN.as_nanos();
        let holds = self
            .lengths
            .back()
            .is_some_and(|batch| batch + octets <= self.segment);
        let goes_on = holds && self.batch.is_some_and(is_new);
        if !goes_on && gather.push_time(micros(now)) {
            self.lengths.push_back(TIME_FRAME_LEN);
            self.batch = Some(now);
        }
    }
}

/// Microseconds of a time in nanoseconds, of a clock that begins again at zero.
fn micros(nanos: u64) -> u32 {
    (nanos / 1000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_uoe::{Key, Segments};

    fn push(frames: &mut Frames, gather: &mut Gather<Vec<u8>>, len: usize) {
        let fill = |room: &mut [u8]| {
            room.fill(len as u8);
            Ok::<(), ()>(())
        };
        assert_eq!(frames.push(gather, 1, len, fill), Ok(true));
    }

    #[test]
    fn each_segment_begins_with_the_time_where_it_is_wanted() {
        let key = Key::new(&[1; 16], &[2; 16]);
        let mut gather = Gather::new(vec![0; GATHERED_OCTETS], key, 0).counting();
        let mut frames = Frames::new(1000, true);
        let lens = [100, 200, 300, 400, 980, 981, 3000, 50, 50];
        for len in lens {
            push(&mut frames, &mut gather, len);
        }
        let octets = gather.octets().to_vec();
        let lengths: Vec<usize> = frames.lengths().collect();
        assert_eq!(lengths.iter().sum::<usize>(), octets.len());
        assert!(lengths.iter().all(|len| *len <= 1000), "{lengths:?}");
        // However few of them arrive: each says when it was sent, so that all are late.
        let mut segments = Segments::new(key, 0, 1 << 20);
        let (now, age) = (
            Duration::from_nanos(dgram::now()),
            Duration::from_millis(20),
        );
        segments.set_age(Some(age), now);
        let mut at = 0;
        let (mut seen, mut late) = (0, 0);
        for (number, len) in lengths.iter().enumerate() {
            let now = if number == 0 { now } else { now + 3 * age };
            let sink = &mut |_: weft_uoe::segments::Frame<'_>| {
                seen += 1;
                Ok(())
            };
            let octets = &octets[at..at + len];
            segments
                .handle_segment(at as u64, octets, now, sink)
                .unwrap();
            at += len;
            late = segments.late();
        }
        assert_eq!((seen, late), (3, lens.len() as u64 - 3), "{lengths:?}");
    }

    #[test]
    fn what_was_taken_is_no_batch_to_be_added_to() {
        let key = Key::new(&[1; 16], &[2; 16]);
        let mut gather = Gather::new(vec![0; GATHERED_OCTETS], key, 0).counting();
        let mut frames = Frames::new(1000, true);
        push(&mut frames, &mut gather, 100);
        gather.handle_taken(50);
        frames.handle_taken(50);
        push(&mut frames, &mut gather, 100);
        assert_eq!(frames.lengths().collect::<Vec<_>>(), [70, 120]);
    }
}
