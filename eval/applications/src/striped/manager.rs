//! The manager: which files there are, and how they are spread. What is in them it never sees.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Barrier, Mutex};
use std::thread;

use anyhow::{anyhow, ensure, Result};

use super::layout::{Layout, Region};
use super::message::{hear, say, Kind, Message};
use crate::net::{accept, connect};

/// Octets of a name at most.
const NAME_MAX: usize = 255;
/// Files at most.
const FILES_MAX: usize = 100_000;

/// Names and the handles of files.
struct Files {
    layout: Layout,
    handles: Mutex<HashMap<Vec<u8>, u64>>,
    /// Where the clients wait for each other.
    meeting: Barrier,
}

/// Serves so many clients until they have gone.
///
/// # Errors
/// The listener fails, or a client says what makes no sense.
pub fn serve(listener: &TcpListener, clients: u32, layout: Layout) -> Result<()> {
    let files = Files {
        layout,
        handles: Mutex::new(HashMap::new()),
        meeting: Barrier::new(clients as usize),
    };
    thread::scope(|scope| {
        let mut serving = Vec::new();
        for _ in 0..clients {
            let (stream, files) = (accept(listener)?, &files);
            serving.push(scope.spawn(move || serve_one(&stream, files)));
        }
        let mut ended = serving
            .into_iter()
            .map(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?);
        ended.try_for_each(|ended| ended)
    })
}

fn serve_one(stream: &TcpStream, files: &Files) -> Result<()> {
    let mut room = Vec::new();
    while let Some(message) = hear(stream, room)? {
        room = message.octets;
        if message.kind == Kind::Meet {
            files.meeting.wait();
            say(stream, Kind::Done, 0, &[], &[])?;
            continue;
        }
        ensure!(
            message.kind == Kind::Open,
            "{:?} is not the manager's",
            message.kind
        );
        match files.handle(&room) {
            Ok(handle) => {
                let Layout { stripe, servers } = files.layout;
                let layout = Region {
                    offset: stripe,
                    len: servers,
                };
                say(stream, Kind::Opened, handle, &[layout], &[])?;
            }
            Err(why) => say(stream, Kind::Failed, 0, &[], &[why.to_string().as_bytes()])?,
        }
    }
    Ok(())
}

impl Files {
    /// The handle of a file, which is made where there is none.
    fn handle(&self, name: &[u8]) -> Result<u64> {
        ensure!(
            (1..=NAME_MAX).contains(&name.len()),
            "a name has 1 to {NAME_MAX} octets"
        );
        let mut handles = self
            .handles
            .lock()
            .map_err(|_| anyhow!("a thread panicked"))?;
        let next = handles.len() as u64 + 1;
        if let Some(handle) = handles.get(name) {
            return Ok(*handle);
        }
        ensure!(
            handles.len() < FILES_MAX,
            "there are {FILES_MAX} files, which are the most"
        );
        handles.insert(name.to_vec(), next);
        Ok(next)
    }
}

/// The manager, as a client has it.
#[derive(Debug)]
pub struct Manager(TcpStream);

impl Manager {
    /// Reaches it.
    ///
    /// # Errors
    /// It does not listen.
    pub fn reach(at: SocketAddr) -> Result<Manager> {
        connect(at).map(Manager)
    }

    /// Asks for a file: its handle, and how it is spread.
    ///
    /// # Errors
    /// The manager is gone, or refuses.
    pub fn open(&self, name: &str) -> Result<(u64, Layout)> {
        let answer = self.ask(Kind::Open, name.as_bytes())?;
        let why = || String::from_utf8_lossy(&answer.octets).into_owned();
        ensure!(
            answer.kind == Kind::Opened,
            "{name} cannot be opened: {}",
            why()
        );
        let layout = answer.regions.first();
        let layout = layout.ok_or_else(|| anyhow!("the manager says no layout"))?;
        Ok((answer.handle, Layout::new(layout.offset, layout.len)?))
    }

    /// Waits until all clients have come so far.
    ///
    /// # Errors
    /// The manager is gone.
    pub fn meet(&self) -> Result<()> {
        let answer = self.ask(Kind::Meet, &[])?;
        ensure!(
            answer.kind == Kind::Done,
            "the manager says {:?}",
            answer.kind
        );
        Ok(())
    }

    fn ask(&self, kind: Kind, octets: &[u8]) -> Result<Message> {
        say(&self.0, kind, 0, &[], &[octets])?;
        hear(&self.0, Vec::new())?.ok_or_else(|| anyhow!("the manager has ended"))
    }
}
