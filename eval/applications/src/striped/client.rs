//! A client: reads and writes a striped file, a request to each server that has something of it.

use std::net::{SocketAddr, TcpStream};

use anyhow::{anyhow, bail, ensure, Result};

use super::layout::{Layout, Piece, Region};
use super::manager::Manager;
use super::message::{hear, say, Kind, OCTETS_MAX, REGIONS_MAX};
use crate::net::connect;

/// The servers, as a client has them: not any more once a call has failed, as answers may be under way.
#[derive(Debug)]
pub struct Client(Vec<Server>);

/// A file that is open.
#[derive(Clone, Copy, Debug)]
pub struct Striped {
    handle: u64,
    layout: Layout,
}

/// A server, and what of the present call it is still to be asked for.
#[derive(Debug)]
struct Server {
    stream: TcpStream,
    left: Vec<Piece>,
    /// What it was asked for and has not answered.
    asked: usize,
    room: Vec<u8>,
}

impl Client {
    /// Reaches all servers, in their order.
    ///
    /// # Errors
    /// One does not listen.
    pub fn reach(servers: &[SocketAddr]) -> Result<Client> {
        let server = |&at: &SocketAddr| {
            Ok(Server {
                stream: connect(at)?,
                left: Vec::new(),
                asked: 0,
                room: Vec::new(),
            })
        };
        servers
            .iter()
            .map(server)
            .collect::<Result<_>>()
            .map(Client)
    }

    /// Opens a file, which is made where there is none.
    ///
    /// # Errors
    /// The manager refuses, or spreads files over other servers.
    pub fn open(&self, manager: &Manager, name: &str) -> Result<Striped> {
        let (handle, layout) = manager.open(name)?;
        let (spread, known) = (layout.servers, self.0.len());
        ensure!(
            spread == known as u64,
            "the file is on {spread} servers, and not on {known}"
        );
        Ok(Striped { handle, layout })
    }

    /// Makes these regions of the file hold these octets, which stand one behind the other.
    ///
    /// # Errors
    /// A server is gone, or cannot write.
    pub fn write(&mut self, file: Striped, regions: &[Region], octets: &[u8]) -> Result<()> {
        self.spread(file, regions);
        while self.0.iter().any(|server| !server.left.is_empty()) {
            for server in &mut self.0 {
                let (pieces, there) = server.next();
                let own: Vec<&[u8]> = pieces.iter().map(|piece| &octets[piece.range()]).collect();
                if !there.is_empty() {
                    say(&server.stream, Kind::Write, file.handle, &there, &own)?;
                }
            }
            for server in &mut self.0 {
                server.answer(|_, _| Ok(()))?;
            }
        }
        Ok(())
    }

    /// Reads these regions of the file; they come to stand one behind the other.
    ///
    /// # Errors
    /// A server is gone, or does not have them.
    pub fn read(&mut self, file: Striped, regions: &[Region], octets: &mut [u8]) -> Result<()> {
        self.spread(file, regions);
        while self.0.iter().any(|server| !server.left.is_empty()) {
            for server in &mut self.0 {
                let (_, there) = server.next();
                if !there.is_empty() {
                    say(&server.stream, Kind::Read, file.handle, &there, &[])?;
                }
            }
            for server in &mut self.0 {
                server.answer(|pieces, mut came| {
                    for piece in pieces {
                        let len = piece.there.len as usize;
                        ensure!(came.len() >= len, "a server gives less than was wanted");
                        let (own, rest) = came.split_at(len);
                        octets[piece.range()].copy_from_slice(own);
                        came = rest;
                    }
                    ensure!(came.is_empty(), "a server gives more than was wanted");
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Has the servers write all of the file to their disks, and keep nothing of it in memory.
    ///
    /// # Errors
    /// A server is gone, or cannot.
    pub fn settle(&mut self, file: Striped) -> Result<()> {
        for server in &mut self.0 {
            say(&server.stream, Kind::Settle, file.handle, &[], &[])?;
            server.asked = 0;
        }
        self.0
            .iter_mut()
            .try_for_each(|server| server.hear().map(drop))
    }

    /// Says to each server what it has of these regions.
    fn spread(&mut self, file: Striped, regions: &[Region]) {
        for piece in file.layout.pieces(regions) {
            self.0[piece.server].left.push(piece);
        }
    }
}

impl Piece {
    /// Where its octets are in the client's memory.
    fn range(&self) -> std::ops::Range<usize> {
        self.here..self.here + self.there.len as usize
    }
}

impl Server {
    /// As many of the pieces as fit one request, and their regions on the server.
    fn next(&mut self) -> (&[Piece], Vec<Region>) {
        let mut octets = 0;
        let fits = |piece: &&Piece| {
            octets += piece.there.len as usize;
            octets <= OCTETS_MAX
        };
        self.asked = self.left.iter().take(REGIONS_MAX).take_while(fits).count();
        let pieces = &self.left[..self.asked];
        (pieces, pieces.iter().map(|piece| piece.there).collect())
    }

    /// The answer to what was asked for, if that was anything: `take` is given the pieces and the octets.
    fn answer(&mut self, take: impl FnOnce(&[Piece], &[u8]) -> Result<()>) -> Result<()> {
        if self.asked == 0 {
            return Ok(());
        }
        let octets = self.hear()?;
        take(&self.left[..self.asked], &octets)?;
        self.room = octets;
        self.left.drain(..self.asked);
        self.asked = 0;
        Ok(())
    }

    /// The octets of an answer.
    fn hear(&mut self) -> Result<Vec<u8>> {
        let room = std::mem::take(&mut self.room);
        let answer = hear(&self.stream, room)?.ok_or_else(|| anyhow!("a server has ended"))?;
        match answer.kind {
            Kind::Done => Ok(answer.octets),
            _ => bail!("a server says: {}", String::from_utf8_lossy(&answer.octets)),
        }
    }
}
