mod crc;
mod maps;
mod parts;

use super::*;
use crate::frame::{self, MESSAGE_LEN};
use crate::sender::Sender;
use crate::word::Word;
use std::vec::Vec;
use weft_iwarp::Stag;

const STAG: u32 = 0x1234;
const LIST: u32 = 0x5678;
const TO: u64 = 0x10_0000;
const LIST_TO: u64 = 0x20_0000;

fn own() -> ConnectionData {
    Receiver::connection_data(STAG, TO, LIST, LIST_TO)
}

/// What rsockets would say of itself.
fn foreign() -> ConnectionData {
    ConnectionData {
        weft: false,
        credits: 384,
        data: Target {
            to: 0x7f00_0000,
            stag: 9,
            len: 65_536,
        },
        ..own()
    }
}

fn receiver(peer: &ConnectionData) -> Receiver {
    Receiver::new(&own(), peer, false)
}

fn write(to: u64, payload: &[u8]) -> Vec<u8> {
    write_to(STAG, to, payload)
}

fn write_to(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let mut octets = frame::write_header(stag, to, payload.len()).to_vec();
    octets.extend_from_slice(payload);
    let (trailer, len) = frame::trailer(payload.len(), 0);
    octets.extend_from_slice(&trailer[..len]);
    octets
}

fn message(msn: u32, word: Word) -> [u8; MESSAGE_LEN] {
    frame::message(Msn(msn), word, false)
}

/// Gives octets to a receiver as a reader does that takes what comes; the stream's octets come out, and the events.
fn read(receiver: &mut Receiver, octets: &[u8]) -> Result<(Vec<u8>, Vec<Event>), Fault> {
    let (mut stream, mut events) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < octets.len() {
        match receiver.next() {
            Next::Nothing => break,
            Next::Payload(left) => {
                let now = (left as usize).min(octets.len() - at);
                stream.extend_from_slice(&octets[at..at + now]);
                receiver.take_payload(now as u32);
                at += now;
            }
            Next::Mapped { .. } => panic!("nothing was mapped"),
            Next::Framing(_) => {
                let framing = receiver.take_framing(&octets[at..])?;
                assert!(framing.taken > 0);
                at += framing.taken;
                events.extend(framing.event);
            }
        }
    }
    Ok((stream, events))
}

fn fault(peer: &ConnectionData, octets: &[u8]) -> Fault {
    let mut receiver = receiver(peer);
    let fault = read(&mut receiver, octets).unwrap_err();
    assert_eq!(receiver.next(), Next::Nothing, "it goes on behind {fault}");
    fault
}

#[test]
fn octets_come_before_their_message() {
    let mut receiver = receiver(&foreign());
    let octets = write(TO, b"weft");
    assert_eq!(
        read(&mut receiver, &octets),
        Ok((b"weft".to_vec(), Vec::new()))
    );
    assert!(receiver.is_between_fpdus() && receiver.owes_message());
    assert_eq!(
        read(&mut receiver, &message(1, Word::Data(4))),
        Ok((Vec::new(), Vec::new()))
    );
    assert!(!receiver.owes_message());
}

#[test]
fn weft_sends_no_message_behind_octets() {
    let mut receiver = receiver(&own());
    let mut octets = write(TO, b"weft");
    octets.extend(write(TO + 4, b"goes on"));
    assert_eq!(
        read(&mut receiver, &octets),
        Ok((b"weftgoes on".to_vec(), Vec::new()))
    );
    assert!(receiver.is_between_fpdus() && !receiver.owes_message());
    let fault = read(&mut receiver, &message(1, Word::Data(11))).unwrap_err();
    let (told, written) = (11, 0);
    assert_eq!(fault, Fault::Count { told, written });
}

#[test]
fn a_stream_ends_once() {
    let mut receiver = receiver(&own());
    assert!(!receiver.has_begun());
    let (_, events) = read(&mut receiver, &message(1, Word::Shutdown)).unwrap();
    assert_eq!(events, [Event::End]);
    assert!(receiver.has_begun() && receiver.has_ended() && receiver.is_between_fpdus());
    let fault = read(&mut receiver, &write(TO, b"more")).unwrap_err();
    assert_eq!(fault, Fault::BehindTheEnd);
}

