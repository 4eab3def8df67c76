//! The connections of an endpoint: found by name at once, by their two ends with a search, and the ends of the last one
//! found are compared first, for segments come in trains.

use super::connection::Connection;
use super::isn::Tuple;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

/// A connection of an [`super::Endpoint`]. Its place in the table, and which of those that had the place: not given
/// again before four thousand million others had the same place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(test, derive(Default))]
pub struct ConnectionId {
    slot: u32,
    generation: u32,
}

impl ConnectionId {
    /// Its place in the table: small, and unique among the connections that there are.
    #[inline]
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// A connection and what its endpoint notes of it.
#[derive(Debug)]
pub(super) struct Entry {
    pub tuple: Tuple,
    pub connection: Connection,
    /// The listener in whose queue it stands: the program has not taken it yet.
    pub listener: Option<SocketAddr>,
    /// The entry in the table of deadlines: its deadline, or an earlier time at which to look again.
    pub deadline: Option<Duration>,
    /// It stands in the queue of those that may have something to send.
    pub queued: bool,
    /// It stands in the queue of those that may have events.
    pub eventful: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    entry: Option<Entry>,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_tuple: BTreeMap<Tuple, ConnectionId>,
    last: Option<(Tuple, ConnectionId)>,
}

impl Connections {
    pub fn len(&self) -> usize {
        self.by_tuple.len()
    }

    pub fn insert(&mut self, tuple: Tuple, connection: Connection) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.generation = place.generation.wrapping_add(1);
        place.entry = Some(Entry {
            tuple,
            connection,
            listener: None,
            deadline: None,
            queued: false,
            eventful: false,
        });
        let id = ConnectionId {
            slot,
            generation: place.generation,
        };
        self.by_tuple.insert(tuple, id);
        id
    }

    pub fn remove(&mut self, id: ConnectionId) -> Option<Entry> {
        self.get(id)?;
        let entry = self.slots[id.slot as usize].entry.take()?;
        self.free.push(id.slot);
        self.by_tuple.remove(&entry.tuple);
        self.last = None;
        Some(entry)
    }

    #[inline]
    pub fn get(&self, id: ConnectionId) -> Option<&Entry> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.entry
            .as_ref()
            .filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Entry> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.entry
            .as_mut()
            .filter(|_| slot.generation == id.generation)
    }

    /// The connection between these two ends.
    #[inline]
    pub fn find(&mut self, tuple: &Tuple) -> Option<ConnectionId> {
        match &self.last {
            Some((last, id)) if last == tuple => Some(*id),
            _ => {
                let id = *self.by_tuple.get(tuple)?;
                self.last = Some((*tuple, id));
                Some(id)
            }
        }
    }

    pub fn contains(&self, tuple: &Tuple) -> bool {
        self.by_tuple.contains_key(tuple)
    }
}

#[cfg(test)]
mod tests {
    use super::super::isn::Secret;
    use super::super::Config;
    use super::*;

    fn tuple(port: u16) -> Tuple {
        Tuple {
            local: SocketAddr::from(([10, 0, 0, 1], port)),
            remote: SocketAddr::from(([10, 0, 0, 2], 80)),
        }
    }

    fn open(connections: &mut Connections, port: u16) -> ConnectionId {
        let secrets = Secret([1; 16]).for_connection(&tuple(port), Duration::ZERO);
        let connection = Connection::connect(Config::default(), secrets, Duration::ZERO);
        connections.insert(tuple(port), connection)
    }

    #[test]
    fn a_place_is_used_again_and_its_old_name_means_nothing() {
        let mut connections = Connections::default();
        let (one, two) = (open(&mut connections, 1), open(&mut connections, 2));
        assert_eq!(connections.find(&tuple(1)), Some(one));
        assert!(connections.remove(one).is_some());
        assert_eq!(connections.find(&tuple(1)), None, "not even the last found");
        let three = open(&mut connections, 3);
        assert_eq!(three.slot, one.slot);
        assert_ne!(three, one);
        assert!(connections.get(one).is_none() && connections.remove(one).is_none());
        assert_eq!(connections.find(&tuple(2)), Some(two));
        assert_eq!((connections.len(), connections.slots.len()), (2, 2));
    }
}
