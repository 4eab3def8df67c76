use super::file::parse;
use super::*;
use crate::args::{Cli, Command};
use crate::scratch::Scratch;
use clap::Parser;

fn flags(words: &[&str]) -> SettingFlags {
    let all = ["weft", "run"].iter().chain(words).chain(&["--", "true"]);
    match Cli::try_parse_from(all).unwrap().command {
        Command::Run(run) => run.sources.flags,
        other => panic!("{other:?}"),
    }
}

fn surroundings(variable: fn(&str) -> Option<String>, files: &[&Path]) -> Surroundings {
    Surroundings {
        variable,
        files: files.iter().map(|path| path.to_path_buf()).collect(),
    }
}

fn nothing(_: &str) -> Option<String> {
    None
}

fn said(text: &str) -> String {
    let (_, errors) = parse(Path::new("weft.toml"), text);
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn flag_before_environment_before_file_before_default() {
    let scratch = Scratch::new();
    let file = scratch.file(
        "weft.toml",
        "[iwarp]\ncrc = true\nfpdu = \"emss\"\nmarkers = true\n",
    );
    let environment = |name: &str| match name {
        "WEFT_CRC" => Some("yes".to_owned()),
        "WEFT_FPDU" => Some("large".to_owned()),
        _ => None,
    };
    let config = Config::resolve(
        &flags(&["--crc", "off"]),
        None,
        &surroundings(environment, &[&file]),
    )
    .unwrap();
    let found: Vec<_> = ["crc", "fpdu", "markers", "stat"]
        .iter()
        .map(|name| {
            let value = config
                .values
                .iter()
                .find(|value| value.setting.name == *name)
                .unwrap();
            (value.text.as_str(), value.source)
        })
        .collect();
    assert_eq!(
        found,
        [
            ("off", Source::Flag),
            ("large", Source::Environment),
            ("on", Source::File(4)),
            ("on", Source::Default),
        ]
    );
    let set: Vec<_> = config.to_set().map(|value| value.setting.env).collect();
    assert_eq!(set, ["WEFT_CRC", "WEFT_MARKERS"]);
}

#[test]
fn the_first_file_there_is_the_one() {
    let scratch = Scratch::new();
    let first = scratch.path("none.toml");
    let second = scratch.file("second.toml", "[run]\nlog = \"info\"\n");
    let third = scratch.file("third.toml", "[run]\nlog = \"debug\"\nstat = false\n");
    let around = surroundings(nothing, &[&first, &second, &third]);
    let config = Config::resolve(&flags(&[]), None, &around).unwrap();
    assert_eq!(config.file, Some(second));
    assert_eq!(config.get("log"), Some("info"));
    assert_eq!(config.get("stat"), Some("on"));

    let config = Config::resolve(&flags(&[]), Some(&third), &around).unwrap();
    assert_eq!(config.get("log"), Some("debug"));
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let error = Config::resolve(
        &flags(&[]),
        Some(Path::new("/nowhere/weft.toml")),
        &surroundings(nothing, &[]),
    )
    .unwrap_err();
    assert!(error
        .to_string()
        .starts_with("/nowhere/weft.toml cannot be read"));
}

#[test]
fn a_file_of_another_user_is_passed_over_aloud() {
    let scratch = Scratch::new();
    let file = scratch.file("weft.toml", "[run]\nlog = \"debug\"\n");
    if std::os::unix::fs::chown(&file, Some(4711), None).is_err() {
        eprintln!("skipped: only root can give a file away");
        return;
    }
    let config = Config::resolve(&flags(&[]), None, &surroundings(nothing, &[&file])).unwrap();
    assert_eq!(config.file, None);
    assert_eq!(config.get("log"), Some("warn"));
    assert!(config.warnings[0].contains("belongs to user 4711"));
}

#[test]
fn a_bad_variable_is_named() {
    let environment = |name: &str| (name == "WEFT_CRC").then(|| "maybe".to_owned());
    let error = Config::resolve(&flags(&[]), None, &surroundings(environment, &[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "WEFT_CRC=maybe is not understood: give on or off, or unset it"
    );
}

#[test]
fn mistakes_in_the_file_name_the_line_and_what_is_accepted() {
    assert_eq!(
        said("# one\n[iwarp]\ncrc = \"maybe\"\n"),
        "weft.toml:3: iwarp.crc = maybe is not understood: give on or off"
    );
    assert_eq!(
        said("[iwarp]\nmpa-revision = 3\n"),
        "weft.toml:2: iwarp.mpa-revision = 3 is not understood: give a whole number from 1 to 2"
    );
    assert_eq!(
        said("[iwarp]\nfpdu = [1]\n"),
        "weft.toml:2: iwarp.fpdu: give auto, emss or large"
    );
    assert_eq!(
        said("[iwarp]\ncrcs = true\n"),
        "weft.toml:2: [iwarp] has no crcs; did you mean crc?"
    );
    assert_eq!(
        said("[run]\ncrc = true\n"),
        "weft.toml:2: crc belongs in the section [iwarp]"
    );
    assert_eq!(
        said("\n\ncrc = true\n"),
        "weft.toml:3: crc belongs in the section [iwarp]"
    );
    assert_eq!(
        said("[kernel]\nmtu = 9000\n"),
        "weft.toml:1: there is no section [kernel]; there are: [device], [iwarp], [verbs], [network], [run], \
         [sockets]"
    );
}

#[test]
fn every_mistake_is_named_in_the_order_of_the_lines() {
    assert_eq!(
        said("[sockets]\nudp = \"of; gso prot=1\"\n[iwrap]\ncrc = true\n[run]\nlog = 3\nlgo = \"info\"\n"),
        "weft.toml:2: sockets.udp = of; gso prot=1 is not understood: rule 1, column 1: a rule begins with its action, \
         and of is none; did you mean off? There are: gso, uoe prefer, uoe require or off\n\
         weft.toml:2: sockets.udp = of; gso prot=1 is not understood: rule 2, column 9: prot is nothing that a rule can \
         say; did you mean port=? There are: direction=, address=, port=, program=\n\
         weft.toml:3: there is no section [iwrap]; did you mean [iwarp]?\n\
         weft.toml:6: run.log = 3 is not understood: give off, error, warn, info or debug\n\
         weft.toml:7: [run] has no lgo; did you mean log?"
    );
}

#[test]
fn what_is_wrong_is_left_out_and_the_rest_counts() {
    let scratch = Scratch::new();
    let file = scratch.file("weft.toml", "[iwarp]\ncrc = \"maybe\"\nmarkers = true\n");
    let environment = |name: &str| (name == "WEFT_FPDU").then(|| "huge".to_owned());
    let around = surroundings(environment, &[&file]);
    let (config, errors) = Config::examine(&flags(&[]), None, &around);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!(config.get("crc"), Some("on"));
    assert_eq!(config.get("markers"), Some("on"));
    assert_eq!(config.get("fpdu"), Some("auto"));
}

#[test]
fn what_is_not_toml_shows_the_place() {
    let said = said("[iwarp]\ncrc = = true\n");
    assert!(
        said.starts_with("weft.toml:2: this is not TOML: "),
        "{said}"
    );
}

#[test]
fn interfaces_that_have_devices_are_a_list_or_one_text() {
    for value in ["[\"eth1\", \"eth0\"]", "\"eth1,eth0\""] {
        let text = format!("[device]\ndevices = {value}\n");
        let (entries, errors) = parse(Path::new("weft.toml"), &text);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(entries[0].text, "eth1,eth0", "{value}");
    }
    let twice = "[device]\ndevices = [\"eth1\", \"eth1\"]\n";
    assert!(said(twice).contains("separated by commas, each once"));
}

#[test]
fn interfaces_are_a_list_or_one_text() {
    let (first, second) = ("packet:a address=10.1.0.2/24", "tap:b address=10.2.0.2/24");
    let both = format!("{first}; {second}");
    for value in [
        format!("[\"{first}\", \"{second}\"]"),
        format!("\"{both}\""),
    ] {
        let text = format!("[network]\ninterface = {value}\n");
        let (entries, errors) = parse(Path::new("weft.toml"), &text);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(entries[0].text, both);
    }
    let text = "[network]\ninterface = [\"veth1\"]\n";
    assert!(said(text).contains("veth1 is no device"));
    assert!(said("[network]\ninterface = [1]\n").contains("give a list of texts"));
    assert!(said("[iwarp]\ncrc = [\"on\"]\n").contains("give on or off"));
}

#[test]
fn folders_are_taken_from_the_file() {
    let (entries, _) = parse(
        Path::new("/etc/weft.toml"),
        "[run]\nlibdir = \"weft/lib\"\n",
    );
    assert_eq!(entries[0].text, "/etc/weft/lib");
}

#[test]
fn the_user_comes_before_the_machine() {
    let files = search_list(|name| match name {
        "XDG_CONFIG_HOME" => Some("/home/a/.conf".into()),
        _ => Some("/home/a".into()),
    });
    assert_eq!(
        files,
        [
            "weft.toml",
            "/home/a/.conf/weft/weft.toml",
            "/etc/weft.toml"
        ]
        .map(PathBuf::from)
    );
    let files = search_list(|name| (name == "HOME").then(|| "/home/a".into()));
    assert_eq!(files[1], Path::new("/home/a/.config/weft/weft.toml"));
    assert_eq!(search_list(|_| None).len(), 2);
}
