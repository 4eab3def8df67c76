//! Flags made from the table of settings, so that each setting has one description.

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use weft_engine::settings::{Kind, Setting, SETTINGS};

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
        SETTINGS
            .iter()
            .fold(command, |command, setting| command.arg(flag(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &'static Setting| {
            let value = matches.get_one::<String>(setting.name)?;
            Some((setting, value.clone()))
        };
        Ok(SettingFlags(SETTINGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
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
        Kind::LauncherFolder => arg.value_hint(ValueHint::DirPath),
        Kind::Integer { .. } | Kind::DatagramRules(_) => arg,
    }
}

/// The names themselves where there are few, so that help and completions show them.
fn parser(setting: &'static Setting) -> ValueParser {
    match setting.kind {
        Kind::Switch(_) | Kind::Flag(_) => PossibleValuesParser::new(["on", "off"]).into(),
        Kind::Choice(names, _) | Kind::LauncherChoice(names) => {
            PossibleValuesParser::new(names.iter().copied()).into()
        }
        Kind::Integer { .. } | Kind::DatagramRules(_) | Kind::LauncherFolder => {
            clap::builder::StringValueParser::new()
                .try_map(|text| match setting.check(&text) {
                    Ok(()) => Ok(text),
                    Err(reason) => Err(reason.in_words().join("; ")),
                })
                .into()
        }
    }
}

fn value_name(kind: &Kind) -> String {
    match kind {
        Kind::Switch(_) | Kind::Flag(_) => "on|off".to_owned(),
        Kind::Choice(names, _) | Kind::LauncherChoice(names) => names.join("|"),
        Kind::DatagramRules(_) => "RULES".to_owned(),
        Kind::Integer { unit: "octets", .. } => "OCTETS".to_owned(),
        Kind::Integer { .. } => "N".to_owned(),
        Kind::LauncherFolder => "DIR".to_owned(),
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
    fn every_setting_is_a_flag_that_takes_its_default() {
        for setting in SETTINGS {
            let value = if setting.default.is_empty() {
                "/x"
            } else {
                setting.default
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
    fn a_bad_value_says_what_is_accepted() {
        let said = flags(&["--mpa-revision", "7"]).unwrap_err().to_string();
        assert!(said.contains("give a whole number from 1 to 2"), "{said}");
        let said = flags(&["--fpdu", "huge"]).unwrap_err().to_string();
        assert!(said.contains("emss"), "{said}");
    }
}
