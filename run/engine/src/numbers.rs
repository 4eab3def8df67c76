//! Queue pair numbers that say where the queue pair is to be found.
//!
//! The upper 16 bits of a number are a TCP port that the process holds, the lower 8 tell its queue pairs apart. The
//! port is bound when the first number is given out; who is to be found there takes its socket and listens
//! ([`Numbers::take_sockets`]), so that a process that only uses the connection manager has no open port for this.
//! Queue pairs that send datagrams have the UDP port of the same number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::carrier::{Bound, Network, SocketOptions};
use crate::error::Error;

/// Queue pairs of one port. Not all 256, so that a number rests before it is used again.
pub(crate) const QUEUE_PAIRS_PER_PORT: usize = 192;
/// Ports that are tried when somebody else has the UDP port of ours.
const UDP_TRIES: usize = 16;

/// The TCP port at which a queue pair is found.
pub(crate) fn port_of(number: u32) -> u16 {
    (number >> 8) as u16
}

/// The numbers given out.
#[derive(Debug)]
pub(crate) struct Numbers {
    network: Arc<dyn Network>,
    /// Octets of the buffers of sockets; 0 leaves them to the kernel.
    socket_buffer: usize,
    ports: Mutex<Vec<Port>>,
}

#[derive(Debug)]
struct Port {
    number: u16,
    /// Holds the port, until somebody takes it to listen.
    socket: Option<Box<dyn Bound>>,
    used: [bool; 256],
    /// Those that a queue pair has or had.
    given: [bool; 256],
    live: usize,
    next: u8,
}

impl Numbers {
    /// None is given out yet. The sockets that hold ports get buffers of so many octets, or the kernel's default for 0.
    pub(crate) fn new(network: Arc<dyn Network>, socket_buffer: usize) -> Numbers {
        Numbers {
            network,
            socket_buffer,
            ports: Mutex::default(),
        }
    }

    /// A number that no queue pair has, and that was not used for as long as possible.
    ///
    /// # Errors
    /// No port is left.
    pub(crate) fn take(&self) -> Result<u32, Error> {
        Ok(self.take_at(|_| Some(()))?.0)
    }

    /// The same at a port that `fits`, with what that says of it.
    ///
    /// # Errors
    /// No port is left, or none fits.
    pub(crate) fn take_at<T>(
        &self,
        mut fits: impl FnMut(u16) -> Option<T>,
    ) -> Result<(u32, T), Error> {
        let mut ports = self.ports.lock();
        for _ in 0..UDP_TRIES {
            for port in ports.iter_mut().filter(|p| p.live < QUEUE_PAIRS_PER_PORT) {
                if let Some(what) = fits(port.number) {
                    return Ok((port.take(), what));
                }
            }
            ports.push(Port::bind(&*self.network, self.socket_buffer)?);
        }
        Err(Error::NoMemory("ports for queue pair numbers"))
    }

    /// The queue pair of that number is gone.
    pub(crate) fn give_back(&self, number: u32) {
        let mut ports = self.ports.lock();
        let port = ports.iter_mut().find(|p| p.number == port_of(number));
        if let Some(port) = port {
            if std::mem::take(&mut port.used[number as usize & 0xFF]) {
                port.live -= 1;
            }
        }
    }

    /// Whether a queue pair has or had the number.
    pub(crate) fn was_given(&self, number: u32) -> bool {
        let ports = self.ports.lock();
        let port = ports.iter().find(|p| p.number == port_of(number));
        port.is_some_and(|p| p.given[number as usize & 0xFF])
    }

    /// The sockets that hold ports and were not taken yet. The caller holds the ports from now on.
    pub(crate) fn take_sockets(&self) -> Vec<Box<dyn Bound>> {
        let mut ports = self.ports.lock();
        ports
            .iter_mut()
            .filter_map(|port| port.socket.take())
            .collect()
    }
}

impl Port {
    /// A port on all the machine's addresses, of both families where there are two.
    fn bind(network: &dyn Network, socket_buffer: usize) -> Result<Port, Error> {
        let options = SocketOptions {
            v6_only: Some(false),
            buffer: socket_buffer,
            ..SocketOptions::default()
        };
        let any = |address: IpAddr| network.bind(SocketAddr::new(address, 0), &options);
        let socket =
            any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
        Ok(Port {
            number: socket.local_addr().port(),
            socket: Some(socket),
            used: [false; 256],
            given: [false; 256],
            live: 0,
            next: weft_os::random_u64() as u8,
        })
    }

    fn take(&mut self) -> u32 {
        while self.used[usize::from(self.next)] {
            self.next = self.next.wrapping_add(1);
        }
        let low = self.next;
        self.used[usize::from(low)] = true;
        self.given[usize::from(low)] = true;
        self.live += 1;
        self.next = low.wrapping_add(1);
        u32::from(self.number) << 8 | u32::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::memory::Memory;

    fn numbers() -> Numbers {
        Numbers::new(Arc::new(Memory::default()), 0)
    }

    #[test]
    fn a_number_is_nobodys_else_and_rests_before_it_is_used_again() {
        let numbers = numbers();
        let first = numbers.take().expect("a number");
        assert!(numbers.was_given(first) && !numbers.was_given(first ^ 0x80));
        let mut taken = vec![first];
        for _ in 1..QUEUE_PAIRS_PER_PORT {
            let next = numbers.take().expect("a number");
            assert!(port_of(next) == port_of(first) && !taken.contains(&next));
            taken.push(next);
        }
        let beyond = numbers.take().expect("a number of another port");
        assert_ne!(port_of(beyond), port_of(first));
        numbers.give_back(first);
        let again = numbers.take().expect("a number");
        assert!(port_of(again) == port_of(first) && !taken.contains(&again));
    }

    #[test]
    fn a_port_that_does_not_fit_is_passed_by() {
        let numbers = numbers();
        let first = numbers.take().expect("a number");
        let (number, port) = numbers
            .take_at(|port| (port != port_of(first)).then_some(port))
            .expect("a number");
        assert!(port_of(number) == port && port != port_of(first));
        assert!(numbers.take_at(|_| None::<()>).is_err());
    }

    #[test]
    fn a_socket_is_taken_once() {
        let numbers = numbers();
        let number = numbers.take().expect("a number");
        let sockets = numbers.take_sockets();
        assert_eq!(sockets.len(), 1);
        assert_eq!(sockets[0].local_addr().port(), port_of(number));
        assert!(numbers.take_sockets().is_empty());
    }
}
