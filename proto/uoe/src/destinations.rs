//! Which destinations are worth asking for, and when: whether there is Weft at the other end.
//!
//! Nobody is asked who is not sent to busily: a resolver's peers, and victims of forged sources, get a few datagrams
//! each. Who does not answer is left alone for a minute, then two, up to an hour. How an asking goes is
//! `proto/discovery`'s (decision 0030).

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::end::End;

/// Datagrams to one destination, within [`BUSY_WITHIN`], that make it worth asking for.
pub const BUSY_SENDS: u32 = 16;
/// See [`BUSY_SENDS`].
pub const BUSY_WITHIN: Duration = Duration::from_millis(100);
/// How long a destination is left alone that did not answer; doubled each time.
pub const PAUSE_MIN: Duration = Duration::from_secs(60);
/// The same for one that had a channel, which has mostly been started anew and is back soon.
pub const PAUSE_AFTER_CHANNEL: Duration = Duration::from_millis(500);
/// The same for one that is Weft, and whose address no datagram proved: UDP may not pass, or its queue was full as the
/// proofs came, which passes soon.
pub const PAUSE_UNPROVEN: Duration = Duration::from_secs(2);
/// How long an asking may take. Who asked may be gone without a word.
pub const ASKING_TIMEOUT: Duration = Duration::from_secs(10);
/// The most.
pub const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Askings of a process: so many at once, and so many more each second.
pub const ASKS_PER_SECOND: u32 = 10;

const WAYS: usize = 4;
const SETS: usize = 256;
/// Destinations that are remembered at most. Of those that share a place, the one that was sent to least lately makes
/// room, but for those with a carrier.
pub const DESTINATIONS_MAX: usize = SETS * WAYS;

/// What is known of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Send plainly.
    Plain,
    /// It is to be asked for now. This is said once; then it is plain until the answer.
    Ask,
    /// It has a channel, with the number that was given.
    Channel(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// So many sends since then.
    Counting(u32, Duration),
    /// Somebody asks, since then.
    Asking(Duration),
    /// It is left alone until then.
    Plain(Duration),
    Channel(u32),
}

#[derive(Clone, Copy, Debug)]
struct Destination {
    end: End,
    state: State,
    /// How long it was left alone last; zero if never.
    pause: Duration,
    /// How long it is left alone at least.
    pause_min: Duration,
    sent_at: Duration,
}

/// The destinations of a process.
#[derive(Clone, Debug)]
pub struct Destinations {
    seed: u64,
    places: Vec<Option<Destination>>,
    /// Askings that are left, and since when.
    budget: (u32, Duration),
}

impl Destinations {
    /// None. `seed` makes it unforeseeable which destinations share a place. All memory is allocated here.
    pub fn new(seed: u64, now: Duration) -> Destinations {
        Destinations {
            seed,
            places: vec![None; DESTINATIONS_MAX],
            budget: (ASKS_PER_SECOND, now),
        }
    }

    fn set(&mut self, end: End) -> &mut [Option<Destination>] {
        let octets = end.to_octets();
        let fold = |state: u64, word: u64| {
            let product = u128::from(state ^ word) * u128::from(0x1319_8A2E_0370_7345_u64);
            product as u64 ^ (product >> 64) as u64
        };
        let (words, rest) = octets.as_chunks::<8>();
        let hash = words.iter().map(|word| u64::from_le_bytes(*word));
        let port = u64::from(u16::from_le_bytes([rest[0], rest[1]]));
        let hash = hash.chain([port]).fold(self.seed, fold);
        let at = (hash >> 32) as usize % SETS * WAYS;
        &mut self.places[at..at + WAYS]
    }

    fn find(&mut self, end: End) -> Option<&mut Destination> {
        let mut ways = self.set(end).iter_mut().flatten();
        ways.find(|one| one.end == end)
    }

