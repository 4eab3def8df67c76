//! `weft stat`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::Ordering;

use weft_engine::stats::{MAGIC, NAME, SLOTS_AT, SLOT_WORDS, VERSION};
use weft_os::shm::SharedWords;

use crate::place::{err, out, Place};

/// The memory of a served process, kept by this test.
fn served(connections: usize) -> SharedWords {
    let memory = SharedWords::create(NAME, SLOTS_AT + connections * SLOT_WORDS).unwrap();
    let set = |word: usize, value: u64| memory.words()[word].store(value, Ordering::Relaxed);
    set(2, u64::from(std::process::id()));
    // Connections, ever, queue pairs, regions, octets in and out, sends, receives, errors.
    for (word, value) in [1, 5, 2, 3, 1_500_000, 12, 40, 2, 0]
        .into_iter()
        .enumerate()
    {
        set(3 + word, value);
    }
    for slot in 0..connections {
        let at = SLOTS_AT + slot * SLOT_WORDS;
        set(at, 1);
        set(at + 1, 17);
    }
    set(1, VERSION);
    set(0, MAGIC);
    memory
}

#[test]
fn counts_of_a_process_are_shown_until_it_is_gone() {
    let place = Place::new();
    let pid = std::process::id().to_string();
    // There is no terminal, so it prints once and ends.
    let once = |arguments: &[&str]| {
        let all: Vec<&str> = [&["stat"], arguments].concat();
        place.weft(&all).output().unwrap()
    };

    let output = once(&[&pid]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("is not served by Weft"));

    let memory = served(1);
    let output = once(&[&pid]);
    let said = out(&output);
    assert!(output.status.success(), "{}", err(&output));
    let row: Vec<&str> = said.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[0], pid);
    assert_eq!(
        row[row.len() - 10..],
        ["1", "2", "3", "1.50M", "12", "42", "-", "-", "-", "0"]
    );
    assert!(said.contains("MULPDU"), "{said}");

    let output = once(&["--json"]);
    let look: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = look["processes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|process| process["pid"] == std::process::id())
        .expect("this process is among them");
    assert_eq!(own["octets_in"], 1_500_000);
    assert_eq!(own["rates"], serde_json::Value::Null);
    assert_eq!(own["each"][0]["queue_pair"], 17);

    let looks = place.weft(&["stat", "--watch", "--interval", "0.1", &pid]);
    let mut child = { looks }.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let heads = lines
        .map_while(Result::ok)
        .filter(|line| line.contains("PROGRAM"));
    assert_eq!(heads.take(3).count(), 3, "one look after the other");
    child.kill().unwrap();
    child.wait().unwrap();

    drop(memory);
    assert_eq!(once(&[&pid]).status.code(), Some(1));
}

#[test]
fn with_nobody_to_show_it_says_so() {
    let place = Place::new();
    let output = place.weft(&["stat"]).output().unwrap();
    assert!(output.status.success());
    let said = out(&output);
    // Other tests may be served meanwhile.
    assert!(
        said.contains("No process is served by Weft right now") || said.contains("PID"),
        "{said}"
    );
}
