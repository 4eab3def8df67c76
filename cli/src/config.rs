//! Settings from flags, environment and `weft.toml`, each with where it came from.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};
use weft_engine::settings::{nearest, Setting, SETTINGS};

use crate::setting_flags::SettingFlags;

/// Every setting with its value.
#[derive(Debug)]
pub struct Config {
    /// In the order of the table.
    pub values: Vec<Value>,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// What a person should know about files that were passed over.
    pub warnings: Vec<String>,
}

/// One setting.
#[derive(Clone, Debug)]
pub struct Value {
    /// Which.
    pub setting: &'static Setting,
    /// Its value as text, as in an environment variable.
    pub text: String,
    /// Where it came from.
    pub source: Source,
}

/// Where a value came from, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A flag.
    Flag,
    /// An environment variable.
    Environment,
    /// `weft.toml`, at this line.
    File(usize),
    /// Nobody set it.
    Default,
}

/// What the outside world says, so that tests can say something else.
#[derive(Debug)]
pub struct Surroundings {
    /// The value of an environment variable.
    pub variable: fn(&str) -> Option<String>,
    /// Where `weft.toml` is looked for, first to last.
    pub files: Vec<PathBuf>,
}

impl Surroundings {
    /// This process's own.
    pub fn of_process() -> Surroundings {
        Surroundings {
            variable: |name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()),
            files: search_list(|name| std::env::var_os(name).map(PathBuf::from)),
        }
    }
}

/// `weft.toml` in the working folder, the user's and the machine's.
fn search_list(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let home = || Some(variable("HOME")?.join(".config"));
    let user = variable("XDG_CONFIG_HOME")
        // The XDG base directory specification: relative paths are to be ignored.
        .filter(|folder| folder.is_absolute())
        .or_else(home);
    let mut files = vec![PathBuf::from("weft.toml")];
    files.extend(user.map(|folder| folder.join("weft/weft.toml")));
    files.push(PathBuf::from("/etc/weft.toml"));
    files
}

/// Why the settings cannot be used.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// The file is not TOML; the text points at the place.
    Syntax(PathBuf, String),
    /// An entry of the file is no setting or has no such value.
    Entry {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what is accepted.
        what: String,
    },
    /// An environment variable has no such value.
    Variable {
        /// Its name and value, as they would be set.
        given: String,
        /// What is accepted.
        accepts: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable(file, error) => {
                write!(f, "{} cannot be read: {error}", file.display())
            }
            ConfigError::Syntax(file, text) => {
                write!(f, "{} is not TOML: {}", file.display(), text.trim_end())
            }
            ConfigError::Entry { file, line, what } => {
                write!(f, "{}:{line}: {what}", file.display())
            }
            ConfigError::Variable { given, accepts } => {
                write!(f, "{given} is not understood: give {accepts}, or unset it")
            }
        }
    }
}

impl Config {
    /// Puts flags before variables before the file before the defaults.
    ///
    /// `named` is the file the person gave; without it the first of the usual places is read.
    pub fn resolve(
        flags: &SettingFlags,
        named: Option<&Path>,
        surroundings: &Surroundings,
    ) -> Result<Config, ConfigError> {
        let (file, warnings) = match named {
            Some(file) => (Some(file.to_owned()), Vec::new()),
            None => first_trusted(&surroundings.files),
        };
        let entries = file.as_deref().map(read).transpose()?.unwrap_or_default();
        let values = SETTINGS
            .iter()
            .map(|setting| value(setting, flags, surroundings, &entries))
            .collect::<Result<_, _>>()?;
        Ok(Config {
            values,
            file,
            warnings,
        })
    }

    /// The value of the setting called `name`, if it has one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values
            .iter()
            .find(|value| value.setting.name == name)
            .map(|value| value.text.as_str())
            .filter(|text| !text.is_empty())
    }

    /// The environment variables that have to be set for the library to see it so.
    pub fn to_set(&self) -> impl Iterator<Item = &Value> {
        self.values.iter().filter(|value| {
            let given = matches!(value.source, Source::Flag | Source::File(_));
            given && !value.setting.launcher_only()
        })
    }
}

