//! Where DDP takes a connection over.

use std::sync::atomic::Ordering;

use weft_os::{forking, process, stream};
use weft_settings::streams::Mode;

use super::standing::{Reason, Standing, State};
use super::{Record, Streams};
use crate::ddp::{self, Beginning, Connection, Received, Settled};
use crate::verdict::Verdict;

impl Streams {
    /// Begins DDP on a socket that is about to connect and asks nobody. Gives how its octets go, why, and what is left
    /// to do of the program's call: it fails where there is no room for another connection.
    pub(super) fn begin_ddp(&self, record: &Record, fd: i32) -> (State, Reason, Verdict) {
        // Of a connect that failed.
        self.end_ddp(record);
        match self.take_slot(record, fd, ddp::State::Connecting) {
            true => (State::Ddp, Reason::None, Verdict::Kernel),
            false => (
                State::Undecided,
                Reason::NoRoom,
                Verdict::Done(Err(libc::ENOBUFS)),
            ),
        }
    }

    /// Gives the connection of this record, whose socket is `fd` and which is being connected, a slot; whether there
    /// was one.
    pub(super) fn take_slot(&self, record: &Record, fd: i32, state: ddp::State) -> bool {
        let slot = self.new_slot(record, fd, state);
        self.enter_slot(record, slot, |slot| {
            record.set_slot(slot);
            true
        });
        slot.is_some()
    }

    /// A slot for the socket `fd` of this record, which does not have it yet.
    fn new_slot(&self, record: &Record, fd: i32, state: ddp::State) -> Option<u32> {
        let slots = self.slots.as_ref()?;
        let inode = record.references.inode();
        let number = slots.take(state, inode, self.crc, stream::network(fd))?;
        if let Some(slot) = slots.get(number) {
            slot.set_map_entries(self.map_entries(record));
        }
        Some(number)
    }

    /// `enter` gives the record this slot, if it may have it; whether it has.
    fn enter_slot(
        &self,
        record: &Record,
        slot: Option<u32>,
        enter: impl FnOnce(Option<u32>) -> bool,
    ) -> bool {
        let before = forking::before();
        record.set_used_here();
        if !enter(slot) {
            return false;
        }
        self.connections
            .fetch_add(u32::from(slot.is_some()), Ordering::Relaxed);
        // A thread that forks has marked what had a slot before.
        if let (Some(slots), Some(slot), true) = (self.slots, slot, before.may_have_child()) {
            slots.share(slot);
        }
        true
    }

