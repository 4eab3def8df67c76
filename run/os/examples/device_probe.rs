//! What a device costs: frames of 64 octets back and forth, and frames of 64 kB one way, over a veth, by a receive ring
//! and without one.
//!
//!     unshare -Urn cargo run --release -p weft-os --example device_probe
//!
//! Makes the veth itself, so it wants a network namespace of its own. The ends are threads, each on a CPU of its own,
//! which look for frames all the time; half a round trip is printed. Bulk is copied once out of where the device shows
//! it, as a stack would place it. The variants take turns, so that a disturbance meets all of them; medians are
//! printed, and with `raw` every run.

use rustix::thread::{sched_setaffinity, CpuSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weft_os::device::{Batch, Device, PacketDevice, PacketOptions};
use weft_os::packet::{PacketInterface, OFFLOAD_LEN};

const ROUNDS: usize = 10;
const PINGS: usize = 20_000;
const BULK_TIME: Duration = Duration::from_millis(200);
const PLAIN: [u8; OFFLOAD_LEN] = [0; OFFLOAD_LEN];
/// An echo that has not come by then is not waited for.
const LOST_AFTER: Duration = Duration::from_millis(20);
/// A type for experiments (IEEE 802).
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
const TCP_HEAD_LEN: usize = 54;
const SEGMENT: u16 = 1448;
const BULK_LEN: usize = 45 * SEGMENT as usize;

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "ip {line} failed: run this in a network namespace, unshare -Urn"
    );
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    if let Err(error) = sched_setaffinity(None, &set) {
        eprintln!("not pinned to CPU {cpu}: {error}");
    }
}

fn open(name: &str, ring_slots: usize) -> Device {
    let interface = PacketInterface::find(name).expect("it was made a moment ago");
    let options = PacketOptions {
        ring_slots,
        ..PacketOptions::default()
    };
    Device::Packet(PacketDevice::open(&interface, &options).expect("CAP_NET_RAW"))
}

fn address(device: &Device) -> [u8; 6] {
    match device {
        Device::Packet(device) => device.interface().mac,
        Device::Tap(_) => unreachable!("packet devices only"),
    }
}

/// Half a round trip of 64 octets in microseconds: median and 99th percentile.
fn ping(ring_slots: usize) -> (f64, f64) {
    let (mut a, mut b) = (open("va", ring_slots), open("vb", ring_slots));
    let to = |mac: [u8; 6]| {
        let mut frame = [&mac[..], &[2, 0, 0, 0, 0, 9], &EXPERIMENTAL].concat();
        frame.resize(64, 7);
        frame
    };
    let (to_a, to_b) = (to(address(&a)), to(address(&b)));
    let done = AtomicBool::new(false);
    let mut times = Vec::with_capacity(PINGS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            while !done.load(Ordering::Relaxed) {
                if came(&mut b) {
                    send(&b, &to_a);
                }
            }
        });
        pin(0);
        for _ in 0..PINGS {
            let began = Instant::now();
            send(&a, &to_b);
            while !came(&mut a) {
                if began.elapsed() > LOST_AFTER {
                    break;
                }
            }
            times.push(began.elapsed());
        }
        done.store(true, Ordering::Relaxed);
    });
    times.sort();
    let half = |time: Duration| time.as_secs_f64() * 0.5e6;
    (half(times[PINGS / 2]), half(times[PINGS * 99 / 100]))
}

fn came(device: &mut Device) -> bool {
    let mut came = false;
    let _ = device.receive(1, |frame| came = frame.octets[12..14] == EXPERIMENTAL);
    came
}

fn send(device: &Device, frame: &[u8]) {
    let mut batch = Batch::default();
    batch.frame(&PLAIN);
    batch.push(frame);
    let _ = device.send(&mut batch);
}

