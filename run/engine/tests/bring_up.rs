//! Queue pairs brought up from an address and a number, without the connection manager.

#[path = "peers/by_number.rs"]
mod by_number;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use by_number::{exchange, ordered, pair, wait, End, HERE};
use weft_engine::types::{PostError, QpState, WcStatus};
use weft_engine::QpInit;

/// Two queue pairs that are connected.
fn pair_up() -> (End, End) {
    let (a, b) = pair();
    a.receive(a.to(&b, HERE));
    b.receive(b.to(&a, HERE));
    a.send();
    b.send();
    exchange(&a, &b);
    (a, b)
}

#[test]
fn both_ends_in_any_order_over_both_families() {
    for address in [HERE, "::1"] {
        for swapped in [false, true] {
            let (a, b) = pair();
            let (first, second) = if swapped { (&b, &a) } else { (&a, &b) };
            first.receive(first.to(second, address));
            first.send();
            assert!(!second.qp.is_out_of_band(), "it could still be connected");
            second.receive(second.to(first, address));
            assert!(second.qp.is_out_of_band());
            second.send();
            exchange(first, second);
        }
    }
}

#[test]
fn what_is_posted_before_the_other_end_is_there_waits_for_it() {
    let (a, b) = pair();
    a.receive(a.to(&b, HERE));
    assert_eq!(a.post_send(1, b"early"), Err(PostError::InvalidState));
    a.send();
    a.post_send(7, b"early").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let memory = b.memory();
    b.post_recv(&memory);
    b.receive(b.to(&a, HERE));
    assert_eq!(wait(&b.cq).byte_len, 5, "before its own RTS");
    assert_eq!(wait(&a.cq).status, WcStatus::Success);
    assert_eq!(b.qp.state(), QpState::Rtr);
    b.send();
    exchange(&a, &b);
}

#[test]
fn a_destination_that_is_not_there_ends_in_retry_exceeded() {
    for swapped in [false, true] {
        let (a, b) = pair();
        // The one end would connect, the other would be connected to: both give up.
        let (end, gone) = if swapped { (b, a) } else { (a, b) };
        let to = end.to(&gone, HERE);
        gone.qp.destroy();
        end.receive(to);
        let timeout = Duration::from_millis(300);
        let started = Instant::now();
        end.qp.ready_to_send(Some(1), Some(timeout)).unwrap();
        end.post_send(5, b"hello").unwrap();
        end.post_send(6, b"hello").unwrap();
        let (first, second) = (wait(&end.cq), wait(&end.cq));
        assert_eq!((first.wr_id, first.status), (5, WcStatus::RetryExceeded));
        assert_eq!((second.wr_id, second.status), (6, WcStatus::Flushed));
        assert!(started.elapsed() >= timeout, "not before its time");
        assert_eq!(end.qp.state(), QpState::Error);
    }
}

#[test]
fn a_queue_pair_is_reset_and_used_again() {
    let (a, b) = pair();
    for round in 0..5 {
        a.receive(a.to(&b, HERE));
        b.receive(b.to(&a, HERE));
        a.send();
        b.send();
        exchange(&a, &b);
        let ends = if round % 2 == 0 { [&a, &b] } else { [&b, &a] };
        for end in ends {
            end.qp.modify_state(QpState::Reset).unwrap();
        }
        for end in ends {
            end.init();
        }
    }
}

