//! A process that has no descriptor left.

#![allow(dead_code, reason = "each test uses some of it")]

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::process::{setrlimit, Resource, Rlimit};

/// What the process may have.
const DESCRIPTORS: u64 = 64;
/// So long none may come free before the process counts as having none: a thread that reads a file gives it back.
const NONE_FOR: Duration = Duration::from_millis(300);

/// How many the process has.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Takes every descriptor that the process may have; they are there again once the files are dropped.
pub fn take_all() -> Vec<File> {
    let few = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: Some(DESCRIPTORS),
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let (mut files, mut last) = (Vec::new(), Instant::now());
    while last.elapsed() < NONE_FOR {
        match File::open("/dev/null") {
            Ok(file) => {
                files.push(file);
                last = Instant::now();
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    assert!(!files.is_empty());
    files
}
