//! A program's descriptors, and what becomes of the sockets behind them when they are made, duplicated, inherited and
//! closed.
//!
//! Nothing here knows what a socket is for. What a kind of sockets has to say is [`Sockets`], and which kinds there are
//! is [`Kinds`].

use std::sync::atomic::{AtomicBool, Ordering};

use weft_os::process;

use crate::inodes::Inodes;
use crate::references::References;
use crate::table::{Entry, Kind, Socket, Table};

/// The sockets of one kind, as their descriptors see them.
///
/// They have numbers. Everything is called from hooks, in signal handlers too: it allocates nothing and takes no lock
/// that the calling thread may hold already.
pub trait Sockets {
    /// Whether `socket` with this family and type (without its flags) may make a socket of this kind.
    fn is_made_by(&self, family: i32, socket_type: i32) -> bool;

    /// The inode of the socket behind `fd`, if it is of this kind.
    fn look(&self, fd: i32) -> Option<u64>;

    /// Takes a number for a socket that is not known yet; nothing to leave it to the kernel. Its [`References`] begin
    /// right after.
    fn begin(&self, origin: Origin) -> Option<usize>;

    /// The references of the socket with this number; nothing if it never was one.
    fn references(&self, number: usize) -> Option<&References>;

    /// The last descriptor of the socket is gone; its number is free again.
    fn end(&self, number: usize);

    /// What waits in the socket goes to the kernel, as far as it takes it at once.
    fn flush(&self, number: usize);

    /// The same, waiting a while for room: `fd` is about to be closed, and may be the last descriptor.
    fn closing(&self, number: usize, fd: i32);

    /// The socket is used in ways that no hook sees: from now on it is the kernel's.
    fn release(&self, number: usize);

    /// Whether anything waits in any of the sockets. Asked before each wait: a load.
    fn anything_waits(&self) -> bool;

    /// What waits in all of them goes to the kernel, as far as it takes it at once.
    fn flush_all(&self);

    /// The process is about to fork: what waits goes to the kernel, and another process has the sockets too.
    fn before_fork(&self);

    /// The program confines itself: from now on no call is made that it does not make.
    fn confine(&self);
}

/// The kinds of sockets that a process has.
pub trait Kinds {
    /// Their names.
    type Kind: Kind;

    /// The sockets of one kind.
    fn sockets(&self, kind: Self::Kind) -> &dyn Sockets;
}

/// Where a socket comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This process has just made it: nobody else can have it.
    Made,
    /// It was there when somebody looked: inherited, received, or made in a way no hook saw.
    Found,
}

/// The descriptors of one process.
#[derive(Debug)]
pub struct Descriptors<S: Kinds> {
    table: Table<S::Kind>,
    inodes: Inodes,
    kinds: S,
    /// The program confines itself (seccomp): we make no call that it does not make.
    confined: AtomicBool,
}

impl<S: Kinds> Descriptors<S> {
    /// Descriptors that nobody has looked at, for sockets of these kinds. Nothing where there is no memory for them, or
    /// the kernel does not tell of forks.
    pub fn over(kinds: S) -> Option<Descriptors<S>> {
        if !process::watch() {
            return None;
        }
        Some(Descriptors {
            table: Table::new()?,
            inodes: Inodes::new()?,
            kinds,
            confined: AtomicBool::new(false),
        })
    }

    /// The kinds.
    #[inline]
    pub fn kinds(&self) -> &S {
        &self.kinds
    }

    /// The socket of ours behind `fd`.
    #[inline]
    pub fn socket(&self, fd: i32) -> Option<Socket<S::Kind>> {
        match self.table.get(fd) {
            Entry::Kernel => None,
            Entry::Ours(socket) => Some(socket),
            Entry::Unknown => self.look(fd),
        }
    }

    /// The same, without looking at descriptors nobody has looked at.
    #[inline]
    pub fn known(&self, fd: i32) -> Option<Socket<S::Kind>> {
        match self.table.get(fd) {
            Entry::Ours(socket) => Some(socket),
            _ => None,
        }
    }

    /// Finds out what `fd` is.
    #[cold]
    fn look(&self, fd: i32) -> Option<Socket<S::Kind>> {
        if fd < 0 || self.is_confined() || process::is_borrowed() {
            return None;
        }
        self.adopt(fd, Origin::Found)
    }

    /// Takes note of a socket that `socket` has just made of this family and type, whatever was known of its number
    /// before.
    pub fn made_socket(&self, fd: i32, family: i32, socket_type: i32) {
        let is_made_by = |sockets: &dyn Sockets| sockets.is_made_by(family, socket_type);
        if !self.each_kind().any(is_made_by) {
            return self.made_other(fd);
        }
        if fd < 0 || self.is_borrowed() {
            return;
        }
        self.lose(fd);
        if !self.is_confined() {
            self.adopt(fd, Origin::Made);
        }
    }

    /// Takes note of a descriptor that came from elsewhere; what it is is seen when it is used.
    pub fn arrived(&self, fd: i32) {
        if fd >= 0 && self.table.get(fd) != Entry::Unknown && !self.is_borrowed() {
            self.lose(fd);
        }
    }

    /// Takes note of a descriptor that has just been made and is no socket of any kind of ours.
    pub fn made_other(&self, fd: i32) {
        if fd >= 0 && self.table.get(fd) != Entry::Kernel && !self.is_borrowed() {
            self.lose(fd);
            self.table.set(fd, Entry::Kernel);
        }
    }

