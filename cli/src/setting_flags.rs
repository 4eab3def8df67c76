//! Flags made from the table of settings, so that each setting has one description.

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use weft_engine::settings::interfaces::{self, InterfaceError};
use weft_engine::settings::{Kind, Setting, SETTINGS};

/// Flags that say more of the interface before them.
const ADDRESS: &str = "address";
const GATEWAY: &str = "gateway";

/// The settings given as flags.
#[derive(Clone, Debug, Default)]
pub struct SettingFlags(Vec<(&'static Setting, String)>);

impl SettingFlags {
    /// The value given for `setting`.
    pub fn get(&self, setting: &Setting) -> Option<&str> {
        self.0
            .iter()
            .find(|(given, _)| given.name == setting.name)
            .map(|(_, value)| value.as_str())
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().fold(command, |command, setting| {
            let command = command.arg(flag(setting));
            match setting.kind {
                Kind::Interfaces(_) => command.args(flags_of_interfaces(setting)),
                _ => command,
            }
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut all = Vec::new();
        for setting in SETTINGS {
            let value = match setting.kind {
                Kind::Interfaces(_) => interfaces_of(setting, matches)?,
                _ => matches.get_one::<String>(setting.name).cloned(),
            };
            all.extend(value.map(|value| (setting, value)));
        }
        Ok(SettingFlags(all))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What the flags say of interfaces, as one text: each address and gateway belongs to the interface before it.
fn interfaces_of(setting: &Setting, matches: &ArgMatches) -> Result<Option<String>, clap::Error> {
    let given = |name: &str, before: &'static str| {
        let values = matches.get_many::<String>(name).into_iter().flatten();
        let places = matches.indices_of(name).into_iter().flatten();
        let all = places.zip(values);
        all.map(|(at, value)| (at, format!("{before}{value}")))
            .collect::<Vec<_>>()
    };
    let wrong = |what: String| clap::Error::raw(ErrorKind::ValueValidation, what + "\n");
    let mut words = given(setting.name, "; ");
    words.extend(given(ADDRESS, " address="));
    words.extend(given(GATEWAY, " gateway="));
    words.sort_unstable();
    let Some((_, first)) = words.first() else {
        return Ok(None);
    };
    let Some(first) = first.strip_prefix("; ") else {
        return Err(wrong(format!(
            "{} belongs to the --interface before it: name that first",
            first.trim()
        )));
    };
    let rest = words[1..].iter().map(|(_, word)| word.as_str());
    let text: String = std::iter::once(first).chain(rest).collect();
    match setting.check(&text) {
        Ok(()) => Ok(Some(text)),
        Err(reason) => Err(wrong(reason.in_words().join("; "))),
    }
}

fn flags_of_interfaces(setting: &'static Setting) -> [Arg; 2] {
    let flag = |name: &'static str, value_name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .help_heading("Settings")
            .help(help)
            .value_name(value_name)
            .action(ArgAction::Append)
            .requires(setting.name)
    };
    let in_words = |error: InterfaceError| error.to_string();
    let strings = clap::builder::StringValueParser::new;
    [
        flag(
            ADDRESS,
            "ADDRESS/BITS",
            "An address of the --interface before it, with the bits of its network",
        )
        .value_parser(strings().try_map(move |text| {
            let checked = interfaces::address(&text);
            checked.map(|_| text).map_err(in_words)
        })),
        flag(
            GATEWAY,
            "ADDRESS",
            "The neighbour by which the --interface before it reaches everything else",
        )
        .value_parser(strings().try_map(move |text| {
            let checked = interfaces::gateway(&text);
            checked.map(|_| text).map_err(in_words)
        })),
    ]
}

/// Addresses may come as flags of their own.
fn check_interface(text: &str) -> Result<(), String> {
    let errors = interfaces::parse(text).err().unwrap_or_default();
    let mut errors = errors.iter().filter(|error| {
        !matches!(
            error,
            InterfaceError::Unaddressed(_) | InterfaceError::Unreachable(_)
        )
    });
    errors.next().map_or(Ok(()), |error| Err(error.to_string()))
}

fn flag(setting: &'static Setting) -> Arg {
    let arg = Arg::new(setting.name)
        .long(setting.name)
        .help_heading("Settings")
        .help(brief(setting))
        .long_help(long(setting))
        .value_name(value_name(&setting.kind))
        .hide_possible_values(true)
        .value_parser(parser(setting));
    match setting.kind {
        Kind::Switch(_) | Kind::Choice(..) | Kind::LauncherChoice(_) => arg.ignore_case(true),
        // What stands behind the flag is the program, so a value needs its equals sign.
        Kind::Flag(_) => arg
            .ignore_case(true)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("on"),
        Kind::Folder(_) | Kind::LauncherFolder => arg.value_hint(ValueHint::DirPath),
        Kind::Integer { .. }
        | Kind::DatagramRules(_)
        | Kind::StreamRules(_)
        | Kind::TransportRules(_)
        | Kind::DiscoveryPort(_)
        | Kind::Devices(_) => arg,
        Kind::Interfaces(_) => arg.action(ArgAction::Append),
    }
}

/// The names themselves where there are few, so that help and completions show them.
fn parser(setting: &'static Setting) -> ValueParser {
    match setting.kind {
        Kind::Switch(_) | Kind::Flag(_) => PossibleValuesParser::new(["on", "off"]).into(),
        Kind::Choice(names, _) | Kind::LauncherChoice(names) => {
            PossibleValuesParser::new(names.iter().copied()).into()
        }
        Kind::Integer { .. }
        | Kind::DatagramRules(_)
        | Kind::StreamRules(_)
        | Kind::TransportRules(_)
        | Kind::DiscoveryPort(_)
        | Kind::Devices(_)
        | Kind::Folder(_)
        | Kind::LauncherFolder => clap::builder::StringValueParser::new()
            .try_map(|text| match setting.check(&text) {
                Ok(()) => Ok(text),
                Err(reason) => Err(reason.in_words().join("; ")),
            })
            .into(),
        Kind::Interfaces(_) => clap::builder::StringValueParser::new()
            .try_map(|text| check_interface(&text).map(|()| text))
            .into(),
    }
}

fn value_name(kind: &Kind) -> String {
    match kind {
        Kind::Switch(_) | Kind::Flag(_) => "on|off".to_owned(),
        Kind::Choice(names, _) | Kind::LauncherChoice(names) => names.join("|"),
        Kind::DatagramRules(_) | Kind::StreamRules(_) | Kind::TransportRules(_) => {
            "RULES".to_owned()
        }
        Kind::Interfaces(_) => "packet:NAME|tap:NAME".to_owned(),
        Kind::Integer { unit: "octets", .. } => "OCTETS".to_owned(),
        Kind::Integer { .. } => "N".to_owned(),
        Kind::DiscoveryPort(_) => "PORT|same".to_owned(),
        Kind::Devices(_) => "one|all|NAME,NAME".to_owned(),
        Kind::Folder(_) | Kind::LauncherFolder => "DIR".to_owned(),
    }
}

/// The first sentence of the description, with the default.
fn brief(setting: &Setting) -> String {
    let sentence = setting
        .doc
        .split_once(". ")
        .map_or(setting.doc, |(first, _)| first);
    let sentence = sentence.trim_end_matches('.');
    match setting.default {
        "" => sentence.to_owned(),
        default => format!("{sentence} [default: {default}]"),
    }
}

fn long(setting: &Setting) -> String {
    let mut text = format!("{}\n\n", setting.doc);
    if !setting.default.is_empty() {
        text += &format!("[default: {}] ", setting.default);
    }
    text + &format!(
        "[environment: {}] [weft.toml: {}]",
        setting.env, setting.key
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command as Weft};
    use clap::Parser;

    fn flags(words: &[&str]) -> Result<SettingFlags, clap::Error> {
        let all = ["weft", "run"].iter().chain(words).chain(&["--", "true"]);
        match Cli::try_parse_from(all)?.command {
            Weft::Run(run) => Ok(run.sources.flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_setting_is_a_flag_that_takes_its_default_or_another_value() {
        for setting in SETTINGS {
            let value = match (setting.default, &setting.kind) {
                ("", Kind::StreamRules(_)) => "prefer",
                ("", Kind::TransportRules(_)) => "cubic",
                ("", _) => "/x",
                (default, _) => default,
            };
            let flags = flags(&[&format!("--{}={value}", setting.name)]).unwrap();
            assert_eq!(flags.get(setting), Some(value), "{}", setting.name);
            let others = SETTINGS.iter().filter(|other| other.name != setting.name);
            assert!(others.clone().all(|other| flags.get(other).is_none()));
        }
    }

    #[test]
    fn a_flag_needs_no_value_and_takes_none_from_the_program() {
        let off = weft_engine::settings::find("off").unwrap();
        for (words, wanted) in [
            (&["--off"][..], Some("on")),
            (&["--off=off"], Some("off")),
            (&[], None),
        ] {
            assert_eq!(flags(words).unwrap().get(off), wanted, "{words:?}");
        }
        let run = Cli::try_parse_from(["weft", "run", "--off", "off"]).unwrap();
        assert!(matches!(run.command, Weft::Run(run) if run.command == ["off"]));
    }

    #[test]
    fn addresses_belong_to_the_interface_before_them() {
        let interface = weft_engine::settings::find("interface").unwrap();
        let words =
            "--interface packet:v1 --address 10.1.0.2/24 --address fd00::2/64 --gateway 10.1.0.1 \
                     --interface tap:t0 --address 10.2.0.1/16";
        let words: Vec<&str> = words.split_whitespace().collect();
        let said = flags(&words).unwrap();
        assert_eq!(
            said.get(interface),
            Some(
                "packet:v1 address=10.1.0.2/24 address=fd00::2/64 gateway=10.1.0.1; tap:t0 address=10.2.0.1/16"
            )
        );
        for (words, part) in [
            (&["--address", "10.1.0.2/24"][..], "--interface"),
            (
                &["--address", "10.1.0.2/24", "--interface", "tap:t"],
                "before it",
            ),
            (&["--interface", "tap:t"], "tap:t has no address"),
            (&["--interface", "veth1"], "packet:NAME"),
            (
                &["--interface", "tap:t", "--address", "10.1.0.2"],
                "10.1.0.2/24",
            ),
            (
                &[
                    "--interface",
                    "tap:t",
                    "--address",
                    "10.1.0.2/24",
                    "--gateway",
                    "10.2.0.1",
                ],
                "in no network",
            ),
        ] {
            let said = flags(words).unwrap_err().to_string();
            assert!(said.contains(part), "{words:?}: {said}");
        }
    }

    #[test]
    fn a_bad_value_says_what_is_accepted() {
        let said = flags(&["--mpa-revision", "7"]).unwrap_err().to_string();
        assert!(said.contains("give a whole number from 1 to 2"), "{said}");
        let said = flags(&["--fpdu", "huge"]).unwrap_err().to_string();
        assert!(said.contains("emss"), "{said}");
    }
}
