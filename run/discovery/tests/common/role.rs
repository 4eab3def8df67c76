//! Other processes: this test program again, in a role, told by lines and answering by lines.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use weft_discovery::{now, About, Asker, Connection, First, Outcome, Standing};
use weft_os::seqpacket::{Listener, Packets};
use weft_settings::DiscoveryPort;

use super::{question, soon, Server, SOON};

const ROLE: &str = "WEFT_TEST_ROLE";

/// Another process, in a role.
pub struct Role {
    child: Child,
    tell: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Role {
    /// `before` are words before the command: another user, another namespace.
    pub fn start(before: &[&str], role: &str) -> Role {
        let own = std::env::current_exe().unwrap();
        let words: Vec<&str> = before
            .iter()
            .copied()
            .chain([own.to_str().unwrap()])
            .collect();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(["--exact", "role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let said = BufReader::new(said);
        Role { child, tell, said }
    }

    /// The next line that begins so, without its beginning.
    pub fn hear(&mut self, begin: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let octets = self.said.read_line(&mut line).unwrap();
            assert!(octets > 0, "it ended before it said {begin}");
            // The harness writes the test's name before its first line.
            if let Some((_, rest)) = line.trim_end().split_once(begin) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn ask(&mut self, what: &str) -> String {
        writeln!(self.tell, "{what}").unwrap();
        self.hear("said:")
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What such a process does; nothing in the test program itself.
pub fn play() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["server", udp, at] => serve(udp.parse().unwrap(), at.parse().unwrap()),
        ["squat", name] => {
            let _listener = Listener::bind(name.as_bytes()).unwrap();
            println!("said: here");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        ["call", name, client, server] => {
            let connection = Connection {
                about: About::Stream,
                client: client.parse::<SocketAddr>().unwrap().into(),
                server: server.parse::<SocketAddr>().unwrap().into(),
            };
            println!("said: {:?}", call(name, connection));
        }
        [how @ ("patient" | "prompt"), udp, server] => {
            weft_os::process::watch();
            let port = DiscoveryPort::Agreed(udp.parse().unwrap());
            let asker = weft_discovery::Asker::new(port).unwrap();
            let begun = std::time::Instant::now();
            let server = server.parse().unwrap();
            let (stream, is_weft) = match how {
                "prompt" => wait(&asker, server),
                _ => super::ask(&asker, server),
            };
            let ms = begun.elapsed().as_millis();
            println!("said: {is_weft}");
            println!("milliseconds: {ms}");
            println!("client: {}", stream.local_addr().unwrap());
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        _ => panic!("no such role: {role}"),
    }
    std::process::exit(0);
}

/// A listener that shares its port, and answers what it is told to.
fn serve(udp: u16, at: SocketAddr) {
    let server = Server::new(DiscoveryPort::Agreed(udp));
    let listener = shared_listener(at);
    server
        .answering
        .listen(1, About::Stream, listener.as_raw_fd());
    soon("the thread has looked", || {
        server.answering.standing() != Standing::Idle
    });
    println!("at: {}", listener.local_addr().unwrap());
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let of = |client: &str| Connection {
            about: About::Stream,
            client: client.parse::<SocketAddr>().unwrap().into(),
            server: listener.local_addr().unwrap().into(),
        };
        match words[..] {
            ["take", client] => {
                println!(
                    "said: {}",
                    server.promises.take(&of(client), now()).is_some()
                );
            }
            ["settle", client] => {
                println!(
                    "said: {:?}",
                    server.promises.settle(&of(client), now()) == First::Leave
                );
            }
            ["standing"] => println!("said: {:?}", server.answering.standing()),
            ["again"] => {
                server
                    .answering
                    .serve(1, About::Stream, listener.as_raw_fd());
                println!("said: done");
            }
            ["colleagues"] => println!("said: {}", server.answering.counted().colleagues),
            ["answered"] => println!("said: {}", server.answering.counted().answered),
            ["leave"] => {
                server.answering.leave(1);
                println!("said: done");
            }
            _ => panic!("{line}"),
        }
    }
}

fn shared_listener(at: SocketAddr) -> TcpListener {
    use rustix::net::{bind, listen, socket, sockopt, AddressFamily, SocketType};
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let fd: OwnedFd = socket(family, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseport(&fd, true).unwrap();
    bind(&fd, &at).unwrap();
    listen(&fd, 512).unwrap();
    fd.into()
}

/// Asks a process by its name as a colleague would; what it says.
pub fn call(name: &str, connection: Connection) -> Option<Vec<u8>> {
    let packets = Packets::open().unwrap();
    packets.connect(name.as_bytes()).ok()?;
    packets.send(&question(connection)).ok()?;
    let begun = std::time::Instant::now();
    let mut octets = [0; 8];
    while begun.elapsed() < SOON {
        match packets.receive(&mut octets) {
            Ok(0) => return None,
            Ok(len) => return Some(octets[..len].to_vec()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(_) => return None,
        }
    }
    None
}

/// Connects, asks, and waits as a program that prefers DDP does.
fn wait(asker: &Asker, server: SocketAddr) -> (TcpStream, bool) {
    let begun = std::time::Instant::now();
    let stream = TcpStream::connect(server).unwrap();
    let ticket = asker.ask(About::Stream, stream.as_raw_fd(), server);
    let answer = asker.wait(ticket.expect("a question")) == Outcome::Yes;
    assert!(begun.elapsed() < SOON);
    (stream, answer)
}