fn value(
    setting: &'static Setting,
    flags: &SettingFlags,
    surroundings: &Surroundings,
    entries: &[Entry],
) -> Result<Value, ConfigError> {
    let value = |text: &str, source| Value {
        setting,
        text: text.to_owned(),
        source,
    };
    if let Some(text) = flags.get(setting) {
        return Ok(value(text, Source::Flag));
    }
    if let Some(text) = (surroundings.variable)(setting.env) {
        return match setting.check(text.trim()) {
            Ok(()) => Ok(value(text.trim(), Source::Environment)),
            Err(_) => Err(ConfigError::Variable {
                given: format!("{}={text}", setting.env),
                accepts: setting.accepts(),
            }),
        };
    }
    let entry = entries
        .iter()
        .find(|entry| entry.setting.name == setting.name);
    Ok(match entry {
        Some(entry) => value(&entry.text, Source::File(entry.line)),
        None => value(setting.default, Source::Default),
    })
}

/// The first file that is there, and that nobody else could have put there: settings name the
/// library that a program will load.
fn first_trusted(files: &[PathBuf]) -> (Option<PathBuf>, Vec<String>) {
    use std::os::unix::fs::MetadataExt;

    let mut warnings = Vec::new();
    let own = rustix::process::geteuid().as_raw();
    for file in files {
        let Ok(metadata) = std::fs::metadata(file) else {
            continue;
        };
        if ![own, 0].contains(&metadata.uid()) {
            warnings.push(format!(
                "{} is passed over: it belongs to user {}; to use it all the same, --config {}",
                file.display(),
                metadata.uid(),
                file.display(),
            ));
            continue;
        }
        return (Some(file.clone()), warnings);
    }
    (None, warnings)
}

/// One line of a file.
#[derive(Debug)]
struct Entry {
    setting: &'static Setting,
    text: String,
    line: usize,
}

fn read(file: &Path) -> Result<Vec<Entry>, ConfigError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| ConfigError::Unreadable(file.to_owned(), error))?;
    parse(file, &text)
}

fn parse(file: &Path, text: &str) -> Result<Vec<Entry>, ConfigError> {
    let table = DeTable::parse(text)
        .map_err(|error| ConfigError::Syntax(file.to_owned(), error.to_string()))?;
    let mut entries = Vec::new();
    for (section, value) in table.get_ref().iter() {
        let line = line_of(text, section.span().start);
        let fault = |line, what| ConfigError::Entry {
            file: file.to_owned(),
            line,
            what,
        };
        let name = section.get_ref().as_ref();
        let DeValue::Table(section) = value.get_ref() else {
            return Err(fault(line, outside_section(name)));
        };
        if !sections().any(|known| known == name) {
            return Err(fault(line, unknown_section(name)));
        }
        for (key, value) in section.iter() {
            let line = line_of(text, key.span().start);
            let (setting, text) =
                entry(name, key.get_ref(), value.get_ref()).map_err(|what| fault(line, what))?;
            // The library is found from the file, not from wherever the program is started.
            let text = match setting.kind {
                weft_engine::settings::Kind::LauncherFolder => beside(file, &text),
                _ => text,
            };
            entries.push(Entry {
                setting,
                text,
                line,
            });
        }
    }
    Ok(entries)
}

/// A folder named in `file`, taken from where the file is.
fn beside(file: &Path, folder: &str) -> String {
    let base = file.parent().unwrap_or(Path::new(""));
    base.join(folder).to_string_lossy().into_owned()
}

/// The setting and the text of one line, or what is wrong with it.
fn entry(
    section: &str,
    key: &str,
    value: &DeValue<'_>,
) -> Result<(&'static Setting, String), String> {
    let path = format!("{section}.{key}");
    let Some(setting) = SETTINGS.iter().find(|setting| setting.key == path) else {
        return Err(unknown_key(section, key));
    };
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Boolean(on) => if *on { "on" } else { "off" }.to_owned(),
        DeValue::Integer(number) => number.to_string(),
        _ => return Err(format!("{path}: give {}", setting.accepts())),
    };
    match setting.check(&text) {
        Ok(()) => Ok((setting, text)),
        Err(_) => Err(format!(
            "{path} = {text} is not understood: give {}",
            setting.accepts()
        )),
    }
}

fn unknown_key(section: &str, key: &str) -> String {
    if let Some(setting) = weft_engine::settings::find(key) {
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
    let sections: Vec<_> = sections().map(|name| format!("[{name}]")).collect();
    format!(
        "there is no section [{name}]; there are: {}",
        sections.join(", ")
    )
}

fn outside_section(name: &str) -> String {
    match weft_engine::settings::find(name) {
        Some(setting) => {
            let (home, _) = setting.key.split_once('.').unwrap_or_default();
            format!("{name} belongs in the section [{home}]")
        }
        None => format!("{name} stands outside every section, and is no setting"),
    }
}

/// The sections of the file, each once.
fn sections() -> impl Iterator<Item = &'static str> {
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

#[cfg(test)]
mod tests;
