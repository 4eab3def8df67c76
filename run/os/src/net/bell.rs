//! Single octets on a connection, from whoever has nothing that keeps it open.

use std::sync::Arc;

use rustix::net::{self, SendFlags};

use super::TcpStream;
use crate::private::Private;

/// Sends single octets on a connection, whose socket stays open for as long as this lives: whoever rings needs no lock
/// that keeps others from closing the connection meanwhile.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Private>);

impl Bell {
    /// Sends an octet of 0. Where it does not take one there is room for none, or it is over: then the other end has
    /// something that wakes it already.
    pub fn ring(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = net::send(&*self.0, &[0], flags);
    }
}

impl TcpStream {
    /// What rings at the other end.
    pub fn bell(&self) -> Bell {
        Bell(self.fd.clone())
    }
}
