//! Connections to near machines keep no pace.
//!
//! BBR, which some machines have for all connections (`net.ipv4.tcp_congestion_control`), keeps one. Where no queue
//! discipline does that for it (tc-fq(8)) the kernel sets a timer for each burst, of 64 KiB at most. Over a long path
//! that is little; between processes of one machine, or of one building, it may take more of the sender's core than all
//! else of the connection does. What kept a pace once keeps it under any other control (datagrams of 1448 octets over
//! a veth: CUBIC from the first 31 Gbit/s, CUBIC after BBR 17), so a connection begins without one, and gets it where
//! the path turns out to be long.

use std::fs::read_to_string;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

use crate::stream::least_round_trip;

/// The control of congestion that keeps a pace.
const PACED: &str = "bbr";
/// Those that keep none; the first is taken that there is, and that the process may have.
const UNPACED: [&str; 2] = ["cubic", "reno"];
/// The machine's own choice for new connections.
const CHOICE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// The longest round trip to a near machine.
pub(super) const NEAR: Duration = Duration::from_millis(1);

/// Whether any socket of this process went without the pace that the machine wants.
static ANY_UNPACED: AtomicBool = AtomicBool::new(false);

/// Has the connection of a new socket, or all that a listener accepts, begin without a pace.
pub(super) fn begin_unpaced(fd: &impl AsFd) {
    if !tcp_congestion(fd).is_ok_and(|control| control == PACED) {
        return;
    }
    let mut controls = UNPACED.iter();
    if controls.any(|control| set_tcp_congestion(fd, control).is_ok()) {
        ANY_UNPACED.store(true, Ordering::Relaxed);
    }
}

/// Gives a connection that stands the pace that the machine wants, where its round trip is longer than `near`.
pub(super) fn pace_if_far(fd: &impl AsFd, near: Duration) {
    if !ANY_UNPACED.load(Ordering::Relaxed) {
        return;
    }
    let round_trip = least_round_trip(fd.as_fd().as_raw_fd());
    let is_far = round_trip.is_some_and(|time| time > near);
    if is_far && read_to_string(CHOICE).is_ok_and(|choice| choice.trim_end() == PACED) {
        let _ = set_tcp_congestion(fd, PACED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{TcpListener, TcpStream};

    /// On a machine whose choice is BBR both ends begin without, and get it on a long path; else nothing changes.
    #[test]
    fn near_connections_keep_no_pace_and_far_ones_do() {
        let choice = read_to_string(CHOICE).unwrap();
        let choice = choice.trim_end();
        let listener = TcpListener::apart(0, 4).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect_apart(None, ([127, 0, 0, 1], port).into()).unwrap();
        let server = loop {
            if let Some(server) = listener.accept_apart().unwrap() {
                break server;
            }
        };
        client.connect_result().unwrap();
        for end in [&client, &server] {
            let control = || tcp_congestion(&end.fd).unwrap();
            let near = control();
            match choice {
                PACED => assert!(UNPACED.contains(&&*near), "{near}"),
                _ => assert_eq!(near, choice),
            }
            assert!(least_round_trip(end.fd.as_raw_fd()).is_some());
            pace_if_far(&end.fd, Duration::ZERO);
            assert_eq!(control(), choice, "it is farther than nothing");
        }
    }
}
