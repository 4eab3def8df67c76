//! A Write whose completion the driver withholds until the peer answers.

use crate::pair::{post, recv, sge, Config, Pair, ALL};
use weft_verbs::types::{Payload, SendFlags, SendOp, SendRequest, Stag, WcStatus};

/// A pair, and memory at the second end.
fn fresh() -> (Pair, Stag) {
    let mut pair = Pair::new(Config::default(), 5);
    let target = pair.ends[1].device.region(8, 0, ALL, 3);
    pair.drive();
    (pair, target)
}

fn write_to(rkey: Stag) -> SendOp {
    SendOp::Write {
        remote_addr: 0,
        rkey,
    }
}

fn release(pair: &mut Pair) {
    let end = &mut pair.ends[0];
    end.qp.release_withheld(&mut end.device);
}

#[test]
fn it_is_complete_when_it_is_released() {
    let (mut pair, target) = fresh();
    post(&mut pair, 0, 1, write_to(target), Payload::Inline(b"x"));
    assert!(pair.ends[0].qp.may_withhold() && !pair.ends[0].qp.awaits_acknowledgement());
    pair.ends[0].qp.withhold();
    pair.drive();
    assert_eq!(pair.ends[1].device.octets(target)[0], b'x', "it went out");
    assert!(pair.ends[0].device.sends.is_empty());
    assert!(pair.ends[0].qp.withholds() && pair.ends[0].qp.awaits_acknowledgement());

    release(&mut pair);
    assert!(!pair.ends[0].qp.withholds() && !pair.ends[0].qp.awaits_acknowledgement());
    let statuses = pair.ends[0].device.sends.iter().map(|one| one.status);
    assert_eq!(statuses.collect::<Vec<_>>(), [WcStatus::Success]);
    post(&mut pair, 0, 2, write_to(target), Payload::Inline(b"y"));
    pair.drive();
    assert_eq!(
        pair.ends[0].device.sends.len(),
        2,
        "the next one is as others"
    );
}

#[test]
fn it_is_complete_when_the_connection_ends() {
    let (mut pair, target) = fresh();
    post(&mut pair, 0, 1, write_to(target), Payload::Inline(b"x"));
    pair.ends[0].qp.withhold();
    pair.drive();
    let end = &mut pair.ends[0];
    end.qp.disconnect(&mut end.device);
    assert_eq!(end.device.sends.len(), 1);
    assert_eq!(
        end.device.sends[0].status,
        WcStatus::Success,
        "the transport has had it"
    );
}

#[test]
fn nothing_but_one_write_that_the_program_waits_for_is_withheld() {
    let (mut pair, target) = fresh();
    let into = pair.ends[1].device.region(8, 64, ALL, 3);
    recv(&mut pair, 1, 1, &[sge(into, 64, 8)]);
    let inline = Payload::Inline(b"x");
    assert!(!pair.ends[0].qp.may_withhold(), "nothing is posted");
    post(&mut pair, 0, 1, SendOp::Send, inline);
    assert!(!pair.ends[0].qp.may_withhold(), "a Send");
    pair.drive();
    post(&mut pair, 0, 2, write_to(target), inline);
    post(&mut pair, 0, 3, write_to(target), inline);
    assert!(!pair.ends[0].qp.may_withhold(), "two Writes");
    pair.drive();
    let silent = SendRequest {
        wr_id: 4,
        op: write_to(target),
        flags: SendFlags::default(),
        payload: inline,
    };
    let end = &mut pair.ends[0];
    end.qp.post_send(&silent, &mut end.device).unwrap();
    assert!(
        !end.qp.may_withhold(),
        "one whose completion nobody asked for"
    );
    let out_of_band = Config {
        out_of_band: true,
        ..Config::default()
    };
    let mut pair = Pair::new(out_of_band, 5);
    let target = pair.ends[1].device.region(8, 0, ALL, 3);
    pair.drive();
    post(&mut pair, 0, 1, write_to(target), inline);
    assert!(
        !pair.ends[0].qp.may_withhold(),
        "one that the peer acknowledges"
    );
}
