//! The files of a mount: what the manager and the servers are asked for what a program does.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Error, Result};
use fuser::{Errno, FileAttr, FileType, INodeNo, ReplyDirectory};
use rustix::fs::OFlags;
use rustix::process::{getegid, geteuid};

use crate::striped::client::{Client, Striped};
use crate::striped::layout::{Layout, Region};
use crate::striped::manager::Manager;

/// Octets that the kernel may have written at once: stripes of all servers.
pub(super) const WRITE_MAX: u32 = 1 << 20;
/// Octets of a file at most: what a server takes of a part.
const FILE_MAX: u64 = 1 << 40;
/// Lines about what failed, at most.
const LINES_MAX: u32 = 100;

/// The files, as a mount has them.
pub(super) struct Mounted {
    held: Mutex<Held>,
    layout: Layout,
    owner: (u32, u32),
}

struct Held {
    manager: Manager,
    client: Client,
    /// The files that programs have open here, by their handle.
    open: HashMap<u64, Open>,
    /// For what is read.
    room: Vec<u8>,
    /// Lines that were said about what failed.
    lines: u32,
}

#[derive(Default)]
struct Open {
    count: u64,
    /// Whether its name is gone, so that its parts go with the last who has it open.
    is_removed: bool,
}

/// Why something is not done: what the program gets, and what is said about it, if that says more.
pub(super) enum Refusal {
    Plain(Errno),
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Failed(error)
    }
}

pub(super) type Answer<T> = std::result::Result<T, Refusal>;

const fn refused<T>(errno: Errno) -> Answer<T> {
    Err(Refusal::Plain(errno))
}

impl Mounted {
    /// The files of this store; neither the manager nor a server may take longer for an answer.
    ///
    /// # Errors
    /// The manager is gone, or spreads files over other servers.
    pub(super) fn new(manager: Manager, client: Client, time: Duration) -> Result<Mounted> {
        manager.within(time)?;
        client.within(time)?;
        let (_, layout) = manager.list(0)?;
        client.has_all(layout)?;
        let held = Held {
            manager,
            client,
            open: HashMap::new(),
            room: Vec::new(),
            lines: 0,
        };
        Ok(Mounted {
            held: Mutex::new(held),
            layout,
            owner: (geteuid().as_raw(), getegid().as_raw()),
        })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of an inode.
    fn file(&self, inode: INodeNo) -> Answer<Striped> {
        match u64::from(inode).checked_sub(1) {
            None | Some(0) => refused(Errno::EISDIR),
            Some(handle) => Ok(self.of(handle)),
        }
    }

    fn of(&self, handle: u64) -> Striped {
        Striped {
            handle,
            layout: self.layout,
        }
    }

    /// Files have no times and no permissions of their own.
    fn attributes(&self, inode: INodeNo, kind: FileType, size: u64) -> FileAttr {
        let is_folder = kind == FileType::Directory;
        FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: if is_folder { 0o755 } else { 0o644 },
            nlink: if is_folder { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: WRITE_MAX,
            flags: 0,
        }
    }

    fn file_attributes(&self, held: &mut Held, file: Striped) -> Answer<FileAttr> {
        let size = held.client.len(file)?;
        Ok(self.attributes(inode(file.handle), FileType::RegularFile, size))
    }

    pub(super) fn found(&self, name: &OsStr) -> Answer<FileAttr> {
        let mut held = self.held();
        match held.manager.find(name.as_bytes())? {
            Some((handle, _)) => self.file_attributes(&mut held, self.of(handle)),
            None => refused(Errno::ENOENT),
        }
    }

    pub(super) fn told(&self, of: INodeNo) -> Answer<FileAttr> {
        if of == INodeNo::ROOT {
            return Ok(self.attributes(of, FileType::Directory, 0));
        }
        self.file_attributes(&mut self.held(), self.file(of)?)
    }

    pub(super) fn made(&self, name: &OsStr, flags: i32) -> Answer<FileAttr> {
        let has = |flag: OFlags| flags as u32 & flag.bits() != 0;
        let mut held = self.held();
        let handle = if has(OFlags::EXCL) {
            match held.manager.make(name.as_bytes())? {
                Some((handle, _)) => handle,
                None => return refused(Errno::EEXIST),
            }
        } else {
            held.manager.open(name.as_bytes())?.0
        };
        let file = self.of(handle);
        // Another host may have made it since the kernel looked.
        if has(OFlags::TRUNC) {
            held.client.cut(file, 0)?;
        }
        let attributes = self.file_attributes(&mut held, file)?;
        held.open.entry(handle).or_default().count += 1;
        Ok(attributes)
    }

    pub(super) fn opened(&self, of: INodeNo) -> Answer<()> {
        let file = self.file(of)?;
        self.held().open.entry(file.handle).or_default().count += 1;
        Ok(())
    }

    /// The name goes at once; the parts go when nobody here has the file open. Who has it open at another host loses
    /// it.
    pub(super) fn removed(&self, name: &OsStr) -> Answer<()> {
        let mut held = self.held();
        let Some((handle, _)) = held.manager.remove(name.as_bytes())? else {
            return refused(Errno::ENOENT);
        };
        if let Some(open) = held.open.get_mut(&handle) {
            open.is_removed = true;
            return Ok(());
        }
        Ok(held.client.remove(self.of(handle))?)
    }

    pub(super) fn closed(&self, of: INodeNo) -> Answer<()> {
        let file = self.file(of)?;
        let mut held = self.held();
        let Some(open) = held.open.get_mut(&file.handle) else {
            return Ok(());
        };
        open.count = open.count.saturating_sub(1);
        if open.count > 0 {
            return Ok(());
        }
        let is_removed = open.is_removed;
        held.open.remove(&file.handle);
        if is_removed {
            held.client.remove(file)?;
        }
        Ok(())
    }

    pub(super) fn synced(&self, of: INodeNo) -> Answer<()> {
        let file = self.file(of)?;
        Ok(self.held().client.sync(file)?)
    }

    /// A new length, or what no file here has.
    pub(super) fn set(&self, of: INodeNo, len: Option<u64>, others: bool) -> Answer<FileAttr> {
        match len {
            Some(len) if len > FILE_MAX => return refused(Errno::EFBIG),
            Some(len) => {
                let file = self.file(of)?;
                self.held().client.cut(file, len)?;
            }
            None if others => return refused(Errno::EOPNOTSUPP),
            None => {}
        }
        self.told(of)
    }

    pub(super) fn written(&self, of: INodeNo, offset: u64, octets: &[u8]) -> Answer<u32> {
        let file = self.file(of)?;
        let len = octets.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > FILE_MAX) {
            return refused(Errno::EFBIG);
        }
        let region = [Region { offset, len }];
        self.held().client.write(file, &region, octets)?;
        Ok(octets.len() as u32)
    }

