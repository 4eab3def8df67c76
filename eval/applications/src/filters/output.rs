//! The end of a stream that gives: connections to every copy of the filter behind.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use rustix::event::{poll, PollFd, PollFlags};

use super::frame::{head, Frames, Kind};
use super::Joints;

/// How long between two tries to connect to a copy that does not listen yet.
const AGAIN: Duration = Duration::from_millis(10);
/// Octets of answers that are read at a time.
const READ: usize = 4096;

/// A stream, as a copy that gives to it has it.
#[derive(Debug)]
pub struct Output {
    behind: Vec<Behind>,
    window: u32,
    /// Octets of a unit at most.
    unit: usize,
    /// The piece of work that is under way, or next.
    work: u32,
}

/// A copy of the filter behind.
#[derive(Debug)]
struct Behind {
    stream: TcpStream,
    answers: Frames,
    /// Units that it has not taken.
    under_way: u32,
}

impl Output {
    /// Connects to the copies behind this one, which listen before long.
    ///
    /// # Errors
    /// One does not listen by `until`, or cannot be reached.
    pub fn connect(joints: &Joints, until: Instant) -> Result<Output> {
        let connect = |&at: &SocketAddr| {
            let stream = connected(at, until).with_context(|| format!("cannot connect to {at}"))?;
            stream.set_nodelay(true)?;
            Ok(Behind {
                stream,
                answers: Frames::new(READ),
                under_way: 0,
            })
        };
        Ok(Output {
            behind: joints.to.iter().map(connect).collect::<Result<_>>()?,
            window: joints.window,
            unit: joints.unit as usize,
            work: 0,
        })
    }

    /// Tells all copies that a piece of work begins, and what it is.
    ///
    /// # Errors
    /// A copy is gone.
    pub fn begin(&mut self, work: &[u8]) -> Result<()> {
        self.tell(Kind::Begin, work)
    }

    /// Gives a unit, which is `first` and `body` one behind the other, to the copy that has the fewest under way; waits
    /// while all have as many as they may.
    ///
    /// # Errors
    /// A copy is gone, or the unit is longer than it may be.
    pub fn give(&mut self, first: &[u8], body: &[u8]) -> Result<()> {
        let (len, unit) = (first.len() + body.len(), self.unit);
        ensure!(len <= unit, "a unit of {len} octets, of {unit} at most");
        let head = head(Kind::Unit, len, self.work);
        let window = self.window;
        let behind = loop {
            let fewest = self.behind.iter_mut().min_by_key(|behind| behind.under_way);
            let fewest = fewest.context("there is no copy behind this one")?;
            if fewest.under_way < window {
                break fewest;
            }
            self.await_taken()?;
        };
        behind.under_way += 1;
        write_all(&mut behind.stream, &[&head, first, body])
    }

    /// Tells all copies that nothing more of the piece of work comes from here.
    ///
    /// # Errors
    /// A copy is gone.
    pub fn end(&mut self) -> Result<()> {
        self.tell(Kind::End, &[])?;
        self.work = self.work.wrapping_add(1);
        Ok(())
    }

    /// Says that nothing more comes, and waits until all copies have gone. What they still say would reset connections
    /// that are closed with it unread.
    pub fn finish(self) {
        for behind in &self.behind {
            let _ = behind.stream.shutdown(Shutdown::Write);
        }
        for mut behind in self.behind {
            let _ = std::io::copy(&mut behind.stream, &mut std::io::sink());
        }
    }

    fn tell(&mut self, kind: Kind, payload: &[u8]) -> Result<()> {
        let head = head(kind, payload.len(), self.work);
        let mut streams = self.behind.iter_mut().map(|behind| &mut behind.stream);
        streams.try_for_each(|stream| write_all(stream, &[&head, payload]))
    }

    /// Waits until a copy has taken something, and reads what all have said.
    fn await_taken(&mut self) -> Result<()> {
        let mut numbers: Vec<PollFd> = self
            .behind
            .iter()
            .map(|behind| PollFd::new(&behind.stream, PollFlags::IN))
            .collect();
        match poll(&mut numbers, None) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            waited => waited.context("cannot wait for the copies behind this one")?,
        };
        let ready: Vec<bool> = numbers
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect();
        drop(numbers);
        for (behind, _) in self
            .behind
            .iter_mut()
            .zip(ready)
            .filter(|(_, ready)| *ready)
        {
            behind.read()?;
        }
        Ok(())
    }
}

impl Behind {
    fn read(&mut self) -> Result<()> {
        match self.stream.read(self.answers.room()) {
            Ok(0) => anyhow::bail!("a copy behind this one has ended"),
            Ok(octets) => self.answers.came(octets),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read of a copy behind this one"),
        }
        while let Some(frame) = self.answers.next()? {
            let is_it = frame.kind == Kind::Taken && self.under_way > 0;
            ensure!(
                is_it,
                "{:?} of a copy behind this one is out of place",
                frame.kind
            );
            self.under_way -= 1;
        }
        Ok(())
    }
}

fn connected(at: SocketAddr, until: Instant) -> std::io::Result<TcpStream> {
    loop {
        match TcpStream::connect(at) {
            Err(error)
                if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < until =>
            {
                std::thread::sleep(AGAIN);
            }
            connected => return connected,
        }
    }
}

/// All of these, one behind the other.
fn write_all(stream: &mut TcpStream, parts: &[&[u8]]) -> Result<()> {
    let mut slices: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match stream.write_vectored(left) {
            Ok(0) => anyhow::bail!("a copy behind this one takes nothing more"),
            Ok(octets) => IoSlice::advance_slices(&mut left, octets),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot write to a copy behind this one"),
        }
    }
    Ok(())
}
