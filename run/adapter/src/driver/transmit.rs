//! Frames out: what the stack has to send goes to the link, with its payload from where it is.

#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use weft_inet::stack::{Frame, Payload, VnetHeader};
use weft_os::device::{Batch, BATCH_FRAMES_MAX};
use weft_os::packet::OFFLOAD_LEN;

use super::outgoing::Part;
use super::state::{is_gone, State};
use super::table::{Closed, Table};

impl State {
    /// Sends what the stack has to send.
    pub(super) fn transmit(&mut self, now: Duration) {
        loop {
            self.frames.clear();
            while self.frames.len() < BATCH_FRAMES_MAX {
                let Some(frame) = self.stack.poll_transmit(now) else {
                    break;
                };
                match frame.looped {
                    true => self.loop_back(&frame),
                    false => self.frames.push(frame),
                }
            }
            if self.frames.is_empty() {
                return;
            }
            self.send_frames();
        }
    }

    fn send_frames(&mut self) {
        let mut first = 0;
        while first < self.frames.len() {
            let (fitted, outcome) = self.send_batch(first);
            if fitted == 0 {
                // More pieces than a batch holds. Copies are few and large: it happens to none that a queue pair makes.
                self.counters.frames_lost += 1;
                first += 1;
                continue;
            }
            let lost = match outcome {
                // The frame behind what was taken goes first next time, and the link says what is wrong with it.
                Ok(sent) if sent > 0 => {
                    self.counters.frames_out += sent as u64;
                    first += sent;
                    continue;
                }
                Ok(_) => 1,
                Err(error) => {
                    self.note_unsent(first, &error);
                    // One that is too long, or names memory that is gone, costs itself alone. Where the link is full
                    // or down nothing behind it would fare better.
                    if is_of_the_link(&error) {
                        fitted
                    } else {
                        1
                    }
                }
            };
            self.counters.frames_lost += lost as u64;
            first += lost;
        }
    }

    /// Sends as many frames from this one on as go together; how many these are, and what became of them.
    fn send_batch(&mut self, first: usize) -> (usize, io::Result<usize>) {
        let (frames, table) = (&self.frames[first..], &self.table);
        let mut batch = Batch::default();
        let mut fitted = 0;
        for frame in frames {
            if !add_frame(&mut batch, frame, table) {
                break;
            }
            fitted += 1;
        }
        (fitted, self.link.send(&mut batch))
    }

    /// The link did not take the frame at this place. Where that was for memory that is gone, its connection ends: its
    /// octets cannot be had any more. No other error is a reason to look at memory, least of all that of a busy device.
    fn note_unsent(&mut self, at: usize, error: &io::Error) {
        let key = match &self.frames[at].payload {
            Payload::Stream { connection, .. } => self.table.find(*connection),
            _ => None,
        };
        let is_gone = error.raw_os_error() == Some(libc::EFAULT);
        if let Some(key) = key.filter(|_| is_gone) {
            self.abort(key, Closed::NoMemory);
        }
        self.note_link_error(error);
    }

    /// A frame of the interface for itself.
    fn loop_back(&mut self, frame: &Frame) {
        let mut octets = frame.head.to_vec();
        match &frame.payload {
            Payload::Empty => {}
            Payload::Octets(more) => octets.extend_from_slice(more),
            Payload::Stream { connection, range } => {
                let Some(key) = self.table.find(*connection) else {
                    return;
                };
                let Some(conn) = self.table.get(key) else {
                    return;
                };
                let is_gone = conn
                    .outgoing
                    .parts(range.clone())
                    .any(|part| part.append_to(&mut octets).is_err());
                if is_gone {
                    return self.abort(key, Closed::NoMemory);
                }
            }
        }
        self.looped.push_back(octets);
    }
}

/// The link did not take a frame for a reason of its own, not of the frame's.
fn is_of_the_link(error: &io::Error) -> bool {
    let full_or_down = [libc::EAGAIN, libc::ENETDOWN, libc::EIO];
    let errno = error.raw_os_error();
    is_gone(error) || errno.is_some_and(|errno| full_or_down.contains(&errno))
}

/// Puts a frame into a batch; false when it does not fit.
fn add_frame<'a>(batch: &mut Batch<'a>, frame: &'a Frame, table: &'a Table) -> bool {
    if !batch.frame(&offload(&frame.vnet)) {
        return false;
    }
    let mut fits = batch.push(&frame.head);
    match &frame.payload {
        Payload::Empty => {}
        Payload::Octets(octets) => fits &= batch.push(octets),
        Payload::Stream { connection, range } => {
            let conn = table.find(*connection).and_then(|key| table.get(key));
            let parts = conn
                .into_iter()
                .flat_map(|conn| conn.outgoing.parts(range.clone()));
            for part in parts {
                fits &= match part {
                    Part::Octets(octets) => batch.push(octets),
                    Part::Registered {
                        memory,
                        offset,
                        len,
                    } => batch.push_registered(memory, offset, len),
                };
            }
        }
    }
    if !fits {
        batch.cancel();
    }
    fits
}

/// The virtio-net header of a frame, as devices take it.
fn offload(vnet: &VnetHeader) -> [u8; OFFLOAD_LEN] {
    let mut octets = [0; OFFLOAD_LEN];
    octets[0] = u8::from(vnet.needs_checksum);
    octets[1] = vnet.gso_type;
    let numbers = [
        vnet.header_len,
        vnet.gso_size,
        vnet.checksum_start,
        vnet.checksum_offset,
    ];
    for (at, number) in numbers.into_iter().enumerate() {
        octets[2 + 2 * at..4 + 2 * at].copy_from_slice(&number.to_ne_bytes());
    }
    octets
}
