//! Rows between machines, as users of `--hosts` run them. The machines are this one under two names; the remote shell
//! is a script that starts the command here, and the `weft` of each machine one that is the bench's own executable.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_bench::record::Run;

/// Runs of the bench take turns: each ties programs that spin to both cores.
static MACHINE: Mutex<()> = Mutex::new(());

const SCHEMA: &str = include_str!("../../../docs/schema/weft-bench-2.schema.json");
const BENCH: &str = env!("CARGO_BIN_EXE_weft-bench");
/// Both of them, at an address that both have.
const BOTH: &str = "one=127.0.0.1,somebody@other=127.0.0.1";
/// How long something may take to be gone.
const LIMIT: Duration = Duration::from_secs(20);

fn script(file: &Path, text: &str) {
    fs::write(file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A folder with the two scripts; `shell` is what the remote shell does, of its words the command alone being left.
fn folder(shell: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    script(
        &path.join("weft"),
        &format!("[ \"$1\" = bench ] && shift\nexec {BENCH} \"$@\""),
    );
    // Whatever is started there has the folder in its environment, and is known by it.
    let mark = format!("export BENCH_TEST={}", path.display());
    script(
        &path.join("shell"),
        &format!("{mark}\nhost=$1; shift\n{shell}"),
    );
    folder
}

/// The bench between both machines' scripts, for the one row that needs nothing but the bench itself.
fn command(folder: &Path) -> Command {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut command = Command::new(BENCH);
    command
        .current_dir(folder)
        .args(["--weft", &file("weft"), "--rsh", &file("shell")])
        .args(["--only", "send-lat-64", "--stack", "raw-tcp"])
        .args(["--output", "raw"]);
    command
}

fn bench(folder: &Path, words: &[&str]) -> Output {
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    command(folder).args(words).output().unwrap()
}

fn printed(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t).into_owned());
    format!("{out}\n{err}")
}

fn record(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder.join("raw")).unwrap();
    let is_json = |file: &PathBuf| file.extension().is_some_and(|e| e == "json");
    files
        .find_map(|file| Some(file.unwrap().path()).filter(is_json))
        .unwrap()
}

/// Processes that the remote shell has started, and what they have started.
fn left(folder: &Path) -> Vec<u32> {
    let mark = format!("BENCH_TEST={}", folder.display());
    let has_mark = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environment.split(|octet| *octet == 0);
        variables.any(|variable| variable == mark.as_bytes())
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(has_mark)
        .collect()
}

