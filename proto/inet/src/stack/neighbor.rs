//! Who has which hardware address: the table behind ARP (RFC 826) and neighbour discovery (RFC 4861 section 7).

use super::frame::{Frame, Mac};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

/// How long an address is good without confirmation (RFC 4861 section 10, REACHABLE_TIME).
const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// Time between questions (RETRANS_TIMER).
const RETRANSMIT_TIME: Duration = Duration::from_secs(1);
/// Questions without an answer (MAX_MULTICAST_SOLICIT).
const SOLICITATIONS_MAX: u32 = 3;
/// Frames that wait for one address (RFC 1122 section 2.3.2.2 asks for at least one).
const WAITING_PACKETS_MAX: usize = 4;

/// The table of one interface.
#[derive(Debug)]
pub struct Neighbors {
    entries: BTreeMap<IpAddr, Entry>,
    limit: usize,
    /// Before this time there is nothing to ask: most frames need not look through the table.
    quiet_until: Option<Duration>,
    /// Counts what makes an address found earlier wrong.
    epoch: u64,
}

#[derive(Debug)]
struct Entry {
    mac: Option<Mac>,
    /// When the address was last heard of; of one that never was, when it was first asked for.
    confirmed: Duration,
    attempts: u32,
    /// When to ask again; none when nothing is asked.
    ask_at: Option<Duration>,
    used: Duration,
    waiting: Vec<Frame>,
}

