//! A process that may have few descriptors, and strangers who take them: honest clients get in.

#[path = "peers/end.rs"]
mod end;
#[path = "peers/roles.rs"]
mod roles;
#[path = "peers/serving.rs"]
mod serving;

use std::fs::File;
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use end::{connect, expect, listener, End};
use roles::{begin, start, told};
use rustix::process::{setrlimit, Resource, Rlimit};
use serving::serve;
use weft_engine::cm::{EventChannel, EventKind};

/// What the process may have.
const DESCRIPTORS: u64 = 30;
const STRANGERS: usize = 40;
const HONEST: usize = 10;
/// Holds as many silent connections as it can until its input ends: one that is closed is followed by another.
#[test]
fn strangers() {
    let Some(to) = told() else {
        return;
    };
    let open = move || {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut held: Vec<TcpStream> = (0..STRANGERS).map(|_| open()).collect();
    println!("strangers are there");
    std::thread::spawn(move || loop {
        for stream in &mut held {
            // Closed by the server, or reset.
            if !matches!(stream.read(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
            {
                *stream = open();
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    });
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Connects some times, one after another.
#[test]
fn honest() {
    let Some(to) = told() else {
        return;
    };
    for _ in 0..HONEST {
        let (channel, end) = connect(to);
        expect(&channel, EventKind::Established);
        end.id.disconnect().unwrap();
        expect(&channel, EventKind::Disconnected);
        end.close();
    }
    println!("honest clients got in");
}

/// Connects some times and is rejected, which takes the server a descriptor for each connection and no other.
#[test]
fn rejected() {
    let Some(to) = told() else {
        return;
    };
    for _ in 0..HONEST {
        let (channel, end) = connect(to);
        expect(&channel, EventKind::Rejected);
        end.close();
    }
    println!("each was answered");
}

fn reject_all(events: &EventChannel) {
    loop {
        let event = events.get_event().unwrap();
        if event.kind == EventKind::ConnectRequest {
            let _ = event.id.reject(&[]);
        }
    }
}

#[test]
fn strangers_take_no_descriptors_from_honest_clients() {
    if roles::is_a_part() {
        return;
    }
    let (channel, _id, four, _) = listener(0);
    let mut strangers = start("strangers", four);
    let mut honest = start("honest", four);
    let (other_channel, _other_id, other_four, _) = listener(0);
    let mut rejected = start("rejected", other_four);
    let few = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: Some(DESCRIPTORS),
    };
    setrlimit(Resource::Nofile, few).unwrap();
    std::thread::spawn(move || serve(&channel, End::close));
    std::thread::spawn(move || reject_all(&other_channel));
    let _said = begin(&mut strangers, "strangers are there");
    let _said = begin(&mut honest, "honest clients got in");
    let held = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    assert!(held <= DESCRIPTORS, "{held}");
    // The program takes what there is: a connection gets in for a stranger's, or not at all.
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.pop();
    let _said = begin(&mut rejected, "each was answered");
    drop((files, strangers.stdin.take()));
    for mut child in [honest, rejected] {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    strangers.wait().unwrap();
}
