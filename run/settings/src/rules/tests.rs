use std::net::SocketAddr;
use std::path::Path;

use proptest::prelude::*;

use super::Rules;
use crate::datagrams;
use crate::fuzzing::{check, rules as fuzz, Sample, Side, SAMPLE};

fn read(text: &str) -> Rules<Sample, Side> {
    let read = SAMPLE.parse(text);
    read.unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
}

/// Every mistake in a text, a line each.
fn said(text: &str) -> String {
    let errors = SAMPLE.parse(text).expect_err(text);
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn ends(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn kind(rules: &Rules<Sample, Side>, side: Side, between: &[&str]) -> Option<u8> {
    rules.decide(side, &ends(between)).map(|sample| sample.kind)
}

#[test]
fn what_is_read_is_written_in_one_way() {
    for (text, written) in [
        ("off", "off"),
        ("  prefer ;\toff  ", "prefer; off"),
        ("prefer direction=both", "prefer"),
        (
            "prefer port=7-7 direction=listen",
            "prefer direction=listen port=7",
        ),
        (
            "require program=a port=1-9 address=10.0.0.0/8 depth=3 crc=off",
            "require depth=3 crc=off address=10.0.0.0/8 port=1-9 program=a",
        ),
        ("off address=10.0.0.1/32", "off address=10.0.0.1"),
        ("off address=2001:DB8::/32", "off address=2001:db8::/32"),
        ("off address=::1/128", "off address=::1"),
        ("off address=::ffff:10.0.0.1", "off address=10.0.0.1"),
        ("off address=::ffff:10.0.0.0/104", "off address=10.0.0.0/8"),
        (
            "off address=::ffff:10.0.0.0/24",
            "off address=::ffff:10.0.0.0/24",
        ),
        ("off program=a=b", "off program=a=b"),
    ] {
        assert_eq!(read(text).to_string(), written, "{text}");
        assert_eq!(read(written), read(text), "{text}");
    }
}

#[test]
fn the_first_rule_that_fits_decides() {
    let rules =
        read("off port=53; require direction=listen address=10.0.0.0/8; prefer direction=connect");
    for (side, between, wanted) in [
        (Side::Connect, &["10.1.1.1:53"][..], Some(2)),
        (Side::Listen, &["192.0.2.1:9", "10.1.1.1:54"], Some(1)),
        (Side::Listen, &["11.1.1.1:54"], None),
        (Side::Connect, &["11.1.1.1:54"], Some(0)),
        (Side::Connect, &[], Some(0)),
        (Side::Listen, &[], None),
    ] {
        assert_eq!(kind(&rules, side, between), wanted, "{side:?} {between:?}");
    }
}

#[test]
fn options_change_the_action_of_their_rule_alone() {
    let rules = read("prefer crc=off depth=7 port=1; prefer");
    let actions: Vec<_> = rules.iter().map(|rule| *rule.action()).collect();
    assert_eq!((actions[0].crc, actions[0].depth), (false, 7));
    assert_eq!((actions[1].crc, actions[1].depth), (true, 0));
}

#[test]
fn networks_of_every_width() {
    for (text, inside, outside) in [
        ("0.0.0.0/0", "9.9.9.9:1", "[2001:db8::1]:1"),
        ("::/0", "[2001:db8::1]:1", "9.9.9.9:1"),
        ("127.0.0.1", "[::ffff:127.0.0.1]:1", "127.0.0.2:1"),
        ("::ffff:127.0.0.0/104", "127.9.9.9:1", "128.0.0.1:1"),
        ("2001:db8::/32", "[2001:db8:9::1]:1", "[2001:db9::1]:1"),
        ("192.0.2.128/25", "192.0.2.200:1", "192.0.2.100:1"),
        ("192.0.2.255/25", "192.0.2.200:1", "192.0.2.100:1"),
    ] {
        let rules = read(&format!("off address={text}"));
        assert_eq!(kind(&rules, Side::Listen, &[inside]), Some(2), "{text}");
        assert_eq!(kind(&rules, Side::Listen, &[outside]), None, "{text}");
    }
}

#[test]
fn programs_go_by_any_of_their_names() {
    let rules = read("prefer program=sh; off program=bash; require");
    let first = |names: &[&str]| kind(&rules.for_program(names), Side::Listen, &[]);
    assert_eq!(first(&["sh", "bash"]), Some(0));
    assert_eq!(first(&["bash"]), Some(2));
    assert_eq!(first(&["zsh"]), Some(1));
    assert_eq!(first(&[]), Some(1));
}

#[test]
fn a_rule_in_words_says_what_it_leaves_open() {
    let words = |text| read(text).iter().next().unwrap().in_words();
    assert_eq!(
        words("off"),
        "off: both directions, any address, any port, any program"
    );
    assert_eq!(
        words("prefer depth=2 direction=listen address=::1 port=1-2 program=x"),
        "prefer depth=2: direction listen, address ::1, port 1-2, program x"
    );
    let for_all = |text| read(text).iter().next().unwrap().is_for_all();
    assert!(for_all("prefer depth=2") && !for_all("off port=0-65535"));
}

#[test]
fn mistakes_are_named_with_their_place_and_what_is_allowed() {
    const KEYS: &str = "crc=, depth=, direction=, address=, port=, program=";
    for (text, wanted) in [
        ("", "rule 1, column 1: there is no rule here: begin one with prefer, require or off, or take the semicolon away"),
        ("off;", "rule 2, column 5: there is no rule here: begin one with prefer, require or off, or take the semicolon away"),
        ("perfer", "rule 1, column 1: a rule begins with its action, and perfer is none; did you mean prefer? There are: prefer, require or off"),
        ("gso", "rule 1, column 1: a rule begins with its action, and gso is none; give prefer, require or off"),
        ("port=1", "rule 1, column 1: a rule begins with its action, and port=1 is none; give prefer, require or off"),
        ("off  prot=1", "rule 1, column 6: prot is nothing that a rule can say; did you mean port=? There are: direction=, address=, port=, program="),
        ("off crc=on", "rule 1, column 5: crc is nothing that a rule can say; give any of direction=, address=, port=, program="),
        ("off port", "rule 1, column 5: port is not understood: give port=N or N-M"),
        ("off port=", "rule 1, column 5: port= is not understood: give port=N or N-M"),
        ("off port=5-4", "rule 1, column 5: port=5-4 is not understood: give port=N or N-M"),
        ("off port=+5", "rule 1, column 5: port=+5 is not understood: give port=N or N-M"),
        ("off port=65536", "rule 1, column 5: port=65536 is not understood: give port=N or N-M"),
        ("off address=host", "rule 1, column 5: address=host is not understood: give address=ADDRESS or ADDRESS/BITS"),
        ("off address=10.0.0.0/33", "rule 1, column 5: address=10.0.0.0/33 is not understood: give ADDRESS/BITS with 0 to 32 bits"),
        ("off address=::/129", "rule 1, column 5: address=::/129 is not understood: give ADDRESS/BITS with 0 to 128 bits"),
        ("off direction=lsiten", "rule 1, column 5: direction=lsiten is not understood; did you mean listen? It takes direction=connect, listen or both"),
        ("off direction=send", "rule 1, column 5: direction=send is not understood: give direction=connect, listen or both"),
        ("off program=", "rule 1, column 5: program= is not understood: give program=NAME"),
        ("prefer depth=deep", "rule 1, column 8: depth=deep is not understood: give depth=a whole number"),
        ("prefer crc", "rule 1, column 8: crc= is not understood: give crc=on or off"),
        ("off port=1 port=2", "rule 1, column 12: port= stands in this rule already: make a rule of its own for each"),
        // Columns are characters, not octets.
        ("off program=é; no", "rule 2, column 16: a rule begins with its action, and no is none; give prefer, require or off"),
    ] {
        assert_eq!(said(text), wanted, "{text}");
    }
    assert_eq!(
        said("prefer prt=1 sise=2; off port=x; ; offf"),
        format!(
            "rule 1, column 8: prt is nothing that a rule can say; did you mean port=? There are: {KEYS}\n\
             rule 1, column 14: sise is nothing that a rule can say; give any of {KEYS}\n\
             rule 2, column 26: port=x is not understood: give port=N or N-M\n\
             rule 3, column 33: there is no rule here: begin one with prefer, require or off, or take the semicolon away\n\
             rule 4, column 36: a rule begins with its action, and offf is none; did you mean off? There are: prefer, require or off"
        )
    );
}

/// Words from which most texts of rules are made, right and wrong.
fn word() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "gso",
        "off",
        "prefer",
        "require",
        ";",
        "; off",
        "direction=send",
        "direction=listen",
        "direction=both",
        "crc=on",
        "depth=",
        "port",
        "port=",
        "address=",
        "program=",
        "=",
        "\u{2003}",
        "é",
    ]);
    prop_oneof![
        4 => known.prop_map(str::to_owned),
        1 => "[a-z=;]{0,6}",
        1 => any::<u16>().prop_map(|port| format!("port={port}")),
        1 => any::<(u16, u16)>().prop_map(|(first, last)| format!("port={first}-{last}")),
        1 => any::<([u8; 4], u8)>().prop_map(|([a, b, c, d], bits)| format!("address={a}.{b}.{c}.{d}/{}", bits % 40)),
        1 => any::<(u128, u8)>().prop_map(|(address, bits)| {
            format!("address={}/{bits}", std::net::Ipv6Addr::from(address))
        }),
        1 => any::<u32>().prop_map(|address| format!("address=::ffff:{}", std::net::Ipv4Addr::from(address))),
        1 => "program=[^; \t\n]{1,4}",
    ]
}

