//! Whether a program listens.

use std::fs;

/// Whether anything listens on this TCP port in the network namespace of the process. Read from
/// `/proc`, because a connection made to find out would be the one that the server serves.
pub(super) fn listening(pid: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        fs::read_to_string(format!("/proc/{pid}/net/{table}"))
            .is_ok_and(|text| table_lists_listener(&text, port))
    })
}

fn table_lists_listener(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let local = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        fields
            .next()
            .is_some_and(|address| address.ends_with(&local))
            && fields.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    #[test]
    fn a_listening_port_is_seen_and_a_closed_one_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening(std::process::id(), port));
        drop(listener);
        // A child that another test has forked holds it too until it is the other program; and the port may be another
        // test's next.
        let deadline = Instant::now() + Duration::from_secs(20);
        while listening(std::process::id(), port) {
            assert!(Instant::now() < deadline, "still listening");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
