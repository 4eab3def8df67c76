//! Devices on real interfaces: a veth pair and a TAP in a network namespace of the test's own, made as an ordinary user
//! would (`unshare -Urn`). Each test begins itself again in there; where that is not allowed it says so and is skipped.

use std::io;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weft_os::device::{
    Batch, Device, PacketDevice, PacketOptions, TapDevice, Waiting, BATCH_FRAMES_MAX,
};
use weft_os::packet::{PacketInterface, OFFLOAD_LEN};

/// Says that the process is in a namespace of its own.
const INSIDE: &str = "WEFT_TEST_IN_NAMESPACE";
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A type for experiments (IEEE 802): no kernel protocol takes the frames.
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
const PLAIN: [u8; OFFLOAD_LEN] = [0; OFFLOAD_LEN];

/// Runs `body` in a network namespace, by beginning this test anew in there. `flags` are those of unshare(1).
fn inside(name: &str, flags: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let possible = Command::new("unshare")
        .args([flags, "true"])
        .stderr(Stdio::null())
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED {name}: no user and network namespaces here (unshare {flags} fails)");
        return;
    }
    let this = std::env::current_exe().expect("the test's own file");
    let status = Command::new("unshare")
        .arg(flags)
        .arg(this)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare began a moment ago");
    assert!(status.success(), "{name} failed in its namespace");
}

fn ip(line: &str) {
    let output = Command::new("ip")
        .args(line.split(' '))
        .output()
        .expect("ip (Debian package iproute2)");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {line}: {error}");
}

/// Both ends of a veth pair, up and without addresses that would make the kernel talk.
fn veth() -> [PacketInterface; 2] {
    ip("link add va type veth peer name vb");
    ["va", "vb"].map(|name| {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1")
            .expect("the namespace is ours");
        ip(&format!("link set {name} up"));
        PacketInterface::find(name).unwrap()
    })
}

fn pair(options: &PacketOptions) -> [Device; 2] {
    veth().map(|interface| Device::Packet(PacketDevice::open(&interface, options).unwrap()))
}

fn options(ring_slots: usize) -> PacketOptions {
    PacketOptions {
        ring_slots,
        ..PacketOptions::default()
    }
}

/// A frame of the experimental type to `to`, of `len` octets.
fn frame(to: [u8; 6], tag: u8, len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, 9], &EXPERIMENTAL].concat();
    frame.resize(len, tag);
    frame
}

fn mac(device: &Device) -> [u8; 6] {
    match device {
        Device::Packet(device) => device.interface().mac,
        Device::Tap(_) => unreachable!("packet devices only"),
    }
}

fn send(device: &Device, frame: &[u8]) -> io::Result<usize> {
    let mut batch = Batch::default();
    assert!(batch.frame(&PLAIN) && batch.push(frame));
    device.send(&mut batch)
}

/// Frames of the experimental type until there are so many: virtio-net header and octets.
fn take(device: &mut Device, count: usize) -> Vec<([u8; OFFLOAD_LEN], Vec<u8>)> {
    let mut frames = Vec::new();
    let end = Instant::now() + WAIT_MAX;
    while frames.len() < count && Instant::now() < end {
        device
            .receive(64, |frame| {
                if frame.octets[12..14] == EXPERIMENTAL || frame.octets[12..14] == [8, 0] {
                    frames.push((frame.offload, frame.octets.to_vec()));
                }
            })
            .unwrap();
    }
    assert_eq!(frames.len(), count);
    frames
}

/// A frame of an IP packet for this address, of which nothing but the address is told, and the last octet.
fn packet_for(to: [u8; 6], address: std::net::IpAddr, tag: u8) -> Vec<u8> {
    let mut frame = frame(to, tag, 80);
    match address {
        std::net::IpAddr::V4(address) => {
            frame[12..14].copy_from_slice(&[8, 0]);
            frame[30..34].copy_from_slice(&address.octets());
        }
        std::net::IpAddr::V6(address) => {
            frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            frame[38..54].copy_from_slice(&address.octets());
        }
    }
    frame
}

