//! Servers that may be asked for, and clients that ask.

#![allow(dead_code, reason = "each test uses some of it")]

pub mod role;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use weft_discovery::{
    now, About, Answering, Asker, Connection, Known, Outcome, Promises, Standing,
};
use weft_discovery_proto::message::{Question, QUESTION_LEN};
use weft_settings::DiscoveryPort;

/// What has to come comes within this time, however busy the machine is.
pub const SOON: Duration = Duration::from_secs(10);
/// What must not come is waited for this long.
pub const SILENCE: Duration = Duration::from_millis(60);

/// A UDP port that nobody has; no two tests of a process get the same.
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = 20_000 + (std::process::id() * 97 % 8000) as u16;
    loop {
        let port = begin + NEXT.fetch_add(1, Ordering::Relaxed) % 4000;
        if UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

pub fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "{what}: not within {SOON:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What answers in this process.
pub struct Server {
    pub port: DiscoveryPort,
    pub answering: &'static Answering,
    pub promises: &'static Promises,
}

impl Server {
    pub fn new(port: DiscoveryPort) -> Server {
        weft_os::process::watch();
        let promises: &'static Promises = Box::leak(Box::new(Promises::new().unwrap()));
        let answering = Answering::new(port, promises).unwrap();
        Server {
            port,
            answering: Box::leak(Box::new(answering)),
            promises,
        }
    }

    /// A server at a port of its own.
    pub fn alone() -> Server {
        Server::new(DiscoveryPort::Agreed(free_port()))
    }

    /// Serves this listener under `key`, and waits until it can be asked for.
    pub fn serve(&self, key: u32, listener: &TcpListener) {
        self.answering
            .listen(key, About::Stream, listener.as_raw_fd());
        soon("the thread answers", || {
            self.answering.standing() == Standing::Answers
        });
    }

    /// A listener at this address, served; nothing where the machine has no such address.
    pub fn listen(&self, key: u32, at: &str) -> Option<TcpListener> {
        let Ok(listener) = TcpListener::bind(at) else {
            eprintln!("skipped: this machine has no {at}");
            return None;
        };
        self.serve(key, &listener);
        Some(listener)
    }

    pub fn asker(&self) -> Asker {
        Asker::new(self.port).unwrap()
    }
}

/// The port of a listener, at this address.
pub fn at(address: &str, listener: &TcpListener) -> SocketAddr {
    let port = listener.local_addr().unwrap().port();
    SocketAddr::new(address.parse().unwrap(), port)
}

/// Connects, asks and waits for the answer.
pub fn ask(asker: &Asker, server: SocketAddr) -> (TcpStream, bool) {
    let stream = TcpStream::connect(server).unwrap();
    let answer = ask_beside(asker, &stream, server);
    (stream, answer)
}

/// Asks for a connection that there is. A machine that stands still for longer than the answer's time asks again.
pub fn ask_beside(asker: &Asker, stream: &TcpStream, server: SocketAddr) -> bool {
    let ticket = asker.ask(About::Stream, stream.as_raw_fd(), server);
    let ticket = ticket.expect("a question");
    assert_eq!(asker.under_way(), 1);
    let begun = Instant::now();
    loop {
        match asker.poll(ticket) {
            Outcome::Waits(_) if begun.elapsed() < SOON => {
                std::thread::sleep(Duration::from_micros(20));
            }
            Outcome::Waits(_) => return asker.wait(ticket) == Outcome::Yes,
            outcome => {
                assert_eq!(asker.under_way(), 0);
                let known = [(Outcome::Yes, Known::Yes), (Outcome::No, Known::No)];
                let known = known.iter().find(|(said, _)| *said == outcome);
                assert_eq!(
                    Some(&asker.known(About::Stream, server)),
                    known.map(|(_, known)| known)
                );
                return outcome == Outcome::Yes;
            }
        }
    }
}

/// Connects and asks until the answer is yes. Processes that ask each other give each other 20 ms, and a machine may
/// stand still for longer: then it asks for another connection.
pub fn ask_until_yes(asker: &Asker, server: SocketAddr) -> TcpStream {
    let begun = Instant::now();
    while begun.elapsed() < SOON {
        let stream = TcpStream::connect(server).unwrap();
        let ticket = asker.ask(About::Stream, stream.as_raw_fd(), server);
        let ticket = ticket.expect("a question");
        let asked = Instant::now();
        while asked.elapsed() < 5 * SILENCE {
            if asker.poll(ticket) == Outcome::Yes {
                return stream;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        asker.give_up(ticket);
    }
    panic!("nobody says yes for {server} within {SOON:?}");
}

/// The connection of a client's socket.
pub fn connection(stream: &TcpStream) -> Connection {
    Connection {
        about: About::Stream,
        client: stream.local_addr().unwrap().into(),
        server: stream.peer_addr().unwrap().into(),
    }
}

pub fn question(connection: Connection) -> [u8; QUESTION_LEN] {
    let nonce = now().as_nanos().to_le_bytes();
    Question { connection, nonce }.to_octets()
}

/// Sends octets to the discovery port by a socket of any kind, and gives what is answered within a short time.
pub fn answer_to(octets: &[u8], from: IpAddr, to: SocketAddr, within: Duration) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.send_to(octets, to).unwrap();
    socket.set_read_timeout(Some(within)).unwrap();
    let mut answer = [0; 600];
    let (len, _) = socket.recv_from(&mut answer).ok()?;
    Some(answer[..len].to_vec())
}
