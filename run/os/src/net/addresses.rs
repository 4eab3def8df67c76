//! A socket's addresses, asked for once.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;

/// The addresses of a connected socket, once they are known: they do not change any more.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    local: Address,
    peer: Address,
}

type Address = OnceLock<Box<SocketAddr>>;

impl Addresses {
    /// This end's, which `ask` gives where it is not known.
    pub(super) fn local(
        &self,
        ask: impl FnOnce() -> io::Result<SocketAddr>,
    ) -> io::Result<SocketAddr> {
        known(&self.local, ask)
    }

    /// The other end's, likewise.
    pub(super) fn peer(
        &self,
        ask: impl FnOnce() -> io::Result<SocketAddr>,
    ) -> io::Result<SocketAddr> {
        known(&self.peer, ask)
    }
}

fn known(
    address: &Address,
    ask: impl FnOnce() -> io::Result<SocketAddr>,
) -> io::Result<SocketAddr> {
    if let Some(known) = address.get() {
        return Ok(**known);
    }
    let asked = ask()?;
    Ok(**address.get_or_init(|| Box::new(asked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_asked_for_until_it_is_known() {
        let addresses = Addresses::default();
        let nobody = || Err(io::ErrorKind::NotConnected.into());
        let one = "192.0.2.1:7".parse().unwrap();
        assert!(addresses.peer(nobody).is_err());
        assert_eq!(addresses.peer(|| Ok(one)).unwrap(), one);
        assert_eq!(addresses.peer(nobody).unwrap(), one);
        assert!(addresses.local(nobody).is_err(), "it is another one");
    }
}
