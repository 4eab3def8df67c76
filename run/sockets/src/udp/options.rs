//! Options of a UDP socket: which of them leave its datagrams to the kernel.

use std::sync::atomic::Ordering;

use weft_os::dgram;

use super::record::Record;
use super::Datagrams;
use crate::Errno;

/// The program segments by itself, or wants to know of each datagram that leaves.
const SEND: [(i32, i32); 5] = [
    (dgram::SOL_UDP, dgram::UDP_SEGMENT),
    (dgram::SOL_UDP, libc::UDP_CORK),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
    (libc::SOL_SOCKET, libc::SO_TXTIME),
];
/// Options that ask for nothing which a carrier does not bring: lengths, times of waits, and what is said of datagrams
/// that leave.
const PLAIN: [(i32, i32); 12] = [
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
];
/// A filter looks at each datagram, and sees none that comes over a carrier.
const FILTERS: [i32; 4] = [
    libc::SO_ATTACH_FILTER,
    libc::SO_ATTACH_BPF,
    libc::SO_ATTACH_REUSEPORT_CBPF,
    libc::SO_ATTACH_REUSEPORT_EBPF,
];
/// Options after which what is sent may go another way than a connection does. Whether they were set before there was
/// one [`dgram::has_own_way`] says.
const WAYS: [i32; 3] = [
    libc::SO_MARK,
    libc::SO_BINDTODEVICE,
    dgram::SO_BINDTOIFINDEX,
];
/// What is said of addresses changes nothing of what a receive gives.
const ADDRESSES: [(i32, i32); 5] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
];

/// The rate at which the carriers of a socket send; the number is that of `abi/include/weft/sockets.h`, where the
/// option is described.
const WEFT_SO_RATE: i32 = 2;
/// Octets of what sets the option, and of what it gives: a number of 64 bits.
pub const RATE_OCTETS: usize = 8;
/// The least rate, in bits a second: at less a carrier would seem to take nothing any more.
const RATE_MIN: u64 = 64_000;

impl Datagrams {
    /// Whether datagrams may take carriers.
    pub fn has_carriers(&self) -> bool {
        self.offload.is_some()
    }

    /// `setsockopt` at Weft's level: `value` is what the program hands over, eight octets and no more.
    ///
    /// # Errors
    /// ENOPROTOOPT for another option, or without carriers; EINVAL for a length or a rate that is none.
    pub fn set_option(
        &self,
        record: &'static Record,
        option: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        let offload = self.offload.filter(|_| option == WEFT_SO_RATE);
        let offload = offload.ok_or(libc::ENOPROTOOPT)?;
        let rate = u64::from_ne_bytes(value.try_into().map_err(|_| libc::EINVAL)?);
        if (1..RATE_MIN).contains(&rate) {
            return Err(libc::EINVAL);
        }
        offload.set_rate(&record.port, rate);
        Ok(())
    }

    /// `getsockopt` at Weft's level: the octets of the rate.
    ///
    /// # Errors
    /// ENOPROTOOPT for another option.
    pub fn option(&self, record: &'static Record, option: i32) -> Result<[u8; RATE_OCTETS], Errno> {
        match option {
            WEFT_SO_RATE => Ok(record.port.rate().to_ne_bytes()),
            _ => Err(libc::ENOPROTOOPT),
        }
    }

    /// Takes note of an option that the program sets, if it is one that says it knows better.
    pub fn option_set(&self, record: &'static Record, level: i32, option: i32) {
        if !PLAIN.contains(&(level, option)) {
            self.offload_anew(record);
            if !ADDRESSES.contains(&(level, option)) {
                record.has_options.store(true, Ordering::Relaxed);
            }
        }
        let is_kernels = FILTERS.contains(&option) || WAYS.contains(&option);
        if level == libc::SOL_SOCKET && is_kernels {
            self.offload_nothing(record.number);
        }
        if SEND.contains(&(level, option)) {
            record.tx_off.store(true, Ordering::Release);
        }
        if (level, option) == (dgram::SOL_UDP, dgram::UDP_GRO) && !record.slot().is_coalesced() {
            record.rx_off.store(true, Ordering::Release);
        }
    }
}

/// Whether the kernel segments for this socket, and the program has not taken that in its own hands.
pub(super) fn segments(fd: i32) -> bool {
    let is_off = |level, option| matches!(dgram::get_int(fd, level, option), Ok(0) | Err(_));
    dgram::get_int(fd, dgram::SOL_UDP, dgram::UDP_SEGMENT) == Ok(0)
        && is_off(dgram::SOL_UDP, libc::UDP_CORK)
        && is_off(libc::SOL_SOCKET, libc::SO_TIMESTAMPING)
        && is_off(libc::SOL_SOCKET, libc::SO_ZEROCOPY)
        && is_off(libc::SOL_SOCKET, libc::SO_TXTIME)
}

/// Whether nothing the program asked of the socket would tell coalesced datagrams from others.
pub(super) fn may_coalesce(fd: i32) -> bool {
    const TIMESTAMP_NEW: [i32; 3] = [63, 64, 65];
    const TIMESTAMP: [i32; 3] = [
        libc::SO_TIMESTAMP,
        libc::SO_TIMESTAMPNS,
        libc::SO_TIMESTAMPING,
    ];
    const UDP_ENCAP: i32 = 100;
    let is_off = |level, option| matches!(dgram::get_int(fd, level, option), Ok(0) | Err(_));
    let socket_off = |option: &i32| is_off(libc::SOL_SOCKET, *option);
    let peek_off = dgram::get_int(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    TIMESTAMP.iter().chain(&TIMESTAMP_NEW).all(socket_off)
        && socket_off(&libc::SO_RXQ_OVFL)
        && is_off(dgram::SOL_UDP, UDP_ENCAP)
        && matches!(peek_off, Err(_) | Ok(i32::MIN..=-1))
        && dgram::get_int(fd, dgram::SOL_UDP, dgram::UDP_GRO) == Ok(0)
}
