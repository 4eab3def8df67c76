//! Memory that either end maps for the other.

use super::*;
use crate::map::{place_of_write, Map, ENTRY_LEN};
use weft_iwarp::mpa::fpdu::crc32c;

const ENTRIES: u16 = 3;
const MAPPED_STAG: u32 = 0x9abc;
const MAP: Map = Map {
    offset: 77,
    target: Target {
        to: 0x5000,
        stag: MAPPED_STAG,
        len: 64,
    },
};

fn with_table() -> Receiver {
    Receiver::new(&own().with_map_entries(ENTRIES), &own(), false)
}

/// A sender to the end that `own` is what it says of itself.
fn sender_to(own: &ConnectionData) -> Sender {
    Sender::new(own, 1442, false)
}

#[test]
fn what_a_peer_maps_is_told_with_its_entry() {
    for big_endian in [false, true] {
        let own = ConnectionData {
            big_endian,
            ..own().with_map_entries(ENTRIES)
        };
        let mut sender = sender_to(&own);
        assert_eq!(sender.map_entries(), ENTRIES);
        let told = sender.tell_of_map(2, &MAP).unwrap();
        let write = frame::entry_write(
            LIST,
            LIST_TO + 32 + 2 * 24,
            MAP.to_octets(big_endian),
            false,
        );
        assert_eq!(told[..write.len()], write);
        assert_eq!(told[write.len()..], message(1, Word::Map(2)));
        if big_endian == cfg!(target_endian = "big") {
            let (_, events) = read(&mut with_table(), &told).unwrap();
            assert_eq!(events, [Event::Map(2, MAP)]);
        }
    }
}

/// Messages of memory leave as many of the peer's buffers as make it give credit.
#[test]
fn telling_takes_buffers_until_the_peer_has_taken_what_came_behind() {
    let foreign = ConnectionData {
        credits: 16,
        ..foreign()
    };
    let mut sender = sender_to(&foreign.with_map_entries(ENTRIES));
    for _ in 0..4 {
        assert!(sender.tell_of_map(0, &MAP).is_some());
    }
    assert_eq!(sender.tell_of_map(0, &MAP), None);
    let send = |sender: &mut Sender| {
        let goes = sender.room() > 0;
        if goes {
            sender.begin_write(1);
            sender.announce().unwrap();
        }
        goes
    };
    for _ in 0..8 {
        assert!(send(&mut sender));
    }
    assert!(!send(&mut sender), "four messages are kept back as well");
    sender.set_limit(8 + 16);
    assert_eq!(
        sender.tell_of_map(0, &MAP),
        None,
        "they may have come behind"
    );
    assert!(send(&mut sender));
    sender.set_limit(9 + 16);
    assert!(sender.tell_of_map(0, &MAP).is_some());
}

/// rdma-core's receiver counts messages that tell of octets, and no others.
#[test]
fn telling_costs_no_credit_for_good() {
    const CREDITS: u16 = 16;
    let foreign = ConnectionData {
        credits: CREDITS,
        ..foreign()
    };
    let mut sender = sender_to(&foreign.with_map_entries(ENTRIES));
    let mut taken = 0;
    for round in 1..1000u16 {
        assert!(sender.tell_of_map(0, &MAP).is_some(), "{round}");
        assert!(sender.tell_of_map(0, &Map::default()).is_some(), "{round}");
        for _ in 0..CREDITS / 2 {
            assert!(sender.room() > 0, "{round}");
            sender.begin_write(1);
            sender.announce().unwrap();
            sender.set_target(0, foreign.data);
        }
        taken += CREDITS / 2;
        sender.set_limit(taken.wrapping_add(CREDITS));
    }
}

#[test]
fn an_end_without_a_table_has_no_entries() {
    assert_eq!(sender_to(&own()).map_entries(), 0);
    let unsaid = ConnectionData {
        maps: false,
        ..own().with_map_entries(ENTRIES)
    };
    assert_eq!(sender_to(&unsaid).map_entries(), 0);
}

