//! What the kernel asks of a mount, and what the manager and the servers are asked for it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, Error, Result};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use rustix::process::{getegid, geteuid};

use crate::striped::client::{Client, Striped};
use crate::striped::layout::{Layout, Region};
use crate::striped::manager::Manager;

/// Octets that the kernel may have written at once: stripes of all servers.
const WRITE_MAX: u32 = 1 << 20;
/// Octets of a file at most: what a server takes of a part.
const FILE_MAX: u64 = 1 << 40;
/// For how long the kernel may believe what it was told: not at all, as other hosts change it.
const NEVER: Duration = Duration::ZERO;
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
enum Refusal {
    Plain(Errno),
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Failed(error)
    }
}

type Answer<T> = std::result::Result<T, Refusal>;

const fn refused<T>(errno: Errno) -> Answer<T> {
    Err(Refusal::Plain(errno))
}

impl Mounted {
    /// The files of this store; neither the manager nor a server may take longer for an answer.
    ///
    /// # Errors
    /// The manager is gone, or spreads files over other servers.
    pub(super) fn new(manager: Manager, client: Client, patience: Duration) -> Result<Mounted> {
        manager.within(patience)?;
        client.within(patience)?;
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

    fn found(&self, name: &OsStr) -> Answer<FileAttr> {
        let mut held = self.held();
        match held.manager.find(name.as_bytes())? {
            Some((handle, _)) => self.file_attributes(&mut held, self.of(handle)),
            None => refused(Errno::ENOENT),
        }
    }

    fn told(&self, of: INodeNo) -> Answer<FileAttr> {
        if of == INodeNo::ROOT {
            return Ok(self.attributes(of, FileType::Directory, 0));
        }
        self.file_attributes(&mut self.held(), self.file(of)?)
    }

    fn made(&self, name: &OsStr, flags: i32) -> Answer<FileAttr> {
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

    fn opened(&self, of: INodeNo) -> Answer<()> {
        let file = self.file(of)?;
        self.held().open.entry(file.handle).or_default().count += 1;
        Ok(())
    }

    /// The name goes at once; the parts go when nobody here has the file open. Who has it open at another host loses
    /// it.
    fn removed(&self, name: &OsStr) -> Answer<()> {
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

    fn closed(&self, of: INodeNo) -> Answer<()> {
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

    /// A new length, or what no file here has.
    fn set(&self, of: INodeNo, len: Option<u64>, others: bool) -> Answer<FileAttr> {
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

    fn written(&self, of: INodeNo, offset: u64, octets: &[u8]) -> Answer<u32> {
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
    fn read_into(&self, of: INodeNo, offset: u64, size: u32, give: impl FnOnce(&[u8])) -> Answer<()> {
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
    fn list(&self, behind: u64, reply: &mut ReplyDirectory) -> Answer<()> {
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
    fn errno(&self, what: &str, refusal: Refusal) -> Errno {
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

/// Past the kernel's page cache: another host may have written since.
const HOW_OPEN: FopenFlags = FopenFlags::FOPEN_DIRECT_IO;

impl Filesystem for Mounted {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let too_many = |most: u32| io::Error::other(format!("{most} octets at once are the most"));
        config.set_max_write(WRITE_MAX).map_err(too_many)?;
        // Without these the kernel would grant locks that no other host knows of. An old one may not have them.
        let _ = config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.found(name) {
            Ok(attributes) => reply.entry(&NEVER, &attributes, Generation(0)),
            Err(why) => reply.error(self.errno("look for a file", why)),
        }
    }

    fn getattr(&self, _: &Request, of: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.told(of) {
            Ok(attributes) => reply.attr(&NEVER, &attributes),
            Err(why) => reply.error(self.errno("tell a file's length", why)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        of: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let is_given = |time| matches!(time, Some(TimeOrNow::SpecificTime(_)));
        let others = mode.is_some() || uid.is_some() || gid.is_some();
        match self.set(of, size, others || is_given(accessed) || is_given(modified)) {
            Ok(attributes) => reply.attr(&NEVER, &attributes),
            Err(why) => reply.error(self.errno("change a file's length", why)),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.made(name, flags) {
            Ok(made) => reply.created(&NEVER, &made, Generation(0), FileHandle(0), HOW_OPEN),
            Err(why) => reply.error(self.errno("make a file", why)),
        }
    }

    fn open(&self, _: &Request, of: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.opened(of) {
            Ok(()) => reply.opened(FileHandle(0), HOW_OPEN),
            Err(why) => reply.error(self.errno("open a file", why)),
        }
    }

    fn read(
        &self,
        _: &Request,
        of: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut reply = Some(reply);
        let given = self.read_into(of, offset, size, |octets| {
            if let Some(reply) = reply.take() {
                reply.data(octets);
            }
        });
        if let (Err(why), Some(reply)) = (given, reply) {
            reply.error(self.errno("read", why));
        }
    }

    fn write(
        &self,
        _: &Request,
        of: INodeNo,
        _: FileHandle,
        offset: u64,
        octets: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.written(of, offset, octets) {
            Ok(count) => reply.written(count),
            Err(why) => reply.error(self.errno("write", why)),
        }
    }

    /// There is nothing that a server does not have.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        of: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.done(reply, "remove a file that was open", self.closed(of));
    }

    fn fsync(&self, _: &Request, of: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.file(of).and_then(|file| Ok(self.held().client.sync(file)?));
        self.done(reply, "write to the disks", synced);
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(reply, "remove a file", self.removed(name));
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, behind: u64, mut reply: ReplyDirectory) {
        match self.list(behind, &mut reply) {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(self.errno("list the files", why)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, WRITE_MAX, 255, WRITE_MAX);
    }

    fn getlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        reply.error(self.no_locks());
    }

    fn setlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(self.no_locks());
    }
}

impl Mounted {
    fn done(&self, reply: ReplyEmpty, what: &str, done: Answer<()>) {
        match done {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(self.errno(what, why)),
        }
    }

    /// A lock that one host alone knows of would promise what does not hold.
    fn no_locks(&self) -> Errno {
        let why = anyhow!("there are none (MPI-IO: romio_ds_write=disable)");
        self.errno("lock part of a file", Refusal::Failed(why));
        Errno::ENOLCK
    }
}