    /// A datagram is sent there.
    #[inline]
    pub fn handle_send(&mut self, end: End, now: Duration) -> Known {
        let Some(known) = self.find(end) else {
            self.begin(end, now);
            return Known::Plain;
        };
        known.sent_at = now;
        match &mut known.state {
            State::Channel(channel) => return Known::Channel(*channel),
            State::Asking(since) if now < since.saturating_add(ASKING_TIMEOUT) => {
                return Known::Plain;
            }
            State::Plain(until) if now < *until => return Known::Plain,
            State::Counting(count, since) if now <= since.saturating_add(BUSY_WITHIN) => {
                *count += 1;
                if *count < BUSY_SENDS {
                    return Known::Plain;
                }
            }
            state => {
                *state = State::Counting(1, now);
                return Known::Plain;
            }
        }
        if !self.take_budget(now) {
            return Known::Plain;
        }
        if let Some(known) = self.find(end) {
            known.state = State::Asking(now);
        }
        Known::Ask
    }

    fn begin(&mut self, end: End, now: Duration) {
        // Nobody at all is the soonest forgotten; who has a channel or is asked for is not.
        let mut replaceable = None;
        for place in self.set(end) {
            let since = match place {
                None => Duration::ZERO,
                Some(one) if matches!(one.state, State::Channel(_) | State::Asking(_)) => continue,
                Some(one) => one.sent_at,
            };
            if replaceable
                .as_ref()
                .is_none_or(|(soonest, _)| since < *soonest)
            {
                replaceable = Some((since, place));
            }
        }
        if let Some((_, place)) = replaceable {
            *place = Some(Destination {
                end,
                state: State::Counting(1, now),
                pause: Duration::ZERO,
                pause_min: PAUSE_MIN,
                sent_at: now,
            });
        }
    }

    fn take_budget(&mut self, now: Duration) -> bool {
        let (left, since) = &mut self.budget;
        let seconds = now.saturating_sub(*since).as_secs();
        if seconds > 0 {
            *left = ASKS_PER_SECOND;
            *since = now;
        }
        let is_left = *left > 0;
        *left -= u32::from(is_left);
        is_left
    }

    /// There is a channel to it from now on.
    pub fn handle_channel(&mut self, end: End, channel: u32) {
        if let Some(known) = self.find(end) {
            known.state = State::Channel(channel);
            known.pause = Duration::ZERO;
        }
    }

    /// The channel is gone in order, as a peer that restarts or is idle closes it: it may be asked for again at once,
    /// and if it does not answer then, soon again.
    pub fn handle_closed(&mut self, end: End, now: Duration) {
        if let Some(known) = self.find(end) {
            if let State::Channel(_) = known.state {
                known.pause_min = PAUSE_AFTER_CHANNEL;
                known.pause = Duration::ZERO;
            }
            known.state = State::Counting(0, now);
        }
    }

    /// It answered, and its address could not be proven: it is left alone for less than who says nothing. Gives for how
    /// long.
    pub fn handle_unproven(&mut self, end: End, now: Duration) -> Duration {
        if let Some(known) = self.find(end) {
            known.pause_min = known.pause_min.min(PAUSE_UNPROVEN);
        }
        self.handle_no(end, now)
    }

