//! What a host of its own on an interface is not shown: packets for other addresses than its own.
//!
//! The kernel hands every frame of the interface to a packet socket, also those of the kernel's own connections there.
//! Each would be copied, and wake who waits for frames. A filter of the socket (socket(7), `SO_ATTACH_FILTER`; the
//! instructions are those of the kernel's networking/filter documentation) leaves out what is for somebody else.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys;

// Instructions: what they do, on what.
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_OCTET: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// All octets of the frame.
const TAKE: u32 = u32::MAX;
const LEAVE_OUT: u32 = 0;

/// Where the EtherType stands in a frame, and the destination in the packets of both versions behind it.
const ETHER_TYPE: u32 = 12;
const IPV4_DESTINATION: u32 = 14 + 16;
const IPV6_DESTINATION: u32 = 14 + 24;
const IPV6_GROUP: u32 = 0xff;
/// The first half of `fe80::/10`.
const LINK_LOCAL: [u32; 2] = [0xfe80, 0xffc0];

/// From here on the socket is not shown packets of IPv4 for other addresses than these, nor of IPv6 for others but
/// groups and link-local ones. Everything else it is shown as before, ARP among it.
///
/// # Errors
/// `ENOMEM`, `EINVAL`: more addresses than a filter may have instructions for.
pub(crate) fn show_only(fd: BorrowedFd<'_>, addresses: &[IpAddr]) -> io::Result<()> {
    let mut program = program(addresses);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_mut_ptr(),
    };
    let args = [
        fd.as_raw_fd() as usize,
        libc::SOL_SOCKET as usize,
        libc::SO_ATTACH_FILTER as usize,
        std::ptr::from_ref(&filter) as usize,
        size_of::<libc::sock_fprog>(),
        0,
    ];
    // SAFETY: the kernel reads the structure and the instructions that it leads to; both outlive the call.
    unsafe { sys::call(libc::SYS_setsockopt, args) }
        .map(drop)
        .map_err(io::Error::from_raw_os_error)
}

fn program(addresses: &[IpAddr]) -> Vec<libc::sock_filter> {
    let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
    ipv4.push(instruction(LOAD_WORD, IPV4_DESTINATION));
    // Groups, and what is for any link-local address.
    ipv6.push(instruction(LOAD_OCTET, IPV6_DESTINATION));
    ipv6.extend(take_if(IPV6_GROUP));
    ipv6.push(instruction(LOAD_HALF, IPV6_DESTINATION));
    ipv6.push(instruction(AND, LINK_LOCAL[1]));
    ipv6.extend(take_if(LINK_LOCAL[0]));
    for address in addresses {
        match address {
            IpAddr::V4(address) => ipv4.extend(take_if(address.to_bits())),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                for at in 0..4u8 {
                    let word = (bits >> (96 - 32 * u32::from(at))) as u32;
                    let load = IPV6_DESTINATION + 4 * u32::from(at);
                    ipv6.push(instruction(LOAD_WORD, load));
                    // The others of this address, and its end.
                    ipv6.push(unless_equal(word, 2 * (3 - at) + 1));
                }
                ipv6.push(instruction(RETURN, TAKE));
            }
        }
    }
    let mut program = vec![instruction(LOAD_HALF, ETHER_TYPE)];
    for (ether_type, mut packets) in [(libc::ETH_P_IP, ipv4), (libc::ETH_P_IPV6, ipv6)] {
        packets.push(instruction(RETURN, LEAVE_OUT));
        // A conditional jump reaches no further than 255 instructions.
        program.push(libc::sock_filter {
            jt: 1,
            ..instruction(IF_EQUAL, ether_type as u32)
        });
        let over = (libc::BPF_JMP | libc::BPF_JA) as u16;
        program.push(instruction(over, packets.len() as u32));
        program.append(&mut packets);
    }
    program.push(instruction(RETURN, TAKE));
    program
}

/// Takes the frame where what was loaded is this.
fn take_if(value: u32) -> [libc::sock_filter; 2] {
    [unless_equal(value, 1), instruction(RETURN, TAKE)]
}

/// Leaves so many instructions out where what was loaded is another value.
fn unless_equal(value: u32, over: u8) -> libc::sock_filter {
    libc::sock_filter {
        jf: over,
        ..instruction(IF_EQUAL, value)
    }
}

fn instruction(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}
