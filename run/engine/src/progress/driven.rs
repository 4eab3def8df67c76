//! Parts of a network that whoever serves the engine runs: a device with its protocols.

use std::fmt::Debug;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_os::poll::Interest;

use super::member::{Member, Served, Token};
use super::{Progress, Source};
use crate::error::Error;
use crate::stats::InterfaceRow;

/// A part of a network that has to be run, by whatever thread comes by. It is a source too: when its descriptor is
/// ready it is run.
pub trait Drive: Source + Sync {
    /// Takes what arrived, sends what is due and tells its connections what became ready. Called from any thread,
    /// several at once if need be. False when its descriptor is not to be watched any more: what it stood for is gone.
    fn run(&self) -> bool;

    /// Where it tells of its interface from now on.
    fn show(&self, _row: InterfaceRow) {}

    /// Where it says from now on when it is to be run at the latest.
    fn set_alarm(&self, alarm: Arc<dyn Alarm>);
}

/// Runs something later.
pub trait Alarm: Debug + Send + Sync {
    /// It is run once this time is over, or somewhat later. May be called under any lock of the network's.
    fn within(&self, time: Duration);
}

/// A part of the network as a member of the set.
#[derive(Debug)]
struct Driven<P> {
    what: Arc<dyn Drive>,
    owner: Weak<P>,
}

impl<P: AsRef<Progress> + Debug + Send + Sync> Member for Driven<P> {
    fn serve(&self, _writable: bool) -> Served {
        if !self.what.run() {
            if let (Some(owner), Some(fd)) = (self.owner.upgrade(), self.what.descriptor()) {
                // Ready for ever, it would keep whoever sleeps in the set awake.
                (*owner).as_ref().epoll.remove(fd);
            }
        }
        Served::Setup
    }

    fn on_timer(&self) {
        self.what.run();
    }
}

/// A timer of the engine's.
#[derive(Debug)]
struct Timer<P> {
    owner: Weak<P>,
    token: Token,
}

impl<P: AsRef<Progress> + Debug + Send + Sync> Alarm for Timer<P> {
    fn within(&self, time: Duration) {
        if let Some(owner) = self.owner.upgrade() {
            let progress = (*owner).as_ref();
            progress.add_timer(progress.clock.now() + time, self.token);
        }
    }
}

/// Runs a part of a network from now on, for whoever holds the progress.
///
/// # Errors
/// The kernel has no memory for it.
pub(crate) fn drive(
    owner: &Arc<impl AsRef<Progress> + Debug + Send + Sync + 'static>,
    what: Arc<dyn Drive>,
) -> Result<(), Error> {
    let progress: &Progress = (**owner).as_ref();
    let member = Arc::new(Driven {
        what: what.clone(),
        owner: Arc::downgrade(owner),
    });
    let token = progress.add_source(&*what, member, Interest::Read)?;
    if let Some(fd) = what.descriptor() {
        progress.driven.lock().push((fd.as_raw_fd(), token));
    }
    what.set_alarm(Arc::new(Timer {
        owner: Arc::downgrade(owner),
        token,
    }));
    Ok(())
}
