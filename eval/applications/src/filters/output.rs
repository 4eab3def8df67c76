//! The end of a stream that gives: connections to every copy of the filter behind.

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};

use anyhow::{ensure, Context, Result};
use rustix::event::{poll, PollFd, PollFlags};

use super::frame::{head, Frames, Kind};
use super::Joints;
use crate::net::{connect, write_all};

/// Octets of answers that are read at a time.
const READ: usize = 4096;

/// A stream, as a copy that gives to it has it.
#[derive(Debug)]
pub struct Output {
    behind: Vec<Behind>,
    window: u32,
    /// Octets of a unit at most.
    unit: usize,
    /// The unit of work that is under way, or next.
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
    /// One does not listen, or cannot be reached.
    pub fn connect(joints: &Joints) -> Result<Output> {
        let behind = |&at: &SocketAddr| {
            Ok(Behind {
                stream: connect(at)?,
                answers: Frames::new(READ),
                under_way: 0,
            })
        };
        Ok(Output {
            behind: joints.to.iter().map(behind).collect::<Result<_>>()?,
            window: joints.window,
            unit: joints.unit as usize,
            work: 0,
        })
    }

    /// Tells all copies that a unit of work begins, and what it is.
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
        write_all(&behind.stream, &[&head, first, body])
    }

    /// Tells all copies that nothing more of the unit of work comes from here.
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

    fn tell(&self, kind: Kind, payload: &[u8]) -> Result<()> {
        let head = head(kind, payload.len(), self.work);
        let mut behind = self.behind.iter();
        behind.try_for_each(|behind| write_all(&behind.stream, &[&head, payload]))
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