    /// The program is about to confine itself. What waits leaves; from now on nothing more waits, and no descriptor is
    /// looked at: a call that it does not make itself may be its end.
    pub fn confine(&self) {
        self.flush_all();
        if !self.confined.swap(true, Ordering::SeqCst) {
            self.each_kind().for_each(Sockets::confine);
        }
    }

    /// Whether it has.
    #[inline]
    pub fn is_confined(&self) -> bool {
        self.confined.load(Ordering::Relaxed)
    }

    /// Whether this is a child in its parent's memory. Confined programs are not asked.
    fn is_borrowed(&self) -> bool {
        !self.is_confined() && process::is_borrowed()
    }

    /// `fd` was closed in a way no hook saw: what waited is lost with it.
    fn lose(&self, fd: i32) {
        if let Entry::Ours(socket) = self.table.set(fd, Entry::Unknown) {
            self.remove_reference(socket);
        }
    }

    /// Enters `fd` in the table.
    fn adopt(&self, fd: i32, origin: Origin) -> Option<Socket<S::Kind>> {
        let of_kind = |kind: &S::Kind| {
            let inode = self.kinds.sockets(*kind).look(fd)?;
            self.refer(*kind, inode, origin)
        };
        let socket = S::Kind::ALL.iter().find_map(of_kind);
        self.table
            .set(fd, socket.map_or(Entry::Kernel, Entry::Ours));
        socket
    }

    /// The socket with this inode, known or new, with one descriptor more.
    fn refer(&self, kind: S::Kind, inode: u64, origin: Origin) -> Option<Socket<S::Kind>> {
        let mut near = self.inodes.near(inode).filter_map(Socket::from_word);
        if let Some(known) = near.find(|socket| socket.kind == kind && self.add(*socket, inode)) {
            return Some(known);
        }
        let sockets = self.kinds.sockets(kind);
        let number = sockets.begin(origin)?;
        let socket = Socket { kind, number };
        if !self.inodes.insert(inode, socket.to_word()) {
            sockets.end(number);
            return None;
        }
        sockets.references(number)?.begin(inode);
        Some(socket)
    }

    fn references(&self, socket: Socket<S::Kind>) -> Option<&References> {
        self.kinds.sockets(socket.kind).references(socket.number)
    }

    fn add(&self, socket: Socket<S::Kind>, inode: u64) -> bool {
        self.references(socket)
            .is_some_and(|references| references.add(inode))
    }

    fn remove_reference(&self, socket: Socket<S::Kind>) {
        let Some(references) = self.references(socket) else {
            return;
        };
        let inode = references.inode();
        if references.remove() {
            self.inodes.remove(inode, socket.to_word());
            self.kinds.sockets(socket.kind).end(socket.number);
        }
    }

    /// `fd` is about to be closed.
    pub fn closing(&self, fd: i32) {
        if self.table.get(fd) == Entry::Unknown || self.is_borrowed() {
            return;
        }
        self.forget(fd);
    }

    /// Descriptors `first` to `last` are about to be closed.
    pub fn closing_range(&self, first: u32, last: u32) {
        if self.is_borrowed() {
            return;
        }
        for fd in self.table.sockets(first, last) {
            self.forget(fd);
        }
        self.table.forget_kernels(first, last);
    }

    /// Whatever `fd` stood for, it does no longer; what waits in it leaves.
    fn forget(&self, fd: i32) {
        let Some(socket) = self.known(fd) else {
            self.table.set(fd, Entry::Unknown);
            return;
        };
        self.kinds.sockets(socket.kind).closing(socket.number, fd);
        self.table.set(fd, Entry::Unknown);
        self.remove_reference(socket);
    }

    /// `new` is about to be made a duplicate of something else.
    pub fn overwriting(&self, new: i32) {
        if let Some(socket) = self.known(new) {
            self.kinds.sockets(socket.kind).flush(socket.number);
        }
    }

    /// `fd` is about to be made a duplicate of something that nobody will tell of.
    pub fn forgetting(&self, fd: i32) {
        if !self.is_borrowed() {
            self.forget(fd);
        }
    }

    /// `new` is a duplicate of `old` now.
    pub fn duplicated(&self, old: i32, new: i32) {
        if old == new || self.is_borrowed() {
            return;
        }
        let socket = self.known(old).filter(|socket| {
            self.references(*socket)
                .is_some_and(|references| references.add(references.inode()))
        });
        if let Some(before) = self.known(new) {
            self.remove_reference(before);
        }
        self.table
            .set(new, socket.map_or(Entry::Unknown, Entry::Ours));
    }

    /// The socket behind `fd` is out of our hands (a stream of the C library was made of it): from now on it is the
    /// kernel's.
    pub fn release(&self, fd: i32) {
        // One that nobody has looked at is as well: whoever looked later would not know of the stream.
        if let Some(socket) = self.socket(fd) {
            self.kinds.sockets(socket.kind).release(socket.number);
        }
    }

    /// The process is about to fork: what waits leaves, and sockets are shared from now on.
    pub fn before_fork(&self) {
        self.each_kind().for_each(Sockets::before_fork);
    }

    /// Whether anything waits anywhere.
    #[inline]
    pub fn anything_waits(&self) -> bool {
        self.each_kind().any(Sockets::anything_waits)
    }

    /// Sends what waits in every socket, as far as the kernel takes it at once.
    pub fn flush_all(&self) {
        self.each_kind().for_each(Sockets::flush_all);
    }

    #[inline]
    fn each_kind(&self) -> impl Iterator<Item = &dyn Sockets> {
        S::Kind::ALL.iter().map(|kind| self.kinds.sockets(*kind))
    }
}
