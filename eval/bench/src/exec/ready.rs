//! Whether a program listens, or has its port of UDP.

use std::fs;

/// Whether anything listens on this TCP port in the network namespace of the process. Read from
/// `/proc`, because a connection made to find out would be the one that the server serves.
pub(super) fn listening(pid: u32, port: u16) -> bool {
    const LISTEN: &str = "0A";
    ["tcp", "tcp6"].iter().any(|table| {
        fs::read_to_string(format!("/proc/{pid}/net/{table}"))
            .is_ok_and(|text| table_lists(&text, port, LISTEN))
    })
}

/// Whether a UDP socket is bound to this port in the network namespace of the process.
pub(super) fn bound(pid: u32, port: u16) -> bool {
    const UNCONNECTED: &str = "07";
    ["udp", "udp6"].iter().any(|table| {
        fs::read_to_string(format!("/proc/{pid}/net/{table}"))
            .is_ok_and(|text| table_lists(&text, port, UNCONNECTED))
    })
}

/// Whether a table of sockets has one of this local port in this state.
fn table_lists(table: &str, port: u16, state: &str) -> bool {
    let local = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        fields
            .next()
            .is_some_and(|address| address.ends_with(&local))
            && fields.nth(1) == Some(state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::time::{Duration, Instant};

    #[test]
    fn a_bound_socket_is_seen_and_a_connected_one_is_none_that_takes_datagrams_of_anybody() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(bound(std::process::id(), port));
        socket.connect(("127.0.0.1", port)).unwrap();
        assert!(!bound(std::process::id(), port));
    }

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
