//! The manager: which files there are, and how they are spread. What is in them it never sees.

use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure, Context, Result};

use super::layout::{Layout, Region};
use super::meeting::Meeting;
use super::message::{hear, say, Kind, Message};
use crate::net::{accept, connect};

/// Octets of a name at most.
const NAME_MAX: usize = 255;
/// Files at most.
const FILES_MAX: usize = 100_000;

/// Octets of a list of files at most; the rest is in the next one.
const LIST_MAX: usize = 64 << 10;

/// Which files there are.
struct Files {
    layout: Layout,
    names: Mutex<Names>,
    /// Where the clients wait for each other.
    meeting: Meeting,
}

/// Names and the handles of files.
#[derive(Default)]
struct Names {
    handles: HashMap<Vec<u8>, u64>,
    /// The same, in the order in which they were made.
    names: BTreeMap<u64, Vec<u8>>,
    /// The handle that was given last: none is given twice.
    last: u64,
}

/// Serves so many clients until they have gone.
///
/// # Errors
/// The listener fails, or a client says what makes no sense.
pub fn serve(listener: &TcpListener, clients: u32, layout: Layout) -> Result<()> {
    let files = Files {
        layout,
        names: Mutex::default(),
        meeting: Meeting::new(clients),
    };
    thread::scope(|scope| {
        let mut serving = Vec::new();
        for _ in 0..clients {
            let (stream, files) = (accept(listener)?, &files);
            serving.push(scope.spawn(move || {
                let served = serve_one(&stream, files);
                files.meeting.leave();
                served
            }));
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
            match files.meeting.meet() {
                Ok(()) => say(stream, Kind::Done, 0, &[], &[])?,
                Err(why) => say(stream, Kind::Failed, 0, &[], &[why.to_string().as_bytes()])?,
            }
            continue;
        }
        let layout = Region {
            offset: files.layout.stripe,
            len: files.layout.servers,
        };
        match files.answer(message.kind, message.handle, &room) {
            Ok(Answer::File(handle)) => say(stream, Kind::Opened, handle, &[layout], &[])?,
            Ok(Answer::List(list)) => say(stream, Kind::Done, 0, &[layout], &[&list])?,
            Ok(Answer::Otherwise) => say(stream, Kind::Otherwise, 0, &[], &[])?,
            Err(why) => say(stream, Kind::Failed, 0, &[], &[why.to_string().as_bytes()])?,
        }
    }
    Ok(())
}

/// What the manager says to a question.
enum Answer {
    /// The handle of the file.
    File(u64),
    /// Some of the files.
    List(Vec<u8>),
    /// There is no such file, or there is one already.
    Otherwise,
}

impl Files {
    fn answer(&self, kind: Kind, handle: u64, name: &[u8]) -> Result<Answer> {
        let names = self.names.lock();
        let mut names = names.map_err(|_| anyhow!("a thread panicked"))?;
        if kind == Kind::List {
            return Ok(Answer::List(names.list(handle)));
        }
        let is_name = (1..=NAME_MAX).contains(&name.len());
        ensure!(is_name, "a name has 1 to {NAME_MAX} octets");
        let known = names.handles.get(name).copied();
        match (kind, known) {
            (Kind::Open | Kind::Find, Some(handle)) => Ok(Answer::File(handle)),
            (Kind::Open | Kind::Make, None) => names.make(name).map(Answer::File),
            (Kind::Find | Kind::Remove, None) | (Kind::Make, Some(_)) => Ok(Answer::Otherwise),
            (Kind::Remove, Some(handle)) => {
                names.handles.remove(name);
                names.names.remove(&handle);
                Ok(Answer::File(handle))
            }
            (other, _) => bail!("{other:?} is not the manager's"),
        }
    }
}

impl Names {
    fn make(&mut self, name: &[u8]) -> Result<u64> {
        let has_room = self.handles.len() < FILES_MAX;
        ensure!(has_room, "there are {FILES_MAX} files, which are the most");
        self.last += 1;
        self.handles.insert(name.to_vec(), self.last);
        self.names.insert(self.last, name.to_vec());
        Ok(self.last)
    }

    /// The files behind this handle, as many as fit: of each the handle, an octet that says how long its name is, and
    /// the name.
    fn list(&self, behind: u64) -> Vec<u8> {
        let mut list = Vec::new();
        for (handle, name) in self.names.range(behind.saturating_add(1)..) {
            if list.len() + 9 + name.len() > LIST_MAX {
                break;
            }
            list.extend_from_slice(&handle.to_be_bytes());
            list.push(name.len() as u8);
            list.extend_from_slice(name);
        }
        list
    }
}

/// The handle of a file, and its name.
pub type Named = (u64, Vec<u8>);

/// The manager, as a client has it.
#[derive(Debug)]
pub struct Manager {
    stream: TcpStream,
    /// Whether its connection has failed: what comes on it may be the answer to something else.
    is_gone: AtomicBool,
}

impl Manager {
    /// Reaches it.
    ///
    /// # Errors
    /// It does not listen.
    pub fn reach(at: SocketAddr) -> Result<Manager> {
        Ok(Manager {
            stream: connect(at)?,
            is_gone: AtomicBool::new(false),
        })
    }

    /// Asks for a file, which is made where there is none: its handle, and how it is spread.
    ///
    /// # Errors
    /// The manager is gone, or refuses.
    pub fn open(&self, name: &[u8]) -> Result<(u64, Layout)> {
        let opened = self.file(Kind::Open, name)?;
        opened.ok_or_else(|| anyhow!("the manager neither makes the file nor says why"))
    }

    /// Asks for a file; nothing where there is none.
    ///
    /// # Errors
    /// The manager is gone, or refuses.
    pub fn find(&self, name: &[u8]) -> Result<Option<(u64, Layout)>> {
        self.file(Kind::Find, name)
    }

    /// Makes a file; nothing where there is one.
    ///
    /// # Errors
    /// The manager is gone, or refuses.
    pub fn make(&self, name: &[u8]) -> Result<Option<(u64, Layout)>> {
        self.file(Kind::Make, name)
    }

    /// Has the name of a file forgotten, whose parts are still to be removed; nothing where there is none.
    ///
    /// # Errors
    /// The manager is gone, or refuses.
    pub fn remove(&self, name: &[u8]) -> Result<Option<(u64, Layout)>> {
        self.file(Kind::Remove, name)
    }

    /// Some of the files that were made after the one of this handle, 0 for the first, with their names; and how files
    /// are spread.
    ///
    /// # Errors
    /// The manager is gone, or says what makes no sense.
    pub fn list(&self, behind: u64) -> Result<(Vec<Named>, Layout)> {
        let answer = self.ask(Kind::List, behind, &[])?;
        ensure!(answer.kind == Kind::Done, "the manager lists no files");
        let (mut files, mut left) = (Vec::new(), &answer.octets[..]);
        while !left.is_empty() {
            let cut = || anyhow!("the manager's list is cut");
            let (handle, rest) = left.split_first_chunk().ok_or_else(cut)?;
            let (len, rest) = rest.split_first().ok_or_else(cut)?;
            let (name, rest) = rest.split_at_checked((*len).into()).ok_or_else(cut)?;
            files.push((u64::from_be_bytes(*handle), name.to_vec()));
            left = rest;
        }
        Ok((files, layout(&answer)?))
    }

    /// Asks for a file; nothing where the manager says that it is otherwise.
    fn file(&self, kind: Kind, name: &[u8]) -> Result<Option<(u64, Layout)>> {
        let answer = self.ask(kind, 0, name)?;
        match answer.kind {
            Kind::Opened => Ok(Some((answer.handle, layout(&answer)?))),
            Kind::Otherwise => Ok(None),
            _ => {
                let name = String::from_utf8_lossy(name).into_owned();
                let why = String::from_utf8_lossy(&answer.octets).into_owned();
                bail!("{name} cannot be had: {why}")
            }
        }
    }

    /// Waits until all clients have come so far.
    ///
    /// # Errors
    /// The manager or another client is gone.
    pub fn meet(&self) -> Result<()> {
        let answer = self.ask(Kind::Meet, 0, &[])?;
        let why = || String::from_utf8_lossy(&answer.octets);
        ensure!(answer.kind == Kind::Done, "the manager says: {}", why());
        Ok(())
    }

    /// How long an answer may take.
    ///
    /// # Errors
    /// The connection has no such thing.
    pub fn within(&self, time: Duration) -> Result<()> {
        self.stream.set_read_timeout(Some(time))?;
        Ok(self.stream.set_write_timeout(Some(time))?)
    }

    fn ask(&self, kind: Kind, handle: u64, octets: &[u8]) -> Result<Message> {
        ensure!(!self.is_gone.load(Relaxed), "the manager is gone");
        let said = say(&self.stream, kind, handle, &[], &[octets]);
        let heard = said.and_then(|()| hear(&self.stream, Vec::new())?.context("it has ended"));
        self.is_gone.store(heard.is_err(), Relaxed);
        heard.context("the manager is gone")
    }
}

/// How files are spread, by the manager's answer.
fn layout(answer: &Message) -> Result<Layout> {
    let layout = answer.regions.first();
    let layout = layout.context("the manager says no layout")?;
    Layout::new(layout.offset, layout.len)
}
