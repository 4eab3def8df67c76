//! The way between a program and what moves its octets: straight, by a copy, or through a second thread.

use std::hint::black_box;
use std::io::Result as IoResult;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread;

use anyhow::{anyhow, Result};

use super::mover::Mover;
use super::Pieces;

/// Buffers that go round between a program and its second thread.
const BUFFERS: usize = 8;

/// A buffer, and how many octets of it are of use.
struct Filled {
    octets: Vec<u8>,
    length: usize,
}

/// Where a program gives what is to be sent.
pub(super) struct Outlet<'m> {
    way: Out<'m>,
    /// What is copied into, where that is wanted and no thread's buffer does.
    copied: Option<Vec<u8>>,
}

enum Out<'m> {
    Here(&'m Mover<'m>),
    Thread {
        full: SyncSender<Vec<u8>>,
        empty: Receiver<Vec<u8>>,
    },
}

impl Outlet<'_> {
    /// Sends these octets. `fill` writes them, into the program's own buffer.
    pub(super) fn put(&mut self, own: &mut Vec<u8>) -> Result<()> {
        if let Some(copied) = &mut self.copied {
            copied.copy_from_slice(own);
            black_box(&mut *copied);
        }
        match &self.way {
            Out::Here(mover) => mover.send(self.copied.as_ref().unwrap_or(own))?,
            Out::Thread { full, empty } => {
                let next = empty.recv()?;
                // The buffer itself is handed on: the program goes on with another one.
                let handed = match &mut self.copied {
                    Some(copied) => std::mem::replace(copied, next),
                    None => std::mem::replace(own, next),
                };
                full.send(handed)?;
            }
        }
        Ok(())
    }
}

/// Runs a program that sends `length` octets at a time; all of them have been given to the socket when it is over.
pub(super) fn with_outlet<T>(
    mover: &Mover,
    pieces: Pieces,
    own: &[u8],
    program: impl FnOnce(&mut Outlet) -> Result<T>,
) -> Result<T> {
    let copied = pieces.copy.then(|| own.to_vec());
    if !pieces.thread {
        let way = Out::Here(mover);
        return program(&mut Outlet { way, copied });
    }
    let (full, to_send) = sync_channel::<Vec<u8>>(BUFFERS);
    let (used, empty) = sync_channel(BUFFERS);
    for _ in 0..BUFFERS {
        used.send(own.to_vec())?;
    }
    thread::scope(|scope| {
        let sender = scope.spawn(move || -> IoResult<()> {
            for octets in to_send {
                mover.send(&octets)?;
                // The program may have ended meanwhile.
                let _ = used.send(octets);
            }
            Ok(())
        });
        let way = Out::Thread { full, empty };
        let done = program(&mut Outlet { way, copied });
        // The outlet is gone, so the thread comes to its end.
        sender.join().map_err(|_| anyhow!("a thread panicked"))??;
        done
    })
}

/// Where a program takes what has come.
pub(super) struct Inlet<'m> {
    way: In<'m>,
    copied: Option<Vec<u8>>,
}

enum In<'m> {
    Here(&'m Mover<'m>, Vec<u8>),
    Thread {
        full: Receiver<IoResult<Filled>>,
        empty: SyncSender<Vec<u8>>,
    },
}

impl Inlet<'_> {
    /// Gives `take` what has come next, and tells how many octets it were: 0 when that was all.
    pub(super) fn next(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let copied = &mut self.copied;
        let mut give = |octets: &[u8]| match copied {
            Some(copied) => {
                copied[..octets.len()].copy_from_slice(octets);
                take(black_box(&copied[..octets.len()]));
            }
            None => take(octets),
        };
        match &mut self.way {
            In::Here(mover, buffer) => {
                let length = mover.receive(buffer)?;
                give(&buffer[..length]);
                Ok(length)
            }
            In::Thread { full, empty } => {
                // Behind the last one the thread is gone.
                let Ok(filled) = full.recv() else {
                    return Ok(0);
                };
                let Filled { octets, length } = filled?;
                give(&octets[..length]);
                let _ = empty.send(octets);
                Ok(length)
            }
        }
    }
}

/// Runs a program that receives. With a second thread it is over when the other end has sent all.
pub(super) fn with_inlet<T>(
    mover: &Mover,
    pieces: Pieces,
    program: impl FnOnce(&mut Inlet) -> Result<T>,
) -> Result<T> {
    let copied = pieces.copy.then(|| vec![0; mover.room()]);
    if !pieces.thread {
        let way = In::Here(mover, vec![0; mover.room()]);
        return program(&mut Inlet { way, copied });
    }
    let (came, full) = sync_channel(BUFFERS);
    let (empty, free) = sync_channel::<Vec<u8>>(BUFFERS);
    for _ in 0..BUFFERS {
        empty.send(vec![0; mover.room()])?;
    }
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            for mut octets in free {
                let received = mover.receive(&mut octets);
                let is_last = !matches!(received, Ok(length) if length > 0);
                let sent = came.send(received.map(|length| Filled { octets, length }));
                if is_last || sent.is_err() {
                    break;
                }
            }
        });
        let way = In::Thread { full, empty };
        let done = program(&mut Inlet { way, copied });
        receiver.join().map_err(|_| anyhow!("a thread panicked"))?;
        done
    })
}
