//! The listeners of this process that may be asked for.

use std::net::IpAddr;

use weft_discovery_proto::{About, End};
use weft_os::beside;
use weft_os::dgram::get_int;

/// Listeners of a process that can be asked for; those beyond are not.
pub const LISTENERS_MAX: usize = 64;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    key: u32,
    about: About,
    at: End,
    /// It has all addresses of this machine, those of IPv4 too.
    is_dual: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Listeners {
    listeners: [Option<Listener>; LISTENERS_MAX],
}

impl Default for Listeners {
    fn default() -> Listeners {
        Listeners {
            listeners: [None; LISTENERS_MAX],
        }
    }
}

impl Listeners {
    /// Whether a listener of this key is there.
    pub(super) fn knows(&self, key: u32) -> bool {
        self.iter().any(|listener| listener.key == key)
    }

    /// The socket behind `fd`; false if it is bound to nothing, or there are too many.
    pub(super) fn add(&mut self, key: u32, about: About, fd: i32) -> bool {
        let Some(at) = beside::local_end(fd).filter(|at| at.port() != 0) else {
            return false;
        };
        let v6_only = get_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        let is_any = at.ip() == IpAddr::from([0; 16]);
        let Some(place) = self.listeners.iter_mut().find(|place| place.is_none()) else {
            return false;
        };
        *place = Some(Listener {
            key,
            about,
            at: at.into(),
            is_dual: is_any && v6_only == Ok(0),
        });
        true
    }

    /// Whether there was one of this key.
    pub(super) fn remove(&mut self, key: u32) -> bool {
        let is_it = |place: &&mut Option<Listener>| place.is_some_and(|one| one.key == key);
        match self.listeners.iter_mut().find(is_it) {
            Some(place) => {
                *place = None;
                true
            }
            None => false,
        }
    }

    /// Whether any has this port.
    pub(super) fn has(&self, port: u16) -> bool {
        self.iter().any(|listener| listener.at.port() == port)
    }

    /// Whether a connection to this end would be one of theirs.
    pub(super) fn take(&self, about: About, server: End) -> bool {
        let mut listeners = self.iter().filter(|listener| listener.about == about);
        listeners.any(|listener| listener.takes(server))
    }

    /// What they are about, and their ports.
    pub(super) fn ports(&self) -> impl Iterator<Item = (About, u16)> + '_ {
        self.iter()
            .map(|listener| (listener.about, listener.at.port()))
    }

    fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().flatten()
    }
}

impl Listener {
    fn takes(&self, server: End) -> bool {
        let (own, wanted) = (self.at.address(), server.address());
        let has_address = own == wanted
            || self.is_dual
            || (own.is_unspecified() && own.is_ipv4() == wanted.is_ipv4());
        has_address && self.at.port() == server.port()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener};
    use std::os::fd::AsRawFd;

    fn takes(at: &str, wanted: &[&str]) -> Option<Vec<bool>> {
        let socket = TcpListener::bind(at).ok()?;
        let port = socket.local_addr().unwrap().port();
        let mut listeners = Listeners::default();
        assert!(listeners.add(7, About::Stream, socket.as_raw_fd()));
        assert!(listeners.knows(7) && listeners.has(port));
        assert_eq!(
            listeners.ports().collect::<Vec<_>>(),
            [(About::Stream, port)]
        );
        let of = |address: &&str, port| {
            let server = SocketAddr::new(address.parse().unwrap(), port).into();
            assert!(!listeners.take(About::Datagrams, server));
            listeners.take(About::Stream, server)
        };
        assert!(wanted.iter().all(|address| !of(address, port ^ 1)));
        Some(wanted.iter().map(|address| of(address, port)).collect())
    }

    #[test]
    fn a_listener_takes_what_its_address_says() {
        let wanted = ["127.0.0.1", "127.0.0.2", "::1", "2001:db8::1"];
        assert_eq!(
            takes("127.0.0.1:0", &wanted).unwrap(),
            [true, false, false, false]
        );
        assert_eq!(
            takes("0.0.0.0:0", &wanted).unwrap(),
            [true, true, false, false]
        );
        match (takes("[::1]:0", &wanted), takes("[::]:0", &wanted)) {
            (Some(one), Some(any)) => {
                assert_eq!(one, [false, false, true, false]);
                assert_eq!(any, [true; 4], "of both families unless it says otherwise");
            }
            _ => eprintln!("skipped: no IPv6"),
        }
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut listeners = Listeners::default();
        let mut add = |key| listeners.add(key, About::Stream, socket.as_raw_fd());
        assert!((0..LISTENERS_MAX as u32).all(&mut add));
        assert!(!add(1000));
        assert!(listeners.remove(3) && !listeners.remove(3));
        assert!(listeners.add(1000, About::Stream, socket.as_raw_fd()));
    }

    #[test]
    fn what_is_bound_to_nothing_is_no_listener() {
        let unix = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let mut listeners = Listeners::default();
        assert!(!listeners.add(1, About::Stream, unix.as_raw_fd()));
        assert!(!listeners.add(1, About::Stream, -1));
    }
}
