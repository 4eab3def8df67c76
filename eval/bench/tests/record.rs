//! A real run of the bench as its users run it, down to the file it leaves.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{json, Value};
use weft_bench::record::{Run, SlideRecord};
use weft_bench::report::{self, Format};

/// Runs of the bench take turns: each ties programs that spin to both cores.
static MACHINE: Mutex<()> = Mutex::new(());

const SCHEMA_1: &str = include_str!("../schema/weft-bench-1.schema.json");
const SCHEMA_2: &str = include_str!("../../../docs/schema/weft-bench-2.schema.json");

fn bench(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
    command
        .current_dir(folder)
        .args(["--output", "raw", "--weft", "no-weft-here"])
        .args(words);
    command
}

fn record(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder.join("raw"))
        .unwrap()
        .map(|f| f.unwrap().path());
    files
        .find(|file| file.extension().is_some_and(|e| e == "json"))
        .unwrap()
}

fn printed(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t).into_owned());
    format!("{out}\n{err}")
}

/// What is wrong with a record by the schema of its version.
fn errors(record: &Value) -> Vec<String> {
    let text = match record["version"].as_u64() {
        Some(1) => SCHEMA_1,
        _ => SCHEMA_2,
    };
    let schema: Value = serde_json::from_str(text).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    validator
        .iter_errors(record)
        .map(|e| e.to_string())
        .collect()
}

#[test]
fn a_run_leaves_a_record_that_follows_the_schema_and_can_be_reported_again() {
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let words =
        "--quick --path loopback --stack raw-tcp --stack weft --only connect --only bring-up \
                 --only ud-send-rate-64 --only fetch-add-rate-8";
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    let output = bench(folder.path(), &words).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));

    let file = record(folder.path());
    let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(errors(&value), [""; 0]);

    let run = Run::read(&file).unwrap();
    let row = run.row("loopback/connect").unwrap();
    assert!(row.cell("raw-tcp").unwrap().values("connect_us")[0].1 > 0.0);
    assert!(row.cell("weft native crc=on").unwrap().values("connect_us")[0].1 > 0.0);
    for (row, stack, metric) in [
        ("loopback/bring-up", "raw-tcp", "bring_up_us"),
        ("loopback/ud-send-rate-64", "raw-udp", "messages_per_s"),
        ("loopback/fetch-add-rate-8", "raw-tcp", "messages_per_s"),
    ] {
        let cell = run.row(row).unwrap().cell(stack).unwrap();
        assert!(cell.values(metric)[0].1 > 0.0, "{row}");
    }
    // What cannot run is in the record with its reason, and in the report.
    assert!(row
        .cell("weft crc=on")
        .unwrap()
        .skipped
        .as_ref()
        .unwrap()
        .contains("no-weft-here"));

    // What each role took is there, and what was measured twice.
    let cell = row.cell("raw-tcp, again").unwrap();
    assert_eq!(cell.again.as_deref(), Some("raw-tcp"));
    let sample = &cell.samples[0];
    let roles: Vec<&str> = sample.roles.iter().map(|role| role.role.as_str()).collect();
    assert_eq!(roles, ["server", "client"]);
    assert!(
        sample
            .roles
            .iter()
            .all(|role| role.user + role.system > 0.0),
        "{sample:?}"
    );
    assert!(sample
        .machine
        .as_ref()
        .unwrap()
        .cores
        .iter()
        .any(|core| core.busy > 0.0));
    let commands = &cell.commands;
    assert_eq!(
        (commands[0].role.as_str(), commands[0].host.as_str()),
        ("server", "here")
    );
    // The page is beside it.
    let page = fs::read_to_string(file.with_extension("html")).unwrap();
    assert!(page.contains("connect to established") && page.contains("<svg"));

    let report = Command::new(env!("CARGO_BIN_EXE_weft-bench"))
        .args(["report", "--format", "markdown"])
        .arg(&file)
        .output()
        .unwrap();
    let text = printed(&report);
    assert!(
        text.contains("| raw-tcp") && text.contains("reference"),
        "{text}"
    );
    assert!(text.contains("weft crc=on: there is no"), "{text}");
}

#[test]
fn a_record_of_a_runner_in_python_follows_the_schema_and_is_reported() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The runners have the command with all of Weft, of which the bench is a part.
    let weft = folder.path().join("weft");
    let script = format!(
        "#!/bin/sh\nshift\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_weft-bench")
    );
    fs::write(&weft, script).unwrap();
    fs::set_permissions(&weft, fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("rig.json");
    let writer = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/rig/test_record.py"
    );
    let output = Command::new("python3")
        .arg(writer)
        .arg("--write")
        .args([&file, &weft])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", printed(&output));

    let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(errors(&value), [""; 0]);
    let run = Run::read(&file).unwrap();
    let row = run.row("loopback/call-send").unwrap();
    assert_eq!(
        row.cell("kernel").unwrap().values("call_ns"),
        [(1, 300.0), (2, 100.0)]
    );
    let report = report::full(&run, Format::Markdown);
    for part in [
        "a call of send (ns)",
        "64 KiB write goodput",
        "1 FAILED",
        "other hooks: not built",
        "SKIPPED, no namespaces here",
    ] {
        assert!(report.contains(part), "no {part:?} in\n{report}");
    }
    // The targets are the bench's own.
    assert!(!report.contains("Targets"), "{report}");
}