#[test]
fn packets_for_others_are_left_out() {
    inside("packets_for_others_are_left_out", "-Urn", || {
        let [a, mut b] = pair(&options(15));
        let own =
            ["10.1.0.5", "10.1.0.6", "fd00:1::5", "fd00:2::6"].map(|text| text.parse().unwrap());
        let Device::Packet(device) = &b else {
            unreachable!("packet devices only")
        };
        device.show_only(&own).unwrap();
        let to = mac(&b);
        let (shown, hidden) = (
            [
                "10.1.0.5",
                "10.1.0.6",
                "fd00:1::5",
                "fd00:2::6",
                "fe80::1",
                "febf::1",
                "ff02::1",
            ],
            [
                "10.1.0.7",
                "10.2.0.5",
                "10.1.0.255",
                "224.0.0.1",
                "fd00:1::6",
                "fd00:2::5",
                "fd01:1::5",
                "fd00:1:0:0:1::5",
                "fec0::1",
            ],
        );
        for text in hidden {
            send(&a, &packet_for(to, text.parse().unwrap(), 1)).unwrap();
        }
        for text in shown {
            send(&a, &packet_for(to, text.parse().unwrap(), 2)).unwrap();
        }
        let mut arp = frame(to, 3, 80);
        arp[12..14].copy_from_slice(&[8, 6]);
        send(&a, &arp).unwrap();
        send(&a, &frame(to, 4, 80)).unwrap();
        let (mut tags, end) = (Vec::new(), Instant::now() + WAIT_MAX);
        while !tags.contains(&4) && Instant::now() < end {
            b.receive(64, |frame| tags.extend(frame.octets.last()))
                .unwrap();
        }
        assert_eq!(tags, [&[2; 7][..], &[3, 4]].concat());
    });
}

#[test]
fn frames_cross_a_veth_in_parts_and_in_batches() {
    inside(
        "frames_cross_a_veth_in_parts_and_in_batches",
        "-Urn",
        || {
            for slots in [0, 15] {
                let [a, mut b] = pair(&options(slots));
                assert_eq!(a.waiting_frames_max(), slots.max(3));
                let octets = frame(mac(&b), 7, 200);
                let mut batch = Batch::default();
                assert!(batch.frame(&PLAIN));
                assert!([&octets[..14], &octets[14..20], &[], &octets[20..]]
                    .iter()
                    .all(|part| batch.push(part)));
                assert_eq!(a.send(&mut batch).unwrap(), 1);
                assert!(batch.is_empty());
                assert_eq!(take(&mut b, 1)[0].1, octets);
                let many: Vec<_> = (0..12)
                    .map(|tag| frame(mac(&b), tag, 60 + usize::from(tag)))
                    .collect();
                for frame in &many {
                    assert!(batch.frame(&PLAIN) && batch.push(frame));
                }
                assert_eq!(a.send(&mut batch).unwrap(), many.len());
                let came = take(&mut b, many.len());
                assert!(came.iter().map(|(_, octets)| octets).eq(&many), "in order");
                assert_eq!(b.take_drops().unwrap(), 0);
                ip("link del va");
            }
        },
    );
}

