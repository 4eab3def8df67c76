//! Whether the other end of a TCP connection is Weft: what this process asks, answers and has promised (decision 0030).
//! Questions about its UDP sockets are answered by the same thread.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use weft_discovery::answering::Owner;
use weft_discovery::{About, Answering, Asker, First, Known, Outcome, Promises, Ticket};
use weft_discovery::{Connection, TakesCarriers, REQUEST_TIMEOUT};
use weft_os::{beside, io_uring, stream};
use weft_settings::DiscoveryPort;
use weft_udp_offload::Offload;

const ABOUT: About = About::Stream;

/// What finds out, for one process and those forked from it.
#[derive(Debug)]
pub struct Discovery {
    asker: Asker,
    promises: &'static Promises,
    answering: Answering,
    owners: &'static Owners,
}

/// What may have no room for those who are told that Weft is here.
pub trait Room: std::fmt::Debug + Sync {
    /// Whether it has.
    fn has_room(&self) -> bool;
}

/// Who looks after what a yes was said for: connections, or datagrams of UDP sockets.
#[derive(Debug)]
struct Owners {
    promises: &'static Promises,
    /// For connections over DDP, once it is there.
    room: OnceLock<&'static dyn Room>,
    offload: Option<&'static Offload>,
}

impl Owner for Owners {
    fn promise(&self, connection: &Connection, now: Duration) -> bool {
        match connection.about {
            // A connection that a ring accepts no hook sees: its program would read the Request.
            About::Stream => {
                let has_room = self.room.get().is_none_or(|room| room.has_room());
                has_room && !io_uring::is_used() && self.promises.promise(connection, now)
            }
            // Nothing is held back for datagrams: each end proves what it says of itself. Who would refuse the channel
            // does not have others connect for it.
            About::Datagrams => {
                let ends = [connection.client, connection.server];
                let [source, target] = ends.map(|end| end.to_socket_addr());
                self.offload
                    .is_some_and(|offload| offload.takes_from(source, target))
            }
        }
    }

    fn carriers(&self) -> Option<TakesCarriers> {
        self.offload?.takes_carriers()
    }
}

impl Discovery {
    /// Nothing asked and nothing answered yet; nothing where the kernel has no room for it. `offload` takes the
    /// carriers of UDP sockets, if anything does. Allocates, for as long as the process lives.
    pub fn new(
        port: DiscoveryPort,
        offload: Option<&'static Offload>,
    ) -> Option<&'static Discovery> {
        let promises: &Promises = Box::leak(Box::new(Promises::new()?));
        let owners: &Owners = Box::leak(Box::new(Owners {
            promises,
            room: OnceLock::new(),
            offload,
        }));
        let discovery: &Discovery = Box::leak(Box::new(Discovery {
            asker: Asker::new(port)?,
            promises,
            answering: Answering::new(port, owners)?,
            owners,
        }));
        if let Some(offload) = offload {
            offload.set_answering(&discovery.answering);
        }
        Some(discovery)
    }

    /// No yes is said for connections for which there is no `room`.
    pub fn look_for(&self, room: &'static dyn Room) {
        let _ = self.owners.room.set(room);
    }

    /// What is known of the server at this address.
    pub fn known(&self, server: SocketAddr) -> Known {
        self.asker.known(ABOUT, server)
    }

    /// Asks the server that the TCP socket behind `fd` has just begun to connect to; nothing where it cannot be asked.
    pub fn ask(&self, fd: i32, server: SocketAddr) -> Option<Ticket> {
        self.asker.ask(ABOUT, fd, server)
    }

    /// What has become of a question whose connection stands. `waits`: until that is known, a few milliseconds or a
    /// round trip.
    pub fn outcome(&self, question: Ticket, waits: bool) -> Outcome {
        if waits {
            return self.asker.wait(question);
        }
        self.asker.connected(question);
        self.asker.poll(question)
    }

    /// Nobody waits for the answer any more.
    pub fn give_up(&self, question: Ticket) {
        self.asker.give_up(question);
    }

    /// The server behind `fd` said yes, and what came was no Reply.
    pub fn learn_that_it_lied(&self, fd: i32) {
        if let Some(server) = beside::peer_end(fd) {
            self.asker.learn_that_it_lied(ABOUT, server);
        }
    }

    /// How long the program's first octets on an accepted connection wait for a Request: until its time is over where
    /// one was promised. From now on none will be.
    pub fn wait_left(&self, fd: i32) -> Duration {
        let Some(connection) = accepted(fd) else {
            return Duration::ZERO;
        };
        let now = weft_discovery::now();
        match self.promises.settle(&connection, now) {
            First::Leave => Duration::ZERO,
            First::Held(since) => {
                (since + REQUEST_TIMEOUT + stream::round_trip(fd)).saturating_sub(now)
            }
        }
    }

    /// The Request has come on an accepted connection: what was promised for it is kept. A client may have so many
    /// promises at a time and no more, so one that connects often would be told no for want of room.
    pub fn request_came(&self, fd: i32) {
        if let Some(connection) = accepted(fd) {
            let _ = self.promises.take(&connection, weft_discovery::now());
        }
    }

    /// As if a yes had been said for the connection that was accepted.
    #[cfg(test)]
    pub(crate) fn promise(&self, fd: i32) -> bool {
        let promise = |connection| self.promises.promise(&connection, weft_discovery::now());
        accepted(fd).is_some_and(promise)
    }

    /// The socket behind `fd` has begun to listen, and has this number.
    pub fn listen(&'static self, number: u32, fd: i32) {
        self.answering.listen(number, ABOUT, fd);
    }

    /// The program accepts from it.
    pub fn serve(&'static self, number: u32, fd: i32) {
        self.answering.serve(number, ABOUT, fd);
    }

    /// It is closed.
    pub fn leave(&'static self, number: u32) {
        self.answering.leave(number);
    }

    /// The program is about to bind a UDP socket to this port.
    pub fn give_way(&'static self, port: u16) {
        self.answering.give_way(port);
    }

    /// The program confines itself.
    pub fn confine(&'static self) {
        self.answering.confine();
    }
}

/// The connection behind `fd`, which this end accepted.
fn accepted(fd: i32) -> Option<Connection> {
    let (server, client) = beside::local_end(fd).zip(beside::peer_end(fd))?;
    Some(Connection {
        about: ABOUT,
        client: client.into(),
        server: server.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[derive(Debug)]
    struct May(AtomicBool);

    impl Room for May {
        fn has_room(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    static HAS_ROOM: May = May(AtomicBool::new(true));

    #[test]
    fn no_yes_is_said_where_there_is_no_room() {
        weft_os::process::watch();
        let discovery = Discovery::new(DiscoveryPort::Agreed(0), None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        let connection = accepted(server.as_raw_fd()).unwrap();
        let promises = || discovery.owners.promise(&connection, weft_discovery::now());
        assert!(promises());
        discovery.look_for(&HAS_ROOM);
        assert!(promises());
        HAS_ROOM.0.store(false, Ordering::Relaxed);
        assert!(!promises());
    }
}
