//! A receive ring: slots that the kernel fills with frames and this process reads in place (packet_mmap of the kernel's
//! documentation, TPACKET_V2).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

use super::set_option;
use crate::batch::OFFLOAD_LEN;

/// Octets of a slot. The largest packet of segmentation offload has 65536 octets; the frame's header, the slot's and
/// the padding between fit into the rest.
pub(super) const SLOT_LEN: usize = 68 << 10;
/// Slots that the kernel allocates together: they fill a megabyte but for a page.
pub(super) const SLOTS_PER_BLOCK: usize = 15;
const BLOCK_LEN: usize = SLOT_LEN * SLOTS_PER_BLOCK;
/// Where the status stands in a slot: at its beginning.
const HEADER_LEN: usize = size_of::<libc::tpacket2_hdr>();

/// A frame that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedFrame<'a> {
    /// The Ethernet frame, as far as it fitted into the slot.
    pub octets: &'a [u8],
    /// Octets that did not fit into the slot.
    pub missing: usize,
    /// What segmentation and checksum offload left to do: a virtio-net header, numbers in the machine's byte order.
    pub offload: [u8; OFFLOAD_LEN],
    /// The VLAN tag that the kernel took out of the frame.
    pub vlan: Option<VlanTag>,
    /// When it came, since 1970; zero where the kernel does not say. Seldom a frame brings a time of another clock: do
    /// not trust what is far from now.
    pub at: Duration,
}

/// A tag of IEEE 802.1Q.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VlanTag {
    /// EtherType of the tag: 0x8100, or 0x88a8 for the outer one of two.
    pub protocol: u16,
    /// Priority, drop eligibility and VLAN.
    pub control: u16,
}

/// The ring of one packet socket. It has to be dropped before the socket is closed, or after: the mapping holds the
/// socket's memory by itself.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Where it is mapped.
    base: usize,
    slots: usize,
    /// The slot that the kernel fills next.
    next: usize,
}

impl Ring {
    /// Gives a packet socket that is bound to nothing a ring of `slots` at least, each for a whole frame of
    /// segmentation offload with its virtio-net header.
    pub fn map(fd: BorrowedFd<'_>, slots: usize) -> io::Result<Ring> {
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set_option(fd, libc::PACKET_VERSION, &version)?;
        set_option(fd, libc::PACKET_VNET_HDR, &1i32)?;
        let blocks = slots.div_ceil(SLOTS_PER_BLOCK).max(1);
        let slots = blocks * SLOTS_PER_BLOCK;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_LEN as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: SLOT_LEN as u32,
            tp_frame_nr: slots as u32,
        };
        set_option(fd, libc::PACKET_RX_RING, &request)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let len = slots * SLOT_LEN;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other.
        let base = unsafe { mmap(std::ptr::null_mut(), len, prot, flags, fd.as_fd(), 0)? } as usize;
        Ok(Ring {
            base,
            slots,
            next: 0,
        })
    }

    /// Slots it has.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The status of the slot that comes next.
    fn status(&self) -> &AtomicU32 {
        let slot = self.base + self.next * SLOT_LEN;
        // SAFETY: the slot lies in the mapping, which lives as long as `self`, and begins with its status, which this
        // process and the kernel access as one word.
        unsafe { AtomicU32::from_ptr(slot as *mut u32) }
    }

    /// A frame is there.
    #[inline]
    pub fn has_frame(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Shows frames that are there to `each`, `most` at most, in the order they came. Returns how many there were;
    /// does not wait.
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(&ReceivedFrame<'_>)) -> usize {
        for count in 0..most {
            if !self.has_frame() {
                return count;
            }
            let slot = self.base + self.next * SLOT_LEN;
            // SAFETY: a slot with the status USER is this process's until it is given back, below; the kernel does
            // not write to it. Nobody else knows the mapping.
            let octets = unsafe { slice::from_raw_parts(slot as *const u8, SLOT_LEN) };
            if let Some(frame) = parse(octets) {
                each(&frame);
            }
            self.status()
                .store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.slots;
        }
        most
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, and no reference into it outlives a call of `receive`.
        let _ = unsafe { munmap(self.base as *mut _, self.slots * SLOT_LEN) };
    }
}

/// What stands in a slot; none where its header says what cannot be.
fn parse(slot: &[u8]) -> Option<ReceivedFrame<'_>> {
    assert!(slot.len() >= HEADER_LEN);
    // SAFETY: a plain structure, read unaligned from as many octets.
    let header = unsafe { slot.as_ptr().cast::<libc::tpacket2_hdr>().read_unaligned() };
    let start = usize::from(header.tp_mac);
    let kept = header.tp_snaplen as usize;
    let octets = slot.get(start..start + kept)?;
    let offload = slot.get(start.checked_sub(OFFLOAD_LEN)?..start)?;
    let tagged = header.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
    Some(ReceivedFrame {
        octets,
        missing: (header.tp_len as usize).saturating_sub(kept),
        offload: offload.try_into().ok()?,
        vlan: tagged.then_some(VlanTag {
            protocol: header.tp_vlan_tpid,
            control: header.tp_vlan_tci,
        }),
        at: Duration::new(header.tp_sec.into(), header.tp_nsec),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_says_what_cannot_be_is_no_frame() {
        let mut slot = vec![0u8; SLOT_LEN];
        let header = libc::tpacket2_hdr {
            tp_status: libc::TP_STATUS_USER | libc::TP_STATUS_VLAN_VALID,
            tp_len: 70_000,
            tp_snaplen: 60_000,
            tp_mac: 100,
            tp_net: 114,
            tp_sec: 5,
            tp_nsec: 7,
            tp_vlan_tci: 9,
            tp_vlan_tpid: 0x8100,
            tp_padding: [0; 4],
        };
        let write = |slot: &mut Vec<u8>, header: libc::tpacket2_hdr| {
            // SAFETY: a plain structure, written unaligned to as many octets.
            unsafe {
                slot.as_mut_ptr()
                    .cast::<libc::tpacket2_hdr>()
                    .write_unaligned(header);
            }
        };
        write(&mut slot, header);
        slot[90] = 3;
        let frame = parse(&slot).unwrap();
        assert_eq!((frame.octets.len(), frame.missing), (60_000, 10_000));
        assert_eq!(frame.offload[0], 3);
        assert_eq!(frame.at, Duration::new(5, 7));
        assert_eq!(frame.vlan.unwrap().control, 9);
        for (mac, snaplen) in [(5, 10), (60_000, 20_000)] {
            let (tp_mac, tp_snaplen) = (mac, snaplen);
            write(
                &mut slot,
                libc::tpacket2_hdr {
                    tp_mac,
                    tp_snaplen,
                    ..header
                },
            );
            assert_eq!(parse(&slot), None);
        }
    }
}
