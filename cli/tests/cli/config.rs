//! `weft config check`.

use std::process::Output;

use crate::place::{err, out, Place};

fn check(place: &Place, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let all = [&["config", "check"], arguments].concat();
    let mut weft = place.weft(&all);
    weft.env_remove("WEFT_LIBDIR");
    weft.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn what_is_set_is_told_with_where_it_comes_from() {
    let place = Place::new();
    place.file(
        "weft.toml",
        "[iwarp]\ncrc = false\n\n[sockets]\nudp = \"off port=53; gso address=10.0.0.0/8 program=iperf3; off; gso\"\n",
    );
    let output = check(&place, &[], &[("WEFT_LOG", "info"), ("PATH", "/bin")]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(err(&output), "");
    let said = out(&output);
    let mut lines = said.lines();
    let mut next = || {
        lines
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(next(), "file: weft.toml", "{said}");
    assert_eq!(next(), "iwarp.crc = off weft.toml:2", "{said}");
    assert_eq!(next(), "run.log = info WEFT_LOG", "{said}");
    assert!(next().ends_with(" weft.toml:5"), "{said}");
    assert_eq!(
        next(),
        "rule 1: off: both directions, any address, port 53, any program",
        "{said}"
    );
    assert_eq!(
        next(),
        "rule 2: gso: both directions, address 10.0.0.0/8, any port, program iperf3",
        "{said}"
    );
    assert_eq!(
        next(),
        "rule 3: off: both directions, any address, any port, any program",
        "{said}"
    );
    assert!(
        next().ends_with("(never reached: rule 3 fits everything)"),
        "{said}"
    );
    assert_eq!(next(), "ok", "{said}");
    assert!(!said.contains('\u{1b}'), "colours in a pipe: {said:?}");
}

#[test]
fn rules_for_tcp_are_told_in_words_and_their_mistakes_with_their_places() {
    let place = Place::new();
    let rules = "prefer direction=connect address=10.0.0.0/8 port=6379; require direction=listen";
    let output = check(&place, &[], &[("WEFT_DDP", rules)]);
    let said = out(&output);
    for line in [
        "rule 1: prefer: direction connect, address 10.0.0.0/8, port 6379, any program",
        "rule 2: require: direction listen, any address, any port, any program",
        "where no rule fits: nothing changes",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let output = check(&place, &[], &[("WEFT_DDP", "prefer direction=send")]);
    assert_eq!(output.status.code(), Some(1));
    let said = err(&output);
    let wrong = "rule 1, column 8: direction=send is not understood: give direction=connect, listen or both";
    assert!(said.contains(wrong), "{said}");
}

#[test]
fn nothing_set_is_all_right() {
    let place = Place::new();
    let output = check(&place, &[], &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        out(&output),
        "file: none\nnothing is set: every setting has its default\nok\n"
    );
}

#[test]
fn every_mistake_is_told_with_its_place_and_what_to_do() {
    let place = Place::new();
    let file = place.file(
        "other.toml",
        "[iwarp]\ncrc = \"maybe\"\nmarkers = true\nfpud = \"emss\"\n[sockets]\nudp = \"gso prot=1; of\"\n",
    );
    let file = file.to_str().unwrap();
    let variables = [("WEFT_FPDU", "huge"), ("WEFT_LGO", "info")];
    let output = check(&place, &[file], &variables);
    assert_eq!(output.status.code(), Some(1));
    let said = err(&output);
    for wanted in [
        format!("{file}:2: iwarp.crc = maybe is not understood: give on or off\n"),
        format!("{file}:4: [iwarp] has no fpud; did you mean fpdu?\n"),
        format!("{file}:6: sockets.udp = gso prot=1; of is not understood: rule 1, column 5: prot is"),
        format!("{file}:6: sockets.udp = gso prot=1; of is not understood: rule 2, column 13: a rule begins"),
        "WEFT_FPDU=huge is not understood: give auto, emss or large, or unset it\n".to_owned(),
        "WEFT_LGO is not a setting of Weft; did you mean WEFT_LOG?\n".to_owned(),
    ] {
        assert!(said.contains(&wanted), "{wanted}: {said}");
    }
    assert!(!said.contains('\u{1b}'), "colours in a pipe: {said:?}");
    // What is right is told all the same, and nothing says that it is all.
    let printed = out(&output);
    assert!(printed.contains(&format!("{file}:3\n")), "{printed}");
    assert!(!printed.lines().any(|line| line == "ok"), "{printed}");
}

#[test]
fn what_run_refuses_check_refuses() {
    let place = Place::new();
    for (variable, value) in [
        ("WEFT_CRC", "maybe"),
        ("WEFT_UDP", "gso;"),
        ("WEFT_OFF", "2"),
    ] {
        let run = place
            .weft(&["run", "--", "true"])
            .env(variable, value)
            .output()
            .unwrap();
        assert_eq!(run.status.code(), Some(125), "{}", err(&run));
        let checked = check(&place, &[], &[(variable, value)]);
        assert_eq!(checked.status.code(), Some(1), "{variable}");
        // The same words, so that neither knows more than the other.
        assert_eq!(err(&run), err(&checked));
    }
}

#[test]
fn a_file_that_is_not_read_is_named() {
    let place = Place::new();
    place.file("weft.toml", "[run]\nlog = \"info\"\n");
    let hidden = place.file("home/config/weft/weft.toml", "[run]\nlog = \"debug\"\n");
    let output = check(&place, &[], &[]);
    let said = out(&output);
    assert!(
        said.contains(&format!(
            "not read, as the first file is the one: {}\n",
            hidden.display()
        )),
        "{said}"
    );
    assert!(said.contains("run.log = info"), "{said}");
}

#[test]
fn a_file_that_is_not_there_and_a_bad_command_line_are_refused() {
    let place = Place::new();
    let output = check(&place, &["none.toml"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("none.toml cannot be read"),
        "{}",
        err(&output)
    );
    assert_eq!(check(&place, &["a", "b"], &[]).status.code(), Some(2));
}
