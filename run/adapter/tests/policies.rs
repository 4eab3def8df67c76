//! Two hosts on a cable whose connections send as rules say.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{hosts, pattern, ruled_hosts, Hosts, Pair};
use weft_engine::carrier::{Carrier, Transfer};
use weft_engine::settings::transport::Policy;

const AT: &str = "10.7.0.2:7471";
/// Less than what the cable keeps of frames of one segment.
const OCTETS: usize = 1_500_000;

fn pair(hosts: &Hosts) -> Pair {
    hosts.connect(AT.parse::<SocketAddr>().unwrap())
}

/// How long octets take from one end to the other.
fn takes(hosts: &Hosts, from: &dyn Carrier, to: &dyn Carrier, len: usize) -> Duration {
    let octets = pattern(len);
    let begin = Instant::now();
    assert!(hosts.transfer(from, to, &octets) == octets);
    begin.elapsed()
}

/// As many octets take less time than that, once at least: others may want the cores.
fn is_sooner(hosts: &Hosts, from: &dyn Carrier, to: &dyn Carrier, than: Duration) -> bool {
    (0..5).any(|_| takes(hosts, from, to, 1 << 20) < than)
}

#[test]
fn a_rate_is_kept_in_the_direction_that_its_rule_names() {
    // 5 MB a second: a fifth of a second for 1 MB, of which a burst may leave at once.
    let hosts = ruled_hosts("rate=40Mbit direction=connect");
    let Pair { active, passive } = pair(&hosts);
    let ruled = takes(&hosts, &*active, &*passive, 1 << 20);
    assert!(ruled > Duration::from_millis(150), "{ruled:?}");
    assert!(is_sooner(&hosts, &*passive, &*active, ruled / 2));
}

#[test]
fn a_rule_for_connections_that_come_in_is_not_for_those_that_go_out() {
    let hosts = ruled_hosts("rate=40Mbit direction=listen port=7471; cubic");
    let Pair { active, passive } = pair(&hosts);
    let ruled = takes(&hosts, &*passive, &*active, 1 << 20);
    assert!(ruled > Duration::from_millis(150), "{ruled:?}");
    assert!(is_sooner(&hosts, &*active, &*passive, ruled / 2));
}

#[test]
fn a_program_changes_how_a_connection_sends_while_it_does() {
    let hosts = hosts();
    let Pair { active, passive } = pair(&hosts);
    let policy = |text| Policy::parse(text).unwrap();
    active.set_policy(&policy("rate=40Mbit")).unwrap();
    let slow = takes(&hosts, &*active, &*passive, 1 << 20);
    assert!(slow > Duration::from_millis(150), "{slow:?}");
    active.set_policy(&policy("none")).unwrap();
    assert!(is_sooner(&hosts, &*active, &*passive, slow / 2));
}

#[test]
fn what_was_paced_leaves_at_once_when_a_program_lets_it() {
    let hosts = hosts();
    let Pair { active, passive } = pair(&hosts);
    let policy = |text| Policy::parse(text).unwrap();
    // A thousand seconds for all that is sent.
    active.set_policy(&policy("rate=8kbit")).unwrap();
    let octets = pattern(1 << 20);
    let begin = Instant::now();
    let Transfer::Octets(sent) = active.send(&octets) else {
        panic!("nothing is taken");
    };
    active.set_policy(&policy("none")).unwrap();
    assert!(hosts.finish_transfer(&*active, &*passive, &octets, sent) == octets);
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "{:?}",
        begin.elapsed()
    );
}

/// Frames that leave the sender and the receiver for so many octets.
fn frames(hosts: &Hosts) -> (u64, u64) {
    let Pair { active, passive } = pair(hosts);
    let count = || {
        let of = |host: &common::Host| host.driver.counters().frames_out;
        (of(&hosts.one), of(&hosts.two))
    };
    let before = count();
    takes(hosts, &*active, &*passive, OCTETS);
    let after = count();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn frames_are_as_long_as_a_rule_says() {
    let (usual, _) = frames(&hosts());
    let (short, _) = frames(&ruled_hosts("cubic frame=1500"));
    // Segments are of 9,000 octets, which a device would cut frames of 64 kB into.
    assert!(usual < 80 && short > 160, "{usual} and {short}");
}

#[test]
fn acknowledgements_are_as_seldom_as_a_rule_says() {
    // So slowly that segments come one by one: what comes together is acknowledged together anyhow.
    let (_, usual) = frames(&ruled_hosts("rate=100Mbit frame=1500"));
    let (_, seldom) = frames(&ruled_hosts("rate=100Mbit frame=1500 acks=1/64"));
    assert!(usual > 40 && seldom < usual / 3, "{usual} and {seldom}");
}