/// A rule that is one, so that rules of some length are not rare.
fn rule() -> impl Strategy<Value = String> {
    let condition = |words: &'static str| prop::option::of(words);
    (
        prop::sample::select(vec!["off", "prefer", "prefer depth=7", "require crc=off"]),
        condition(" direction=(connect|listen|both)"),
        condition(" address=((10|192)\\.[0-9]\\.[0-9]\\.[0-9](/[12]?[0-9])?|[0-9a-f]{1,4}:(:|:[0-9a-f]{1,4})(/[0-9]{1,2})?)"),
        condition(" port=[1-9][0-9]{0,3}(-[1-5][0-9]{4})?"),
        condition(" program=[!-:<-~é]{1,9}"),
    )
        .prop_map(|(action, direction, address, port, program)| {
            [Some(action.to_owned()), direction, address, port, program].into_iter().flatten().collect()
        })
}

proptest! {
    #[test]
    fn any_text_is_rules_or_says_where_it_is_not(text in "\\PC{0,60}") {
        check(&SAMPLE, Side::Connect, &text);
        check(&datagrams::GRAMMAR, datagrams::Direction::Send, &text);
    }

    #[test]
    fn words_in_any_order_are_rules_or_say_where_they_are_not(words in prop::collection::vec(word(), 0..12)) {
        let text = words.join(" ");
        check(&SAMPLE, Side::Connect, &text);
        check(&datagrams::GRAMMAR, datagrams::Direction::Send, &text);
    }

    #[test]
    fn rules_display_as_themselves(rules in prop::collection::vec(rule(), 1..5)) {
        prop_assert!(check(&SAMPLE, Side::Listen, &rules.join(";")).is_some(), "{:?}", rules);
    }
}

/// Runs the committed corpus of the fuzz target.
#[test]
fn the_corpus_keeps_its_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rules");
    let files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(files.len() >= 8);
    for file in files {
        fuzz(&std::fs::read(file.path()).unwrap());
    }
}
