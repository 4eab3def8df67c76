//! What the kernel asks of a mount (FUSE), as questions about its files.

use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use super::files::{Answer, Mounted, Refusal, WRITE_MAX};

/// For how long the kernel may believe what it was told: not at all, as other hosts change it.
const NEVER: Duration = Duration::ZERO;
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
        self.done(reply, "write to the disks", self.synced(of));
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(reply, "remove a file", self.removed(name));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        behind: u64,
        mut reply: ReplyDirectory,
    ) {
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
