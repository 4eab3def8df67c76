//! What a call that waits holds.
//!
//! A handler may jump out of the wait (`siglongjmp`), and then nothing tells the call that it is over. So a thread
//! remembers where on its stack it waits: once it is above that place, the wait is no more.

use std::cell::Cell;

use weft_sockets::ddp::Connection;
use weft_sockets::stack::Kind;
use weft_sockets::tcp::Record;

use super::TcpSocket;
use crate::edge::{caught, errno, fail};
use crate::stack::stack;

/// Waits of a thread that are remembered: one, and those of handlers that interrupted it.
const WAITS_MAX: usize = 4;

/// A wait of a thread.
#[derive(Clone, Copy)]
struct Waiting {
    record: &'static Record,
    /// The call's.
    hold: usize,
    /// Where it waits.
    at: usize,
}

thread_local! {
    static WAITS: Cell<[Option<Waiting>; WAITS_MAX]> = const { Cell::new([None; WAITS_MAX]) };
}

/// The thread is in no call that waits on the stack above `here`, the address of something in the caller's frame:
/// what such calls held, out of which a handler has jumped, is given back.
pub fn forget_left(here: usize) {
    let mut waits = WAITS.get();
    if waits.iter().all(Option::is_none) || is_on_other_stack() {
        return;
    }
    for place in &mut waits {
        let Some(left) = place.filter(|waiting| waiting.at < here) else {
            continue;
        };
        *place = None;
        WAITS.set(waits_without(left.hold));
        if let Some(stack) = stack() {
            caught((), || stack.let_go_of_stream(left.record));
        }
    }
}

fn waits_without(hold: usize) -> [Option<Waiting>; WAITS_MAX] {
    WAITS
        .get()
        .map(|waiting| waiting.filter(|waiting| waiting.hold != hold))
}

/// Whether a handler runs on a stack of its own: places there and on the thread's own say nothing of each other.
fn is_on_other_stack() -> bool {
    let mut now = std::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: fills `now`, for which zeros are a value.
    unsafe {
        libc::sigaltstack(std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().ss_flags & libc::SS_ONSTACK != 0
    }
}

/// The socket of a call, once that has waited. Gives it back when dropped, where the thread is cancelled too.
pub struct Hold {
    socket: TcpSocket,
    is_held: bool,
    /// It stands in the thread's list.
    is_noted: bool,
}

impl Hold {
    /// Nothing yet.
    pub fn new(socket: TcpSocket) -> Hold {
        Hold {
            socket,
            is_held: false,
            is_noted: false,
        }
    }

    /// The call waits; then gives the socket by a descriptor that is still its own, and the connection.
    pub fn across<T>(
        &mut self,
        connection: &mut Connection<'static>,
        wait: impl FnOnce(TcpSocket) -> T,
    ) -> T {
        // What only the service thread may do has to be known to it while this one waits.
        self.socket.called(*connection);
        if !self.is_held {
            let socket = self.socket;
            forget_left(std::ptr::from_ref(self).addr());
            self.is_held = caught(false, || socket.sockets().hold(socket.record));
        }
        self.note_place();
        let waited = wait(self.socket);
        let saved = errno();
        caught((), || self.look_where(connection));
        if connection.is_held() {
            *connection = self.socket.resolved(*connection, libc::MSG_DONTWAIT);
        }
        fail(saved);
        waited
    }

    /// The call waits below this place of the stack.
    #[inline(never)]
    fn note_place(&mut self) {
        let here = 0u8;
        let (hold, at) = (
            std::ptr::from_ref(self).addr(),
            std::ptr::from_ref(&here).addr(),
        );
        let record = self.socket.record;
        let waiting = Waiting { record, hold, at };
        let mut waits = waits_without(hold);
        if let Some(place) = waits
            .iter_mut()
            .find(|place| place.is_none())
            .filter(|_| self.is_held)
        {
            *place = Some(waiting);
            WAITS.set(waits);
            self.is_noted = true;
        }
    }

    /// The socket, by a descriptor that is its own.
    pub fn socket(&self) -> TcpSocket {
        self.socket
    }

    fn look_where(&mut self, connection: &mut Connection<'static>) {
        let socket = &mut self.socket;
        let number = socket.record.number();
        if socket.stack.is_known_as(socket.fd, Kind::Streams, number) {
            return;
        }
        // Without one the number is somebody else's by now, or nobody's: what the call does next is EBADF.
        let fd = socket.sockets().stand_in(socket.record).unwrap_or(-1);
        socket.fd = fd;
        *connection = connection.with_fd(fd);
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        if self.is_held {
            self.give_back();
        }
    }
}

impl Hold {
    #[inline(never)]
    fn give_back(&mut self) {
        let hold = std::ptr::from_ref(self).addr();
        let is_listed = || {
            WAITS
                .get()
                .iter()
                .flatten()
                .any(|waiting| waiting.hold == hold)
        };
        // What was taken for left has been given back.
        if !self.is_noted || is_listed() {
            let saved = errno();
            WAITS.set(waits_without(hold));
            caught((), || {
                self.socket.stack.let_go_of_stream(self.socket.record)
            });
            fail(saved);
        }
    }
}
