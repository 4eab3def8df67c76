//! Settings from flags, environment and `weft.toml`, each with where it came from.

use std::fmt;
use std::path::{Path, PathBuf};

use weft_engine::settings::{Setting, Settings, SETTINGS};

use crate::setting_flags::SettingFlags;
use file::{read, Entry};

pub mod check;
mod file;

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

/// The source in words.
pub fn source_of(source: Source) -> String {
    match source {
        Source::Flag => "flag".to_owned(),
        Source::Environment => "environment".to_owned(),
        Source::File(line) => format!("weft.toml, line {line}"),
        Source::Default => "default".to_owned(),
    }
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
    /// A line of the file is not TOML, is no setting or has no such value.
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
        /// What is wrong, or what is accepted.
        wrong: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable(file, error) => {
                write!(f, "{} cannot be read: {error}", file.display())
            }
            ConfigError::Entry { file, line, what } => {
                write!(f, "{}:{line}: {what}", file.display())
            }
            ConfigError::Variable { given, wrong } => {
                write!(f, "{given} is not understood: {wrong}, or unset it")
            }
        }
    }
}

impl Config {
    /// Puts flags before variables before the file before the defaults.
    ///
    /// `named` is the file the person gave; without it the first of the usual places is read.
    ///
    /// # Errors
    /// The first of [`Config::examine`]'s.
    pub fn resolve(
        flags: &SettingFlags,
        named: Option<&Path>,
        surroundings: &Surroundings,
    ) -> Result<Config, ConfigError> {
        let (config, errors) = Config::examine(flags, named, surroundings);
        errors.into_iter().next().map_or(Ok(config), Err)
    }

    /// [`Config::resolve`], but what is wrong is left out, and all of it told: the file's lines in their order, then
    /// the variables.
    pub fn examine(
        flags: &SettingFlags,
        named: Option<&Path>,
        surroundings: &Surroundings,
    ) -> (Config, Vec<ConfigError>) {
        let (file, warnings) = match named {
            Some(file) => (Some(file.to_owned()), Vec::new()),
            None => first_trusted(&surroundings.files),
        };
        let (entries, mut errors) = file.as_deref().map(read).unwrap_or_default();
        let values = SETTINGS
            .iter()
            .map(|setting| value(setting, flags, surroundings, &entries, &mut errors))
            .collect();
        let config = Config {
            values,
            file,
            warnings,
        };
        (config, errors)
    }

    /// The value of the setting called `name`, if it has one.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values
            .iter()
            .find(|value| value.setting.name == name)
            .map(|value| value.text.as_str())
            .filter(|text| !text.is_empty())
    }

    /// The settings as the library would have them.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        for value in self.values.iter().filter(|value| !value.text.is_empty()) {
            // Checked when it was read.
            let _ = value.setting.apply(&mut settings, &value.text);
        }
        settings
    }

    /// Who turned Weft off, in words; nothing if nobody did.
    pub fn off(&self) -> Option<String> {
        let value = self
            .values
            .iter()
            .find(|value| value.setting.name == "off")?;
        self.settings().off.then(|| match value.source {
            Source::Flag => "Weft is off (--off)".to_owned(),
            Source::Environment => format!("Weft is off ({})", value.setting.env),
            source => format!("Weft is off ({})", source_of(source)),
        })
    }

    /// The environment variables that have to be set for the library to see it so.
    pub fn to_set(&self) -> impl Iterator<Item = &Value> {
        self.values.iter().filter(|value| {
            let given = matches!(value.source, Source::Flag | Source::File(_));
            given && !value.setting.launcher_only()
        })
    }
}

/// The setting's value from the strongest source that has one it takes; what another has is an error.
fn value(
    setting: &'static Setting,
    flags: &SettingFlags,
    surroundings: &Surroundings,
    entries: &[Entry],
    errors: &mut Vec<ConfigError>,
) -> Value {
    let value = |text: &str, source| Value {
        setting,
        text: text.to_owned(),
        source,
    };
    if let Some(text) = flags.get(setting) {
        return value(text, Source::Flag);
    }
    if let Some(text) = (surroundings.variable)(setting.env) {
        match setting.check(text.trim()) {
            Ok(()) => return value(text.trim(), Source::Environment),
            Err(reason) => {
                errors.extend(
                    reason
                        .in_words()
                        .into_iter()
                        .map(|wrong| ConfigError::Variable {
                            given: format!("{}={text}", setting.env),
                            wrong,
                        }),
                )
            }
        }
    }
    let entry = entries
        .iter()
        .find(|entry| entry.setting.name == setting.name);
    match entry {
        Some(entry) => value(&entry.text, Source::File(entry.line)),
        None => value(setting.default, Source::Default),
    }
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

#[cfg(test)]
mod tests;