#[test]
fn the_table_takes_whole_entries_only() {
    let entry = MAP.to_octets(cfg!(target_endian = "big"));
    let at = |offset: u64, octets: &[u8]| {
        read(&mut with_table(), &write_to(LIST, LIST_TO + offset, octets)).map(|(_, events)| events)
    };
    assert_eq!(at(32, &entry), Ok(std::vec![Event::Map(0, MAP)]));
    assert_eq!(at(32 + 48, &entry), Ok(std::vec![Event::Map(2, MAP)]));
    for (offset, len) in [
        (32 + 72, 24),
        (32 + 8, 24),
        (32, 16),
        (24, 24),
        (56, 8),
        (0, 24),
    ] {
        let octets = &[entry, entry].concat()[..len];
        assert_eq!(at(offset, octets), Err(Fault::Targets { offset, len }));
    }
    let nowhere = Map {
        target: Target {
            to: u64::MAX,
            ..MAP.target
        },
        ..MAP
    };
    let nowhere = nowhere.to_octets(cfg!(target_endian = "big"));
    assert_eq!(at(32, &nowhere), Err(Fault::Target));
    // Without a table there is none to write to.
    let octets = write_to(LIST, LIST_TO + 32, &entry);
    let (offset, len) = (32, ENTRY_LEN);
    assert_eq!(fault(&own(), &octets), Fault::Targets { offset, len });
}

#[test]
fn octets_for_mapped_memory_are_none_of_the_streams() {
    let mut receiver = receiver(&foreign());
    receiver.begin_mapping();
    let octets = write_to(MAPPED_STAG, 0x5010, b"mapped");
    let framing = receiver.take_framing(&octets).unwrap();
    assert_eq!(framing.taken, 16);
    let stag = MAPPED_STAG;
    let (to, left) = (0x5010, 6);
    assert_eq!(receiver.next(), Next::Mapped { stag, to, left });
    assert!(!receiver.is_between_fpdus());
    assert_eq!(place_of_write(&MAP.target, to, left), Ok(16));
    receiver.take_mapped(4);
    let (to, left) = (0x5014, 2);
    assert_eq!(receiver.next(), Next::Mapped { stag, to, left });
    receiver.take_mapped(2);
    // The stream goes on where it was, and a message that counts octets does not count what was mapped.
    let mut behind = octets[16 + 6..].to_vec();
    behind.extend(write(TO, b"four"));
    behind.extend(message(1, Word::Data(4)));
    assert_eq!(
        read(&mut receiver, &behind),
        Ok((b"four".to_vec(), Vec::new()))
    );
    assert!(receiver.is_between_fpdus() && !receiver.owes_message());
}

#[test]
fn nothing_is_written_to_an_end_that_maps_nothing_or_behind_the_end() {
    let octets = write_to(MAPPED_STAG, 0x5010, b"mapped");
    assert_eq!(fault(&own(), &octets), Fault::Stag(Stag(MAPPED_STAG)));
    let mut receiver = receiver(&own());
    receiver.begin_mapping();
    let end = message(1, Word::Shutdown);
    assert!(read(&mut receiver, &end).is_ok());
    assert_eq!(read(&mut receiver, &octets), Err(Fault::BehindTheEnd));
}

/// With a CRC a Write is looked at whole before its header says where it goes.
#[test]
fn a_mapped_write_with_a_wrong_crc_goes_nowhere() {
    let mut receiver = Receiver::new(&own(), &own(), true);
    receiver.begin_mapping();
    let mut octets = frame::write_header(MAPPED_STAG, 0x5000, 4).to_vec();
    octets.extend_from_slice(b"four");
    let crc = crc32c(&octets);
    let (trailer, len) = frame::trailer(4, crc);
    octets.extend_from_slice(&trailer[..len]);
    assert_eq!(receiver.check(&octets), Ok(Check::Good(octets.len())));
    assert!(matches!(
        receiver.check(&octets[..octets.len() - 1]),
        Ok(Check::Need(_))
    ));
    let mut bad = octets.clone();
    bad[17] ^= 1;
    assert_eq!(receiver.check(&bad), Err(Fault::Crc));
    // What is at hand was checked, and its rest may come in any parts.
    receiver.take_framing(&octets[..16]).unwrap();
    assert_eq!(receiver.check(&octets[16..]), Ok(Check::Good(8)));
}
