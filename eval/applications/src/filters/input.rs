//! The end of a stream that takes: connections from every copy of the filter before.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};

use anyhow::{bail, ensure, Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::frame::{head, Frames, Kind};
use crate::net::{accept, write_all};

/// Octets that are read at a time.
const READ: usize = 256 << 10;

/// What came on a stream.
#[derive(Debug)]
pub enum Arrived<'a> {
    /// A unit of work begins: what is to be done.
    Begin(&'a [u8]),
    /// A unit of it. It counts as taken when the handler returns.
    Unit(&'a [u8]),
    /// Nothing more of it comes from anywhere.
    End,
}

/// A stream, as a copy that takes from it has it.
#[derive(Debug)]
pub struct Input {
    before: Vec<Before>,
    /// The unit of work that is under way, or next.
    work: u32,
    has_begun: bool,
    /// Whose frames are looked at first.
    turn: usize,
}

/// Whether to wait where nothing came.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    UntilSomethingCame,
    No,
}

/// What became of the frames that are there.
enum Handled {
    /// There was none.
    Nothing,
    /// One that others have said before, or are still to say.
    Quietly,
    /// One that the handler was told of.
    Told,
}

/// A copy of the filter before.
#[derive(Debug)]
struct Before {
    stream: TcpStream,
    frames: Frames,
    has_begun: bool,
    /// It has given all of this unit of work; what it says of the next one waits.
    has_ended: bool,
    is_gone: bool,
}

impl Input {
    /// Takes the connections of so many copies.
    ///
    /// # Errors
    /// The listener fails.
    pub fn accept(listener: &TcpListener, copies: u32) -> Result<Input> {
        let before = |_| {
            Ok(Before {
                stream: accept(listener)?,
                frames: Frames::new(READ),
                has_begun: false,
                has_ended: false,
                is_gone: false,
            })
        };
        Ok(Input {
            before: (0..copies).map(before).collect::<Result<_>>()?,
            work: 0,
            has_begun: false,
            turn: 0,
        })
    }

    /// Waits for what comes next, and hands it to `handle`. Says whether something came: false once all copies before
    /// are gone.
    ///
    /// # Errors
    /// A copy ends amid a unit of work, or says what makes no sense; or `handle` fails.
    pub fn next(&mut self, mut handle: impl FnMut(Arrived) -> Result<()>) -> Result<bool> {
        loop {
            if let Some(came) = self.there(&mut handle)? {
                return Ok(came);
            }
            self.read(Wait::UntilSomethingCame)?;
        }
    }

    /// Hands to `handle` what comes next, if it was read already. Says what [`Input::next`] says, or nothing where that
    /// would wait.
    ///
    /// # Errors
    /// Those of [`Input::next`].
    pub(super) fn there(
        &mut self,
        handle: &mut impl FnMut(Arrived) -> Result<()>,
    ) -> Result<Option<bool>> {
        loop {
            match self.handle_one(handle)? {
                Handled::Told => return Ok(Some(true)),
                Handled::Quietly => {}
                Handled::Nothing => break,
            }
        }
        let is_over = self.before.iter().all(|before| before.is_gone);
        Ok(is_over.then_some(false))
    }

    /// One frame that is there, if any is.
    fn handle_one(&mut self, handle: &mut impl FnMut(Arrived) -> Result<()>) -> Result<Handled> {
        let number = self.before.len();
        for at in (0..number).map(|i| (self.turn + i) % number) {
            let before = &mut self.before[at];
            if before.has_ended {
                continue;
            }
            let Some(frame) = before.frames.next()? else {
                continue;
            };
            let work = self.work;
            ensure!(
                frame.work == work,
                "a frame of work {} amid work {work}",
                frame.work
            );
            let may_be = match frame.kind {
                Kind::Begin => !before.has_begun,
                Kind::Unit | Kind::End => before.has_begun,
                Kind::Taken => false,
            };
            ensure!(may_be, "{:?} of work {work} is out of place", frame.kind);
            match frame.kind {
                Kind::Begin => {
                    before.has_begun = true;
                    if std::mem::replace(&mut self.has_begun, true) {
                        return Ok(Handled::Quietly);
                    }
                    handle(Arrived::Begin(frame.payload))?;
                }
                Kind::Unit => {
                    handle(Arrived::Unit(frame.payload))?;
                    let taken = head(Kind::Taken, 0, work);
                    write_all(&before.stream, &[&taken])?;
                    // The other copies have their turn.
                    self.turn = at + 1;
                }
                Kind::End => {
                    before.has_ended = true;
                    if !self.before.iter().all(|before| before.has_ended) {
                        return Ok(Handled::Quietly);
                    }
                    self.begin_next();
                    handle(Arrived::End)?;
                }
                Kind::Taken => bail!("nothing was given to a copy before this one"),
            }
            return Ok(Handled::Told);
        }
        Ok(Handled::Nothing)
    }

    fn begin_next(&mut self) {
        self.work = self.work.wrapping_add(1);
        self.has_begun = false;
        for before in &mut self.before {
            (before.has_begun, before.has_ended) = (false, false);
        }
    }

    /// Reads what copies have sent that have more for this unit of work.
    ///
    /// # Errors
    /// A copy ended amid a unit of work, or cannot be read from; or nothing more can come.
    pub(super) fn read(&mut self, how_long: Wait) -> Result<()> {
        let mut numbers: Vec<PollFd> = self.awaited()?.collect();
        let timeout = match how_long {
            Wait::UntilSomethingCame => None,
            Wait::No => Some(&Timespec::default()),
        };
        match poll(&mut numbers, timeout) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            waited => waited.context("cannot wait for the copies before this one")?,
        };
        let ready: Vec<bool> = numbers
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect();
        drop(numbers);
        let awaited = self.before.iter_mut().filter(|before| before.is_awaited());
        for (before, _) in awaited.zip(ready).filter(|(_, ready)| *ready) {
            before.read()?;
        }
        Ok(())
    }

    fn awaited(&self) -> Result<impl Iterator<Item = PollFd<'_>>> {
        let awaited = self.before.iter().filter(|before| before.is_awaited());
        ensure!(
            awaited.clone().next().is_some(),
            "a copy before this one has ended, and others go on"
        );
        Ok(awaited.map(|before| PollFd::new(&before.stream, PollFlags::IN)))
    }
}

impl Before {
    /// Whether it has more for this unit of work.
    fn is_awaited(&self) -> bool {
        !self.has_ended && !self.is_gone
    }

    fn read(&mut self) -> Result<()> {
        match self.stream.read(self.frames.room()) {
            Ok(0) => {
                let is_amid = self.has_begun || !self.frames.is_empty();
                ensure!(!is_amid, "a copy before this one ended amid a unit of work");
                self.is_gone = true;
            }
            Ok(octets) => self.frames.came(octets),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read of a copy before this one"),
        }
        Ok(())
    }
}

/// Waits until there is something to [`Input::read`] on one of these streams.
///
/// # Errors
/// Nothing more can come on one of them.
pub(super) fn wait<'i>(inputs: impl IntoIterator<Item = &'i Input>) -> Result<()> {
    let mut numbers = Vec::new();
    for input in inputs {
        numbers.extend(input.awaited()?);
    }
    match poll(&mut numbers, None) {
        // The caller looks, and waits again.
        Err(rustix::io::Errno::INTR) => Ok(()),
        waited => {
            waited.context("cannot wait for the copies before this one")?;
            Ok(())
        }
    }
}
