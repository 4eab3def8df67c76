//! `weft run`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::place::{err, out, Place};

#[test]
fn the_exit_status_is_the_programs() {
    let place = Place::new();
    for code in [0, 1, 7, 125, 255] {
        let script = format!("exit {code}");
        let status = place.weft(&["run", "--", "sh", "-c", &script]).status();
        assert_eq!(status.unwrap().code(), Some(code));
    }
}

#[test]
fn a_program_that_dies_of_a_signal_is_seen_to() {
    let place = Place::new();
    let status = place
        .weft(&["run", "--", "sh", "-c", "kill -9 $$"])
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(9));
    let shell = format!(
        "{} run --libdir {} -- sh -c 'kill -9 $$'; echo $?",
        env!("CARGO_BIN_EXE_weft"),
        place.path("lib/weft").display()
    );
    let output = Command::new("sh").args(["-c", &shell]).output().unwrap();
    assert!(out(&output).contains("137"), "{}", out(&output));
}

#[test]
fn a_signal_reaches_the_program_itself() {
    let place = Place::new();
    let script = "trap 'exit 42' TERM; echo $$; while :; do sleep 0.05; done";
    let mut child = place
        .weft(&["run", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    // The same process, not a child of it.
    assert_eq!(line.trim(), child.id().to_string());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

#[test]
fn arguments_arrive_as_they_were_given() {
    let place = Place::new();
    let output = place
        .weft(&["run", "--", "printf", "<%s>", "", "a b", "--crc", "*"])
        .output()
        .unwrap();
    assert_eq!(out(&output), "<><a b><--crc><*>");
    let output = place.weft(&["run", "printf", "<%s>", "--help"]).output();
    assert_eq!(out(&output.unwrap()), "<--help>");
}

#[test]
fn arguments_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let output = place
        .weft(&["run", "--", "printf", "%s"])
        .arg(std::ffi::OsStr::from_bytes(b"\xff\xfe"))
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"\xff\xfe");
}

#[test]
fn ours_is_preloaded_before_what_was() {
    let place = Place::new();
    let mut weft = place.weft(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    let output = weft.env("LD_PRELOAD", "libm.so.6").output().unwrap();
    let folder = std::fs::canonicalize(place.path("lib/weft")).unwrap();
    assert_eq!(
        out(&output).trim(),
        format!("{}/libweft.so:libm.so.6", folder.display())
    );
}

#[test]
fn weft_within_weft_is_once() {
    let place = Place::new();
    let weft = env!("CARGO_BIN_EXE_weft");
    let output = place
        .weft(&[
            "run",
            "--",
            weft,
            "run",
            "--",
            "sh",
            "-c",
            "echo $LD_PRELOAD",
        ])
        .output()
        .unwrap();
    assert_eq!(out(&output).matches("libweft.so").count(), 1);
}

#[test]
fn settings_reach_the_program_in_their_order() {
    let place = Place::new();
    place.file(
        "weft.toml",
        "[iwarp]\ncrc = \"off\"\nfpdu = \"emss\"\nmarkers = true\n[run]\nstat = false\n",
    );
    let script = "echo $WEFT_CRC $WEFT_FPDU $WEFT_MARKERS $WEFT_STAT ${WEFT_LOG-unset}";
    let output = place
        .weft(&["run", "--crc", "on", "--", "sh", "-c", script])
        .env("WEFT_FPDU", "large")
        .output()
        .unwrap();
    assert_eq!(out(&output).trim(), "on large on off unset");
}

#[test]
fn the_users_file_counts_where_there_is_none_in_the_folder() {
    let place = Place::new();
    place.file("home/config/weft/weft.toml", "[run]\nlog = \"info\"\n");
    let show = |place: &Place, arguments: &[&str]| {
        let output = place.weft(arguments).output().unwrap();
        out(&output)
            .lines()
            .find(|line| line.contains("run.log"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let line = show(&place, &["run", "--show"]);
    assert!(line.starts_with("run.log = info"), "{line}");

    place.file("other.toml", "[run]\nlog = \"debug\"\n");
    let line = show(&place, &["run", "--show", "--config", "other.toml"]);
    assert!(line.starts_with("run.log = debug"), "{line}");
    assert!(line.ends_with("weft.toml, line 2"), "{line}");

    place.file("weft.toml", "[run]\nlog = \"error\"\n");
    let line = show(&place, &["run", "--show"]);
    assert!(line.starts_with("run.log = error"), "{line}");
}

#[test]
fn a_bad_file_stops_the_launch_and_names_the_line() {
    let place = Place::new();
    place.file("weft.toml", "[iwarp]\n\ncrc = \"maybe\"\n");
    let output = place.weft(&["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = err(&output);
    assert!(said.contains("weft.toml:3: "), "{said}");
    assert!(said.contains("give on or off"), "{said}");
}

#[test]
fn a_bad_variable_or_flag_stops_the_launch() {
    let place = Place::new();
    let output = place
        .weft(&["run", "--", "true"])
        .env("WEFT_SERVE_TICK_US", "soon")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("WEFT_SERVE_TICK_US=soon is not understood"));

    let output = place
        .weft(&["run", "--crc", "maybe", "--", "true"])
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(err(&output).contains("[possible values: on, off]"));
}

#[test]
fn what_cannot_be_started_has_its_status_and_advice() {
    let place = Place::new();
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let all: Vec<&str> = ["run", "--"].iter().chain(arguments).copied().collect();
        let output = place.weft(&all).output().unwrap();
        let said = err(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    };
    place.file("plain", "text");
    place.executable("words", "just words\n");
    place.executable("script", "#!/nowhere/interpreter\n");
    refused(&["no-such-program"], 127, "not found in any folder of PATH");
    refused(&["./none"], 127, "no such file");
    refused(&["./plain"], 126, "chmod +x");
    refused(&["./words"], 126, "not something the kernel can run");
    refused(&["./script"], 126, "which is not there");
    refused(&["./lib"], 126, "is a folder");
}

#[test]
fn a_script_runs_and_what_it_starts_is_served() {
    let place = Place::new();
    place.executable(
        "script",
        "#!/bin/sh\nexec sh -c 'echo $1 $LD_PRELOAD' - $1\n",
    );
    let output = place.weft(&["run", "--", "./script", "word"]).output();
    let said = out(&output.unwrap());
    assert!(
        said.starts_with("word ") && said.contains("libweft.so"),
        "{said}"
    );
}

#[test]
fn without_libraries_it_says_where_it_looked() {
    let place = Place::new();
    let output = place
        .weft(&["run", "--libdir", "/nowhere", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = err(&output);
    assert!(
        said.contains("/nowhere") && said.contains("make build"),
        "{said}"
    );
}

#[test]
fn an_installation_finds_its_libraries_from_anywhere() {
    let place = Place::new();
    let installed = place.copy(env!("CARGO_BIN_EXE_weft"), "bin/weft");
    std::os::unix::fs::symlink(&installed, place.path("elsewhere")).unwrap();
    for command in ["bin/weft", "elsewhere"] {
        let output = place
            .bare(&place.path(command))
            .current_dir("/")
            .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
            .output()
            .unwrap();
        let said = out(&output);
        assert!(
            said.contains("/lib/weft/libweft.so"),
            "{said}{}",
            err(&output)
        );
    }
}

#[test]
fn show_starts_nothing_and_gives_the_command_for_a_shell() {
    let place = Place::new();
    let output = place
        .weft(&["run", "--show", "--crc", "off", "--", "touch", "a file"])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(!place.path("a file").exists());
    let said = out(&output);
    let shell_command = said.lines().last().unwrap();
    assert!(
        shell_command.contains(" WEFT_CRC=off touch 'a file'"),
        "{said}"
    );
    let status = Command::new("sh")
        .args(["-c", shell_command])
        .current_dir(place.path(""))
        .status();
    assert!(status.unwrap().success());
    assert!(place.path("a file").exists());
}

#[test]
fn modes_set_what_they_say() {
    let Some(place) = Place::with_verbs() else {
        eprintln!("skipped: this machine has no rdma-core");
        return;
    };
    let set = |mode: &str| {
        let script = "echo ${LD_PRELOAD:+preload} ${LD_LIBRARY_PATH:+path}";
        let output = place
            .weft(&["run", "--mode", mode, "--", "sh", "-c", script])
            .output()
            .unwrap();
        out(&output).trim().to_owned()
    };
    assert_eq!(set("preload"), "preload");
    assert_eq!(set("replacement"), "path");
    assert_eq!(set("auto"), "preload path");
}

#[test]
fn socket_calls_come_to_weft_when_a_rule_asks() {
    let place = Place::new();
    let preloaded = |arguments: &[&str]| {
        let all = [
            &["run"],
            arguments,
            &["--", "printenv", "LD_PRELOAD", "WEFT_UDP", "WEFT_DDP"],
        ]
        .concat();
        out(&place.weft(&all).output().unwrap())
    };
    assert!(!preloaded(&[]).contains("libweft_preload.so"));
    assert!(!preloaded(&["--udp", "off port=53; off"]).contains("libweft_preload.so"));
    let said = preloaded(&["--udp", "gso port=5001"]);
    assert!(said.contains("libweft_preload.so"), "{said}");
    assert!(said.contains("\ngso port=5001\n"), "{said}");
    // A rule about TCP sockets may say off: the program can ask for DDP itself.
    for rule in ["prefer port=6379", "off"] {
        let said = preloaded(&["--ddp", rule]);
        assert!(said.contains("libweft_preload.so"), "{said}");
        assert!(said.contains(&format!("\n{rule}\n")), "{said}");
    }
}

#[test]
fn a_rule_that_is_none_is_refused_in_words() {
    let output = Place::new()
        .weft(&["run", "--udp", "gso port=high", "--", "true"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = err(&output);
    assert!(said.contains("port=N or N-M"), "{said}");
}

#[test]
fn off_is_as_if_weft_were_not_there() {
    let place = Place::new();
    let script = "echo ${LD_PRELOAD-none} ${LD_LIBRARY_PATH-none} $WEFT_OFF";
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let all = [&["run"], arguments, &["--", "sh", "-c", script]].concat();
        let output = place.weft(&all).envs(variables.iter().copied()).output();
        let output = output.unwrap();
        (out(&output).trim().to_owned(), err(&output))
    };
    let quiet = |said: &str| (said.to_owned(), String::new());
    assert_eq!(run(&["--off", "--udp", "gso"], &[]), quiet("none none on"));
    assert_eq!(
        run(&["--udp", "gso"], &[("WEFT_OFF", "1")]),
        quiet("none none 1")
    );
    // The flag is the stronger.
    let (said, _) = run(&["--off=off"], &[("WEFT_OFF", "1")]);
    assert!(
        said.contains("libweft.so") && said.ends_with(" off"),
        "{said}"
    );

    let (_, said) = run(&["--off", "--log", "info"], &[]);
    assert!(
        said.ends_with("sh runs without Weft: Weft is off (--off)\n"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn off_takes_out_what_an_outer_weft_put_in() {
    let place = Place::new();
    let weft = env!("CARGO_BIN_EXE_weft");
    let script = "echo [$LD_PRELOAD]";
    let mut outer = place.weft(&[
        "run", "--udp", "gso", "--", weft, "run", "--off", "--", "sh", "-c", script,
    ]);
    let output = outer.env("LD_PRELOAD", "libm.so.6").output().unwrap();
    assert_eq!(out(&output).trim(), "[libm.so.6]", "{}", err(&output));
}

#[test]
fn off_needs_no_libraries_and_refuses_no_program() {
    let place = Place::new();
    let output = place
        .weft(&[
            "run", "--off", "--libdir", "/nowhere", "--", "echo", "hello",
        ])
        .output()
        .unwrap();
    assert_eq!(
        (out(&output).as_str(), output.status.code()),
        ("hello\n", Some(0))
    );
    let output = place
        .weft(&["run", "--off", "--show", "--", "true"])
        .output()
        .unwrap();
    let said = out(&output);
    assert!(said.lines().any(|line| line == "mode       off"), "{said}");
    assert!(
        said.lines().last().unwrap().ends_with("WEFT_OFF=on true"),
        "{said}"
    );
}