/// Gigabits of data that a CPU second of the sender gets rid of in frames of 64 kB (the copy into the receiver's ring
/// is part of it), and the share of frames that were lost because the receiver was late; `batch` frames leave by one
/// call. CPU time and not the clock's: other programs may have part of the CPU.
fn bulk(ring_slots: usize, batch: usize) -> (f64, f64) {
    let (a, mut b) = (open("va", ring_slots), open("vb", ring_slots));
    let mut head = [&address(&b)[..], &[2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0]].concat();
    head.extend_from_slice(&((40 + BULK_LEN) as u16).to_be_bytes());
    head.extend_from_slice(&[0, 1, 0x40, 0, 64, 6, 0, 0, 10, 9, 9, 1, 10, 9, 9, 2]);
    head.extend_from_slice(&[
        0, 7, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ]);
    let mut offload = [0; OFFLOAD_LEN];
    offload[..2].fill(1);
    for (at, value) in [(2, TCP_HEAD_LEN as u16), (4, SEGMENT), (6, 34), (8, 16)] {
        offload[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
    let done = AtomicBool::new(false);
    let arrived = AtomicU64::new(0);
    let mut sent = 0u64;
    let mut took = 0.0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            let mut memory = vec![1u8; 1 << 21];
            let mut at = 0;
            let mut octets = 0;
            while !done.load(Ordering::Relaxed) {
                let _ = b.receive(16, |frame| {
                    if frame.octets.len() == TCP_HEAD_LEN + BULK_LEN {
                        let data = &frame.octets[TCP_HEAD_LEN..];
                        memory[at..at + data.len()].copy_from_slice(data);
                        at = (at + data.len()) % (1 << 20);
                        octets += data.len() as u64;
                    }
                });
                arrived.store(octets, Ordering::Relaxed);
            }
        });
        pin(0);
        let source = vec![7u8; 1 << 21];
        let began = Instant::now();
        let busy = cpu_seconds();
        let mut at = 0;
        while began.elapsed() < BULK_TIME {
            let mut frames = Batch::default();
            for _ in 0..batch {
                frames.frame(&offload);
                frames.push(&head);
                frames.push(&source[at..at + BULK_LEN]);
                at = (at + BULK_LEN) % (1 << 20);
            }
            sent += a.send(&mut frames).unwrap_or(0) as u64;
        }
        took = cpu_seconds() - busy;
        std::thread::sleep(Duration::from_millis(5));
        done.store(true, Ordering::Relaxed);
    });
    let octets = arrived.load(Ordering::Relaxed);
    let sent = (sent * BULK_LEN as u64) as f64;
    (sent * 8e-9 / took, 1.0 - octets as f64 / sent)
}

/// CPU seconds of this thread so far.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn main() {
    let raw = std::env::args().any(|argument| argument == "raw");
    ip("link add va type veth peer name vb");
    for name in ["va", "vb"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        ip(&format!("link set {name} up"));
    }
    type Measure = Box<dyn Fn() -> (f64, f64)>;
    let variants: Vec<(&str, Measure)> = vec![
        ("ping, ring: us p50, p99", Box::new(|| ping(240))),
        ("ping, no ring: us p50, p99", Box::new(|| ping(0))),
        (
            "bulk, ring of 16 MB, one a call: Gb a CPU second, lost",
            Box::new(|| bulk(240, 1)),
        ),
        (
            "bulk, ring of 16 MB, 8 a call: Gb a CPU second, lost",
            Box::new(|| bulk(240, 8)),
        ),
        (
            "bulk, ring of 2 MB, one a call: Gb a CPU second, lost",
            Box::new(|| bulk(30, 1)),
        ),
        (
            "bulk, no ring, one a call: Gb a CPU second, lost",
            Box::new(|| bulk(0, 1)),
        ),
    ];
    let mut runs = vec![Vec::new(); variants.len()];
    for _ in 0..ROUNDS {
        for ((_, measure), runs) in variants.iter().zip(&mut runs) {
            runs.push(measure());
        }
    }
    for ((name, _), runs) in variants.iter().zip(&mut runs) {
        if raw {
            let all: Vec<_> = runs.iter().map(|(a, b)| format!("{a:.2}/{b:.2}")).collect();
            println!("{name}: {}", all.join(" "));
        }
        let mut first: Vec<f64> = runs.iter().map(|run| run.0).collect();
        let mut second: Vec<f64> = runs.iter().map(|run| run.1).collect();
        first.sort_by(f64::total_cmp);
        second.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.2} ({:.2} to {:.2}), {:.2}",
            first[ROUNDS / 2],
            first[0],
            first[ROUNDS - 1],
            second[ROUNDS / 2]
        );
    }
}
