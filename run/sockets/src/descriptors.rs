//! A program's descriptors, and what becomes of the sockets behind them when they are made, duplicated, inherited and
//! closed.
//!
//! Nothing here knows what a socket is for. What a kind of sockets has to say is [`Sockets`], and which kinds there are
//! is [`Kinds`] ([`crate::kind`]).

mod closing;

use std::sync::atomic::{AtomicBool, Ordering};

use weft_os::process;

use crate::inodes::Inodes;
use crate::kind::{Kinds, Origin, Sockets};
use crate::references::References;
use crate::table::{Entry, Kind, Socket, Table};

/// A socket that is about to accept, as far as it matters to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener<K> {
    kind: K,
    handed_on: u32,
}

/// The descriptors of one process.
#[derive(Debug)]
pub struct Descriptors<S: Kinds> {
    table: Table<S::Kind>,
    inodes: Inodes,
    kinds: S,
    /// Some kind is met by `read`.
    met_by_read: bool,
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
        let sockets = || S::Kind::ALL.iter().map(|kind| kinds.sockets(*kind));
        Some(Descriptors {
            table: Table::new()?,
            inodes: Inodes::new(sockets().map(Sockets::most).sum())?,
            met_by_read: sockets().any(Sockets::is_met_by_read),
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

    /// The same for a call that files have too: descriptors that nobody has looked at are looked at only where a kind
    /// [asks for it](Sockets::is_met_by_read).
    #[inline]
    pub fn met_by_read(&self, fd: i32) -> Option<Socket<S::Kind>> {
        match self.table.get(fd) {
            Entry::Kernel => None,
            Entry::Ours(socket) => Some(socket),
            Entry::Unknown if self.met_by_read => self.look(fd),
            Entry::Unknown => None,
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
        if !self.may_look(fd) {
            return None;
        }
        self.adopt(fd, Origin::Found, |sockets| sockets.is_looked_for())
    }

    /// Whether a call of ours may find out what `fd` is.
    fn may_look(&self, fd: i32) -> bool {
        fd >= 0 && !self.is_confined() && !process::is_borrowed()
    }

    /// The socket of this kind behind `fd`, whether or not the kind is looked for: the program says that it means one.
    pub fn claim(&self, fd: i32, kind: S::Kind) -> Option<Socket<S::Kind>> {
        if let Some(known) = self.known(fd) {
            return (known.kind == kind).then_some(known);
        }
        if !self.may_look(fd) {
            return None;
        }
        let socket = self.find(fd, kind, Origin::Found)?;
        self.table.set(fd, Entry::Ours(socket));
        Some(socket)
    }

    /// Takes note of a socket that `socket` has just made of this family, type and protocol, whatever was known of its
    /// number before.
    pub fn made_socket(&self, fd: i32, family: i32, socket_type: i32, protocol: i32) {
        let may_be = |sockets: &dyn Sockets| {
            sockets.is_looked_for() && sockets.is_made_by(family, socket_type, protocol)
        };
        if !self.each_kind().any(may_be) {
            return self.made_other(fd);
        }
        if fd < 0 || self.is_borrowed() {
            return;
        }
        self.lose(fd);
        if !self.is_confined() {
            self.adopt(fd, Origin::Made, may_be);
        }
    }

    /// Looks at every descriptor that the program was started with, where another program before it may have left
    /// sockets of ours; whether it has. Allocates.
    pub fn adopt_inherited(&self) -> bool {
        if !self.each_kind().any(Sockets::is_inherited) {
            return false;
        }
        let entries = std::fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for fd in numbers.collect::<Vec<i32>>() {
            // The directory's own is gone by now.
            self.met_by_read(fd);
        }
        true
    }

    /// The socket of ours behind `fd`, which is about to accept. Taken before the call: while it waits another thread
    /// may close the number, and what was known of the socket is gone.
    pub fn listener(&self, fd: i32) -> Option<Listener<S::Kind>> {
        let socket = self.met_by_read(fd)?;
        let sockets = self.kinds.sockets(socket.kind);
        Some(Listener {
            kind: socket.kind,
            handed_on: sockets.handed_on(socket.number, fd),
        })
    }

    /// Takes note of a socket that `accept` has just made of a connection of `listener`'s (nothing: of one that is none
    /// of ours), whatever was known of its number before.
    pub fn accepted(&self, listener: Option<Listener<S::Kind>>, fd: i32) {
        let Some(listener) = listener.filter(|_| !self.is_confined()) else {
            return self.made_other(fd);
        };
        if fd < 0 || self.is_borrowed() {
            return;
        }
        self.lose(fd);
        let origin = Origin::Accepted(listener.handed_on);
        let socket = self.find(fd, listener.kind, origin);
        self.table
            .set(fd, socket.map_or(Entry::Kernel, Entry::Ours));
    }

    /// Takes note of a descriptor that came from elsewhere; what it is is seen when it is used.
    pub fn arrived(&self, fd: i32) {
        if fd >= 0 && self.table.get(fd) != Entry::Unknown && !self.is_borrowed() {
            self.lose(fd);
        }
        // Waits do not look.
        self.met_by_read(fd);
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
            process::confine();
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

    /// Enters `fd` in the table, as a socket of the first kind of those `wanted` that knows it.
    fn adopt(
        &self,
        fd: i32,
        origin: Origin,
        wanted: impl Fn(&dyn Sockets) -> bool,
    ) -> Option<Socket<S::Kind>> {
        let wanted = |kind: &&S::Kind| wanted(self.kinds.sockets(**kind));
        let mut kinds = S::Kind::ALL.iter().filter(wanted);
        let socket = kinds.find_map(|kind| self.find(fd, *kind, origin));
        self.table
            .set(fd, socket.map_or(Entry::Kernel, Entry::Ours));
        socket
    }

    /// The socket behind `fd`, known or new, if it is of this kind.
    fn find(&self, fd: i32, kind: S::Kind, origin: Origin) -> Option<Socket<S::Kind>> {
        let inode = self.kinds.sockets(kind).look(fd, origin)?;
        self.refer(kind, inode, origin)
    }

    /// The socket with this inode, known or new, with one descriptor more.
    fn refer(&self, kind: S::Kind, inode: u64, origin: Origin) -> Option<Socket<S::Kind>> {
        let mut near = self.inodes.near(inode).filter_map(Socket::from_word);
        if let Some(known) = near.find(|socket| socket.kind == kind && self.add(*socket, inode)) {
            return Some(known);
        }
        let sockets = self.kinds.sockets(kind);
        let number = sockets.begin(inode, origin)?;
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

    /// Whether `fd` stands for this socket.
    pub fn is_known_as(&self, fd: i32, kind: S::Kind, number: usize) -> bool {
        self.known(fd)
            .is_some_and(|socket| socket.kind == kind && socket.number == number)
    }

    pub(crate) fn remove_reference(&self, socket: Socket<S::Kind>) {
        let Some(references) = self.references(socket) else {
            return;
        };
        let inode = references.inode();
        if references.remove() {
            self.inodes.remove(inode, socket.to_word());
            self.kinds.sockets(socket.kind).end(socket.number);
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

    /// `fd` is about to be passed to another process.
    pub fn passing(&self, fd: i32) {
        if let Some(socket) = self.known(fd) {
            self.kinds.sockets(socket.kind).share(socket.number);
        }
    }

    /// The socket behind `fd` is out of our hands (a stream of the C library was made of it): from now on it is the
    /// kernel's.
    pub fn release(&self, fd: i32) {
        // One that nobody has looked at is as well: whoever looked later would not know of the stream.
        if let Some(socket) = self.socket(fd) {
            self.kinds.sockets(socket.kind).release(socket.number);
        }
    }

    /// One call, which no hook makes its own, is about to read or write the socket behind `fd` (a bare system call,
    /// `dprintf`).
    pub fn passed_by(&self, fd: i32) {
        if let Some(socket) = self.met_by_read(fd) {
            self.kinds.sockets(socket.kind).passed_by(socket.number);
        }
    }

    /// One call, which no hook makes its own, is about to accept a connection of the socket behind `fd`.
    pub fn accepting_unseen(&self, fd: i32) {
        if let Some(socket) = self.met_by_read(fd) {
            let sockets = self.kinds.sockets(socket.kind);
            sockets.accepting_unseen(socket.number);
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

    /// Whether a socket that the kernel calls readable may have nothing for the program.
    #[inline]
    pub fn looks_again(&self) -> bool {
        self.each_kind().any(Sockets::looks_again)
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