    /// Reads, and has the octets given away before the room for them is used again.
    pub(super) fn read_into(
        &self,
        of: INodeNo,
        offset: u64,
        size: u32,
        give: impl FnOnce(&[u8]),
    ) -> Answer<()> {
        let file = self.file(of)?;
        let mut held = self.held();
        if offset >= FILE_MAX {
            give(&[]);
            return Ok(());
        }
        let len = u64::from(size).min(FILE_MAX - offset) as usize;
        let mut room = std::mem::take(&mut held.room);
        room.resize(room.len().max(len), 0);
        let fetched = held.client.fetch(file, offset, &mut room[..len]);
        let answer = fetched.map(|came| give(&room[..came]));
        held.room = room;
        Ok(answer?)
    }

    /// What stands in the folder behind this place: first the folder itself and the one above, then the files in the
    /// order in which they were made. A file's place is its inode's number.
    pub(super) fn list(&self, behind: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        if behind < 1 && reply.add(INodeNo::ROOT, 1, FileType::Directory, ".") {
            return Ok(());
        }
        if behind < 2 && reply.add(INodeNo::ROOT, 2, FileType::Directory, "..") {
            return Ok(());
        }
        let mut last = behind.saturating_sub(2);
        loop {
            let (files, _) = self.held().manager.list(last)?;
            if files.is_empty() {
                return Ok(());
            }
            for (handle, name) in files {
                last = handle;
                let name = OsStr::from_bytes(&name);
                if reply.add(inode(handle), handle + 2, FileType::RegularFile, name) {
                    return Ok(());
                }
            }
        }
    }

    /// What the program gets, once what there is to say has been said.
    pub(super) fn errno(&self, what: &str, refusal: Refusal) -> Errno {
        let error = match refusal {
            Refusal::Plain(errno) => return errno,
            Refusal::Failed(error) => error,
        };
        let lines = &mut self.held().lines;
        *lines += 1;
        if *lines <= LINES_MAX {
            eprintln!("striped mount: cannot {what}: {error:#}");
        }
        if *lines == LINES_MAX {
            eprintln!("striped mount: what fails from now on is not told");
        }
        Errno::EIO
    }
}

/// The number of a file's inode: 1 is the folder's.
fn inode(handle: u64) -> INodeNo {
    INodeNo(handle + 1)
}