#[test]
fn records_among_the_documents_follow_the_schema() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/measurements");
    let mut read = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        // Some are older than the one format.
        if value["schema"] == "weft-bench" {
            assert_eq!(errors(&value), [""; 0], "{}", file.display());
            Run::read(&file).unwrap();
            read += 1;
        }
    }
    assert!(read > 0);
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_leaves_no_process() {
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "-n",
        "1000",
        "--path",
        "loopback",
        "--stack",
        "raw-tcp",
        "--only",
        "send-rate-64",
    ];
    let mut child = bench(folder.path(), &words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Once the first cell has its line the next is under way, however busy the machine is.
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("raw-tcp:") {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0, "it ended early");
    }
    let drain = std::thread::spawn(move || told.read_to_string(&mut line));
    let stopped = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drain.join().unwrap().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", printed(&output));
    // A thousand repetitions would take far longer.
    assert!(stopped.elapsed() < Duration::from_secs(60));

    let run = Run::read(&record(folder.path())).unwrap();
    assert!(run.interrupted);
    let samples: Vec<_> = run.rows[0].cells.iter().flat_map(|c| &c.samples).collect();
    assert!(!samples.is_empty() && samples.len() < 10, "{samples:?}");
    assert_eq!(
        run.rows[0].cells.iter().flat_map(|c| c.failures()).count(),
        0
    );
}

#[test]
fn a_run_that_was_ended_is_gone_on_with() {
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let words = "-n 2 --path loopback --stack raw-tcp --only connect --only hot-spot-4";
    let words: Vec<&str> = words.split(' ').collect();
    let output = bench(folder.path(), &words).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let file = record(folder.path());
    let whole = Run::read(&file).unwrap();
    assert!(!whole.interrupted);

    // As a run leaves it that was ended in its first row.
    let mut begun = whole.clone();
    begun.interrupted = true;
    begun.rows.truncate(1);
    begun.rows[0].cells[1].samples.truncate(1);
    begun.write_to(&file).unwrap();
    let resume = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
        command
            .current_dir(folder.path())
            .args(["--resume", file.to_str().unwrap()]);
        command.output().unwrap()
    };
    let output = resume();
    assert!(output.status.success(), "{}", printed(&output));
    let run = Run::read(&file).unwrap();
    assert!(!run.interrupted && run.started == whole.started);
    assert_eq!(run.rows.len(), whole.rows.len());
    assert_eq!(run.rows[0].cells[0].samples, whole.rows[0].cells[0].samples);
    for cell in run
        .rows
        .iter()
        .flat_map(|row| &row.cells)
        .filter(|cell| cell.skipped.is_none())
    {
        let repetitions: Vec<u32> = cell.samples.iter().map(|s| s.repetition).collect();
        assert_eq!(repetitions, [1, 2], "{}", cell.stack);
    }
    let added = run.rows[0].cells[1].samples[1].at;
    assert!(added >= whole.rows[0].cells[0].samples[1].at, "{added}");

    begun.environment.kernel = "another".to_owned();
    begun.write_to(&file).unwrap();
    let output = resume();
    assert!(!output.status.success());
    let text = printed(&output);
    assert!(text.contains("the kernel was \"another\""), "{text}");
}

#[test]
fn a_comparison_tells_by_its_status_whether_a_row_is_worse() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, factor: f64| {
        let cell = |stack: &str, factor: f64| {
            let sample = |n: u32| {
                let value = factor * (100.0 + f64::from(n % 3));
                json!({ "repetition": n, "at": 0.0, "took": 1.0, "metrics": { "connect_us": value } })
            };
            let samples: Vec<Value> = (1..=6).map(sample).collect();
            json!({ "stack": stack, "commands": [], "skipped": null, "samples": samples })
        };
        let mut run = empty();
        run["paths"] = json!([{ "name": "loopback", "description": "", "mtu": 1, "sysctls": {}, "skipped": null,
                                "hosts": [], "links": [] }]);
        run["rows"] = json!([{
            "id": "loopback/connect", "path": "loopback", "workload": { "kind": "connect" }, "metric": "connect_us",
            "reference": ["raw-tcp"], "cells": [cell("raw-tcp", 1.0), cell("weft crc=on", factor)],
        }]);
        assert_eq!(errors(&run), [""; 0]);
        let file = folder.path().join(name);
        fs::write(&file, run.to_string()).unwrap();
        file
    };
    let [before, slower] = [file("before.json", 3.0), file("slower.json", 3.3)];
    let compare = |files: [&Path; 2]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-bench"));
        command.arg("compare").args(files).output().unwrap()
    };
    let output = compare([&before, &slower]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    assert!(
        printed(&output).contains("1 worse, 0 better"),
        "{}",
        printed(&output)
    );
    assert_eq!(compare([&slower, &before]).status.code(), Some(0));
    assert_eq!(compare([&before, &before]).status.code(), Some(0));
    let output = compare([&before, Path::new("no-such-file")]);
    assert!(!output.status.success() && printed(&output).contains("cannot read no-such-file"));
}

