//! `weft config check`: the settings as a program under `weft run` would have them, or everything that is wrong.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use weft_engine::settings::rules::Rule;
use weft_engine::settings::{DatagramRules, Kind, Reason, Settings, StreamRules, TransportRules};

use super::{Config, ConfigError, Source, Surroundings, Value};
use crate::output::{complain, print, styled, GOOD};
use crate::setting_flags::SettingFlags;

/// Runs the command: exit status 0 when everything is understood, else 1.
pub fn run(file: Option<&Path>) -> ExitCode {
    let surroundings = Surroundings::of_process();
    let (config, errors) = Config::examine(&SettingFlags::default(), file, &surroundings);
    let unknown = unknown_variables();
    let wrong = errors.len() + unknown.len();
    let mut text = understood(&config, &surroundings, wrong);
    if wrong == 0 {
        let _ = writeln!(text, "{}", styled(GOOD, "ok"));
    }
    let written = print(&text);
    for warning in &config.warnings {
        complain(warning, None);
    }
    for error in &errors {
        complain(error, advice(error));
    }
    for name in &unknown {
        complain(name, Some("unset it, or give it the right name"));
    }
    match wrong {
        0 => written,
        _ => ExitCode::FAILURE,
    }
}

/// What to do, where the message does not say so itself.
fn advice(error: &ConfigError) -> Option<&'static str> {
    match error {
        ConfigError::Unreadable(..) => Some("name a file that is there and that you may read"),
        ConfigError::Entry { .. } | ConfigError::Variable { .. } => None,
    }
}

/// Variables of the environment that look like settings and are none.
fn unknown_variables() -> Vec<String> {
    let (_, complaints) = Settings::from_env();
    let unknown = complaints
        .iter()
        .filter(|complaint| matches!(complaint.reason, Reason::UnknownName { .. }));
    unknown.map(ToString::to_string).collect()
}

/// The files and every setting that is set, each with where it came from; `wrong` others are not understood.
fn understood(config: &Config, surroundings: &Surroundings, wrong: usize) -> String {
    let mut text = match &config.file {
        Some(file) => format!("file: {}\n", file.display()),
        None => "file: none\n".to_owned(),
    };
    let others = surroundings.files.iter().filter(|other| {
        // One that was passed over for its owner has its warning.
        config.file.as_ref() != Some(*other) && other.is_file() && config.warnings.is_empty()
    });
    for other in others {
        let _ = writeln!(
            text,
            "not read, as the first file is the one: {}",
            other.display()
        );
    }
    let set = config
        .values
        .iter()
        .filter(|value| value.source != Source::Default);
    let mut any = false;
    for value in set {
        any = true;
        let assignment = format!("{} = {}", value.setting.key, value.text);
        let _ = writeln!(text, "  {assignment:<40} {}", source_of(config, value));
        text += &rules_of(value);
    }
    if !any {
        text += match wrong {
            0 => "nothing is set: every setting has its default\n",
            _ => "nothing that is set is understood: every setting has its default\n",
        };
    }
    text
}

fn source_of(config: &Config, value: &Value) -> String {
    match (value.source, &config.file) {
        (Source::File(line), Some(file)) => format!("{}:{line}", file.display()),
        (Source::Environment, _) => value.setting.env.to_owned(),
        _ => super::source_of(value.source),
    }
}

/// Each rule as it was understood, if the setting has rules.
fn rules_of(value: &Value) -> String {
    match value.setting.kind {
        Kind::DatagramRules(_) => {
            in_words(DatagramRules::parse(&value.text).unwrap_or_default().iter())
        }
        Kind::StreamRules(_) => {
            in_words(StreamRules::parse(&value.text).unwrap_or_default().iter())
        }
        Kind::TransportRules(_) => in_words(
            TransportRules::parse(&value.text)
                .unwrap_or_default()
                .iter(),
        ),
        _ => String::new(),
    }
}

/// Rules in words, a line each.
fn in_words<'a, A: 'a, D: 'a>(rules: impl Iterator<Item = &'a Rule<A, D>>) -> String {
    let mut text = String::new();
    let mut for_all = None;
    for (number, rule) in (1..).zip(rules) {
        let _ = write!(text, "    rule {number}: {}", rule.in_words());
        match for_all {
            Some(first) => {
                let _ = writeln!(text, " (never reached: rule {first} fits everything)");
            }
            None => text.push('\n'),
        }
        if rule.is_for_all() {
            for_all = for_all.or(Some(number));
        }
    }
    if for_all.is_none() {
        text += "    where no rule fits: nothing changes\n";
    }
    text
}
