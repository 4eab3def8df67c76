//! Octets in order from a carrier to the queue pair: by a buffer, or straight to where they belong.

use weft_os::lists::Scatter;
use weft_verbs::qp::Qp as QpMachine;

use super::super::buffers::{self, BUFFER_OCTETS};
use super::{Stream, StreamEnd};
use crate::carrier::Transfer;
use crate::host::EngineHost;

/// Octets one call receives at most, so that completions are seen in time.
const RECEIVE_BUDGET_OCTETS: usize = 1024 * 1024;
/// Octets read at first of what another process of this machine sends by its ring: the header shows where the rest
/// goes, and looking again costs no system call. A segment that is shorter is checked as a whole before any of it is
/// placed, as one with a CRC is.
const RING_OCTETS_AT_FIRST: usize = 8192;
/// Payload still to come of at least this many octets is read straight to its target.
const DIRECT_OCTETS_MIN: usize = 4096;

impl Stream {
    pub(super) fn borrow_buffer(&mut self) {
        let held = self.end - self.start;
        let mut buffer = buffers::take(held);
        buffer[..held].copy_from_slice(&self.buffer[self.start..self.end]);
        self.buffer = buffer;
        self.start = 0;
        self.end = held;
    }

    pub(super) fn receive_all(
        &mut self,
        qp: &mut QpMachine,
        host: &mut EngineHost<'_>,
    ) -> (bool, Option<StreamEnd>) {
        let mut received = 0;
        let mut need = 1;
        let mut any = self.has_buffered();
        loop {
            if self.end > self.start {
                let result = qp.receive(&mut self.buffer[self.start..self.end], host);
                self.start += result.consumed;
                need = result.need;
                if self.start == self.end {
                    self.start = 0;
                    self.end = 0;
                }
            }
            if received >= RECEIVE_BUDGET_OCTETS || qp.is_full() || qp.pauses() {
                return (any, None);
            }
            let (asked, outcome) = self.receive_once(qp, host, need);
            match outcome {
                Transfer::Octets(octets) => {
                    any = true;
                    received += octets;
                    self.octets_in += octets as u64;
                    if octets < asked && self.end == self.start {
                        return (any, None);
                    }
                    if octets < asked {
                        received = RECEIVE_BUDGET_OCTETS;
                    }
                }
                Transfer::WouldBlock => return (any, None),
                Transfer::End => return (any, Some(StreamEnd::Finished)),
                Transfer::Failed(_) => return (any, Some(StreamEnd::Broken)),
            }
        }
    }

    /// One system call: straight to the target where that is known and worth it, else to the
    /// buffer.
    fn receive_once(
        &mut self,
        qp: &mut QpMachine,
        host: &mut EngineHost<'_>,
        need: usize,
    ) -> (usize, Transfer) {
        if !qp.ending().is_live() {
            return (self.buffer.len(), self.carrier.recv(&mut self.buffer));
        }
        if qp.outstanding() >= DIRECT_OCTETS_MIN && self.start == self.end {
            if let Some(outcome) = self.receive_direct(qp, host) {
                return outcome;
            }
        }
        let held = self.end - self.start;
        if self.start > 0 && self.buffer.len() - self.start < need.max(BUFFER_OCTETS / 2) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = held;
        }
        if self.buffer.len() < need {
            self.buffer.resize(need + BUFFER_OCTETS, 0);
        }
        let room = self.buffer.len() - self.end;
        // To the end of a large FPDU and a header further: the next one then starts at the
        // front of the buffer and nothing has to be moved.
        let asked = if need >= BUFFER_OCTETS / 4 {
            (need - held + qp.trailer_and_header()).min(room)
        } else if self.shares {
            room.min(RING_OCTETS_AT_FIRST.max(need.saturating_sub(held)))
        } else {
            room
        };
        let outcome = self
            .carrier
            .recv(&mut self.buffer[self.end..self.end + asked]);
        if let Transfer::Octets(octets) = outcome {
            self.end += octets;
            if octets == room && self.buffer.len() < BUFFER_OCTETS {
                self.buffer.resize(BUFFER_OCTETS, 0);
            }
        }
        (asked, outcome)
    }

    /// Payload to its target, and behind it the trailer and the next header to the buffer.
    fn receive_direct(
        &mut self,
        qp: &mut QpMachine,
        host: &mut EngineHost<'_>,
    ) -> Option<(usize, Transfer)> {
        let target = qp.direct_target(host)?;
        let whole = target.octets == qp.outstanding();
        let staging = if whole { qp.trailer_and_header() } else { 0 };
        let (outcome, direct) = {
            let mut list = Scatter::default();
            for span in target.spans() {
                let (memory, offset) = host.locate(span)?;
                if !list.push_registered(memory, offset, span.len as usize) {
                    return None;
                }
            }
            if staging > 0 {
                list.push(&mut self.buffer[..staging]);
            }
            (self.carrier.recv_scatter(&list), target.octets)
        };
        if let Transfer::Octets(octets) = outcome {
            self.start = 0;
            self.end = octets.saturating_sub(direct);
            qp.placed(octets.min(direct), host);
        }
        Some((direct + staging, outcome))
    }
}
