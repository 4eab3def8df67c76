//! What becomes of a command when nobody reads what it prints.

use std::io::{pipe, BufRead, BufReader};
use std::process::{Output, Stdio};

use crate::place::{err, Place};

/// A command whose reader closed the pipe before the first octet: what `| head` does, only surer.
fn unread(place: &Place, words: &[&str]) -> Output {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    place.weft(words).stdout(writer).output().unwrap()
}

#[test]
fn a_command_that_nobody_reads_ends_quietly() {
    let place = Place::new();
    for words in [
        &["--help"][..],
        &["bench", "list"],
        &["bench", "environment"],
        &["bench", "--help"],
        &["config", "check"],
        &["completions", "bash"],
        &["docs", "settings"],
        &["link", "--help"],
        &["run", "--show"],
        &["stat", "--watch", "--json"],
    ] {
        let output = unread(&place, words);
        // Neither a panic (101) nor a signal, and no word of it.
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", err(&output));
        assert_eq!(err(&output), "", "{words:?}");
    }
    // What the doctor found is told by the status, whoever reads the rest.
    let output = unread(&place, &["doctor"]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    assert!(!err(&output).contains("panicked"), "{}", err(&output));
}

#[test]
fn a_complaint_that_nobody_reads_leaves_the_status() {
    let place = Place::new();
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let words = ["bench", "report", "no-such-file"];
    let status = place.weft(&words).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_measurement_that_nobody_watches_ends_as_by_ctrl_c() {
    let place = Place::new();
    let words = "bench -n 1000 --path loopback --stack raw-tcp --only send-rate-64";
    let words: Vec<&str> = words.split(' ').collect();
    let mut child = place
        .weft(&words)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("minutes"), "{line}");
    drop(told);
    // A thousand repetitions would take half an hour: the next line that it says ends it.
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let files = std::fs::read_dir(place.path("out/bench")).unwrap();
    let records = files.filter(|file| file.as_ref().unwrap().path().extension().unwrap() == "json");
    assert_eq!(records.count(), 1);
}