    /// Nobody answered, or there was no channel to be had: it is left alone. Gives for how long.
    pub fn handle_no(&mut self, end: End, now: Duration) -> Duration {
        let Some(known) = self.find(end) else {
            return Duration::ZERO;
        };
        known.pause = (known.pause * 2).clamp(known.pause_min, PAUSE_MAX);
        known.state = State::Plain(now.saturating_add(known.pause));
        known.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const NOW: Duration = Duration::from_secs(1000);

    fn end(number: u32) -> End {
        End::new(number.to_be_bytes().into(), 5000)
    }

    fn destinations() -> Destinations {
        Destinations::new(7, NOW)
    }

    /// So many sends with such pauses between; says at which one it was asked for.
    fn send(all: &mut Destinations, number: u32, times: u32, pause: Duration) -> Option<u32> {
        let mut now = NOW;
        (1..=times).find(|_| {
            now += pause;
            all.handle_send(end(number), now) == Known::Ask
        })
    }

    #[test]
    fn who_is_sent_to_busily_is_asked_for_once() {
        let mut all = destinations();
        assert_eq!(send(&mut all, 1, 1000, ms(1)), Some(16));
        assert_eq!(send(&mut all, 1, 1000, ms(1)), None, "while somebody asks");
        assert_eq!(send(&mut destinations(), 1, 16, ms(6)), Some(16));
        assert_eq!(
            send(&mut destinations(), 1, 10_000, ms(7)),
            None,
            "15 in 100 ms"
        );
    }

    #[test]
    fn peers_of_a_resolver_and_victims_of_forged_sources_are_never_asked_for() {
        let mut all = destinations();
        for round in 0..10 {
            for number in 0..20_000 {
                let now = NOW + ms(200) * round + Duration::from_micros(number.into());
                assert_eq!(all.handle_send(end(number), now), Known::Plain);
            }
        }
    }

    #[test]
    fn who_does_not_answer_is_left_alone_for_longer_and_longer() {
        let mut all = destinations();
        let mut now = NOW;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let mut asked = None;
            for _ in 0..100 {
                now += ms(1);
                if all.handle_send(end(1), now) == Known::Ask {
                    asked = Some(now);
                    break;
                }
            }
            assert!(asked.is_some(), "{pauses:?}");
            let pause = all.handle_no(end(1), now);
            assert_eq!(all.handle_send(end(1), now + pause - ms(1)), Known::Plain);
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
    }

    #[test]
    fn a_channel_is_told_until_it_is_closed() {
        let mut all = destinations();
        send(&mut all, 1, 16, ms(1));
        all.handle_channel(end(1), 42);
        assert_eq!(all.handle_send(end(1), NOW + ms(20)), Known::Channel(42));
        // However many others are sent to, the channel is known.
        for number in 2..100_000 {
            all.handle_send(end(number), NOW + ms(20));
        }
        assert_eq!(all.handle_send(end(1), NOW + ms(20)), Known::Channel(42));
        all.handle_closed(end(1), NOW + ms(20));
        assert_eq!(all.handle_send(end(1), NOW + ms(21)), Known::Plain);
        assert_eq!(
            send(&mut all, 1, 20, ms(1)),
            Some(15),
            "it is asked for again"
        );
    }

    #[test]
    fn who_had_a_channel_is_asked_for_again_soon() {
        let mut all = destinations();
        send(&mut all, 1, 16, ms(1));
        all.handle_channel(end(1), 42);
        all.handle_closed(end(1), NOW);
        let mut now = NOW;
        for pause in [500, 1000, 2000] {
            let asked = (0..20).any(|_| {
                now += ms(1);
                all.handle_send(end(1), now) == Known::Ask
            });
            assert!(asked, "{pause}");
            // A channel that is lost before it was one is no sign that there was Weft.
            assert_eq!(all.handle_no(end(1), now), ms(pause));
            now += ms(pause);
        }
    }

    #[test]
    fn who_could_not_be_proven_is_asked_for_again_soon_and_ever_later() {
        let mut all = destinations();
        let mut now = NOW;
        for pause in [2, 4, 8, 16] {
            let asked = (0..20).any(|_| {
                now += ms(1);
                all.handle_send(end(1), now) == Known::Ask
            });
            assert!(asked, "{pause}");
            let pause = Duration::from_secs(pause);
            assert_eq!(all.handle_unproven(end(1), now), pause);
            assert_eq!(all.handle_send(end(1), now + pause - ms(1)), Known::Plain);
            now += pause;
        }
    }

    #[test]
    fn an_asking_of_which_nobody_hears_any_more_is_over() {
        let mut all = destinations();
        assert_eq!(send(&mut all, 1, 16, ms(1)), Some(16));
        let later = NOW + ms(16) + ASKING_TIMEOUT;
        assert_eq!(all.handle_send(end(1), later - ms(1)), Known::Plain);
        let asked = (0..16).find(|at| all.handle_send(end(1), later + ms(*at)) == Known::Ask);
        assert_eq!(asked, Some(15), "it is counted anew");
    }

    #[test]
    fn there_are_so_many_askings_a_second() {
        let mut all = destinations();
        let asked = |all: &mut Destinations, first: u32| {
            let all_asked =
                (first..first + 100).filter(|number| send(all, *number, 16, ms(1)).is_some());
            all_asked.count()
        };
        assert_eq!(asked(&mut all, 0), 10);
        let mut later = NOW + ms(1000);
        for _ in 0..16 {
            later += ms(1);
            if all.handle_send(end(500), later) == Known::Ask {
                return;
            }
        }
        panic!("a second later there are more");
    }
}
