//! Two builds measured in turn, as users of `--beside` run it. The builds are stand-ins with the commands of `weft`
//! that the bench asks for, and with its own programs behind `weft bench`: the same ones on both sides.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use weft_bench::record::{Run, BESIDE, THIS};

/// Runs of the bench take turns: each ties programs that spin to both cores.
static MACHINE: Mutex<()> = Mutex::new(());

const SCHEMA: &str = include_str!("../../../docs/schema/weft-bench-2.schema.json");
const BENCH: &str = env!("CARGO_BIN_EXE_weft-bench");

/// What `weft bench native` is in a build.
#[derive(Clone, Copy)]
enum Native {
    /// The bench's own.
    Own,
    /// The bench's own, with messages of 64 KiB where 64 octets are asked for: slower, whatever the machine.
    Slow,
    /// Not there.
    Missing,
}

fn build(place: &Path, native: Native) {
    let native = match native {
        Native::Own => format!("exec {BENCH} \"$@\""),
        Native::Slow => format!("exec {BENCH} $(echo \"$*\" | sed 's/--size=64 /--size=65536 /')"),
        Native::Missing => "exit 2".to_owned(),
    };
    let script = format!(
        "#!/bin/sh\ncase \"$1 $2\" in\n'--version ') echo weft 1.2.3 ;;\n\
         'run --show') echo 'env LD_PRELOAD={0}/libweft.so true' ;;\n'run --') ;;\n\
         'bench native') shift; {native} ;;\n*) echo \"not served: $*\" >&2; exit 9 ;;\nesac\n",
        place.display()
    );
    fs::create_dir_all(place).unwrap();
    fs::write(place.join("weft"), script).unwrap();
    fs::set_permissions(place.join("weft"), fs::Permissions::from_mode(0o755)).unwrap();
}

fn bench(folder: &Path, beside: &str, words: &[&str]) -> Output {
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    Command::new(BENCH)
        .current_dir(folder)
        .args([
            "--output",
            "raw",
            "--weft",
            "this/weft",
            "--path",
            "loopback",
        ])
        .args(["--stack", "weft native crc=off", "--beside", beside])
        .args(words)
        .output()
        .unwrap()
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

#[test]
fn one_build_beside_itself_leaves_a_record_of_both_and_a_ratio() {
    let folder = tempfile::tempdir().unwrap();
    build(&folder.path().join("this"), Native::Own);
    build(&folder.path().join("other"), Native::Own);
    let words = ["--only", "send-lat-64", "--pairs", "6", "--until", "90%"];
    let output = bench(
        folder.path(),
        "other",
        &[&words[..], &["--instructions", "none"]].concat(),
    );
    let text = printed(&output);
    // A machine that is busy beside one of six pairs may make it slower: that is the status too.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{text}");

    let file = record(folder.path());
    let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|e| e.to_string())
        .collect();
    assert_eq!(errors, [""; 0]);

    let run = Run::read(&file).unwrap();
    assert_eq!(serde_json::to_value(&run).unwrap(), value);
    let builds: Vec<_> = run
        .builds
        .iter()
        .map(|b| (b.name.as_str(), b.path.as_deref()))
        .collect();
    assert_eq!(builds, [(THIS, Some("this/weft")), (BESIDE, Some("other"))]);
    assert!(run
        .builds
        .iter()
        .all(|b| b.version.as_deref() == Some("1.2.3") && b.revision.is_none()));
    let cells = &run.row("loopback/send-lat-64").unwrap().cells;
    let of: Vec<_> = cells
        .iter()
        .map(|c| (c.stack.as_str(), c.build.as_deref()))
        .collect();
    let stack = "weft native crc=off";
    assert_eq!(of, [(stack, Some(THIS)), (stack, Some(BESIDE))]);
    assert_eq!(
        cells
            .iter()
            .map(|c| c.values("half_rtt_us").len())
            .collect::<Vec<_>>(),
        [6, 6]
    );
    // The other build comes first in every second pair.
    let at = |cell: usize, pair: usize| cells[cell].samples[pair].at;
    assert!(at(0, 0) < at(1, 0) && at(1, 1) < at(0, 1) && at(0, 2) < at(1, 2));

    let row = text
        .lines()
        .find(|line| line.trim().starts_with(stack))
        .unwrap();
    let ratio = row.split_ascii_whitespace().nth(5).unwrap();
    assert!(
        ratio
            .parse::<f64>()
            .is_ok_and(|r| (0.05..20.0).contains(&r)),
        "{text}"
    );
    assert!(text.contains("This build and the one beside it"), "{text}");
    let recorded = cells[0].ratio.unwrap();
    assert_eq!(format!("{:.3}", recorded.ratio), ratio);
    assert!(recorded.pairs == 6 && recorded.interval.is_some());
}

#[test]
fn a_build_that_is_slower_is_found() {
    let folder = tempfile::tempdir().unwrap();
    build(&folder.path().join("this"), Native::Slow);
    build(&folder.path().join("other"), Native::Own);
    let words = ["--only", "send-lat-64", "--pairs", "6"];
    let output = bench(
        folder.path(),
        "other",
        &[&words[..], &["--instructions", "none"]].concat(),
    );
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let stack = "loopback/send-lat-64 weft native crc=off";
    for words in [
        format!("{stack}: slower than the build beside it: 0."),
        format!("1 worse: {stack} (SLOWER)"),
    ] {
        assert!(text.contains(&words), "{words}: {text}");
    }
    let run = Run::read(&record(folder.path())).unwrap();
    let this = &run.row("loopback/send-lat-64").unwrap().cells[0];
    assert!(this.ratio.unwrap().interval.unwrap().1 < 0.98);
}

#[test]
fn what_only_one_build_can_run_is_skipped_aloud() {
    let folder = tempfile::tempdir().unwrap();
    build(&folder.path().join("this"), Native::Own);
    build(&folder.path().join("old"), Native::Missing);
    let output = bench(folder.path(), "old/weft", &["--only", "send-lat-64"]);
    let text = printed(&output);
    assert!(output.status.success(), "{text}");
    for words in [
        "weft native crc=off (beside): skipped: this build's bench has no programs on the Rust API",
        "weft native crc=off (this): skipped: the build beside it cannot run it",
        "0 no slower, 0 not decided, 1 not compared, 0 worse",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn what_is_no_build_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    build(&folder.path().join("this"), Native::Own);
    let output = bench(folder.path(), "raw", &["--only", "send-lat-64"]);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("raw is not a build of Weft") && text.contains("make build"),
        "{text}"
    );
    assert!(!text.contains("minutes"), "{text}");
}