fn nothing_is_left(folder: &Path) {
    let deadline = Instant::now() + LIMIT;
    while !left(folder).is_empty() {
        assert!(Instant::now() < deadline, "left: {:?}", left(folder));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_row_between_two_machines_has_the_machines_in_its_record_and_leaves_nothing_there() {
    // Machines have a word for who comes in.
    let folder = folder("echo welcome to $host\necho \"$host $*\" >> asked\nexec \"$@\"");
    let output = bench(folder.path(), &["--hosts", BOTH, "-n", "2"]);
    assert!(output.status.success(), "{}", printed(&output));

    let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
    let weft = folder.path().join("weft").display().to_string();
    let expected = ["one", "somebody@other"].map(|host| format!("{host} {weft} bench far-end\n"));
    assert_eq!(asked, expected.concat());

    let file = record(folder.path());
    let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let schema = serde_json::from_str(SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&json)
        .map(|e| e.to_string())
        .collect();
    assert_eq!(errors, [""; 0]);

    let run = Run::read(&file).unwrap();
    let path = &run.paths[0];
    assert_eq!((path.name.as_str(), run.paths.len()), ("hosts", 1));
    let hosts: Vec<&str> = path.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts, ["one", "other"]);
    assert!(path.hosts.iter().all(|host| host.environment.is_some()));
    let samples = &run.rows[0].cells[0].samples;
    assert_eq!(samples.len(), 2);
    for sample in samples {
        let roles: Vec<&str> = sample.roles.iter().map(|role| role.role.as_str()).collect();
        assert_eq!(roles, ["server", "client"]);
        assert!(sample
            .roles
            .iter()
            .all(|role| role.user + role.system > 0.0));
        // Of which machine would it be?
        assert_eq!(sample.machine, None);
    }
    assert!(printed(&output).contains("host other (127.0.0.1): "));
    nothing_is_left(folder.path());
}

#[test]
fn a_machine_that_goes_away_fails_its_cells_in_words_and_leaves_nothing() {
    // The second one's remote shell ends once the client runs.
    let folder = folder(
        "case $host in one) exec \"$@\" ;; esac\n\
         \"$@\" | while read -r line; do\n\
         printf '%s\\n' \"$line\"\n\
         case $line in *'\"tell\":\"started\"'*) echo the line is cut >&2; exit ;; esac\ndone",
    );
    let output = bench(folder.path(), &["--hosts", BOTH, "-n", "1"]);
    let text = printed(&output);
    assert!(text.contains("somebody@other is gone"), "{text}");
    assert!(text.contains("the line is cut"), "{text}");
    let run = Run::read(&record(folder.path())).unwrap();
    let cells = run.rows[0].cells.iter();
    let samples: Vec<_> = cells.flat_map(|cell| &cell.samples).collect();
    assert!(!samples.is_empty() && samples.iter().all(|sample| sample.metrics().is_none()));
    nothing_is_left(folder.path());
}

#[test]
fn a_bench_that_is_killed_leaves_nothing_on_the_machines() {
    let folder = folder("exec \"$@\"");
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bench = command(folder.path())
        .args(["--hosts", BOTH, "--seconds", "60"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // The far ends, and a server or a client.
    let deadline = Instant::now() + LIMIT;
    while left(folder.path()).len() < 3 {
        assert!(Instant::now() < deadline, "nothing was started");
        std::thread::sleep(Duration::from_millis(10));
    }
    bench.kill().unwrap();
    bench.wait().unwrap();
    nothing_is_left(folder.path());
}

#[test]
fn what_keeps_the_bench_from_a_machine_is_said_in_the_shells_words() {
    let folder = folder("echo no such host >&2; exit 255");
    let output = bench(folder.path(), &["--hosts", BOTH]);
    let text = printed(&output);
    assert!(!output.status.success());
    assert!(
        text.contains("its remote shell said: no such host"),
        "{text}"
    );
    assert!(text.contains("--rsh"), "{text}");
}

#[test]
fn a_machine_whose_far_end_is_another_is_not_measured_with() {
    let folder = folder("exec \"$@\"");
    let far_end = Command::new(BENCH)
        .arg("far-end")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let here = String::from_utf8(far_end.stdout).unwrap();
    let other = here.replace(
        "\"protocol\":1,\"version\":\"",
        "\"protocol\":0,\"version\":\"0.0.",
    );
    assert_ne!(here, other);
    fs::write(folder.path().join("here"), other).unwrap();
    script(
        &folder.path().join("weft"),
        "cat here; exec cat > /dev/null",
    );
    let output = bench(folder.path(), &["--hosts", BOTH]);
    let text = printed(&output);
    assert!(
        !output.status.success() && text.contains("install the same"),
        "{text}"
    );
}

#[test]
fn machines_that_cannot_be_are_refused_before_anything_is_started() {
    let folder = folder("touch started; exec \"$@\"");
    for (words, why) in [
        (&["--hosts=-oProxyCommand=x"][..], "is no address"),
        (&["--hosts=-oProxyCommand"], "is no host's name"),
        (&["--hosts", "a b"], "is no host's name"),
        (&["--hosts", "a=here"], "is no address"),
        (&["--path", "hosts"], "--hosts <HOST"),
    ] {
        let output = bench(folder.path(), words);
        let text = printed(&output);
        assert!(
            !output.status.success() && text.contains(why),
            "{words:?}: {text}"
        );
    }
    assert!(!folder.path().join("started").exists());
}