#[test]
fn a_peer_that_goes_with_nothing_outstanding_leaves_the_queue_pair_as_it_is() {
    let (a, b) = pair_up();
    b.qp.destroy();
    // What is posted before that goes to a peer that may still be there.
    let deadline = Instant::now() + Duration::from_secs(10);
    while a.qp.is_connected() {
        assert!(Instant::now() < deadline, "the end was not seen");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(a.qp.state(), QpState::Rts);
    a.qp.ready_to_send(None, Some(Duration::from_millis(200)))
        .unwrap();
    a.post_send(8, b"to nobody").unwrap();
    assert_eq!(wait(&a.cq).status, WcStatus::RetryExceeded);
}

/// The active end says more at RTS than at RTR, and the other one may stay in RTR for ever, as a server that only
/// receives does.
#[test]
fn an_end_that_stays_in_rtr_receives() {
    for low_sends in [true, false] {
        let (low, high) = ordered();
        let (from, to) = if low_sends {
            (&low, &high)
        } else {
            (&high, &low)
        };
        to.receive(to.to(from, HERE));
        from.receive(from.to(to, HERE));
        // In time for the attempt of an end in RTR, which then is one too many.
        std::thread::sleep(Duration::from_millis(20));
        let memory = to.memory();
        to.post_recv(&memory);
        from.send();
        from.post_send(3, b"one way").unwrap();
        assert_eq!(wait(&to.cq).byte_len, 7);
        assert_eq!(to.qp.state(), QpState::Rtr);
        assert_eq!(wait(&from.cq).status, WcStatus::Success);
        to.send();
        exchange(&low, &high);
    }
}

/// Both ends go to RTS while a connect attempt waits that was made before: it may be answered while another one is
/// made.
#[test]
fn an_attempt_that_is_answered_late_is_as_good_as_the_next_one() {
    for round in 0..50 {
        let (low, high) = ordered();
        low.receive(low.to(&high, HERE));
        high.receive(high.to(&low, HERE));
        std::thread::sleep(Duration::from_micros(1000 + 100 * round));
        std::thread::scope(|threads| {
            threads.spawn(|| low.send());
            threads.spawn(|| high.send());
        });
        exchange(&low, &high);
        exchange(&high, &low);
    }
}

/// The new attempt may come before the end of the old stream was seen.
#[test]
fn an_end_that_comes_again_finds_the_other_one_waiting() {
    let (low, high) = ordered();
    low.receive(low.to(&high, HERE));
    high.receive(high.to(&low, HERE));
    low.send();
    high.send();
    for round in 0..20 {
        exchange(&low, &high);
        let (end, other) = match round % 2 {
            0 => (&low, &high),
            _ => (&high, &low),
        };
        end.qp.modify_state(QpState::Reset).unwrap();
        end.init();
        end.receive(end.to(other, HERE));
        end.send();
        // What is sent before that goes to the one that was there before.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !end.qp.is_connected() {
            assert!(Instant::now() < deadline, "round {round}: not taken");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn many_pairs_between_the_same_two_addresses_do_not_mix() {
    let ends: Vec<(End, End)> = (0..100).map(|_| pair()).collect();
    for (a, b) in &ends {
        a.receive(a.to(b, HERE));
        a.send();
    }
    for (a, b) in ends.iter().rev() {
        b.receive(b.to(a, HERE));
        b.send();
    }
    for (a, b) in &ends {
        exchange(a, b);
    }
}

#[test]
fn an_rnr_retry_count_of_seven_waits_without_end() {
    let (a, b) = pair_up();
    b.qp.set_receive_wait(Duration::from_millis(20));
    b.qp.set_rnr_retry(7);
    a.post_send(8, b"patience").unwrap();
    assert_eq!(wait(&a.cq).status, WcStatus::Success);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(b.qp.state(), QpState::Rts);
    let region = b.memory();
    b.post_recv(&region);
    assert_eq!(wait(&b.cq).byte_len, 8);
    b.qp.set_receive_wait(Duration::from_millis(20));
    a.post_send(10, b"no more").unwrap();
    let ended = wait(&a.cq).status;
    assert_eq!(ended, WcStatus::Success, "handed over");
    let deadline = Instant::now() + Duration::from_secs(10);
    while a.qp.state() == QpState::Rts {
        assert!(Instant::now() < deadline, "the wait is over");
        a.cq.poll(1, |_| {}).unwrap();
    }
}

/// A peer that is done and destroys its queue pair: its messages are received, and the queue pair waits for another
/// peer.
#[test]
fn what_was_complete_is_received_when_its_sender_has_gone() {
    let (a, b) = pair_up();
    b.qp.set_rnr_retry(7);
    for wr_id in 1..=3 {
        a.post_send(wr_id, &vec![9; wr_id as usize]).unwrap();
        assert_eq!(wait(&a.cq).status, WcStatus::Success);
    }
    a.qp.destroy();
    let region = b.memory();
    for len in 1..=3 {
        b.post_recv(&region);
        let received = wait(&b.cq);
        assert_eq!(
            (received.status, received.byte_len),
            (WcStatus::Success, len)
        );
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while b.qp.is_connected() {
        assert!(Instant::now() < deadline, "nothing of the stream is left");
        b.cq.poll(1, |_| {}).unwrap();
    }
    assert_eq!(b.qp.state(), QpState::Rts);
}

#[test]
fn an_rnr_retry_count_below_seven_is_kept_to() {
    for (count, code, least) in [(0, 31, 0), (2, 20, 20)] {
        let (a, b) = pair();
        a.receive(a.to(&b, HERE));
        b.receive(b.to(&a, HERE));
        a.send();
        b.send();
        exchange(&a, &b);
        a.qp.set_rnr_retry(count);
        b.qp.set_min_rnr_timer(code);
        // A receive that is there in time, and one that is not.
        let region = b.memory();
        b.post_recv(&region);
        a.post_send(8, b"in time!").unwrap();
        assert_eq!(wait(&a.cq).status, WcStatus::Success);
        assert_eq!(wait(&b.cq).byte_len, 8);
        let before = Instant::now();
        a.post_send(8, b"too late").unwrap();
        assert_eq!(wait(&a.cq).status, WcStatus::RnrRetryExceeded);
        let waited = before.elapsed();
        assert!(
            waited >= Duration::from_millis(least),
            "{count} times {code}: {waited:?}"
        );
    }
}

#[test]
fn a_queue_pair_in_error_is_not_made_ready() {
    let (a, b) = pair();
    a.receive(a.to(&b, HERE));
    a.qp.modify_state(QpState::Error).unwrap();
    assert!(a.qp.ready_to_send(Some(a.psn), None).is_err());
    assert!(a.qp.ready_to_receive(a.to(&b, HERE)).is_err());
    assert_eq!(a.qp.state(), QpState::Error);
}

/// A number rests before it is given again, so that a port has fewer queue pairs than numbers.
#[test]
fn two_hundred_queue_pairs_for_datagrams_are_at_two_ports_at_least() {
    let end = End::new(1);
    let init = || QpInit {
        send_cq: end.cq.clone(),
        recv_cq: end.cq.clone(),
        srq: None,
        cap: end.qp.cap(),
        sq_sig_all: true,
        cookie: 9,
    };
    let queue_pairs: Vec<_> = (0..200).map(|_| end.pd.create_ud_qp(init())).collect();
    let ports: HashSet<u32> = queue_pairs
        .iter()
        .map(|qp| qp.as_ref().unwrap().number() >> 8)
        .collect();
    assert!(ports.len() > 1);
}

#[test]
fn a_peer_with_the_same_number_is_another_at_another_address() {
    let a = End::new(11);
    let mut to = a.to(&a, HERE);
    to.peer = "127.0.0.2".parse().unwrap();
    a.receive(to);
    assert!(!a.qp.is_connected());
}

#[test]
fn a_queue_pair_may_be_its_own_peer() {
    let a = End::new(11);
    for _ in 0..3 {
        a.receive(a.to(&a, HERE));
        a.send();
        let region = a.memory();
        a.post_recv(&region);
        a.post_send(7, b"to itself").unwrap();
        let mut seen = [wait(&a.cq), wait(&a.cq)];
        seen.sort_by_key(|completion| completion.wr_id);
        assert_eq!(seen.map(|c| c.status), [WcStatus::Success; 2]);
        assert_eq!((seen[0].wr_id, seen[0].byte_len), (1, 9));
        a.qp.modify_state(QpState::Reset).unwrap();
        a.init();
    }
}
