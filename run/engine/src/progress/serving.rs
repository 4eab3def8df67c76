//! Serving what is ready, and what a thread that polls does.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use weft_os::poll::READY_MAX;

use super::lease::EMPTY_POLLS_MIN;
use super::member::{Member, Served, Token};
use super::polling::{self, Taken};
use super::wakeups::Mode;
use super::{Progress, WAKER};
use crate::error::Error;

/// A poller that reads the member which was active last sweeps the whole set on every so many looks.
pub(super) const SWEEP_EVERY_LOOKS: u32 = 16;
/// Members that a sweep without waiting serves at most. Who polls has the first messages sooner, answers them while
/// their connections are still in the core's cache, and is back within a tick.
const SWEEP_MEMBERS_MAX: usize = 8;
/// So many times in a row a sweep finds nothing but the member that was active last before pollers read that directly.
const ALONE_SWEEPS_MIN: u32 = 4;
/// How long a thread sleeps that polls in vain while others need its core. Work that the program hands it by memory
/// alone waits for so long.
const SLEEP_OF_CROWDED_POLLER: Duration = Duration::from_micros(50);

thread_local! {
    /// Looks of this thread.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

/// What a look at the epoll set came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Swept {
    /// Members with messages that were ready.
    carriers: usize,
    /// Among them one that was not the one active before.
    others: bool,
    /// Any member was ready.
    pub(super) any: bool,
    /// The waker was ready.
    pub(super) woken: bool,
}

/// What one look at the epoll set has come to so far.
#[derive(Debug, Default)]
struct Round {
    swept: Swept,
    /// The member that was active before.
    hot: Option<Arc<dyn Member>>,
    /// One that had octets of messages.
    active: Option<Arc<dyn Member>>,
}

impl Round {
    fn note(&mut self, member: Arc<dyn Member>, served: Served) {
        self.swept.any = true;
        if served != Served::Setup {
            let is_hot = self
                .hot
                .as_ref()
                .is_some_and(|hot| Arc::ptr_eq(hot, &member));
            self.swept.carriers += 1;
            self.swept.others |= !is_hot;
        }
        if served == Served::Active {
            self.active = Some(member);
        }
    }
}

impl Progress {
    /// Serves whatever is ready, waiting at most `timeout` for it.
    pub(super) fn serve_ready(&self, timeout: Option<Duration>) -> Result<Swept, Error> {
        let mut round = Round {
            hot: self.hot.read().clone(),
            ..Round::default()
        };
        let sleeps = timeout != Some(Duration::ZERO);
        let most = match sleeps {
            true => READY_MAX,
            false => SWEEP_MEMBERS_MAX,
        };
        let sweep = self.ready.sweep(sleeps);
        let asleep = sleeps.then(|| {
            self.fall_asleep(|member| {
                let served = member.serve(false);
                round.note(member, served);
            })
        });
        let said = self.ready.take();
        let timeout = match said.is_empty() && !round.swept.any {
            true => timeout,
            false => Some(Duration::ZERO),
        };
        for &(token, writable) in said.iter() {
            self.serve_member(token, writable, &mut round);
        }
        drop(said);
        self.epoll.wait(timeout, most, |ready| match ready.token {
            WAKER => round.swept.woken = true,
            token => self.serve_member(Token::from_number(token), ready.writable, &mut round),
        })?;
        // A device that was served has made connections ready.
        for &(token, writable) in self.ready.take().iter() {
            self.serve_member(token, writable, &mut round);
        }
        drop(sweep);
        drop(asleep);
        if !sleeps {
            self.look_at_silent(|member, served| round.note(member, served));
        }
        if let Some(member) = round.active {
            self.note_active(&member);
        }
        Ok(round.swept)
    }

    fn serve_member(&self, token: Token, writable: bool, round: &mut Round) {
        round.swept.any = true;
        let member = self.members.read().get(token);
        if let Some(member) = member {
            let served = member.serve(writable);
            round.note(member, served);
        }
    }

    /// What a poll of an empty completion queue does before it looks again. Gives whether the peer is to acknowledge
    /// Writes of the connection it looked at.
    pub(crate) fn poll(&self) -> bool {
        let look = LOOKS.with(|looks| {
            let look = looks.get().wrapping_add(1);
            looks.set(look);
            look
        });
        let always = self.sweep_always.load(Ordering::Relaxed);
        let hot = match always {
            true => None,
            false => self.hot.read().clone(),
        };
        self.end_lease_of_others(hot.as_ref());
        let mut unacknowledged = false;
        if let Some(member) = hot {
            let hints = member.poll();
            unacknowledged = hints.unacknowledged;
            if hints.waits_for_one && self.is_poll_of_one_who_waits() {
                self.lease.give(&member);
            }
        }
        if always || look.is_multiple_of(SWEEP_EVERY_LOOKS) {
            self.sweep_as_poller(always);
        }
        unacknowledged
    }

    /// Sleeps in the set for a moment, and serves what is ready: a thread that polls in vain while others need its
    /// core.
    pub(crate) fn nap(&self) {
        self.end_lease();
        // What fails here the next look finds.
        let swept = self.serve_ready(Some(SLEEP_OF_CROWDED_POLLER));
        if swept.is_ok_and(|swept| swept.woken) {
            self.wakeups.napped(self);
        }
        self.wakeups.swept();
    }

    /// A poll took what was there.
    #[inline]
    pub(crate) fn note_take(&self, taken: Taken) {
        if self.polls.note_take(taken) {
            self.note_polling();
        }
        if taken.left && self.wakeups.is_due() {
            self.sweep_as_poller(self.sweep_always.load(Ordering::Relaxed));
        }
    }

    /// A poll found nothing at first, looked, and took what that brought.
    #[inline]
    pub(crate) fn note_look(&self, taken: Taken, unacknowledged: bool) {
        if self.polls.note_look(taken, unacknowledged) {
            self.note_polling();
        }
    }

    fn sweep_as_poller(&self, always: bool) {
        let swept = self.serve_ready(Some(Duration::ZERO)).unwrap_or_default();
        self.wakeups.swept();
        self.note_swept(always, &swept);
    }

    /// Decides whether pollers look at the set or at one member first. Where the set shows others than the one that was
    /// active last it is the quicker way to the next one; where it shows that one alone for a while, reading it
    /// directly is.
    fn note_swept(&self, always: bool, swept: &Swept) {
        if swept.carriers == 0 {
            return;
        }
        let alone = match swept.others {
            true => 0,
            false => self.alone.load(Ordering::Relaxed) + 1,
        };
        self.alone.store(alone, Ordering::Relaxed);
        let wanted = swept.others || (always && alone < ALONE_SWEEPS_MIN);
        if wanted != always {
            self.sweep_always.store(wanted, Ordering::Relaxed);
        }
    }

    /// Whether the calling thread polls again and again, beside a service thread that sleeps in the set.
    fn is_poll_of_one_who_waits(&self) -> bool {
        polling::empty_in_a_row() >= EMPTY_POLLS_MIN && self.wakeups.mode() == Mode::Served
    }

    /// Ends the lease unless it is of the member that pollers read first.
    #[inline]
    fn end_lease_of_others(&self, hot: Option<&Arc<dyn Member>>) {
        if self.lease.any() && !hot.is_some_and(|hot| self.lease.is_of(hot)) {
            self.lease.end();
        }
    }
}
