//! Connections that are to be DDP where the other end is Weft: it is asked beside the SYN, and nothing leaves on the
//! connection before that is known (decision 0030).

use std::time::Duration;

use weft_discovery::{Known, Outcome};
use weft_os::{beside, file, forking, process, sched, stream};

use super::room::{give_edges, READABLE};
use super::standing::{Reason, State};
use super::{Record, Streams};
use crate::ddp::{self, Connection};
use crate::discovering::Discovery;
use crate::verdict::Verdict;

/// How often a child looks whether its parent knows what the other end of a connection is.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long after its connect a child leaves that to its parent, in milliseconds: many times what an answer takes.
const LEFT_TO_PARENT_MS: u32 = 1000;

/// Whether the open question of the record is this process's.
fn is_own(record: &Record) -> bool {
    record.asked_by() == process::member()
}

/// What was hidden is the program's, or the Reply's to come: whoever watches for an edge is given one, which is none
/// where the kernel has nothing to tell.
fn show_octets(record: &Record, connection: Connection<'static>) {
    if connection.slot().take_hides_octets() {
        give_edges(record, connection.fd(), READABLE);
    }
}

impl Streams {
    /// Connects the socket to the address `to` and asks beside that whether Weft is there. Gives how the octets go,
    /// why, and what is left to do of the program's call.
    pub(super) fn connect_and_ask(
        &self,
        record: &Record,
        fd: i32,
        to: &[u8],
    ) -> (State, Reason, Verdict) {
        let as_tcp = |reason| (State::Tcp, reason, Verdict::Kernel);
        self.forget_question(record);
        // Of a connect that failed.
        self.end_ddp(record);
        let Some(discovery) = self.discovery else {
            return as_tcp(Reason::NoRoom);
        };
        let Some(server) = beside::socket_addr(to) else {
            return as_tcp(Reason::NotThere);
        };
        if discovery.known(server) == Known::No {
            return as_tcp(Reason::NotThere);
        }
        let waits = !file::does_not_wait(fd);
        let stands = match stream::begin_to_connect(fd, to) {
            Ok(stands) => stands,
            Err(errno) => return (State::Undecided, Reason::None, Verdict::Done(Err(errno))),
        };
        // The SYN leaves with the first octets (TCP_FASTOPEN_CONNECT).
        if stands && stream::state(fd) == Some(stream::State::Closed) {
            return (State::Tcp, Reason::TooEarly, Verdict::Done(Ok(0)));
        }
        let verdict = match (stands, waits) {
            (true, _) => Verdict::Done(Ok(0)),
            (false, true) => Verdict::Begun,
            (false, false) => Verdict::Done(Err(libc::EINPROGRESS)),
        };
        let Some(question) = discovery.ask(fd, server) else {
            return (State::Tcp, Reason::NotThere, verdict);
        };
        let before = forking::before();
        // Whoever finds the slot, a child that is being made among them, has to find the question.
        record.set_question(Some(question));
        if !self.take_slot(record, fd, ddp::State::Connecting) {
            record.set_question(None);
            discovery.give_up(question);
            return (State::Tcp, Reason::NoRoom, verdict);
        }
        if let Some(connection) = self.connection(record, fd) {
            connection.slot().set_prefers();
        }
        // A thread that forks has settled what was asked before.
        if before.may_have_child() {
            self.settle_question(record);
        }
        (State::Ddp, Reason::None, verdict)
    }

