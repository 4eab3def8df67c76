//! A client: reads and writes a striped file, a request to each server that has something of it.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};

use super::layout::{Layout, Piece, Region};
use super::manager::Manager;
use super::message::{hear, say, Kind, Message, OCTETS_MAX, REGIONS_MAX};
use crate::net::connect;

/// The servers, as a client has them. One that was gone once stays so; one that refused something is asked again.
#[derive(Debug)]
pub struct Client(Vec<Server>);

/// A file that is open.
#[derive(Clone, Copy, Debug)]
pub struct Striped {
    /// What the manager and the servers know it by.
    pub handle: u64,
    /// How it is spread.
    pub layout: Layout,
}

/// A server, and what of the present call it is still to be asked for.
#[derive(Debug)]
struct Server {
    at: SocketAddr,
    stream: TcpStream,
    /// Whether its connection has failed: what comes on it may be an answer to something else.
    is_gone: bool,
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
                at,
                stream: connect(at)?,
                is_gone: false,
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

    /// How long an answer may take.
    ///
    /// # Errors
    /// A connection has no such thing.
    pub fn within(&self, time: Duration) -> Result<()> {
        for server in &self.0 {
            server.stream.set_read_timeout(Some(time))?;
            server.stream.set_write_timeout(Some(time))?;
        }
        Ok(())
    }

    /// Opens a file, which is made where there is none.
    ///
    /// # Errors
    /// The manager refuses, or spreads files over other servers.
    pub fn open(&self, manager: &Manager, name: &str) -> Result<Striped> {
        let (handle, layout) = manager.open(name.as_bytes())?;
        self.has_all(layout)?;
        Ok(Striped { handle, layout })
    }

    /// Whether files are spread over these servers.
    ///
    /// # Errors
    /// They are spread over other ones.
    pub fn has_all(&self, layout: Layout) -> Result<()> {
        let (spread, known) = (layout.servers, self.0.len());
        ensure!(
            spread == known as u64,
            "files are on {spread} servers, and not on {known}"
        );
        Ok(())
    }

    /// Makes these regions of the file hold these octets, which stand one behind the other.
    ///
    /// # Errors
    /// A server is gone, or cannot write.
    pub fn write(&mut self, file: Striped, regions: &[Region], octets: &[u8]) -> Result<()> {
        let ask = |stream: &TcpStream, pieces: &[Piece], there: &[Region]| {
            let own: Vec<&[u8]> = pieces.iter().map(|piece| &octets[piece.range()]).collect();
            say(stream, Kind::Write, file.handle, there, &own)
        };
        self.rounds(file, regions, ask, |_, _| Ok(()))
    }

    /// Reads these regions of the file; they come to stand one behind the other.
    ///
    /// # Errors
    /// A server is gone, or does not have them.
    pub fn read(&mut self, file: Striped, regions: &[Region], octets: &mut [u8]) -> Result<()> {
        let ask = |stream: &TcpStream, _: &[Piece], there: &[Region]| {
            say(stream, Kind::Read, file.handle, there, &[])
        };
        let take = |pieces: &[Piece], answer: &Message| spread_out(pieces, answer, octets);
        self.rounds(file, regions, ask, take)
    }

    /// Reads what the file has from there on, as many octets as there is room for, with zeros where nothing was
    /// written; gives how many.
    ///
    /// # Errors
    /// A server is gone, or cannot read.
    pub fn fetch(&mut self, file: Striped, offset: u64, octets: &mut [u8]) -> Result<usize> {
        let len = octets.len();
        let whole = [Region {
            offset,
            len: len as u64,
        }];
        let ask = |stream: &TcpStream, _: &[Piece], there: &[Region]| {
            say(stream, Kind::Fetch, file.handle, there, &[])
        };
        let mut is_all_there = true;
        let take = |pieces: &[Piece], answer: &Message| {
            let part = answer.regions.first().context("it says no length")?.len;
            let ends = pieces
                .iter()
                .map(|piece| piece.there.offset + piece.there.len);
            is_all_there &= ends.max().unwrap_or(0) <= part;
            spread_out(pieces, answer, octets)
        };
        self.rounds(file, &whole, ask, take)?;
        if is_all_there {
            return Ok(len);
        }
        // Where a part ends the file may end, or have a hole.
        let end = self.len(file)?;
        Ok(len.min(usize::try_from(end.saturating_sub(offset)).unwrap_or(len)))
    }

    /// How long the file is.
    ///
    /// # Errors
    /// A server is gone, or cannot tell.
    pub fn len(&mut self, file: Striped) -> Result<u64> {
        let mut parts = Vec::new();
        self.all(
            Kind::Length,
            file,
            |_| None,
            |answer| {
                let part = answer.regions.first();
                parts.push(part.context("a server says no length")?.len);
                Ok(())
            },
        )?;
        Ok(file.layout.len(&parts))
    }

    /// Makes the file this long. What another client writes meanwhile may be cut on one server and not on another.
    ///
    /// # Errors
    /// A server is gone, or cannot.
    pub fn cut(&mut self, file: Striped, len: u64) -> Result<()> {
        let part = |server| {
            let len = file.layout.part(len, server);
            Some(Region { offset: 0, len })
        };
        self.all(Kind::Cut, file, part, |_| Ok(()))
    }

