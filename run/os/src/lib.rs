//! Small safe types over the operating system.
//!
//! Everything in the project that needs `unsafe` to reach the kernel or raw memory is here, each
//! block with the reason why it is needed and why it is sound; the crates above forbid `unsafe`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`descriptors`] | how many there may be |
//! | [`device`] | frames of a TCP/IP stack of our own: packet sockets and TAPs |
//! | [`dgram`] | UDP sockets that somebody else owns: segmentation, peeking, facts |
//! | [`fork`] | what a forked child has of its own |
//! | [`lock`] | locks that handlers, forks and other processes cannot hang |
//! | [`lists`] | what one send or receive moves: borrowed octets and registered memory |
//! | [`mem`] | registered memory: guarded copies |
//! | [`pages`] | memory straight from the kernel |
//! | [`process`] | which process this is, whatever way it was forked |
//! | [`usage`] | what programs that were started have taken |
//! | [`user`] | buffers that a program hands over for one call |
//! | [`net`] | non-blocking TCP sockets and listeners |
//! | [`udp`] | UDP sockets of our own, datagrams gathered and coalesced |
//! | [`packet`] | whole Ethernet frames from and to an interface |
//! | [`poll`] | epoll and event counters |
//! | [`parts`] | what one call on a stream moves: octets of ours and of the program's by turns |
//! | [`sched`] | what a service thread asks of the scheduler |
//! | [`shared`] | values that a family of processes shares, behind locks |
//! | [`shm`] | shared memory that others can look into |
//! | [`signals`] | what an interrupted wait should do |
//! | [`stderr`], [`stdout`] | lines on standard error, text on standard output |
//! | [`ifaces`] | addresses of the machine |
//!
//! Sockets are driven by raw system calls (through `rustix`, or the few lines of [`sys`]), never
//! by the C library's names: those are what a sockets face interposes.

pub mod descriptors;
pub mod device;
pub mod dgram;
pub mod exit;
pub mod fork;
mod generation;
mod guard;
pub mod ifaces;
pub mod lists;
pub mod lock;
pub mod mem;
pub mod net;
pub mod packet;
pub mod pages;
pub mod parts;
pub mod poll;
mod private;
pub mod process;
pub mod sched;
pub mod shared;
pub mod shm;
pub mod signals;
pub mod stderr;
pub mod stdout;
mod sys;
pub mod udp;
pub mod usage;
pub mod user;

/// Octets from the kernel's random source.
pub fn random_u64() -> u64 {
    let mut octets = [0u8; 8];
    let filled = rustix::rand::getrandom(&mut octets, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(8) => u64::from_ne_bytes(octets),
        // Before the pool is ready, or where seccomp forbids it: time and address are what is left.
        _ => {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            (now.tv_nsec as u64).rotate_left(32) ^ std::ptr::from_ref(&octets) as u64
        }
    }
}
