//! What processes tell of the TCP sockets that may go as DDP: as data, and as tables.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;

use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::Process;
use serde::Serialize;
use weft_sockets::ddp::shown::Shown;
use weft_sockets::tcp::shown::{way, Way};
use weft_sockets::tcp::Reason;

use super::table::table;
use super::table::Column::{self, Number, Text};

/// A process under Weft that has TCP sockets.
#[derive(Debug, Serialize)]
pub struct Streaming {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Its sockets that listen or have a connection, by descriptor.
    pub sockets: Vec<Socket>,
}

/// One TCP socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Socket {
    /// The lowest of its descriptors.
    pub fd: u32,
    /// This end.
    pub local: String,
    /// The other; nothing for a listener.
    pub peer: Option<String>,
    /// How its octets go.
    pub transport: Transport,
    /// Why.
    pub why: String,
}

/// How the octets of a socket go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// As TCP.
    Tcp,
    /// As DDP; of a listener, those of connections whose peers ask for it.
    Ddp,
    /// It is not known yet.
    Undecided,
    /// No more.
    Over,
}

/// The ends of a socket.
#[derive(Clone, Copy, Debug)]
struct Ends {
    local: SocketAddr,
    /// Nothing for a listener.
    peer: Option<SocketAddr>,
}

/// The sockets of the process `pid`, of which `shown` tells. `descriptors`: their numbers, by inode.
///
/// # Errors
/// The process has ended, or may not be looked into.
pub fn sockets(
    pid: u32,
    shown: &Shown,
    descriptors: &HashMap<u64, u32>,
) -> io::Result<Vec<Socket>> {
    let ends = ends(pid).map_err(io::Error::other)?;
    let mut sockets = BTreeMap::new();
    for (inode, fd) in descriptors {
        if let (Some(ends), Some(way)) = (ends.get(inode), way(shown, *inode)?) {
            sockets.insert(*fd, socket(*fd, *ends, way));
        }
    }
    Ok(sockets.into_values().collect())
}

/// The TCP sockets of the process's network that listen or have a connection, by inode.
fn ends(pid: u32) -> procfs::ProcResult<HashMap<u64, Ends>> {
    let process = Process::new(pid.cast_signed())?;
    // A kernel without IPv6 has none of the second kind.
    let entries = process
        .tcp()?
        .into_iter()
        .chain(process.tcp6().unwrap_or_default());
    let of = |entry: TcpNetEntry| {
        let peer = match entry.state {
            TcpState::Close => return None,
            TcpState::Listen => None,
            _ => Some(entry.remote_address),
        };
        let local = entry.local_address;
        Some((entry.inode, Ends { local, peer }))
    };
    Ok(entries.filter_map(of).collect())
}

fn socket(fd: u32, ends: Ends, way: Way) -> Socket {
    let (transport, why) = match way {
        Way::Ddp {
            is_foreign,
            has_crc,
        } => (Transport::Ddp, of_ddp(is_foreign, has_crc)),
        Way::Wanted if ends.peer.is_none() => (
            Transport::Ddp,
            "a peer that asks for DDP has it, any other TCP".to_owned(),
        ),
        Way::Wanted => (
            Transport::Undecided,
            "the other end has not said what it is".to_owned(),
        ),
        Way::Undecided => (
            Transport::Tcp,
            "it was connected, or made to listen, where Weft did not see it".to_owned(),
        ),
        Way::Tcp(reason) => (Transport::Tcp, of_tcp(reason).to_owned()),
        Way::Over(errno) => (
            Transport::Over,
            format!("it has ended: {}", io::Error::from_raw_os_error(errno)),
        ),
    };
    Socket {
        fd,
        local: end(ends.local),
        peer: ends.peer.map(end),
        transport,
        why,
    }
}

/// An end of a connection. One of IPv4 is written as such, whatever family its socket is of.
fn end(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

fn of_ddp(is_foreign: bool, has_crc: bool) -> String {
    let what = match is_foreign {
        true => "the other end speaks rsockets",
        false => "both ends are Weft",
    };
    let crc = if has_crc { ", with a CRC" } else { "" };
    format!("{what}{crc}")
}

fn of_tcp(reason: Reason) -> &'static str {
    match reason {
        Reason::Off => "a rule says off, or none fits",
        Reason::Released => {
            "it is used in ways that Weft does not see (io_uring), or that DDP has not"
        }
        Reason::Found => "it was connected before Weft saw it",
        Reason::NoRoom => "there was no room for another connection over DDP",
        Reason::NotThere => "the other end is not Weft, or did not ask",
        Reason::TooEarly => "octets left with the SYN",
        Reason::None => "",
    }
}

