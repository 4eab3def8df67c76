//! The lines of a `weft.toml`.

use std::path::Path;

use toml::de::{DeTable, DeValue};
use weft_engine::settings::{find, nearest, Kind, Setting, SETTINGS};

use super::ConfigError;

/// One line of a file.
#[derive(Debug)]
pub struct Entry {
    /// Which setting.
    pub setting: &'static Setting,
    /// Its value as text, as in an environment variable.
    pub text: String,
    /// The line, from 1.
    pub line: usize,
}

/// What a file says, and what is wrong with it.
pub fn read(file: &Path) -> (Vec<Entry>, Vec<ConfigError>) {
    match std::fs::read_to_string(file) {
        Ok(text) => parse(file, &text),
        Err(error) => (
            Vec::new(),
            vec![ConfigError::Unreadable(file.to_owned(), error)],
        ),
    }
}

/// The lines that are settings, in their order, and what is wrong with the others.
pub fn parse(file: &Path, text: &str) -> (Vec<Entry>, Vec<ConfigError>) {
    let (table, syntax) = DeTable::parse_recoverable(text);
    let mut entries = Vec::new();
    let mut wrong: Vec<(usize, String)> = Vec::new();
    for error in &syntax {
        let line = line_of(text, error.span().unwrap_or_default().start);
        wrong.push((line, format!("this is not TOML: {}", error.message())));
    }
    // Behind a mistake in the syntax it is a guess where a line belongs, so that nothing more is said of them.
    let sections: Vec<_> = match syntax.is_empty() {
        true => table.get_ref().iter().collect(),
        false => Vec::new(),
    };
    for (section, value) in sections {
        let line = line_of(text, section.span().start);
        let name = section.get_ref().as_ref();
        let DeValue::Table(section) = value.get_ref() else {
            wrong.push((line, outside_section(name)));
            continue;
        };
        if !known_sections().any(|known| known == name) {
            wrong.push((line, unknown_section(name)));
            continue;
        }
        for (key, value) in section.iter() {
            let line = line_of(text, key.span().start);
            match entry(name, key.get_ref(), value.get_ref()) {
                Ok((setting, text)) => entries.push(Entry {
                    setting,
                    // The library is found from the file, not from wherever the program is started.
                    text: match setting.kind {
                        Kind::LauncherFolder => beside(file, &text),
                        _ => text,
                    },
                    line,
                }),
                Err(what) => wrong.extend(what.into_iter().map(|what| (line, what))),
            }
        }
    }
    // The table is in the order of its keys.
    entries.sort_by_key(|entry| entry.line);
    wrong.sort_by_key(|(line, _)| *line);
    let errors = wrong.into_iter().map(|(line, what)| ConfigError::Entry {
        file: file.to_owned(),
        line,
        what,
    });
    (entries, errors.collect())
}

/// A folder named in `file`, taken from where the file is.
fn beside(file: &Path, folder: &str) -> String {
    let base = file.parent().unwrap_or(Path::new(""));
    base.join(folder).to_string_lossy().into_owned()
}

/// The setting and the text of one line, or all that is wrong with it.
fn entry(
    section: &str,
    key: &str,
    value: &DeValue<'_>,
) -> Result<(&'static Setting, String), Vec<String>> {
    let path = format!("{section}.{key}");
    let Some(setting) = SETTINGS.iter().find(|setting| setting.key == path) else {
        return Err(vec![unknown_key(section, key)]);
    };
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Boolean(on) => if *on { "on" } else { "off" }.to_owned(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Array(items) if matches!(setting.kind, Kind::Interfaces(_) | Kind::Devices(_)) => {
            let separator = match setting.kind {
                Kind::Devices(_) => ",",
                _ => "; ",
            };
            let texts = items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) => Some(text.as_ref()),
                _ => None,
            });
            match texts.collect::<Option<Vec<&str>>>() {
                Some(texts) => texts.join(separator),
                None => return Err(vec![format!("{path}: give a list of texts")]),
            }
        }
        _ => return Err(vec![format!("{path}: give {}", setting.accepts())]),
    };
    let named = |wrong| format!("{path} = {text} is not understood: {wrong}");
    match setting.check(&text) {
        Ok(()) => Ok((setting, text)),
        Err(reason) => Err(reason.in_words().into_iter().map(named).collect()),
    }
}

fn unknown_key(section: &str, key: &str) -> String {
    if let Some(setting) = find(key) {
        let (home, _) = setting.key.split_once('.').unwrap_or_default();
        return format!("{key} belongs in the section [{home}]");
    }
    let names: Vec<&str> = SETTINGS
        .iter()
        .filter_map(|setting| setting.key.strip_prefix(section)?.strip_prefix('.'))
        .collect();
    let all = SETTINGS.iter().map(|setting| setting.name);
    match nearest(key, all) {
        Some(near) => format!("[{section}] has no {key}; did you mean {near}?"),
        None => format!("[{section}] has no {key}; it has: {}", names.join(", ")),
    }
}

fn unknown_section(name: &str) -> String {
    let sections: Vec<_> = known_sections().map(|name| format!("[{name}]")).collect();
    let all = sections.join(", ");
    match nearest(name, known_sections()) {
        Some(near) => format!("there is no section [{name}]; did you mean [{near}]?"),
        None => format!("there is no section [{name}]; there are: {all}"),
    }
}

fn outside_section(name: &str) -> String {
    match find(name) {
        Some(setting) => {
            let (home, _) = setting.key.split_once('.').unwrap_or_default();
            format!("{name} belongs in the section [{home}]")
        }
        None => format!("{name} stands outside every section, and is no setting"),
    }
}

/// The sections of the file, each once.
fn known_sections() -> impl Iterator<Item = &'static str> {
    let mut seen = Vec::new();
    SETTINGS.iter().filter_map(move |setting| {
        let (section, _) = setting.key.split_once('.')?;
        (!seen.contains(&section)).then(|| {
            seen.push(section);
            section
        })
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..offset.min(text.len())]).count()
}
