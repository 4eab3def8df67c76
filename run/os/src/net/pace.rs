//! Connections to near machines keep no pace.
//!
//! BBR, which some machines have for all connections (`net.ipv4.tcp_congestion_control`), keeps one. Where no queue
//! discipline does that for it (tc-fq(8)) the kernel sets a timer for each burst, of 64 KiB at most. Over a long path
//! that is little; between processes of one machine, or of one building, it may take more of the sender's core than all
//! else of the connection does.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

use crate::stream::least_round_trip;

/// The control of congestion that keeps a pace.
const PACED: &str = "bbr";
/// Those that keep none; the first is taken that there is, and that the process may have.
const UNPACED: [&str; 2] = ["cubic", "reno"];
/// A round trip to a near machine at most.
pub(super) const NEAR: Duration = Duration::from_millis(1);

/// Takes the pace from a connection that has just been made, where its round trip is `near` or less.
pub(super) fn keep_no_pace_if(near: Duration, fd: &impl AsFd) {
    if !tcp_congestion(fd).is_ok_and(|control| control == PACED) {
        return;
    }
    let round_trip = least_round_trip(fd.as_fd().as_raw_fd());
    if round_trip.is_some_and(|time| time <= near) {
        let mut controls = UNPACED.iter();
        let _ = controls.any(|control| set_tcp_congestion(fd, control).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{TcpListener, TcpStream};

    /// Where the machine has no BBR, or the process may not choose it, there is no pace to be taken.
    #[test]
    fn near_connections_keep_no_pace_and_far_ones_do() {
        let listener = TcpListener::apart(0, 4).unwrap();
        let (port, paced) = (
            listener.local_addr().unwrap().port(),
            set_tcp_congestion(&listener.fd, PACED).is_ok(),
        );
        let client = TcpStream::connect_apart(None, ([127, 0, 0, 1], port).into()).unwrap();
        let server = loop {
            if let Some(server) = listener.accept_apart().unwrap() {
                break server;
            }
        };
        client.connect_result().unwrap();
        for end in [&client, &server] {
            let control = || tcp_congestion(&end.fd).unwrap();
            assert_ne!(control(), PACED, "it is near");
            if paced {
                set_tcp_congestion(&end.fd, PACED).unwrap();
                keep_no_pace_if(Duration::ZERO, &end.fd);
                assert_eq!(control(), PACED, "it is farther than nothing");
                keep_no_pace_if(NEAR, &end.fd);
                assert!(UNPACED.contains(&&*control()), "{}", control());
            }
        }
    }
}
