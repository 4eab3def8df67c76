//! Help, completions, manual pages.

use std::process::Command;

use crate::place::{out, Place};

#[test]
fn every_help_teaches_by_examples() {
    let place = Place::new();
    for command in [
        &["--help"][..],
        &["run", "--help"],
        &["doctor", "--help"],
        &["stat", "--help"],
    ] {
        let output = place.weft(command).output().unwrap();
        assert!(output.status.success());
        assert!(out(&output).contains("Examples:\n"), "{command:?}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let output = Place::new().weft(&["--version"]).output().unwrap();
    assert_eq!(
        out(&output),
        format!("weft {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn completions_are_scripts_their_shells_take() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = place.weft(&["completions", shell]).output().unwrap();
        let script = place.file(shell, &out(&output));
        assert!(out(&output).contains("real-devices"), "{shell}");
        match Command::new(shell).arg("-n").arg(script).status() {
            Ok(status) => assert!(status.success(), "{shell}"),
            Err(_) => eprintln!("skipped: no {shell} to read its script"),
        }
    }
}

#[test]
fn manual_pages_are_written() {
    let place = Place::new();
    let status = place.weft(&["man", "man1"]).status().unwrap();
    assert!(status.success());
    let page = std::fs::read_to_string(place.path("man1/weft-run.1")).unwrap();
    assert!(page.contains(".TH weft-run 1"), "{page}");
    assert!(
        page.contains("WEFT\\_CRC") || page.contains("WEFT_CRC"),
        "{page}"
    );
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let place = Place::new();
    for command in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["completions", "bash"],
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = place.weft(command).stdout(full).output().unwrap();
        assert!(!output.status.success(), "{command:?}");
        let said = crate::place::err(&output);
        assert!(
            said.contains("No space left on device"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let place = Place::new();
    let shell = format!(
        "{} completions bash | head -n 1",
        env!("CARGO_BIN_EXE_weft")
    );
    let output = place
        .bare("sh".as_ref())
        .args(["-c", &shell])
        .output()
        .unwrap();
    assert_eq!(crate::place::err(&output), "");
}
