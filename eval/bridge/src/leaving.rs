//! Frames on their way out of an interface.

use std::io;

use rustix::io::Errno;
use weft_link::{join, Joined};
use weft_os::device::{Batch, BATCH_FRAMES_MAX};
use weft_os::packet::{PacketSender, OFFLOAD_LEN};

use crate::tally::Tally;

/// A frame with nothing left to do.
const FINISHED: [u8; OFFLOAD_LEN] = [0; OFFLOAD_LEN];

/// Frames that an interface did not take.
#[derive(Clone, Copy, Default)]
pub(crate) struct Failures {
    not_sent: u64,
    too_long: u64,
}

impl Failures {
    pub(crate) fn add_to(self, tally: &Tally) {
        if self.not_sent + self.too_long > 0 {
            let mut sums = tally.sums();
            sums.not_sent += self.not_sent;
            sums.too_long += self.too_long;
        }
    }

    fn add(&mut self, error: &io::Error, frames: usize) {
        match Errno::from_io_error(error) {
            Some(Errno::MSGSIZE) => self.too_long += frames as u64,
            _ => self.not_sent += frames as u64,
        }
    }
}

/// Sends frames in order, those that can be joined as one where `joins`. What the interface does not take is counted
/// and left out.
///
/// # Errors
/// The interface is gone.
pub(crate) fn send(
    sender: &PacketSender,
    frames: &[&[u8]],
    joins: bool,
    failures: &mut Failures,
) -> io::Result<()> {
    let groups = grouped(frames, joins);
    let mut groups = &groups[..];
    while !groups.is_empty() {
        let mut batch = Batch::default();
        for group in groups.iter().take(BATCH_FRAMES_MAX) {
            if !group.put_into(&mut batch) {
                break;
            }
        }
        let gone = match sender.send(&mut batch) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) if is_gone(&error) => return Err(error),
            Err(error) => {
                failures.add(&error, groups[0].frames.len());
                1
            }
        };
        groups = &groups[gone..];
    }
    Ok(())
}

/// Frames that leave as one.
struct Group<'a> {
    frames: &'a [&'a [u8]],
    /// None for one that leaves as it is.
    joined: Option<Joined>,
}

fn grouped<'a>(mut frames: &'a [&'a [u8]], joins: bool) -> Vec<Group<'a>> {
    let mut groups = Vec::with_capacity(frames.len());
    while !frames.is_empty() {
        let joined = if joins { join(frames) } else { None };
        let (own, rest) = frames.split_at(joined.as_ref().map_or(1, |joined| joined.frames));
        groups.push(Group {
            frames: own,
            joined,
        });
        frames = rest;
    }
    groups
}

impl<'a> Group<'a> {
    /// False where the batch has no room for all of it; then there is nothing of it.
    fn put_into(&'a self, batch: &mut Batch<'a>) -> bool {
        let Some(joined) = &self.joined else {
            return batch.frame(&FINISHED) && batch.push(self.frames[0]);
        };
        if !batch.frame(&joined.offload) {
            return false;
        }
        let at = joined.head.len();
        let whole =
            batch.push(&joined.head) && self.frames.iter().all(|frame| batch.push(&frame[at..]));
        if !whole {
            batch.cancel();
        }
        whole
    }
}

pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV)
    )
}
