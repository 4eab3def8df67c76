//! Frames that arrive at an interface, in a ring that the kernel writes and this process reads.
//!
//! A ring and not a queue of the socket: the length of the latter is bounded by `net.core.rmem_max`, which an ordinary
//! user cannot raise and which a few large frames fill. And the kernel notes in the ring when each frame came, so that
//! a reader that comes late still knows.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

use super::{set_option, PacketInterface};
use crate::private::Private;
use crate::sys;

/// Octets of the virtio-net header that the kernel gives with each frame.
pub const OFFLOAD_LEN: usize = 10;

/// Octets of a slot. The largest packet of segmentation offload has 65536 octets; the frame's header, the slot's and
/// the padding between fit into the rest.
const SLOT_LEN: usize = 68 << 10;
/// Slots that the kernel allocates together: they fill a megabyte but for a page.
const SLOTS_PER_BLOCK: usize = 15;
const BLOCK_LEN: usize = SLOT_LEN * SLOTS_PER_BLOCK;
/// With 1020 slots a reader may stand still for 12 ms while full frames arrive at 1 Gbit/s. They take 71 MB.
const BLOCKS: usize = 68;
const SLOTS: usize = BLOCKS * SLOTS_PER_BLOCK;
const RING_LEN: usize = BLOCKS * BLOCK_LEN;
/// Where the status stands in a slot: at its beginning.
const HEADER_LEN: usize = size_of::<libc::tpacket2_hdr>();

/// A packet socket that receives every frame that arrives at an interface, whoever it is for.
#[derive(Debug)]
pub struct PacketReceiver {
    fd: Private,
    /// Where the ring is mapped.
    ring: usize,
    /// The slot that the kernel fills next.
    next: usize,
}

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
    /// When it came, since 1970. Seldom a frame brings a time of another clock: do not trust what is far from now.
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

impl PacketReceiver {
    /// Begins to receive. The interface is promiscuous as long as the socket is open; frames that this machine sends
    /// by it are left out.
    ///
    /// # Errors
    /// `EPERM`: no `CAP_NET_RAW`; `ENOMEM`: no memory for the ring; the interface is down or gone.
    pub fn open(interface: &PacketInterface) -> io::Result<PacketReceiver> {
        let fd = super::open()?;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set_option(fd.as_fd(), libc::PACKET_VERSION, &version)?;
        set_option(fd.as_fd(), libc::PACKET_VNET_HDR, &1i32)?;
        set_option(fd.as_fd(), libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        let ring = libc::tpacket_req {
            tp_block_size: BLOCK_LEN as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: SLOT_LEN as u32,
            tp_frame_nr: SLOTS as u32,
        };
        set_option(fd.as_fd(), libc::PACKET_RX_RING, &ring)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no other.
        let ring = unsafe { mmap(std::ptr::null_mut(), RING_LEN, prot, flags, &fd, 0)? } as usize;
        let receiver = PacketReceiver { fd, ring, next: 0 };
        super::bind(receiver.fd.as_fd(), interface, libc::ETH_P_ALL as u16)?;
        let membership = libc::packet_mreq {
            mr_ifindex: interface.index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(
            receiver.fd.as_fd(),
            libc::PACKET_ADD_MEMBERSHIP,
            &membership,
        )?;
        Ok(receiver)
    }

    /// Shows frames that are there to `each`, `most` at most, in the order they came. Returns how many there were;
    /// does not wait.
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(&ReceivedFrame<'_>)) -> usize {
        for count in 0..most {
            let slot = self.ring + self.next * SLOT_LEN;
            // SAFETY: the slot lies in the mapping, which lives as long as `self`, and begins with its status, which
            // this process and the kernel access as one word.
            let status = unsafe { AtomicU32::from_ptr(slot as *mut u32) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return count;
            }
            // SAFETY: a slot with the status USER is this process's until it is given back, below; the kernel does
            // not write to it. Nobody else knows the mapping.
            let octets = unsafe { slice::from_raw_parts(slot as *const u8, SLOT_LEN) };
            if let Some(frame) = parse(octets) {
                each(&frame);
            }
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % SLOTS;
        }
        most
    }

    /// Waits until a frame is there, at most `timeout`.
    ///
    /// # Errors
    /// `ENETDOWN`: the interface went down or away; `EINTR` when a signal handler ran.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: i64::from(timeout.subsec_nanos()) as _,
        };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut fds, Some(&timeout))?;
        if fds[0].revents().contains(PollFlags::ERR) {
            if let Err(error) = rustix::net::sockopt::socket_error(&self.fd)? {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Frames that were dropped, because the ring was full, since this was last asked.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn take_drops(&self) -> io::Result<u64> {
        let mut stats = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut len = size_of::<libc::tpacket_stats>() as u32;
        let args = [
            self.fd.as_raw_fd() as usize,
            libc::SOL_PACKET as usize,
            libc::PACKET_STATISTICS as usize,
            std::ptr::from_mut(&mut stats) as usize,
            std::ptr::from_mut(&mut len) as usize,
            0,
        ];
        // SAFETY: the kernel writes at most `len` octets to `stats`, and the length.
        unsafe { sys::call(libc::SYS_getsockopt, args) }.map_err(io::Error::from_raw_os_error)?;
        Ok(stats.tp_drops.into())
    }
}

impl Drop for PacketReceiver {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `open`, and no reference into it outlives a call of `receive`.
        let _ = unsafe { munmap(self.ring as *mut _, RING_LEN) };
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