#[test]
fn nothing_counts_behind_a_disconnect_or_a_terminate() {
    let mut octets = message(1, Word::Disconnect).to_vec();
    octets.extend_from_slice(b"whatever comes");
    let mut gone = receiver(&own());
    assert_eq!(
        read(&mut gone, &octets),
        Ok((Vec::new(), std::vec![Event::Disconnect]))
    );
    assert_eq!(gone.next(), Next::Nothing);

    let mut terminate = Vec::from([
        0, 22, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0,
    ]);
    terminate.extend_from_slice(&[0x11, 0x02, 0, 0, 0, 0, 0, 0]);
    let mut gone = receiver(&own());
    let (_, events) = read(&mut gone, &terminate).unwrap();
    assert_eq!(events, [Event::Terminate(0x11, 0x02)]);
    assert!(gone.is_between_fpdus());
}

#[test]
fn signs_of_life_and_of_readiness_say_nothing() {
    let mut octets = write_to(0, 0, b"");
    octets.extend_from_slice(&frame::ready_to_receive(false));
    octets.extend_from_slice(&frame::empty_read_response(7, 8, false));
    octets.extend_from_slice(&message(1, Word::Keepalive));
    assert_eq!(
        read(&mut receiver(&foreign()), &octets),
        Ok((Vec::new(), Vec::new()))
    );
}

#[test]
fn a_read_of_nothing_is_answered_and_no_other() {
    let octets = frame::ready_to_receive_by_read(false);
    let (_, events) = read(&mut receiver(&foreign()), &octets).unwrap();
    let stag = Stag::RTR.0;
    assert_eq!(events, [Event::ReadRequest { stag, to: 0 }]);
    let mut octets = octets;
    octets[35] = 1;
    assert_eq!(fault(&foreign(), &octets), Fault::Read(1));
}

#[test]
fn a_send_of_nothing_is_readiness_at_the_beginning_only() {
    let mut empty = message(1, Word::Keepalive)[..24].to_vec();
    empty[1] = 18;
    let mut receiver = receiver(&foreign());
    assert_eq!(read(&mut receiver, &empty), Ok((Vec::new(), Vec::new())));
    empty[15] = 2;
    assert_eq!(read(&mut receiver, &empty), Err(Fault::WordLength(0)));
}

#[test]
fn what_a_peer_gives_goes_to_the_sender() {
    let target = Target {
        to: 0x4000,
        stag: 77,
        len: 32_768,
    };
    let given = target.to_octets(cfg!(target_endian = "big"));
    let mut octets = frame::target_write(LIST, LIST_TO + 16, given, false).to_vec();
    octets.extend_from_slice(&message(1, Word::Credit(391)));
    let (_, events) = read(&mut receiver(&foreign()), &octets).unwrap();
    assert_eq!(events, [Event::Target(1, target), Event::Limit(391)]);
}

#[test]
fn the_list_of_targets_takes_whole_targets_only() {
    let octets = |to: u64, len: usize| write_to(LIST, to, &[0; 64][..len]);
    let targets = |offset, len| Fault::Targets { offset, len };
    assert_eq!(fault(&foreign(), &octets(LIST_TO + 8, 16)), targets(8, 16));
    assert_eq!(
        fault(&foreign(), &octets(LIST_TO + 32, 16)),
        targets(32, 16)
    );
    assert_eq!(
        fault(&foreign(), &octets(LIST_TO - 16, 16)),
        targets(u64::MAX - 15, 16)
    );
    assert_eq!(fault(&foreign(), &octets(LIST_TO, 8)), targets(0, 8));
    assert_eq!(fault(&foreign(), &octets(LIST_TO, 64)), targets(0, 64));
    let nowhere = Target {
        to: u64::MAX,
        stag: 1,
        len: 1,
    };
    let nowhere = nowhere.to_octets(cfg!(target_endian = "big"));
    let octets = frame::target_write(LIST, LIST_TO, nowhere, false);
    assert_eq!(fault(&foreign(), &octets), Fault::Target);
}

#[test]
fn octets_go_to_the_next_place_of_the_stream_and_nowhere_else() {
    let expected = TO;
    for to in [TO + 1, TO - 1, 0, LIST_TO] {
        assert_eq!(
            fault(&own(), &write(to, b"x")),
            Fault::Offset { to, expected }
        );
    }
    assert_eq!(
        fault(&own(), &write_to(STAG + 1, TO, b"x")),
        Fault::Stag(Stag(STAG + 1))
    );
    let mut response = write(TO, b"x");
    response[3] = 0x42;
    assert_eq!(
        fault(&own(), &response),
        Fault::Message {
            opcode: 2,
            queue: 0
        }
    );
}