/// Those processes; each one's sockets, if `sockets`. Nothing where there are none.
pub fn tables(all: &[Streaming], sockets: bool) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = table(&HEAD, all.iter().map(cells));
    for one in all.iter().filter(|_| sockets) {
        text.push('\n');
        text += &table(&SOCKET_HEAD, one.sockets.iter().map(socket_cells));
    }
    text
}

const HEAD: [Column; 6] = [
    Number("PID"),
    Text("PROGRAM"),
    Number("DDP CONN"),
    Number("TCP CONN"),
    Number("UNDECIDED"),
    Number("LISTENERS"),
];

fn cells(one: &Streaming) -> Vec<String> {
    let (listeners, connections): (Vec<&Socket>, Vec<&Socket>) =
        one.sockets.iter().partition(|socket| socket.peer.is_none());
    let count = |transport| {
        let of = connections.iter();
        of.filter(|socket| socket.transport == transport)
            .count()
            .to_string()
    };
    vec![
        one.pid.to_string(),
        one.program.clone(),
        count(Transport::Ddp),
        count(Transport::Tcp),
        count(Transport::Undecided),
        listeners.len().to_string(),
    ]
}

const SOCKET_HEAD: [Column; 5] = [
    Number("FD"),
    Text("LOCAL"),
    Text("PEER"),
    Text("GOES AS"),
    Text("BECAUSE"),
];

fn socket_cells(socket: &Socket) -> Vec<String> {
    let goes_as = match socket.transport {
        Transport::Tcp => "TCP",
        Transport::Ddp => "DDP",
        Transport::Undecided => "?",
        Transport::Over => "-",
    };
    vec![
        socket.fd.to_string(),
        socket.local.clone(),
        socket
            .peer
            .clone()
            .unwrap_or_else(|| "(listens)".to_owned()),
        goes_as.to_owned(),
        socket.why.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::table::tests::plain;

    const LISTENER: Option<&str> = None;
    const PEER: Option<&str> = Some("[2001:db8::1]:6379");

    fn ends(peer: Option<&str>) -> Ends {
        Ends {
            local: "[::ffff:192.0.2.1]:40000".parse().unwrap(),
            peer: peer.map(|peer| peer.parse().unwrap()),
        }
    }

    #[test]
    fn each_socket_says_how_its_octets_go_and_why() {
        let weft = Way::Ddp {
            is_foreign: false,
            has_crc: true,
        };
        let (ddp, tcp) = (Transport::Ddp, Transport::Tcp);
        for (peer, way, transport, why) in [
            (PEER, weft, ddp, "both ends are Weft, with a CRC"),
            (LISTENER, Way::Wanted, ddp, "a peer that asks"),
            (
                PEER,
                Way::Wanted,
                Transport::Undecided,
                "the other end has not",
            ),
            (PEER, Way::Undecided, tcp, "it was connected"),
            (PEER, Way::Tcp(Reason::Off), tcp, "a rule says off"),
            (
                PEER,
                Way::Over(104),
                Transport::Over,
                "it has ended: Connection reset",
            ),
        ] {
            let socket = socket(3, ends(peer), way);
            assert_eq!(socket.transport, transport, "{socket:?}");
            assert!(socket.why.starts_with(why), "{socket:?}");
        }
    }

    #[test]
    fn a_process_has_a_line_and_one_for_each_socket() {
        let one = [Streaming {
            pid: 4711,
            program: "redis-server".to_owned(),
            sockets: vec![
                socket(3, ends(LISTENER), Way::Wanted),
                socket(5, ends(PEER), Way::Tcp(Reason::NotThere)),
            ],
        }];
        let wanted = " PID  PROGRAM       DDP CONN  TCP CONN  UNDECIDED  LISTENERS\n\
                      4711  redis-server         0         1          0          1\n";
        assert_eq!(plain(&tables(&one, false)), wanted);
        let sockets = "\nFD  LOCAL            PEER                GOES AS  BECAUSE\n \
            3  192.0.2.1:40000  (listens)           DDP      a peer that asks for DDP has it, any other TCP\n \
            5  192.0.2.1:40000  [2001:db8::1]:6379  TCP      the other end is not Weft, or did not ask\n";
        assert_eq!(plain(&tables(&one, true)), wanted.to_owned() + sockets);
        assert_eq!(tables(&[], true), "");
    }
}
