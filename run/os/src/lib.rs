//! Small safe types over the operating system.
//!
//! Everything in the project that needs `unsafe` to reach the kernel or raw memory is here, each
//! block with the reason why it is needed and why it is sound; the crates above forbid `unsafe`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`as_programs`] | waiting by the C library's names, for what is measured under a sockets face |
//! | [`beside`] | a UDP socket beside a TCP one that somebody else owns |
//! | [`busy_poll`] | looking for a message before a thread sleeps for it |
//! | [`claim`] | names that one process of a network namespace has |
//! | [`descriptors`] | how many there may be, and where |
//! | [`device`] | frames of a TCP/IP stack of our own: packet sockets and TAPs |
//! | [`dgram`] | UDP sockets that somebody else owns: segmentation, peeking, facts |
//! | [`stream`] | TCP sockets that somebody else owns: facts, and how they are ended |
//! | [`edges`] | what happens on sockets that somebody else owns |
//! | [`file`] | files and pipes that somebody else owns |
//! | [`fork`] | what a forked child has of its own |
//! | [`forking`] | whether the process is forking |
//! | [`guarded`] | descriptors of ours that the program may close |
//! | [`lock`] | locks that handlers, forks and other processes cannot hang |
//! | [`local`] | how two processes of a machine find each other and hand on a descriptor |
//! | [`lowest`] | the lowest free number of a descriptor, which programs count on |
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
//! | [`rings`] | memory that two processes share for the octets of one connection |
//! | [`sched`] | what a service thread asks of the scheduler |
//! | [`seqpacket`] | messages between processes of one machine |
//! | [`shared`] | values that a family of processes shares, behind locks |
//! | [`shm`] | shared memory that others can look into |
//! | [`signals`] | what an interrupted wait should do |
//! | [`sock_diag`] | whether this machine has a connection |
//! | [`stack`] | how large the stack of a thread of ours has to be |
//! | [`stderr`], [`stdout`] | lines on standard error, text on standard output |
//! | [`io_uring`] | whether the process uses `io_uring` |
//! | [`ifaces`] | addresses of the machine |
//!
//! Sockets are driven by raw system calls (through `rustix`, or the few lines of [`sys`]), never
//! by the C library's names: those are what a sockets face interposes. [`as_programs`] alone is meant to be interposed.

#[cfg(test)]
mod alone;
pub mod as_programs;
pub mod atomic;
mod batch;
pub mod beside;
pub mod busy_poll;
pub mod claim;
mod credentials;
pub mod descriptors;
pub mod device;
pub mod dgram;
pub mod edges;
pub mod exit;
pub mod file;
pub mod fork;
pub mod forking;
mod generation;
mod guard;
pub mod guarded;
pub mod handing_on;
pub mod ifaces;
pub mod io_uring;
pub mod lists;
pub mod local;
pub mod lock;
pub mod lowest;
pub mod mappings;
pub mod mem;
pub mod net;
pub mod own_thread;
pub mod packet;
pub mod pages;
pub mod parts;
pub mod poll;
mod private;
pub mod process;
pub mod rings;
pub mod sched;
pub mod seqpacket;
pub mod shared;
pub mod shm;
pub mod signals;
pub mod sock_diag;
pub mod stack;
pub mod stderr;
pub mod stdout;
pub mod stream;
mod sys;
#[cfg(feature = "testing")]
pub mod testing;
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
        _ => dgram::now().rotate_left(32) ^ std::ptr::from_ref(&octets) as u64,
    }
}