impl Neighbors {
    /// A table of at most `limit` entries. For another one an address that nobody has answered for gives way first,
    /// then the one not used for longest.
    pub fn new(limit: usize) -> Neighbors {
        Neighbors {
            entries: BTreeMap::new(),
            limit: limit.max(1),
            quiet_until: None,
            epoch: 0,
        }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The hardware address of `address`, when it is known. An old one is used while it is being confirmed. `progress`
    /// is when something sent through this neighbour last turned out to have arrived: that confirms it, and nobody
    /// needs to be asked (RFC 4861 section 7.3.1).
    pub fn find(
        &mut self,
        address: IpAddr,
        progress: Option<Duration>,
        now: Duration,
    ) -> Option<Mac> {
        let entry = self.entries.get_mut(&address)?;
        entry.used = now;
        let mac = entry.mac?;
        let is_old = |at: Duration| now.saturating_sub(at) > REACHABLE_TIME;
        if is_old(entry.confirmed) {
            entry.confirmed = entry.confirmed.max(progress.unwrap_or_default());
            if !is_old(entry.confirmed) {
                entry.ask_at = None;
            } else if entry.ask_at.is_none() {
                entry.attempts = 0;
                entry.ask_at = Some(now);
                self.quiet_until = Some(now);
            }
        }
        Some(mac)
    }

    /// Changes when a hardware address changed or was forgotten: what was found before holds no longer.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Until when the address is good without confirmation.
    pub fn fresh_until(&self, address: IpAddr) -> Duration {
        let entry = self.entries.get(&address);
        entry.map_or(Duration::ZERO, |entry| entry.confirmed + REACHABLE_TIME)
    }

    /// A frame waits until the hardware address of `address` is known, which is asked for.
    pub fn wait(&mut self, address: IpAddr, frame: Frame, now: Duration) {
        let entry = self.asked(address, now);
        if entry.waiting.len() == WAITING_PACKETS_MAX {
            // The newest are kept: TCP will repeat the rest.
            entry.waiting.remove(0);
        }
        entry.waiting.push(frame);
    }

    /// Asks for the hardware address of `address` if it is not known: since when, and how many frames find a place to
    /// wait for it.
    pub fn ask(&mut self, address: IpAddr, now: Duration) -> Option<(Duration, usize)> {
        if self.find(address, None, now).is_some() {
            return None;
        }
        let entry = self.asked(address, now);
        Some((entry.confirmed, WAITING_PACKETS_MAX - entry.waiting.len()))
    }

    /// The entry of an address that is asked for.
    fn asked(&mut self, address: IpAddr, now: Duration) -> &mut Entry {
        self.make_room(address);
        let entry = self
            .entries
            .entry(address)
            .or_insert_with(|| Entry::new(now));
        entry.used = now;
        let at = *entry.ask_at.get_or_insert(now);
        self.quiet_until = Some(self.quiet_until.map_or(at, |until| until.min(at)));
        entry
    }

    fn make_room(&mut self, address: IpAddr) {
        if self.entries.len() < self.limit || self.entries.contains_key(&address) {
            return;
        }
        // Whoever names senders that there are not makes as many entries as it likes: none of them may take the place
        // of a neighbour that was found (RFC 6583). That one is used seldom, too, as connections remember its address.
        let entries = self.entries.iter();
        let oldest = entries.min_by_key(|(_, entry)| (entry.mac.is_some(), entry.used));
        if let Some(oldest) = oldest.map(|(address, _)| *address) {
            self.remove(oldest);
        }
    }

    /// Forgets an address. Nobody remembers one that was never found: what was found of others holds.
    fn remove(&mut self, address: IpAddr) {
        let gone = self.entries.remove(&address);
        self.epoch += u64::from(gone.is_some_and(|gone| gone.mac.is_some()));
    }

    /// `address` has `mac`. Only an entry that exists learns it, unless `solicited` by a question of ours or to us: no
    /// stranger fills the table. Returns the frames that waited for it.
    pub fn learn(&mut self, address: IpAddr, mac: Mac, create: bool, now: Duration) -> Vec<Frame> {
        if create {
            self.make_room(address);
            self.entries
                .entry(address)
                .or_insert_with(|| Entry::new(now));
        }
        let Some(entry) = self.entries.get_mut(&address) else {
            return Vec::new();
        };
        self.epoch += u64::from(entry.mac.is_some_and(|before| before != mac));
        entry.mac = Some(mac);
        entry.confirmed = now;
        entry.ask_at = None;
        entry.attempts = 0;
        let mut frames = core::mem::take(&mut entry.waiting);
        for frame in &mut frames {
            frame.head[..6].copy_from_slice(&mac);
        }
        frames
    }

    /// Nobody is to be asked for now.
    #[inline]
    pub fn are_quiet(&self, now: Duration) -> bool {
        self.quiet_until.is_none_or(|until| until > now)
    }

    /// An address to ask for now.
    pub fn poll_solicitation(&mut self, now: Duration) -> Option<IpAddr> {
        if self.are_quiet(now) {
            return None;
        }
        let due = |entry: &Entry| entry.ask_at.is_some_and(|at| at <= now);
        let found = self.entries.iter_mut().find(|(_, entry)| due(entry));
        let Some((address, entry)) = found else {
            self.quiet_until = self.next_solicitation();
            return None;
        };
        let address = *address;
        if entry.attempts == SOLICITATIONS_MAX {
            // Nobody there: what waited is dropped, and so is an old address.
            self.remove(address);
            return self.poll_solicitation(now);
        }
        entry.attempts += 1;
        entry.ask_at = Some(now + RETRANSMIT_TIME);
        Some(address)
    }

    /// When to ask next; perhaps a little too early, for what was to be asked then may have been answered.
    pub fn deadline(&self) -> Option<Duration> {
        self.quiet_until
    }

    fn next_solicitation(&self) -> Option<Duration> {
        self.entries.values().filter_map(|entry| entry.ask_at).min()
    }
}

impl Entry {
    fn new(now: Duration) -> Entry {
        Entry {
            mac: None,
            confirmed: now,
            attempts: 0,
            ask_at: None,
            used: now,
            waiting: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Head, Payload, VnetHeader};
    use super::*;

    fn frame(tag: u8) -> Frame {
        Frame {
            head: Head::new(&[&[0; 14][..], &[tag]].concat()),
            payload: Payload::Empty,
            vnet: VnetHeader::default(),
            looped: false,
        }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn frames_wait_for_the_answer() {
        let mut table = Neighbors::new(10);
        assert_eq!(table.find(address(1), None, Duration::ZERO), None);
        table.wait(address(1), frame(1), Duration::ZERO);
        assert_eq!(table.poll_solicitation(Duration::ZERO), Some(address(1)));
        assert_eq!(table.poll_solicitation(Duration::ZERO), None);
        let sent = table.learn(address(1), [9; 6], false, Duration::ZERO);
        assert_eq!(sent[0].head[..6], [9; 6]);
        assert_eq!(table.find(address(1), None, Duration::ZERO), Some([9; 6]));
    }

    #[test]
    fn an_old_address_is_used_while_it_is_asked_for_again() {
        let mut table = Neighbors::new(10);
        table.learn(address(1), [9; 6], true, Duration::ZERO);
        let later = REACHABLE_TIME + Duration::from_secs(1);
        assert_eq!(table.find(address(1), None, REACHABLE_TIME), Some([9; 6]));
        assert_eq!(table.poll_solicitation(REACHABLE_TIME), None);
        assert_eq!(table.find(address(1), None, later), Some([9; 6]));
        assert_eq!(table.poll_solicitation(later), Some(address(1)));
        assert_eq!(table.find(address(1), None, later), Some([9; 6]));
    }

    #[test]
    fn progress_of_a_connection_confirms_a_neighbour() {
        let mut table = Neighbors::new(10);
        let second = Duration::from_secs(1);
        table.learn(address(1), [9; 6], true, Duration::ZERO);
        let later = REACHABLE_TIME + second;
        assert_eq!(table.find(address(1), Some(second), later), Some([9; 6]));
        assert_eq!(table.poll_solicitation(later), None, "it was heard of");
        let much_later = later + second;
        assert!(table.find(address(1), Some(second), much_later).is_some());
        assert_eq!(
            table.poll_solicitation(much_later),
            Some(address(1)),
            "too long ago"
        );
        // What arrives meanwhile ends the solicitations, and that the neighbour is silent forgets nothing.
        let progress = much_later + second / 2;
        assert!(table.find(address(1), Some(progress), progress).is_some());
        assert_eq!(table.poll_solicitation(much_later + 9 * second), None);
        assert_eq!(table.deadline(), None);
    }

    #[test]
    fn nobody_answers() {
        let mut table = Neighbors::new(10);
        table.wait(address(1), frame(1), Duration::ZERO);
        let asked = (0..10)
            .filter(|s| table.poll_solicitation(Duration::from_secs(*s)).is_some())
            .count();
        assert_eq!((asked, table.len()), (3, 0));
    }

    #[test]
    fn strangers_do_not_fill_the_table() {
        let mut table = Neighbors::new(3);
        table.learn(address(1), [1; 6], false, Duration::ZERO);
        assert!(table.is_empty());
        for last in 0..10 {
            table.wait(address(last), frame(0), Duration::from_secs(last.into()));
        }
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn who_is_not_there_takes_no_neighbours_place() {
        let mut table = Neighbors::new(3);
        table.learn(address(1), [1; 6], true, Duration::ZERO);
        let (second, epoch) = (Duration::from_secs(1), table.epoch());
        for stranger in 2..12 {
            table.wait(address(stranger), frame(0), second);
        }
        assert_eq!((table.len(), table.epoch()), (3, epoch));
        assert_eq!(table.find(address(1), None, second), Some([1; 6]));
        // Nobody answers for them: what was found of others holds.
        for _ in 0..=SOLICITATIONS_MAX {
            let later = table.deadline().unwrap();
            while table.poll_solicitation(later).is_some() {}
        }
        assert_eq!((table.len(), table.epoch()), (1, epoch));
        // Of neighbours that were found the one not used for longest goes.
        for (n, found) in (2..5).enumerate() {
            table.learn(address(found), [2; 6], true, second * (n as u32 + 2));
        }
        assert_eq!(table.find(address(1), None, second), None);
        assert_eq!(table.epoch(), epoch + 1);
    }
}