#[test]
fn the_window_binds_foreign_peers() {
    let mut near_the_end = receiver(&foreign());
    near_the_end.to = near_the_end.end - 3;
    let to = near_the_end.to;
    let octets = write(to, b"four");
    let mut weft = near_the_end;
    weft.flags |= WEFT;
    assert_eq!(
        read(&mut near_the_end, &octets),
        Err(Fault::Window { beyond: 1 })
    );
    assert_eq!(read(&mut weft, &octets), Ok((b"four".to_vec(), Vec::new())));
}

#[test]
fn counts_are_checked_against_what_came() {
    let mut octets = write(TO, b"four");
    octets.extend_from_slice(&message(1, Word::Data(5)));
    assert_eq!(
        fault(&foreign(), &octets),
        Fault::Count {
            told: 5,
            written: 4
        }
    );
    assert_eq!(
        fault(&own(), &message(1, Word::Data(1))),
        Fault::Count {
            told: 1,
            written: 0
        }
    );
}

#[test]
fn messages_have_numbers_lengths_and_meanings() {
    let (msn, expected) = (2, 1);
    assert_eq!(
        fault(&own(), &message(2, Word::Keepalive)),
        Fault::Sequence { msn, expected }
    );
    let mut long = write(TO, &[]);
    long.clear();
    long.extend_from_slice(&message(1, Word::Keepalive));
    long[1] = 18 + 30;
    long.extend_from_slice(&[0; 40]);
    assert_eq!(fault(&own(), &long), Fault::WordLength(30));
    let mut part = message(1, Word::Keepalive);
    part[2] &= !0x40;
    assert_eq!(fault(&own(), &part), Fault::WordLength(4));
    let mut unknown = message(1, Word::Keepalive);
    unknown[20..24].copy_from_slice(&0x2000_0000u32.to_le_bytes());
    assert_eq!(fault(&own(), &unknown), Fault::Word(0x20));
    let mut queue = message(1, Word::Keepalive);
    queue[11] = 3;
    assert_eq!(
        fault(&own(), &queue),
        Fault::Message {
            opcode: 3,
            queue: 3
        }
    );
}

#[test]
fn headers_have_lengths_and_versions() {
    let mut short = write(TO, b"x");
    short[..2].copy_from_slice(&13u16.to_be_bytes());
    assert_eq!(fault(&own(), &short), Fault::TooShort(13));
    let mut short = message(1, Word::Keepalive);
    short[1] = 3;
    assert_eq!(fault(&own(), &short), Fault::TooShort(3));
    let mut old = write(TO, b"x");
    old[2] &= !3;
    assert_eq!(fault(&own(), &old), Fault::Version { ddp: 0, rdmap: 1 });
}

#[test]
fn credit_is_for_so_many_messages() {
    let octets = |msn: u32, to: u64| {
        let mut octets = write(to, b"x");
        octets.extend_from_slice(&message(msn, Word::Data(1)));
        octets
    };
    let mut receiver = receiver(&foreign());
    for n in 0..u64::from(CREDITS) {
        let due = receiver.renewal().is_some();
        assert_eq!(due, n >= u64::from(CREDITS / 2), "after {n}");
        read(&mut receiver, &octets(n as u32 + 1, TO + n)).unwrap();
    }
    let mut without = receiver;
    let one_more = octets(u32::from(CREDITS) + 1, TO + u64::from(CREDITS));
    assert_eq!(read(&mut without, &one_more), Err(Fault::Credit));
    let renewal = receiver.renewal().unwrap();
    assert_eq!(
        renewal,
        Renewal {
            limit: 0,
            target: None
        }
    );
    receiver.renewed(&renewal);
    assert_eq!(receiver.renewal(), None);
    read(&mut receiver, &one_more).unwrap();
}

#[test]
fn a_target_is_given_when_half_of_the_last_is_full() {
    let mut receiver = receiver(&foreign());
    receiver.to = receiver.end - u64::from(WINDOW / 2);
    let renewal = receiver.renewal().unwrap();
    let target = Target {
        to: receiver.end,
        stag: STAG,
        len: WINDOW,
    };
    assert_eq!(renewal.target, Some(target));
    receiver.renewed(&renewal);
    assert_eq!(receiver.renewal(), None);
    assert_eq!(receiver.end, target.end().unwrap());
}
