//! What the hooks ask of a socket of ours, of whatever kind it is.

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use weft_os::user::UserBuffers;
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

/// Where the address and the control messages of what is received go.
#[derive(Clone, Copy)]
pub enum Beside {
    /// Nowhere.
    Nothing,
    /// The address, and its length in and out.
    Name(*mut sockaddr, *mut socklen_t),
    /// Both, by way of a message.
    Message(*mut msghdr, msghdr),
}

/// A socket of ours behind a descriptor, for the time of one call.
///
/// Where a call's result is the kernel's, `real` makes the same call of the C library; with it errno is set as that set
/// it. A result of -1 has errno set.
pub trait Socket: Copy {
    /// The program sends `data` to `to` (nothing: the connected peer).
    fn send(self, to: Option<&[u8]>, data: &UserBuffers, flags: c_int) -> Verdict;

    /// The kernel is to send something that must not overtake what waits.
    fn make_way(self, flags: c_int) -> Verdict;

    /// The program receives into `room` (nothing: buffers that only the kernel can deal with); gives the call's result.
    fn receive(
        self,
        room: Option<&UserBuffers>,
        flags: c_int,
        beside: Beside,
        real: impl FnOnce() -> isize,
    ) -> isize;

    /// `recvmmsg`.
    fn receive_messages(
        self,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
        real: impl FnOnce() -> c_int,
    ) -> c_int;

    /// What waits leaves, before a call that concerns the socket as a whole.
    fn flush(self);

    /// The socket is about to be connected, perhaps elsewhere.
    fn connecting(self);

    /// The socket is about to be shut down: for what `how` says, as `shutdown` has it.
    fn shutting_down(self, how: c_int);

    /// The program is about to set an option.
    fn setting_option(self, level: c_int, option: c_int);

    /// The error of a send that nobody waited for, which `SO_ERROR` gives before the kernel's own.
    fn take_error(self) -> Option<Errno>;

    /// What `FIONREAD` gives; nothing if the kernel knows that itself.
    fn next_len(self) -> Option<usize>;
}
