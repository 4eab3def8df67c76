//! What becomes of an address of a driver that is held: a listener, or a connection.

use std::io;
use std::net::SocketAddr;

use weft_engine::carrier::{Bound, Carrier, Listener};

use crate::connection::Connection;
use crate::hold::{canonical, unspecified, Hold};
use crate::listener::DriverListener;

/// Begins to listen.
pub(crate) fn listen(hold: Hold, backlog: i32) -> io::Result<DriverListener> {
    if let Some(mut state) = hold.driver.lock() {
        let v6_only = hold.options.v6_only == Some(true);
        state.listen(hold.holder, hold.local, v6_only, backlog)?;
    }
    Ok(DriverListener::new(hold))
}

/// Begins to connect. From all addresses is from the one that leads to the peer.
pub(crate) fn connect(hold: Hold, peer: SocketAddr) -> io::Result<Connection> {
    let peer = canonical(peer);
    let local = match hold.local.ip().is_unspecified() {
        true => SocketAddr::new(unspecified(peer.ip()), hold.local.port()),
        false => hold.local,
    };
    let (driver, options) = (hold.driver.clone(), hold.options);
    Connection::open(&driver, local, peer, &options, Some(hold))
}

impl Bound for Hold {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn listen(self: Box<Self>, backlog: i32) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(listen(*self, backlog)?))
    }

    fn connect(self: Box<Self>, peer: SocketAddr) -> io::Result<Box<dyn Carrier>> {
        Ok(Box::new(connect(*self, peer)?))
    }
}
