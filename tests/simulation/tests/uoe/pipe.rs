//! What carries a carrier's octets between two hosts.

use std::time::Duration;
use weft_inet::tcp::connection::Secrets;
use weft_inet::tcp::{Config, Connection, Header, Seq};
use weft_link::{Link, LinkConfig, Travels};

/// Octets on the way, with the header they have on the engine's TCP.
#[derive(Clone, Debug)]
pub struct Chunk {
    header: Option<Header>,
    octets: Vec<u8>,
}

impl Travels for Chunk {
    fn wire_len(&self) -> usize {
        40 + self.octets.len()
    }
}

/// One end of the engine's TCP, with all octets that were ever written to it.
struct Tcp {
    connection: Connection,
    written: Vec<u8>,
}

enum Kind {
    /// In order, as the kernel's TCP gives it; so many octets may be under way.
    Ordered {
        window: usize,
        under_way: [usize; 2],
        offset: [u64; 2],
    },
    Tcp(Box<[Tcp; 2]>),
}

/// A connection between host 0 and host 1.
pub struct Pipe {
    kind: Kind,
    /// By the host that it leads to.
    links: [Link<Chunk>; 2],
    /// When the other end notices that it is gone.
    pub cut_at: Option<Duration>,
}

impl Pipe {
    pub fn ordered(link: LinkConfig, window: usize, seed: u64) -> Pipe {
        let (under_way, offset) = ([0; 2], [0; 2]);
        let kind = Kind::Ordered {
            window,
            under_way,
            offset,
        };
        Pipe::new(kind, link, seed)
    }

    pub fn tcp(link: LinkConfig, config: &Config, seed: u64, now: Duration) -> Pipe {
        let end = |initial: u32| {
            let secrets = Secrets {
                initial: Seq(initial),
                clock_offset: 7,
            };
            let connection = Connection::connect(config.clone(), secrets, now);
            let mut connection = connection;
            connection.set_peer_forgives();
            Tcp {
                connection,
                written: Vec::new(),
            }
        };
        Pipe::new(Kind::Tcp(Box::new([end(seed as u32), end(77)])), link, seed)
    }

    fn new(kind: Kind, link: LinkConfig, seed: u64) -> Pipe {
        let links = [Link::new(link, seed), Link::new(link, !seed)];
        Pipe {
            kind,
            links,
            cut_at: None,
        }
    }

    pub fn takes_any_order(&self) -> bool {
        matches!(self.kind, Kind::Tcp(_))
    }

    /// Octets of a segment; nothing where segments do not matter.
    pub fn segment(&self, host: usize) -> Option<usize> {
        match &self.kind {
            Kind::Ordered { .. } => None,
            Kind::Tcp(ends) => Some(ends[host].connection.mss() as usize),
        }
    }

    /// The host writes; says how many octets were taken. `cuts` are the lengths of the frames that they begin with.
    pub fn write(
        &mut self,
        host: usize,
        octets: &[u8],
        cuts: &mut Vec<usize>,
        now: Duration,
    ) -> usize {
        match &mut self.kind {
            Kind::Ordered {
                window, under_way, ..
            } => {
                cuts.clear();
                let taken = octets.len().min(*window - under_way[host]);
                if taken > 0 {
                    under_way[host] += taken;
                    let octets = octets[..taken].to_vec();
                    self.links[1 - host].send(
                        Chunk {
                            header: None,
                            octets,
                        },
                        now,
                    );
                }
                taken
            }
            Kind::Tcp(ends) => {
                let Tcp {
                    connection,
                    written,
                } = &mut ends[host];
                let mut taken = 0;
                while taken < octets.len() && connection.outstanding() < 200_000 {
                    let len = if cuts.is_empty() {
                        octets.len() - taken
                    } else {
                        cuts.remove(0)
                    };
                    assert!(connection.write(len as u64));
                    connection.cut();
                    written.extend_from_slice(&octets[taken..taken + len]);
                    taken += len;
                }
                taken
            }
        }
    }

    /// What arrived at the host: offsets in the stream, and octets.
    pub fn read(&mut self, host: usize, now: Duration) -> Vec<(u64, Vec<u8>)> {
        let mut pieces = Vec::new();
        while let Some(chunk) = self.links[host].receive(now) {
            match &mut self.kind {
                Kind::Ordered {
                    under_way, offset, ..
                } => {
                    under_way[1 - host] -= chunk.octets.len();
                    let at = offset[host];
                    offset[host] += chunk.octets.len() as u64;
                    pieces.push((at, chunk.octets));
                }
                Kind::Tcp(ends) => {
                    let connection = &mut ends[host].connection;
                    let header = chunk.header.expect("a segment");
                    connection.handle_segment(&header, chunk.octets.len(), now);
                    for placement in connection.placements() {
                        let octets = chunk.octets[placement.octets.clone()].to_vec();
                        pieces.push((placement.offset, octets));
                    }
                }
            }
        }
        if let Kind::Tcp(ends) = &mut self.kind {
            let (connection, len) = (&mut ends[host].connection, |piece: &(u64, Vec<u8>)| {
                piece.1.len() as u64
            });
            connection.consume(pieces.iter().map(len).sum());
            while connection.poll_event().is_some() {}
        }
        pieces
    }

    /// How long the way there and back takes.
    pub fn round_trip(&self, host: usize) -> Option<Duration> {
        match &self.kind {
            Kind::Ordered { .. } => None,
            Kind::Tcp(ends) => ends[host].connection.least_rtt(),
        }
    }

    /// What is missing before this place of the stream is waited for no more.
    pub fn forgive(&mut self, host: usize, before: u64, now: Duration) {
        if let Kind::Tcp(ends) = &mut self.kind {
            let connection = &mut ends[host].connection;
            let missing = connection.forgive(before, now);
            connection.consume(missing);
        }
    }

    /// Time has passed: what is to leave does.
    pub fn tick(&mut self, now: Duration) {
        let Kind::Tcp(ends) = &mut self.kind else {
            return;
        };
        for (
            host,
            Tcp {
                connection,
                written,
            },
        ) in ends.iter_mut().enumerate()
        {
            if connection.deadline().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
            while let Some(transmit) = connection.poll_transmit(now) {
                let octets = written
                    [transmit.payload.start as usize..transmit.payload.end as usize]
                    .to_vec();
                let header = Some(transmit.header);
                self.links[1 - host].send(Chunk { header, octets }, now);
            }
        }
    }
}