#[test]
fn a_frame_of_64_kb_arrives_whole() {
    inside("a_frame_of_64_kb_arrives_whole", "-Urn", || {
        let [a, mut b] = pair(&options(15));
        let data = vec![0x5a; 60_000];
        let head = tcp_head(mac(&b), data.len());
        let mut offload = [0; OFFLOAD_LEN];
        // NEEDS_CSUM, TCPv4, header length, octets in each segment, where the checksum begins and stands.
        offload[0] = 1;
        offload[1] = 1;
        for (at, value) in [(2, 54u16), (4, 1448), (6, 34), (8, 16)] {
            offload[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        let mut batch = Batch::default();
        assert!(batch.frame(&offload) && batch.push(&head) && batch.push(&data));
        assert_eq!(a.send(&mut batch).unwrap(), 1);
        let (offload, octets) = take(&mut b, 1).remove(0);
        assert_eq!((offload[1], octets.len()), (1, head.len() + data.len()));
        assert_eq!(u16::from_ne_bytes([offload[4], offload[5]]), 1448);
        assert!(octets.ends_with(&data));
        // Longer than the MTU and without a word on how to cut it.
        let long = frame(mac(&b), 1, 3000);
        let error = send(&a, &long).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    });
}

/// Ethernet, IPv4 and TCP header before so much data, checksums left to whoever needs them.
fn tcp_head(to: [u8; 6], data: usize) -> Vec<u8> {
    let mut head = [&to[..], &[2, 0, 0, 0, 0, 9, 8, 0]].concat();
    let total = (40 + data) as u16;
    head.extend_from_slice(&[0x45, 0]);
    head.extend_from_slice(&total.to_be_bytes());
    head.extend_from_slice(&[0, 1, 0x40, 0, 64, 6, 0, 0, 10, 9, 9, 1, 10, 9, 9, 2]);
    head.extend_from_slice(&[
        0, 7, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ]);
    head
}

/// A reader that stands still: the ring keeps what it holds, the rest is counted, and afterwards all is as before.
#[test]
fn what_the_ring_does_not_hold_is_counted() {
    inside("what_the_ring_does_not_hold_is_counted", "-Urn", || {
        let [a, mut b] = pair(&options(15));
        let to = mac(&b);
        let sent = 40;
        for tag in 0..sent {
            assert_eq!(send(&a, &frame(to, tag, 100)).unwrap(), 1);
        }
        let kept = b.waiting_frames_max();
        let came = take(&mut b, kept);
        assert!(came
            .iter()
            .zip(0..)
            .all(|((_, octets), tag)| octets[50] == tag));
        assert_eq!(b.take_drops().unwrap(), u64::from(sent) - kept as u64);
        assert_eq!(b.take_drops().unwrap(), 0, "each once");
        for tag in 0..100 {
            assert_eq!(send(&a, &frame(to, tag, 100)).unwrap(), 1);
            assert_eq!(take(&mut b, 1)[0].1[50], tag);
        }
    });
}

#[test]
fn one_waits_awake_or_asleep() {
    inside("one_waits_awake_or_asleep", "-Urn", || {
        for slots in [0, 15] {
            let [a, mut b] = pair(&options(slots));
            for how in [Waiting::Poll, Waiting::Sleep] {
                let began = Instant::now();
                let short = Duration::from_millis(30);
                assert!(!b.wait(how, short).unwrap(), "nothing came");
                assert!(began.elapsed() >= short);
                let octets = frame(mac(&b), 1, 64);
                let sender = std::thread::scope(|scope| {
                    let later = scope.spawn(|| {
                        std::thread::sleep(short);
                        send(&a, &octets).unwrap()
                    });
                    assert!(b.wait(how, WAIT_MAX).unwrap());
                    later.join().unwrap()
                });
                assert_eq!(sender, 1);
                take(&mut b, 1);
            }
            ip("link del va");
        }
    });
}

#[test]
fn an_interface_that_is_gone_is_an_error() {
    inside("an_interface_that_is_gone_is_an_error", "-Urn", || {
        let [a, b] = pair(&options(15));
        let octets = frame(mac(&b), 1, 64);
        ip("link set va down");
        let error = send(&a, &octets).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
        let error = a.wait(Waiting::Poll, Duration::ZERO).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
        ip("link del va");
        let error = send(&a, &octets).unwrap_err();
        assert!(
            matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)),
            "{error}"
        );
        let lo = PacketInterface::find("lo").unwrap();
        let error = PacketDevice::open(&lo, &PacketOptions::default()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "no Ethernet");
    });
}