    /// The connection over DDP behind `fd`, if it is one.
    #[inline]
    pub fn connection(&self, record: &Record, fd: i32) -> Option<Connection<'static>> {
        let slot = match record.slot() {
            Ok(slot) => slot?,
            // The program's own call looks, with the descriptor.
            Err(_) if fd < 0 => return None,
            Err(_) => self.look_up(record, fd)?,
        };
        let maps = self.mapped.as_ref().and_then(|mapped| mapped.of(slot));
        let is_held = record.question().is_some();
        let connection = Connection::new(self.slots.as_ref()?.get(slot)?, fd)
            .with_discovery(self.discovery)
            .with_maps(maps);
        if !record.is_used_here() && !self.use_here(record, slot, fd) {
            return None;
        }
        Some(if is_held {
            connection.held()
        } else {
            connection
        })
    }

    /// This process makes its first call on a connection that it has from another. False where its slot has become
    /// somebody else's: the connection had ended both ways, and nobody was known to have it.
    #[cold]
    fn use_here(&self, record: &Record, slot: u32, fd: i32) -> bool {
        let slots = self.slots.as_ref();
        if slots.is_some_and(|slots| slots.enter(slot, record.references.inode())) {
            record.set_used_here();
            return true;
        }
        if fd >= 0 {
            self.forget_slot(record);
            let standing = Standing {
                state: State::Tcp,
                reason: Reason::NoRoom,
                ..record.standing()
            };
            self.stand(record, standing);
            // What lies in the socket is framed, and nobody knows any more how.
            weft_settings::warn!(
                "a DDP socket was reset: its state is another connection's by now"
            );
            stream::reset(fd);
        }
        false
    }

    /// A connection was accepted for which there is no slot: as long as its peer has sent nothing it may ask for DDP.
    #[cold]
    fn go_without_room(&self, record: &Record, fd: i32) {
        if fd < 0 {
            return;
        }
        if record.set_lacks_room() {
            let standing = Standing {
                state: State::Tcp,
                reason: Reason::NoRoom,
                ..record.standing()
            };
            self.stand(record, standing);
            if !self.is_full_told.swap(true, Ordering::Relaxed) {
                weft_settings::warn!(
                    "{} connections over DDP are open, and there is no room for more: others are TCP, and peers that \
                     ask for DDP are refused",
                    ddp::SLOTS_MAX
                );
            }
        }
        if record.lacks_room() && ddp::begins_with(fd) != Beginning::Nothing {
            record.enter_first(None);
        }
    }

    /// Finds the slot of a socket that was accepted, or that came from another process of the family.
    #[cold]
    fn look_up(&self, record: &Record, fd: i32) -> Option<u32> {
        let (standing, lacks_room) = (record.standing(), record.lacks_room());
        // A thread of the parent was about to take the slot of a connection that it had just accepted when the process
        // forked: a second one would be of the same socket.
        let is_its_own = record.is_used_here();
        if is_its_own && (standing.state == State::Ddp || lacks_room) {
            return self.look_up_accepted(record, fd, standing, lacks_room);
        }
        let found = self.slots.as_ref()?.find(record.references.inode());
        if !self.enter_slot(record, found, |slot| record.enter_first(slot)) {
            return record.slot().ok().flatten();
        }
        if found.is_some() {
            record.set_standing(Standing {
                mode: Some(Mode::Require),
                state: State::Ddp,
                reason: Reason::None,
            });
        }
        found
    }

    /// Gives a socket that was accepted a slot.
    fn look_up_accepted(
        &self,
        record: &Record,
        fd: i32,
        standing: Standing,
        lacks_room: bool,
    ) -> Option<u32> {
        let taken = match lacks_room {
            true => None,
            false => self.new_slot(record, fd, ddp::State::Accepted),
        };
        let (Some(number), Some(slots)) = (taken, self.slots) else {
            self.go_without_room(record, fd);
            return record.slot().ok().flatten();
        };
        if standing.mode == Some(Mode::Prefer) {
            slots.get(number)?.set_prefers();
        }
        // One thread of a program may make the first receive while another makes the first send. With a slot each, one
        // would take the Request and the other what follows it for octets of the program's.
        if !self.enter_slot(record, taken, |slot| record.enter_first(slot)) {
            slots.leave(number, record.references.inode());
            return record.slot().ok().flatten();
        }
        taken
    }

    /// Whether the connection was to be DDP, and its other end is not Weft.
    pub(super) fn went_plain(&self, record: &Record) -> bool {
        let slot = record.slot().ok().flatten();
        let slot = slot.and_then(|slot| self.slots.as_ref()?.get(slot));
        slot.is_some_and(|slot| {
            slot.goes_plain() || matches!(slot.state(), ddp::State::Plain | ddp::State::Late)
        })
    }

    /// Whether the connection is that of a process that lives, and this one, which has a copy of the descriptor, has
    /// never used it. It has nothing to do in it, then: a child that closes what it has no use for may be killed amid
    /// that.
    pub(super) fn is_anothers(&self, record: &Record) -> bool {
        let slot = record.slot().ok().flatten();
        let slot = slot.and_then(|slot| self.slots.as_ref()?.get(slot));
        !record.is_used_here() && slot.is_some_and(|slot| !slot.is_left_to(process::member()))
    }

    /// The socket is gone from this process.
    pub(super) fn end_ddp(&self, record: &Record) {
        if let (Some(slots), Ok(Some(slot))) = (&self.slots, record.slot()) {
            self.forget_slot(record);
            slots.leave(slot, record.references.inode());
        }
    }

    /// The record has no connection any more.
    pub(super) fn forget_slot(&self, record: &Record) {
        if let (Some(mapped), Ok(Some(slot))) = (&self.mapped, record.slot()) {
            mapped.forget(slot);
        }
        record.set_slot(None);
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.doubtful.remove(record.number as usize);
    }

    /// Whether the program can receive something from a socket that the kernel calls readable.
    pub fn is_readable(&'static self, record: &'static Record, fd: i32) -> bool {
        let Some(mut connection) = self.connection(record, fd) else {
            return true;
        };
        if connection.is_held() {
            connection = self.resolved(record, connection, false);
            if connection.is_asking() {
                self.hide_octets(record, connection);
            }
        }
        // What was doubtful when the kernel looked, the thread may have settled since.
        let is_doubtful = record.is_doubtful() || connection.is_doubtful();
        if !is_doubtful && connection.slot().low_water() == 1 {
            return true;
        }
        let was_plain = connection.slot().state() == ddp::State::Plain;
        // An error is something to be told.
        let settled = connection.settle();
        let is_readable = match settled {
            Ok(Settled::Open) => match connection.look() {
                Ok(Received::Octets(_)) => connection.has_low_water(),
                looked => looked != Ok(Received::Nothing),
            },
            // A connect that was refused is told by a call that receives.
            Ok(Settled::Waits | Settled::Late) => {
                connection.before_start() == Received::End
                    || stream::state(fd) == Some(stream::State::Closed)
            }
            // The program's own mark is the kernel's from now on.
            Ok(Settled::Plain) => was_plain || connection.slot().low_water() == 1,
            Err(_) => true,
        };
        self.set_doubtful(record, connection.is_doubtful());
        // What came may be a part of a Request, whose rest is not waited for without end.
        if connection.needs_service() && !self.waiting.contains(record.number as usize) {
            self.leave_to_thread(record, connection);
        }
        is_readable
    }

    /// Whether there are any sockets of which the kernel may report framing.
    #[inline]
    pub fn has_doubtful(&self) -> bool {
        self.doubtful.any()
    }

    /// They.
    pub fn doubtful(&self) -> impl Iterator<Item = &'static Record> + '_ {
        self.doubtful
            .iter()
            .filter_map(|number| self.record(number))
    }

    pub(super) fn set_doubtful(&self, record: &Record, is_doubtful: bool) {
        record.set_doubtful(is_doubtful);
        match is_doubtful {
            true => self.doubtful.insert(record.number as usize),
            false => self.doubtful.remove(record.number as usize),
        }
    }

    /// The process is about to fork.
    pub(super) fn share_ddp(&self) {
        // Before anything is marked: what comes later is marked by whoever has it.
        forking::begin();
        self.settle_questions();
        let Some(slots) = &self.slots else { return };
        let taken = self
            .records
            .taken()
            .filter_map(|record| record.slot().ok()?);
        taken.for_each(|slot| slots.share(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovering::Room;
    use crate::stack::Stack;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use weft_os::testing::{await_child, fork};
    use weft_settings::streams::StreamRules;
    use weft_settings::Settings;
    use weft_stream::{start, Receiver};

    fn stack() -> &'static Stack {
        let settings = Settings {
            ddp: StreamRules::parse("require").unwrap(),
            ..Settings::default()
        };
        Box::leak(Box::new(Stack::new(&settings, &["tests"]).unwrap()))
    }

    fn record_of(stack: &'static Stack, fd: &impl AsRawFd) -> &'static Record {
        let number = stack.socket(fd.as_raw_fd()).unwrap().number;
        stack.kinds().streams.record(number).unwrap()
    }

    /// A client, and its connection as the listener's program has accepted it.
    fn accepted(stack: &'static Stack, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = listener.as_raw_fd();
        let _ = (stack.kinds().streams).accepting(record_of(stack, listener), fd);
        let known = stack.listener(fd);
        let (server, _) = listener.accept().unwrap();
        stack.accepted(known, server.as_raw_fd());
        (client, server)
    }

    /// All stacks of a process find the same memory by its name: one test at a time is at it.
    fn alone() -> std::sync::MutexGuard<'static, ()> {
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        ALONE.lock().unwrap_or_else(|lock| lock.into_inner())
    }

    /// As if nobody had ever had it: nothing is left that is freed later.
    fn forget(stack: &'static Stack, server: &TcpStream) {
        let streams = &stack.kinds().streams;
        let record = record_of(stack, server);
        if let Ok(Some(number)) = record.slot() {
            streams.forget_slot(record);
            streams.slots.unwrap().free(number as usize);
        }
    }

    #[test]
    fn without_room_plain_peers_are_served_and_those_that_ask_are_refused() {
        let _alone = alone();
        let (stack, listener) = (stack(), TcpListener::bind("127.0.0.1:0").unwrap());
        let streams = &stack.kinds().streams;
        let slots = streams.slots.unwrap();
        assert!(slots.has_room());
        slots.fill();
        assert!(!slots.has_room());
        let tcp = |record: &Record, server: &TcpStream| {
            let standing = streams.standing(record, server.as_raw_fd());
            (standing.state, standing.reason) == (State::Tcp, Reason::NoRoom)
        };
        let look = |server: &TcpStream| {
            let record = record_of(stack, server);
            let connection = streams.connection(record, server.as_raw_fd());
            assert!(connection.is_none() && tcp(record, server));
            record.lacks_room()
        };
        let (mut client, mut server) = accepted(stack, &listener);
        assert!(look(&server), "it may ask yet");
        client.write_all(b"plain").unwrap();
        while look(&server) {}
        let mut octets = [0; 5];
        server.read_exact(&mut octets).unwrap();
        assert_eq!(&octets, b"plain");

        let (mut client, mut server) = accepted(stack, &listener);
        let data = Receiver::connection_data(1, 0x1000, 2, 0x2000);
        client.write_all(&start::request(&data, false)).unwrap();
        while look(&server) {}
        assert!(server.read(&mut octets).is_err(), "nothing of the Request");
        assert!(client.read_to_end(&mut Vec::new()).is_err());
    }

    #[test]
    fn threads_that_look_at_a_connection_first_have_one_slot() {
        let _alone = alone();
        let (stack, listener) = (stack(), TcpListener::bind("127.0.0.1:0").unwrap());
        let streams = &stack.kinds().streams;
        let slots = streams.slots.unwrap();
        for _ in 0..200 {
            let taken = slots.taken();
            let (_client, server) = accepted(stack, &listener);
            let record = record_of(stack, &server);
            // Our own threads have no descriptor of a socket that is none of theirs to look at.
            assert!(streams.connection(record, -1).is_none());
            assert_eq!(slots.taken(), taken);
            let first = std::sync::Barrier::new(2);
            let look = || {
                first.wait();
                let connection = streams.connection(record, server.as_raw_fd());
                std::ptr::from_ref(connection.unwrap().slot()).addr()
            };
            let seen = std::thread::scope(|scope| {
                let looks = [(); 2].map(|()| scope.spawn(look));
                looks.map(|one| one.join().unwrap())
            });
            assert_eq!(seen[0], seen[1]);
            assert_eq!(slots.taken(), taken + 1);
            forget(stack, &server);
        }
    }

    #[test]
    fn a_connection_that_begins_while_a_thread_forks_is_the_childs_too() {
        let _alone = alone();
        let (stack, listener) = (stack(), TcpListener::bind("127.0.0.1:0").unwrap());
        let streams = &stack.kinds().streams;
        let is_shared = || {
            let (_client, server) = accepted(stack, &listener);
            let connection = streams.connection(record_of(stack, &server), server.as_raw_fd());
            let is_shared = connection.unwrap().slot().is_shared();
            forget(stack, &server);
            is_shared
        };
        let is_shared_elsewhere = || std::thread::scope(|scope| scope.spawn(is_shared).join());
        assert!(!is_shared());
        stack.before_fork();
        assert!(is_shared_elsewhere().unwrap());
        forking::over();
        assert!(!is_shared_elsewhere().unwrap());
    }

    /// A child that is made between the taking of a slot and the mark that others may have it.
    #[test]
    fn a_child_leaves_its_parent_what_that_was_amid_taking() {
        let _alone = alone();
        let (stack, listener) = (stack(), TcpListener::bind("127.0.0.1:0").unwrap());
        let streams = &stack.kinds().streams;
        let slots = streams.slots.unwrap();
        let (_client, server) = accepted(stack, &listener);
        let (record, fd) = (record_of(stack, &server), server.as_raw_fd());
        let slot = streams.connection(record, fd).unwrap().slot();
        let number = record.slot().unwrap().unwrap();
        assert!(!slot.is_shared());
        assert!(await_child(fork(|| {
            streams.end_ddp(record);
            true
        })));
        assert_eq!(slots.inode_of(number), record.references.inode());
        assert!(await_child(fork(|| {
            let connection = streams.connection(record, fd);
            connection.is_some_and(|connection| connection.slot().is_shared())
        })));
        assert!(slot.is_shared());
        forget(stack, &server);
    }

    #[test]
    fn a_child_that_closes_what_it_never_used_does_nothing_in_it() {
        let _alone = alone();
        let (stack, listener) = (stack(), TcpListener::bind("127.0.0.1:0").unwrap());
        let streams = &stack.kinds().streams;
        let (mut client, server) = accepted(stack, &listener);
        let (record, fd) = (record_of(stack, &server), server.as_raw_fd());
        let slot = streams.connection(record, fd).unwrap().slot();
        let data = Receiver::connection_data(1, 0x1000, 2, 0x2000);
        client.write_all(&start::request(&data, false)).unwrap();
        while stream::unread(fd) < start::START_LEN {}
        stack.before_fork();
        let child = fork(|| {
            stack.closing(fd);
            true
        });
        forking::over();
        assert!(await_child(child));
        assert_eq!(slot.state(), ddp::State::Accepted, "the Request is unread");
        assert!(streams.connection(record, fd).unwrap().settle().is_ok());
        assert_ne!(slot.state(), ddp::State::Accepted);
        forget(stack, &server);
    }

    #[test]
    fn a_child_takes_no_slot_for_what_its_parent_was_about_to() {
        let _alone = alone();
        let (stack, listener) = (stack(), TcpListener::bind("127.0.0.1:0").unwrap());
        let streams = &stack.kinds().streams;
        let slots = streams.slots.unwrap();
        let (_client, server) = accepted(stack, &listener);
        let (record, fd) = (record_of(stack, &server), server.as_raw_fd());
        let before = slots.taken();
        let child = fork(|| streams.connection(record, fd).is_none());
        assert!(await_child(child));
        assert_eq!(slots.taken(), before);
        assert!(streams.connection(record, fd).is_some());
        assert_eq!(slots.taken(), before + 1);
        forget(stack, &server);
    }

    /// A child that has never used a connection has its parent's number for it, which may be another's by now.
    #[test]
    fn who_comes_late_to_a_connection_ends_it_and_harms_no_other() {
        let _alone = alone();
        let (stack, listener) = (stack(), TcpListener::bind("127.0.0.1:0").unwrap());
        let streams = &stack.kinds().streams;
        let slots = streams.slots.unwrap();
        let (_client, server) = accepted(stack, &listener);
        let record = record_of(stack, &server);
        let slot = streams
            .connection(record, server.as_raw_fd())
            .unwrap()
            .slot();
        streams.share_ddp();
        let child = fork(|| streams.connection(record, server.as_raw_fd()).is_some());
        assert!(await_child(child));
        let number = record.slot().ok().flatten().unwrap();
        slots.free(number as usize);
        let taken = slots.take(ddp::State::Accepted, 77, false, None);
        assert_eq!(taken, Some(number));
        let child = fork(|| {
            slots.share(number);
            let connection = streams.connection(record, server.as_raw_fd());
            streams.end_ddp(record);
            connection.is_none() && stream::state(server.as_raw_fd()) == Some(stream::State::Closed)
        });
        assert!(await_child(child));
        assert_eq!(
            (slots.find(77), slot.state()),
            (taken, ddp::State::Accepted)
        );
    }
}
