//! Calls that wait: a call holds its socket until it returns, whatever becomes of its descriptor meanwhile (close(2)).
//!
//! Another thread may close the number or give it to something else. Who closes it leaves a descriptor of our own to
//! the calls that wait, and the last of them closes that.

use std::sync::atomic::Ordering;

use weft_os::lock::Locked;
use weft_os::{file, process};

use super::lingering::{close_own, is_still, DESCRIPTORS_FROM};
use super::{Record, Streams};

impl Streams {
    /// A call on the socket is about to wait; false where the socket is gone already. [`Streams::let_go`] follows.
    pub fn hold(&self, record: &Record) -> bool {
        forget_inherited(record);
        let held = record.references.add(record.references.inode());
        if held {
            record.waiters.fetch_add(1, Ordering::AcqRel);
        }
        held
    }

    /// The descriptor for a call that has waited, where the number that it was made with is closed; nothing where the
    /// program has closed that too.
    pub fn stand_in(&self, record: &Record) -> Option<i32> {
        match record.stand_in.lock() {
            Locked::Held(fd) | Locked::Orphaned(fd) => {
                Some(*fd).filter(|fd| is_still(*fd, record.references.inode()))
            }
            Locked::Again => None,
        }
    }

    /// `fd` is about to be closed.
    pub(super) fn leave_stand_in(&self, record: &Record, fd: i32) {
        forget_inherited(record);
        let waiters = record.waiters.load(Ordering::Acquire);
        if waiters == 0 {
            return;
        }
        // What the calls hold are no descriptors: with this one the last is gone.
        if record.references.are_no_more_than(waiters + 1) {
            self.epolls.take_out(fd);
        }
        if let Locked::Held(mut stand_in) | Locked::Orphaned(mut stand_in) = record.stand_in.lock()
        {
            if *stand_in < 0 {
                *stand_in = file::duplicate(fd, DESCRIPTORS_FROM).unwrap_or(-1);
            }
        }
    }

    /// `fd` is about to be closed. Where that is the program's last descriptor its mapped memory is its own again at
    /// once, although calls that wait go on with the connection.
    pub(super) fn give_memory_back(&'static self, record: &Record, fd: i32) {
        let waiters = record.waiters.load(Ordering::Acquire);
        if waiters > 0 && record.references.count() <= waiters + 1 {
            if let Some(connection) = self.connection(record, fd) {
                connection.unmap_all();
            }
        }
    }

    /// A call that has waited is over. The reference that it held is still to be given back.
    pub(crate) fn let_go(&'static self, record: &Record) {
        if record.waiters.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let (Locked::Held(mut stand_in) | Locked::Orphaned(mut stand_in)) = record.stand_in.lock()
        else {
            return;
        };
        let fd = std::mem::replace(&mut *stand_in, -1);
        drop(stand_in);
        if fd >= 0 {
            let inode = record.references.inode();
            if record.references.is_last() && is_still(fd, inode) {
                self.wind_up(record, fd);
            }
            close_own(fd, inode);
        }
    }
}

/// A forked child has none of the threads that wait in its parent, and takes back what they hold here.
fn forget_inherited(record: &Record) {
    let own = process::id();
    if record.waiters_of.swap(own, Ordering::AcqRel) == own {
        return;
    }
    for _ in 0..record.waiters.swap(0, Ordering::AcqRel) {
        // Never the last: the descriptor is there that the call is about.
        record.references.remove();
    }
    if let Locked::Held(mut stand_in) | Locked::Orphaned(mut stand_in) = record.stand_in.lock() {
        *stand_in = -1;
    }
}