/// A user namespace alone gives nothing over the machine's interfaces.
#[test]
fn without_the_privilege_nothing_is_opened() {
    inside("without_the_privilege_nothing_is_opened", "-Ur", || {
        let interface = PacketInterface {
            ethernet: true,
            ..PacketInterface::find("lo").unwrap()
        };
        let error = PacketDevice::open(&interface, &PacketOptions::default()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    });
}

/// The kernel at the other end of a TAP answers ARP, and its datagrams come out here, checksum and all left to us.
#[test]
fn a_tap_talks_to_the_kernel() {
    inside("a_tap_talks_to_the_kernel", "-Urn", || {
        let mut tap = match TapDevice::open("weft0") {
            Ok(tap) => Device::Tap(tap),
            Err(error) => {
                eprintln!("SKIPPED a_tap_talks_to_the_kernel: no TAP here ({error})");
                return;
            }
        };
        let busy = TapDevice::open("weft0").unwrap_err();
        assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
        let error = send(&tap, &frame([0xff; 6], 0, 64)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "down");
        ip("address add 10.9.9.1/24 dev weft0");
        ip("link set weft0 up");
        let (own, own_ip, kernel_ip) = ([2u8, 0, 0, 0, 0, 9], [10, 9, 9, 2], [10, 9, 9, 1]);
        // Who has 10.9.9.1? In a batch with a frame for nobody.
        let mut request = [&[0xff; 6][..], &own, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
        request.extend([&own[..], &own_ip, &[0; 6], &kernel_ip].concat());
        let nobody = frame([2, 0, 0, 0, 0, 77], 0, 64);
        let mut batch = Batch::default();
        for octets in [&nobody, &request] {
            assert!(batch.frame(&PLAIN) && batch.push(octets));
        }
        assert_eq!(tap.send(&mut batch).unwrap(), 2);
        let reply = next(&mut tap, |octets| {
            octets[12..14] == [8, 6] && octets[21] == 2
        });
        assert_eq!(
            (&reply.1[..6], &reply.1[28..32]),
            (&own[..], &kernel_ip[..])
        );
        // The kernel learnt us by the request: its datagram needs none.
        let socket = UdpSocket::bind("10.9.9.1:0").unwrap();
        socket.send_to(b"to the tap", "10.9.9.2:9").unwrap();
        let (offload, octets) = next(&mut tap, |octets| octets.ends_with(b"to the tap"));
        assert_eq!(octets[23], 17);
        assert_eq!(offload[0], 1, "checksum left to us");
        // A reader that stands still: the queue keeps what it holds.
        let queue = tap.waiting_frames_max();
        let before = tap.take_drops().unwrap();
        for _ in 0..queue + 200 {
            socket.send_to(b"more", "10.9.9.2:9").unwrap();
        }
        let mut kept = 0;
        while tap.receive(64, |_| kept += 1).unwrap() > 0 {}
        let dropped = tap.take_drops().unwrap();
        assert!(before < 100 && dropped > 100, "{before} {dropped}");
        assert!(kept as u64 + dropped >= queue as u64 + 200);
    });
}

fn next(tap: &mut Device, wanted: impl Fn(&[u8]) -> bool) -> ([u8; OFFLOAD_LEN], Vec<u8>) {
    let end = Instant::now() + WAIT_MAX;
    let mut found = None;
    while found.is_none() {
        assert!(Instant::now() < end, "it did not come");
        tap.wait(Waiting::Sleep, Duration::from_millis(100))
            .unwrap();
        tap.receive(1, |frame| {
            if wanted(frame.octets) {
                found = Some((frame.offload, frame.octets.to_vec()));
            }
        })
        .unwrap();
    }
    found.unwrap()
}

#[test]
fn a_batch_says_when_it_is_full() {
    let octets = [0; 64];
    let mut batch = Batch::default();
    let taken = (0..1000)
        .take_while(|_| batch.frame(&PLAIN) && batch.push(&octets))
        .count();
    assert_eq!(taken, BATCH_FRAMES_MAX);
}
