//! Looking at members that nobody wakes this process for, and arming their bells before somebody sleeps.

use std::sync::{Arc, Weak};

use super::member::{Looked, Member, Quiet, Served, Token};
use super::Progress;

/// A member that whoever polls looks at.
#[derive(Debug)]
pub(super) struct Watched {
    member: Weak<dyn Member>,
    quiet: Option<Arc<dyn Quiet>>,
}

impl Watched {
    fn is_quiet(&self) -> bool {
        self.quiet.as_ref().is_some_and(|quiet| quiet.is_quiet())
    }

    fn member(&self) -> Option<Arc<dyn Member>> {
        self.member.upgrade()
    }
}

/// A thread that sleeps in the set, until this is dropped.
#[derive(Debug)]
pub(super) struct Asleep<'a>(&'a Progress);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.silent.end_sleep();
    }
}

impl Progress {
    /// Whoever polls looks at this member from now on; false where its bell is to be armed instead. `quiet` is asked
    /// before the member is.
    pub(crate) fn look_at(&self, member: &Weak<dyn Member>, quiet: Option<Arc<dyn Quiet>>) -> bool {
        let member = member.clone();
        self.silent.add(Watched { member, quiet })
    }

    /// A member is ready without showing it: whoever serves comes by.
    pub(crate) fn serve_soon(&self, token: Token) {
        self.readiness(token).set(false);
    }

    /// The calling thread is about to sleep in the set. Calls `each` for the members that have something already.
    pub(super) fn fall_asleep(&self, mut each: impl FnMut(Arc<dyn Member>)) -> Asleep<'_> {
        self.silent.begin_sleep();
        let asleep = Asleep(self);
        while let Some(listed) = self.silent.take() {
            if let Some(member) = listed.member.upgrade().filter(|member| member.arm()) {
                each(member);
            }
        }
        asleep
    }

    /// Looks at the members that nobody wakes this process for, and calls `each` for those that were served. Gives
    /// whether there are any.
    pub(super) fn look_at_silent(&self, mut each: impl FnMut(Arc<dyn Member>, Served)) -> bool {
        let mut place = Some(0);
        while let Some(from) = place {
            let found = match self.silent.next(from, Watched::is_quiet, Watched::member) {
                Ok(found) => found,
                Err(any) => return any,
            };
            place = found.next;
            let entry = found.entry;
            let Some(member) = found.member else {
                self.silent.remove(entry);
                continue;
            };
            let looked = member.look();
            if looked == Looked::Elsewhere {
                self.silent.remove(entry);
                continue;
            }
            let is_idle = self.silent.looked(looked != Looked::Nothing, entry);
            if let Looked::Served(served) = looked {
                each(member, served);
            } else if is_idle && member.arm() {
                let served = member.serve(false);
                each(member, served);
            }
        }
        true
    }
}