#[test]
fn a_folder_that_cannot_be_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("raw"), "a file").unwrap();
    let words = ["--path", "loopback", "--only", "send-rate-64"];
    let output = bench(folder.path(), &words).output().unwrap();
    let text = printed(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("nothing can be written to raw"), "{text}");
    assert!(text.contains("--output"), "{text}");
    assert!(!text.contains("raw-tcp"), "{text}");
}

#[test]
fn the_schema_refuses_a_sample_that_is_both_or_neither() {
    let sample = |outcome: Value| {
        let mut sample = json!({ "repetition": 1, "at": 0.0, "took": 1.0 });
        sample
            .as_object_mut()
            .unwrap()
            .extend(outcome.as_object().unwrap().clone());
        let cell = json!({ "stack": "s", "commands": [], "skipped": null, "samples": [sample] });
        let row = json!({
            "id": "loopback/connect", "path": "loopback", "workload": { "kind": "connect" },
            "metric": "connect_us", "reference": [], "cells": [cell],
        });
        let mut run = empty();
        run["rows"] = json!([row]);
        errors(&run).len()
    };
    let (metrics, failure) = (
        json!({ "connect_us": 1.0 }),
        json!({ "reason": "r", "tail": [] }),
    );
    assert_eq!(sample(json!({ "metrics": metrics })), 0);
    assert_eq!(sample(json!({ "failure": failure })), 0);
    assert_ne!(sample(json!({})), 0);
    assert_ne!(sample(json!({ "metrics": metrics, "failure": failure })), 0);
}

#[test]
fn a_record_has_the_slide_that_was_looked_at() {
    let slide = SlideRecord {
        name: "slide.tif".to_owned(),
        width: 640,
        height: 480,
        colours: "RGB".to_owned(),
        parts: "tiles".to_owned(),
        octets: 921_700,
        crc32: "0123abcd".to_owned(),
    };
    let mut run = empty();
    run["slide"] = serde_json::to_value(&slide).unwrap();
    assert_eq!(errors(&run), [""; 0]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.json");
    fs::write(&file, run.to_string()).unwrap();
    let read = Run::read(&file).unwrap();
    assert_eq!(read.slide.as_ref(), Some(&slide));
    let text = report::full(&read, Format::Markdown);
    let told =
        "slide \"slide.tif\": 640 x 480 pixels, RGB, in tiles; 921700 octets, CRC-32 0123abcd";
    assert!(text.contains(told), "{text}");
    run["slide"]["crc32"] = json!("none");
    assert_ne!(errors(&run), [""; 0]);
}

#[test]
fn a_slide_that_cannot_be_read_is_told_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("slide.tif"), "II*\0").unwrap();
    for (words, wanted) in [
        (
            &["--path", "cluster", "--slide", "slide.tif"][..],
            "cut short, or is no TIFF",
        ),
        (&["--path", "cluster", "--slide", "none.tif"], "none.tif"),
        (
            &["--path", "loopback", "--slide", "slide.tif"],
            "--path cluster",
        ),
    ] {
        let output = bench(folder.path(), words).output().unwrap();
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(wanted), "{text}");
        assert!(!text.contains("Ctrl-C ends it early"), "{text}");
    }
}

fn empty() -> Value {
    json!({
        "schema": "weft-bench", "version": 2, "interrupted": false,
        "started": "2026-01-02T03:04:05Z", "finished": "2026-01-02T03:04:05Z",
        "options": { "repetitions": 1, "cell_seconds": 1, "cores": [0, 1], "only": [], "stacks": [],
                     "full": false, "targets": false, "paths": [] },
        "environment": {
            "kernel": "", "cpu": "", "cores": 1, "governor": null, "virtual_machine": false, "mitigations": {},
            "load": [], "memory": 0, "revision": null, "optimised": true, "root": false, "tools": {},
        },
        "paths": [], "rows": [],
    })
}
