//! Requests that are being built by `ibv_wr_*(3)`, from start to end.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::slice::from_raw_parts;

use weft_engine::types::{Payload, SendFlags, SendOp, SendRequest, Sge, MAX_INLINE, MAX_SGE};
use weft_engine::UdTarget;

use crate::entry::{invalid, Errno, Outcome};
use crate::exclusive_region::Region;
use crate::layout::ibv_data_buf;

/// The requests that are being built. A thread has them to itself from start to end.
#[derive(Default)]
pub struct Builder {
    pub region: Region,
    pub requests: UnsafeCell<Requests>,
}

/// The requests, with their lists and inline octets one behind the other.
#[derive(Default)]
pub struct Requests {
    pub built: Vec<Built>,
    sges: Vec<Sge>,
    octets: Vec<u8>,
    /// The first thing that was wrong; `ibv_wr_complete` tells.
    pub wrong: Option<Errno>,
}

/// One request.
pub struct Built {
    pub wr_id: u64,
    pub op: SendOp,
    pub flags: SendFlags,
    pub sges: Range<usize>,
    pub inline: Option<Range<usize>>,
    /// Where a datagram goes.
    pub to: Option<UdTarget>,
}

impl Requests {
    /// Forgets them all.
    pub fn clear(&mut self) {
        self.built.clear();
        self.sges.clear();
        self.octets.clear();
        self.wrong = None;
    }

    /// One of them as the engine takes it.
    pub fn request(&self, built: &Built) -> SendRequest<'_> {
        SendRequest {
            wr_id: built.wr_id,
            op: built.op,
            flags: built.flags,
            payload: match &built.inline {
                Some(octets) => Payload::Inline(&self.octets[octets.clone()]),
                None => Payload::Gather(&self.sges[built.sges.clone()]),
            },
        }
    }

    /// Gives the request that was begun last its list.
    pub fn set_list(&mut self, count: usize, sges: impl Iterator<Item = Sge>) -> Outcome<()> {
        if count > MAX_SGE {
            return invalid();
        }
        let start = self.sges.len();
        let Some(last) = self.built.last_mut() else {
            return invalid();
        };
        self.sges.extend(sges);
        last.sges = start..self.sges.len();
        Ok(())
    }

    /// Copies octets for the request that was begun last.
    ///
    /// # Safety
    /// The octets that each buffer names can be read.
    pub unsafe fn set_inline(&mut self, buffers: &[ibv_data_buf]) -> Outcome<()> {
        let start = self.octets.len();
        let Some(last) = self.built.last_mut() else {
            return invalid();
        };
        for buffer in buffers.iter().filter(|b| b.length > 0) {
            if buffer.length > MAX_INLINE || buffer.addr.is_null() {
                return invalid();
            }
            // SAFETY: the caller promises: the octets that each buffer names can be read.
            let octets = unsafe { from_raw_parts(buffer.addr.cast::<u8>(), buffer.length) };
            self.octets.extend_from_slice(octets);
        }
        last.inline = Some(start..self.octets.len());
        Ok(())
    }
}
