//! When it is decided how the octets of a connection go, and what becomes of the program's call then.

use std::sync::atomic::Ordering;

use weft_os::{io_uring, stream};
use weft_settings::streams::{Direction, Mode};

use super::standing::{Reason, Standing, State};
use super::{Record, Streams};
use crate::ends::ends;
use crate::verdict::Verdict;

impl Streams {
    /// The program connects the socket to the address `to`, which is empty where it cannot be read.
    pub fn connecting(&self, record: &Record, fd: i32, to: &[u8]) -> Verdict {
        self.connect(record, fd, to, false)
    }

    /// The same by a send, whose octets are to leave with the SYN.
    pub fn connecting_with_octets(&self, record: &Record, fd: i32, to: &[u8]) -> Verdict {
        self.connect(record, fd, to, true)
    }

    fn connect(&self, record: &Record, fd: i32, to: &[u8], is_early: bool) -> Verdict {
        if is_unspecified(to) {
            // It is dissolved, if it was connected, and begins anew.
            self.stand(record, Standing::default());
            self.end_ddp(record);
            return Verdict::Kernel;
        }
        if self.is_confined() || stream::state(fd) != Some(stream::State::Closed) {
            return Verdict::Kernel;
        }
        let mode = self.mode(record, Direction::Connect, fd, to);
        // Those would be octets of the socket, framing and all.
        let is_counted = mode != Mode::Off && stream::counts_for_program(fd);
        let (state, reason, verdict) = match mode {
            Mode::Prefer if is_counted => (State::Tcp, Reason::Released, Verdict::Kernel),
            Mode::Require if is_counted => (
                State::Undecided,
                Reason::Released,
                Verdict::Done(Err(libc::EOPNOTSUPP)),
            ),
            Mode::Prefer if is_early => (State::Tcp, Reason::TooEarly, Verdict::Kernel),
            Mode::Require if is_early => (
                State::Undecided,
                Reason::TooEarly,
                Verdict::Done(Err(libc::EOPNOTSUPP)),
            ),
            Mode::Off => (State::Tcp, Reason::Off, Verdict::Kernel),
            Mode::Prefer if is_used_unseen(record) => {
                (State::Tcp, Reason::Released, Verdict::Kernel)
            }
            Mode::Prefer => self.connect_and_ask(record, fd, to),
            Mode::Require => self.begin_ddp(record, fd),
        };
        self.set(record, mode, state, reason);
        verdict
    }

    /// The program makes the socket listen.
    pub fn listening(&self, record: &Record, fd: i32) -> Verdict {
        if self.is_confined() || stream::state(fd) != Some(stream::State::Closed) {
            return Verdict::Kernel;
        }
        self.decide_to_listen(record, fd);
        // As a connect is: what the listener accepts would be DDP, and inherit what that does not go with.
        match record.standing().state == State::Ddp && stream::counts_for_program(fd) {
            true => Verdict::Done(Err(libc::EOPNOTSUPP)),
            false => Verdict::Kernel,
        }
    }

    /// The program accepts a connection of the socket. One that another process made listen is decided on now.
    pub fn accepting(&self, record: &Record, fd: i32) -> Verdict {
        let decided = record.standing().state != State::Undecided;
        if decided {
            self.accepts(record, fd);
        }
        if decided || self.is_confined() || stream::state(fd) != Some(stream::State::Listening) {
            return Verdict::Kernel;
        }
        self.decide_to_listen(record, fd);
        Verdict::Kernel
    }

    /// How the socket's octets go. Of one that nobody here connected or made listen it is found out.
    pub fn standing(&self, record: &Record, fd: i32) -> Standing {
        let decided = record.standing();
        if decided.state == State::Ddp && self.went_plain(record) {
            return Standing {
                state: State::Tcp,
                reason: Reason::NotThere,
                ..decided
            };
        }
        if decided.state != State::Undecided || self.is_confined() {
            return decided;
        }
        match stream::state(fd) {
            Some(stream::State::Listening) => {
                self.decide_to_listen(record, fd);
                record.standing()
            }
            Some(stream::State::Connected) => Standing {
                mode: Some(Mode::Off),
                state: State::Tcp,
                reason: Reason::Found,
            },
            _ => Standing {
                mode: record.asked().mode().or(decided.mode),
                ..decided
            },
        }
    }

    pub(super) fn is_confined(&self) -> bool {
        self.confined.load(Ordering::Relaxed)
    }

    /// Decides how the octets of the connections go that the socket accepts.
    fn decide_to_listen(&self, record: &Record, fd: i32) {
        let mode = self.mode(record, Direction::Listen, fd, &[]);
        let (state, reason) = match mode {
            Mode::Off => (State::Tcp, Reason::Off),
            Mode::Prefer if is_used_unseen(record) => (State::Tcp, Reason::Released),
            // What is accepted inherits it.
            Mode::Prefer if stream::counts_for_program(fd) => (State::Tcp, Reason::Released),
            // A Request is known when it comes.
            Mode::Prefer | Mode::Require => (State::Ddp, Reason::None),
        };
        // A listener has no connection: there is none to be looked up.
        if record.slot().is_err() {
            record.set_slot(None);
        }
        self.set(record, mode, state, reason);
    }

    /// Connections of this listener come to descriptors that no hook sees made. Where DDP is preferred they are TCP
    /// from now on, and nobody is told any longer that Weft is here: the program would read a client's Request as its
    /// first octets. Where it is required TCP would be no better, and the listener stays as it is.
    pub(super) fn leave_listener(&self, record: &Record) {
        let standing = record.standing();
        // What has a slot, or may have one, is a connection.
        let may_listen = matches!(record.slot(), Ok(None)) && standing.state == State::Ddp;
        if !may_listen || standing.mode != Some(Mode::Prefer) {
            return;
        }
        self.set(record, Mode::Prefer, State::Tcp, Reason::Released);
        if let Some(discovery) = self.discovery {
            discovery.leave(record.number);
        }
    }

    /// The same of all listeners: the program makes an `io_uring`, by which it can accept from any.
    pub fn leave_all_listeners(&self) {
        self.records
            .taken()
            .for_each(|record| self.leave_listener(record));
    }

    fn set(&self, record: &Record, mode: Mode, state: State, reason: Reason) {
        let mode = Some(mode);
        self.stand(
            record,
            Standing {
                mode,
                state,
                reason,
            },
        );
    }

    /// What the program has asked for, or else the rules.
    fn mode(&self, record: &Record, direction: Direction, fd: i32, to: &[u8]) -> Mode {
        record
            .asked()
            .mode()
            .unwrap_or_else(|| match self.rules.look_at_ends() {
                true => self.rules.decide(direction, ends(fd, to).as_slice()),
                false => self.rules.decide(direction, &[]),
            })
    }
}

/// Whether the socket is, or may be, used in ways that no hook sees.
fn is_used_unseen(record: &Record) -> bool {
    record.is_released() || io_uring::is_used()
}

/// Whether the address is one of no family, which ends a connection.
fn is_unspecified(to: &[u8]) -> bool {
    let family = to.first_chunk::<2>().copied().map(u16::from_ne_bytes);
    family.map(i32::from) == Some(libc::AF_UNSPEC)
}
