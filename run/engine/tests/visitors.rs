//! The socket by which processes of one machine find each other, where visitors come that there is no descriptor for.

#[allow(dead_code, reason = "other tests use all of it")]
mod common;
#[path = "peers/no_descriptors.rs"]
mod no_descriptors;

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use common::pair;
use no_descriptors::take_all;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
use weft_engine::settings::Settings;

/// The abstract name of the socket that this process listens on for its peers.
fn name() -> String {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let own: Vec<String> = links
        .filter_map(|link| fs::read_link(link.unwrap().path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .collect();
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let found = sockets.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(6);
        let (inode, name) = (words.next()?, words.next()?.strip_prefix('@')?);
        let is_own = own.iter().any(|link| link == &format!("socket:[{inode}]"));
        (is_own && name.starts_with("weft-rings-")).then(|| name.to_owned())
    });
    found.expect("a socket of this process")
}

/// Processor time of this process.
fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn was_closed(visitor: BorrowedFd<'_>) -> bool {
    let mut octets = [0u8; 8];
    matches!(
        net::recv(visitor, &mut octets, RecvFlags::DONTWAIT),
        Ok((_, 0))
    )
}

#[test]
fn a_visitor_without_a_descriptor_waits_and_costs_nothing() {
    let settings = Settings {
        same_host: true,
        ..Settings::default()
    };
    weft_engine::start_with(settings).unwrap();
    let _ends = pair();
    let to = SocketAddrUnix::new_abstract_name(name().as_bytes()).unwrap();
    let visitor = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let files = take_all();
    net::connect(&visitor, &to).unwrap();
    net::send(&visitor, b"nothing of Weft's", SendFlags::empty()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let start = process_time();
    std::thread::sleep(Duration::from_millis(500));
    let took = process_time() - start;
    assert!(took < Duration::from_millis(100), "{took:?} of 500 ms");
    assert!(!was_closed(visitor.as_fd()), "it waits");
    drop(files);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !was_closed(visitor.as_fd()) {
        assert!(Instant::now() < deadline, "it is not taken and sent away");
        std::thread::sleep(Duration::from_millis(1));
    }
}
