//! Parts of a test that are processes of their own: this test program again, with one of its tests.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Where to connect to, for the processes that this one starts.
const TO: &str = "WEFT_TEST_TO";

/// Runs one of the program's tests, as a process of its own.
pub fn start(role: &str, to: SocketAddr) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--nocapture"])
        .env(TO, to.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Whether this process plays a part.
pub fn is_a_part() -> bool {
    std::env::var_os(TO).is_some()
}

/// Where to connect to, once this process is told to begin; `None` where the tests are run as such.
pub fn told() -> Option<SocketAddr> {
    let to = std::env::var(TO).ok()?.parse().unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    Some(to)
}

/// Tells a process to begin, and waits for the line that it says then.
pub fn begin(child: &mut Child, wanted: &str) -> BufReader<ChildStdout> {
    child.stdin.as_mut().unwrap().write_all(b"begin\n").unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "no \"{wanted}\"");
    }
    output
}
