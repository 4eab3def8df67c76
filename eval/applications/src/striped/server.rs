//! A server: has its part of each file as a file of its own.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
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

/// The parts that are open.
struct Parts<'a> {
    folder: &'a Path,
    open: Mutex<HashMap<u64, Arc<File>>>,
}

/// Serves so many clients until they have gone, with files in `folder`.
///
/// # Errors
/// The listener fails, or a client says what makes no sense.
pub fn serve(listener: &TcpListener, clients: u32, folder: &Path) -> Result<()> {
    let parts = Parts {
        folder,
        open: Mutex::new(HashMap::new()),
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
    })
}

fn serve_one(stream: &TcpStream, parts: &Parts<'_>) -> Result<()> {
    let (mut room, mut wanted) = (Vec::new(), Vec::new());
    while let Some(message) = hear(stream, room)? {
        match parts.handle(&message, &mut wanted) {
            Ok(()) => say(stream, Kind::Done, message.handle, &[], &[&wanted])?,
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
    /// Does what a message asks for; `wanted` becomes what is to be answered.
    fn handle(&self, message: &Message, wanted: &mut Vec<u8>) -> Result<()> {
        wanted.clear();
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
                Ok(())
            }
            Kind::Read => {
                wanted.resize(octets(&message.regions)?, 0);
                let mut at = 0;
                for region in &message.regions {
                    let end = at + region.len as usize;
                    part.read_exact_at(&mut wanted[at..end], region.offset)
                        .context("cannot read")?;
                    at = end;
                }
                Ok(())
            }
            Kind::Settle => {
                part.sync_all().context("cannot write to the disk")?;
                fadvise(&*part, 0, None, Advice::DontNeed).context("cannot take it out of memory")
            }
            other => bail!("{other:?} is not a server's"),
        }
    }

    /// The file of a handle, which is made where there is none.
    fn part(&self, handle: u64) -> Result<Arc<File>> {
        let mut open = self.open.lock().map_err(|_| anyhow!("a thread panicked"))?;
        if let Some(part) = open.get(&handle) {
            return Ok(part.clone());
        }
        ensure!(
            open.len() < FILES_MAX,
            "{FILES_MAX} files are open, which are the most"
        );
        // A number: nothing that leads out of the folder.
        let path = self.folder.join(format!("{handle:016x}"));
        let mut options = OpenOptions::new();
        let part = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let part = Arc::new(part.context("cannot open the file")?);
        open.insert(handle, part.clone());
        Ok(part)
    }
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