    /// Has the servers write all of the file to their disks.
    ///
    /// # Errors
    /// A server is gone, or cannot.
    pub fn sync(&mut self, file: Striped) -> Result<()> {
        self.all(Kind::Sync, file, |_| None, |_| Ok(()))
    }

    /// Has the servers write all of the file to their disks, and keep nothing of it in memory.
    ///
    /// # Errors
    /// A server is gone, or cannot.
    pub fn settle(&mut self, file: Striped) -> Result<()> {
        self.all(Kind::Settle, file, |_| None, |_| Ok(()))
    }

    /// Has the servers remove their parts of the file.
    ///
    /// # Errors
    /// A server is gone, or cannot.
    pub fn remove(&mut self, file: Striped) -> Result<()> {
        self.all(Kind::Remove, file, |_| None, |_| Ok(()))
    }

    /// Asks every server for its pieces of these regions, and takes their answers, until there are no more. All that
    /// were asked are heard, also where one fails: what is not heard would be the answer to the next question.
    fn rounds(
        &mut self,
        file: Striped,
        regions: &[Region],
        ask: impl Fn(&TcpStream, &[Piece], &[Region]) -> Result<()>,
        mut take: impl FnMut(&[Piece], &Message) -> Result<()>,
    ) -> Result<()> {
        for piece in file.layout.pieces(regions) {
            self.0[piece.server].left.push(piece);
        }
        let mut done = Ok(());
        while done.is_ok() && self.0.iter().any(|server| !server.left.is_empty()) {
            for server in &mut self.0 {
                done = done.and(server.ask(&ask));
            }
            for server in &mut self.0 {
                let answered = server.answer(&mut take);
                done = done.and(answered);
            }
        }
        for server in &mut self.0 {
            server.left.clear();
        }
        done
    }

    /// Asks every server for something about the file, and takes their answers in their order.
    fn all(
        &mut self,
        kind: Kind,
        file: Striped,
        region: impl Fn(u64) -> Option<Region>,
        mut take: impl FnMut(&Message) -> Result<()>,
    ) -> Result<()> {
        let (mut done, mut asked) = (Ok(()), Vec::new());
        for (number, server) in (0..).zip(&mut self.0) {
            let region: Vec<Region> = region(number).into_iter().collect();
            let one = server.wire(|stream| say(stream, kind, file.handle, &region, &[]));
            asked.push(one.is_ok());
            done = done.and(one);
        }
        for (server, _) in self.0.iter_mut().zip(asked).filter(|(_, asked)| *asked) {
            let heard = server.hear().and_then(|answer| take(&answer));
            done = done.and(heard);
        }
        done
    }
}

impl Piece {
    /// Where its octets are in the client's memory.
    fn range(&self) -> std::ops::Range<usize> {
        self.here..self.here + self.there.len as usize
    }
}

/// Puts what came to where the pieces belong.
fn spread_out(pieces: &[Piece], answer: &Message, octets: &mut [u8]) -> Result<()> {
    let mut came = &answer.octets[..];
    for piece in pieces {
        let own = came.split_at_checked(piece.there.len as usize);
        let (own, rest) = own.context("a server gives less than was wanted")?;
        octets[piece.range()].copy_from_slice(own);
        came = rest;
    }
    ensure!(came.is_empty(), "a server gives more than was wanted");
    Ok(())
}

impl Server {
    /// Asks for as many of the pieces as fit one request, if any are left.
    fn ask(&mut self, ask: impl Fn(&TcpStream, &[Piece], &[Region]) -> Result<()>) -> Result<()> {
        let mut octets = 0;
        let fits = |piece: &&Piece| {
            octets += piece.there.len as usize;
            octets <= OCTETS_MAX
        };
        let count = self.left.iter().take(REGIONS_MAX).take_while(fits).count();
        if count == 0 {
            return Ok(());
        }
        let pieces = std::mem::take(&mut self.left);
        let there: Vec<Region> = pieces[..count].iter().map(|piece| piece.there).collect();
        let asked = self.wire(|stream| ask(stream, &pieces[..count], &there));
        self.left = pieces;
        asked?;
        self.asked = count;
        Ok(())
    }

    /// The answer to what was asked for, if that was anything: `take` is given the pieces and the message.
    fn answer(&mut self, take: impl FnOnce(&[Piece], &Message) -> Result<()>) -> Result<()> {
        let asked = std::mem::take(&mut self.asked);
        if asked == 0 {
            return Ok(());
        }
        let answer = self.hear()?;
        take(&self.left[..asked], &answer)?;
        self.room = answer.octets;
        self.left.drain(..asked);
        Ok(())
    }

    /// The server's answer.
    fn hear(&mut self) -> Result<Message> {
        let room = std::mem::take(&mut self.room);
        let heard = self.wire(|stream| hear(stream, room)?.context("it has ended"))?;
        match heard.kind {
            Kind::Done => Ok(heard),
            _ => bail!(
                "the server at {} says: {}",
                self.at,
                String::from_utf8_lossy(&heard.octets)
            ),
        }
    }

    /// Does something with the connection, unless that has failed before.
    fn wire<T>(&mut self, work: impl FnOnce(&TcpStream) -> Result<T>) -> Result<T> {
        ensure!(!self.is_gone, "the server at {} is gone", self.at);
        let done = work(&self.stream);
        self.is_gone = done.is_err();
        done.with_context(|| format!("the server at {} is gone", self.at))
    }
}