    /// The connection of the record, once it is known what its other end is; held where that is not known yet. `waits`:
    /// until it is, a few milliseconds or a round trip, if the connection stands.
    #[cold]
    pub fn resolved(
        &self,
        record: &Record,
        connection: Connection<'static>,
        waits: bool,
    ) -> Connection<'static> {
        let (discovery, asked) = (self.discovery, record.question());
        // The kernel's own answer is the right one for a socket that is not connected.
        if !stream::is_established(connection.fd()) {
            return connection;
        }
        let resolve = || {
            connection.resolve(|| {
                let question = record.question()?;
                if !is_own(record) {
                    // Who asked says soon what is so, unless it has ended or makes no more calls. What this process
                    // says first holds for that one as well.
                    let is_left_alone = connection.slot().age_ms() > LEFT_TO_PARENT_MS
                        || process::has_ended(record.asked_by());
                    return is_left_alone.then_some(false);
                }
                match discovery.map(|discovery| discovery.outcome(question, waits)) {
                    Some(Outcome::Waits(_)) => None,
                    Some(Outcome::Yes) => Some(true),
                    Some(Outcome::No) | None => Some(false),
                }
            })
        };
        let mut known = resolve();
        while known.is_none() && waits && !is_own(record) {
            sched::pause(LOOK_EVERY);
            known = resolve();
        }
        if known.is_none() {
            return connection;
        }
        if let Some(question) = asked {
            record.end_question(question);
        }
        show_octets(record, connection);
        connection.free()
    }

    /// A receive was refused, or what the kernel reports as readable is hidden, as it is not known what the other end
    /// is: whoever waits for an edge is given one when it is.
    pub fn hide_octets(&self, record: &Record, connection: Connection<'static>) {
        connection.slot().set_hides_octets();
        // Another thread may have come to know meanwhile, and have found nothing hidden.
        if record.question().is_none() {
            show_octets(record, connection);
        }
    }

    /// Whether it is not known yet what the other end is: what is hidden of the socket may be shown soon.
    pub fn is_asking(&self, record: &Record) -> bool {
        record.question().is_some()
    }

    /// The program's connect is through. Whether it waits for the answer: not where the last one was yes, as the
    /// program's next call does.
    pub fn waits_for_answer(&self, fd: i32) -> bool {
        let known = beside::peer_end(fd)
            .zip(self.discovery)
            .map(|(server, discovery)| discovery.known(server));
        known != Some(Known::Yes)
    }

    /// Nobody is to hear the answer.
    pub(super) fn forget_question(&self, record: &Record) {
        if let Some((question, discovery)) = record.question().zip(self.discovery) {
            if is_own(record) {
                discovery.give_up(question);
            }
            record.end_question(question);
        }
    }

    /// The process is about to fork. A question is one process's, and the connection is both's: where the answer has
    /// not come it is TCP.
    pub(super) fn settle_questions(&self) {
        let records = self.records.taken();
        records.for_each(|record| self.settle_question(record));
    }

    /// The connection of the record ends, or another process is about to have it: where the answer has not come it is
    /// TCP, and what was kept leaves as it is.
    pub(super) fn settle_question(&self, record: &Record) {
        let Some((question, discovery)) = record.question().zip(self.discovery) else {
            return;
        };
        // Its parent's, which settles it.
        if !is_own(record) {
            return;
        }
        // The number matters to no part of this.
        let Some(connection) = self.connection(record, -1) else {
            return;
        };
        let known = connection.resolve(|| {
            // Another thread may have closed the socket meanwhile, and its slot be the next one's.
            let is_still_asked = record.question() == Some(question);
            is_still_asked.then(|| discovery.outcome(question, false) == Outcome::Yes)
        });
        if known.is_some() && record.end_question(question) {
            discovery.give_up(question);
            show_octets(record, connection);
        }
    }

    /// The socket listens from now on: others may be told that Weft is here.
    pub fn listened(&self, record: &Record, fd: i32) {
        if let Some(discovery) = self.asked_for(record) {
            discovery.listen(record.number, fd);
        }
    }

    /// The program accepts from the socket.
    pub(super) fn accepts(&self, record: &Record, fd: i32) {
        if let Some(discovery) = self.asked_for(record) {
            discovery.serve(record.number, fd);
        }
    }

    /// What answers for the listener, if its connections may be DDP.
    fn asked_for(&self, record: &Record) -> Option<&'static Discovery> {
        self.discovery
            .filter(|_| record.standing().state == State::Ddp)
    }

    /// The program is about to bind a UDP socket to this address.
    pub fn binding_beside(&self, name: &[u8]) {
        if let Some((discovery, at)) = self.discovery.zip(beside::socket_addr(name)) {
            discovery.give_way(at.port());
        }
    }
}
