//! A server: has its part of each file as a file of its own, which has no name, so that nothing of it stays however the
//! server ends.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use anyhow::{anyhow, bail, ensure, Context, Result};
use rustix::fs::{fadvise, Advice};

use super::layout::Region;
use super::message::{hear, say, Kind, Message, OCTETS_MAX};
use crate::net::accept;

/// Files at most.
const FILES_MAX: usize = 1000;
/// Octets of a part at most.
const PART_MAX: u64 = 1 << 40;

/// Files that may be removed at most: they are remembered, so that none comes back.
const REMOVED_MAX: usize = 1_000_000;

/// The parts of files, in this folder.
struct Parts<'a> {
    folder: &'a Path,
    known: Mutex<Known>,
}

/// Which of them are open, and which were removed.
#[derive(Default)]
struct Known {
    open: HashMap<u64, Arc<File>>,
    removed: HashSet<u64>,
}

/// Serves so many clients until they have gone, with files in `folder`; gives how many it has a part of then.
///
/// # Errors
/// The listener fails, or a client says what makes no sense.
pub fn serve(listener: &TcpListener, clients: u32, folder: &Path) -> Result<usize> {
    let parts = Parts {
        folder,
        known: Mutex::default(),
    };
    thread::scope(|scope| {
        let mut serving = Vec::new();
        for _ in 0..clients {
            let (stream, parts) = (accept(listener)?, &parts);
            serving.push(scope.spawn(move || serve_one(&stream, parts)));
        }
        let mut ended = serving
            .into_iter()
            .map(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?);
        ended.try_for_each(|ended| ended)
    })?;
    let open = parts.known()?.open.len();
    Ok(open)
}

fn serve_one(stream: &TcpStream, parts: &Parts<'_>) -> Result<()> {
    let (mut room, mut wanted) = (Vec::new(), Vec::new());
    while let Some(message) = hear(stream, room)? {
        match parts.handle(&message, &mut wanted) {
            Ok(length) => say(stream, Kind::Done, message.handle, &length, &[&wanted])?,
            Err(why) => say(
                stream,
                Kind::Failed,
                message.handle,
                &[],
                &[format!("{why:#}").as_bytes()],
            )?,
        }
        room = message.octets;
    }
    Ok(())
}

impl Parts<'_> {
    /// Does what a message asks for; `wanted` becomes what is to be answered. Gives the length of the part if that is
    /// wanted.
    fn handle(&self, message: &Message, wanted: &mut Vec<u8>) -> Result<Vec<Region>> {
        wanted.clear();
        if message.kind == Kind::Remove {
            self.remove(message.handle)?;
            return Ok(Vec::new());
        }
        let part = self.part(message.handle)?;
        match message.kind {
            Kind::Write => {
                ensure!(
                    octets(&message.regions)? == message.octets.len(),
                    "other octets than regions"
                );
                let mut octets = &message.octets[..];
                for region in &message.regions {
                    let (own, rest) = octets.split_at(region.len as usize);
                    part.write_all_at(own, region.offset)
                        .context("cannot write")?;
                    octets = rest;
                }
                Ok(Vec::new())
            }
            Kind::Read => {
                read(&message.regions, wanted, |octets, offset| {
                    part.read_exact_at(octets, offset).context("cannot read")
                })?;
                Ok(Vec::new())
            }
            Kind::Fetch => {
                read(&message.regions, wanted, |octets, offset| {
                    fill(&part, octets, offset)
                })?;
                Ok(vec![length(&part)?])
            }
            Kind::Length => Ok(vec![length(&part)?]),
            Kind::Cut => {
                let len = message.regions.first().context("to which length?")?.len;
                ensure!(len <= PART_MAX, "{len} octets are beyond the longest file");
                part.set_len(len).context("cannot cut the file")?;
                Ok(Vec::new())
            }
            Kind::Sync => {
                part.sync_all().context("cannot write to the disk")?;
                Ok(Vec::new())
            }
            Kind::Settle => {
                part.sync_all().context("cannot write to the disk")?;
                fadvise(&*part, 0, None, Advice::DontNeed)
                    .context("cannot take it out of memory")?;
                Ok(Vec::new())
            }
            other => bail!("{other:?} is not a server's"),
        }
    }

    /// The file of a handle, which is made where there is none.
    fn part(&self, handle: u64) -> Result<Arc<File>> {
        let mut known = self.known()?;
        if let Some(part) = known.open.get(&handle) {
            return Ok(part.clone());
        }
        ensure!(!known.removed.contains(&handle), "the file was removed");
        ensure!(
            known.open.len() < FILES_MAX,
            "{FILES_MAX} files are open, which are the most"
        );
        let part = tempfile::tempfile_in(self.folder);
        let part = Arc::new(part.context("cannot make the file")?);
        known.open.insert(handle, part.clone());
        Ok(part)
    }

    fn remove(&self, handle: u64) -> Result<()> {
        let mut known = self.known()?;
        let has_room = known.removed.len() < REMOVED_MAX;
        ensure!(
            has_room,
            "{REMOVED_MAX} files were removed, which are the most"
        );
        known.removed.insert(handle);
        // Its room is free once nobody reads or writes it any more.
        known.open.remove(&handle);
        Ok(())
    }

    fn known(&self) -> Result<MutexGuard<'_, Known>> {
        self.known.lock().map_err(|_| anyhow!("a thread panicked"))
    }
}

/// Has each region read to where it belongs: one behind the other.
fn read(
    regions: &[Region],
    wanted: &mut Vec<u8>,
    one: impl Fn(&mut [u8], u64) -> Result<()>,
) -> Result<()> {
    wanted.resize(octets(regions)?, 0);
    let mut left = &mut wanted[..];
    for region in regions {
        let (own, rest) = left.split_at_mut(region.len as usize);
        one(own, region.offset)?;
        left = rest;
    }
    Ok(())
}

/// Reads what there is of these octets, which are zeros.
fn fill(part: &File, mut octets: &mut [u8], mut offset: u64) -> Result<()> {
    while !octets.is_empty() {
        match part.read_at(octets, offset) {
            Ok(0) => break,
            Ok(read) => {
                octets = &mut octets[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read"),
        }
    }
    Ok(())
}

/// How long a part is, as an answer has it.
fn length(part: &File) -> Result<Region> {
    let len = part.metadata().context("cannot tell how long it is")?.len();
    Ok(Region { offset: 0, len })
}

/// Octets of these regions together.
fn octets(regions: &[Region]) -> Result<usize> {
    let mut sum = 0_u64;
    for region in regions {
        let end = region.offset.checked_add(region.len);
        ensure!(
            end.is_some_and(|end| end <= PART_MAX),
            "{region:?} is beyond the longest file"
        );
        sum += region.len;
        ensure!(
            sum <= OCTETS_MAX as u64,
            "{sum} octets at once, of {OCTETS_MAX} at most"
        );
    }
    Ok(sum as usize)
}
