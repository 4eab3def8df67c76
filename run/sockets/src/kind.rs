//! A kind of sockets, as descriptors see it: what it is asked when a descriptor comes, goes or is doubled, and when the
//! process forks or confines itself. What sends and receives ask of it goes past this.

use crate::references::References;
use crate::table::Kind;

/// The sockets of one kind, as their descriptors see them.
///
/// They have numbers. Everything is called from hooks, in signal handlers too: it allocates nothing and takes no lock
/// that the calling thread may hold already.
pub trait Sockets {
    /// How many of them can be known at a time; those beyond are the kernel's.
    fn most(&self) -> usize;

    /// Whether descriptors that may be of this kind are looked at. Else only those are known that the program
    /// [claims](crate::descriptors::Descriptors::claim), and what comes of them.
    fn is_looked_for(&self) -> bool;

    /// Whether that goes for `read` and `write` too, which a program calls on files as well: where it receives and
    /// sends by these alone, a socket that came by a way no hook sees would never be known.
    fn is_met_by_read(&self) -> bool;

    /// Whether `socket` with this family, type (without its flags) and protocol may make a socket of this kind.
    fn is_made_by(&self, family: i32, socket_type: i32, protocol: i32) -> bool;

    /// Whether a program that this one took the place of may have left sockets of this kind.
    fn is_inherited(&self) -> bool;

    /// The inode of the socket behind `fd`, if it is of this kind. What one of this kind accepted is, unasked.
    fn look(&self, fd: i32, origin: Origin) -> Option<u64>;

    /// Takes a number for the socket with this inode, which is not known yet; nothing to leave it to the kernel. Its
    /// [`References`] begin right after.
    fn begin(&self, inode: u64, origin: Origin) -> Option<usize>;

    /// What connections begin with that this socket accepts, through `fd`: the kind's own word, which comes back as
    /// [`Origin::Accepted`].
    fn handed_on(&self, number: usize, fd: i32) -> u32;

    /// The references of the socket with this number; nothing if it never was one.
    fn references(&self, number: usize) -> Option<&References>;

    /// The last descriptor of the socket is gone; its number is free again.
    fn end(&self, number: usize);

    /// The socket is about to be passed to another process.
    fn share(&self, number: usize);

    /// `fd` is about to be closed, and may be the last descriptor: what waits in the socket goes to the kernel, which
    /// may take a while to have room for it.
    fn closing(&'static self, number: usize, fd: i32);

    /// Whether something is left to do in the socket that its kind does of its own accord, with any descriptor of it:
    /// one that it may have counted on was closed.
    fn needs_descriptor(&self, number: usize) -> bool;

    /// `fd` is another descriptor of such a socket.
    fn go_on_with(&'static self, number: usize, fd: i32);

    /// The process is about to end, and has had `waited` milliseconds for it; whether nothing waits in the socket for
    /// which it should wait longer. `fd` is any of its descriptors.
    fn ending(&self, number: usize, fd: i32, waited: u32) -> bool;

    /// The same of sockets that have no descriptor any more.
    fn ending_closed(&self, waited: u32) -> bool;

    /// The socket is used in ways that no hook sees: from now on it is the kernel's.
    fn release(&self, number: usize);

    /// One call moves octets of the socket past the hooks.
    fn passed_by(&self, number: usize);

    /// One call accepts a connection of the socket past the hooks.
    fn accepting_unseen(&self, number: usize);

    /// Whether anything waits in any of the sockets. Asked before each wait: a load.
    fn anything_waits(&self) -> bool;

    /// Whether a socket that the kernel calls readable may have nothing for the program.
    fn looks_again(&self) -> bool;

    /// What waits in all of them goes to the kernel, as far as it takes it at once.
    fn flush_all(&self);

    /// The program is about to close these numbers, some of which may be Weft's own.
    fn closing_numbers(&self, _first: u32, _last: u32) {}

    /// The process is about to fork or to start another: what waits goes to the kernel, and that has the sockets too.
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
    /// A socket of the same kind has just accepted it, and this is what that [handed on](Sockets::handed_on).
    Accepted(u32),
}
