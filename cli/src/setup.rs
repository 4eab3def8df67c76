//! What a program's environment has to be: settings, libraries, and the variables that follow.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use weft_engine::settings::switch;

use crate::args::Sources;
use crate::config::{Config, ConfigError, Source, Surroundings};
use crate::elf::cache::LoaderCache;
use crate::elf::closure::Search;
use crate::libraries::{Binding, BindingError, Libraries, NotFound, SystemVerbs};
use crate::program::Program;
use crate::usable::{self, Unusable};

/// Everything that is the same for every program.
#[derive(Debug)]
pub struct Setup {
    /// The settings.
    pub config: Config,
    /// How the program is brought to the libraries.
    pub binding: Binding,
    /// The library with the socket hooks, which is where rsockets are served, too.
    pub sockets: Option<PathBuf>,
    /// What a `weft run` around this one may have set and the program is not to have: Weft is off.
    taken_out: Vec<PathBuf>,
}

/// Why Weft cannot do its part.
#[derive(Debug)]
pub enum SetupError {
    /// The settings.
    Config(ConfigError),
    /// The libraries.
    Libraries(NotFound),
    /// What was found of them.
    Unusable(Unusable),
    /// The way to them.
    Binding(BindingError),
}

impl SetupError {
    /// What to do about it, where the message does not say so itself.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            SetupError::Config(_) => None,
            SetupError::Libraries(_) => Some(NotFound::ADVICE),
            SetupError::Unusable(error) => Some(error.advice()),
            SetupError::Binding(error) => Some(error.advice()),
        }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Config(error) => error.fmt(f),
            SetupError::Libraries(error) => error.fmt(f),
            SetupError::Unusable(error) => error.fmt(f),
            SetupError::Binding(error) => error.fmt(f),
        }
    }
}

impl Setup {
    /// Reads the settings and finds the libraries.
    pub fn new(sources: &Sources) -> Result<Setup, SetupError> {
        let config = Config::resolve(
            &sources.flags,
            sources.config.as_deref(),
            &Surroundings::of_process(),
        )
        .map_err(SetupError::Config)?;
        if config.off().is_some() {
            return Ok(Setup::off(config));
        }
        let libraries =
            Libraries::find(config.get("libdir").map(Path::new)).map_err(SetupError::Libraries)?;
        usable::check(&libraries).map_err(SetupError::Unusable)?;
        let system_verbs = SystemVerbs::find(&outer_search(&libraries));
        let mode = config.get("mode").unwrap_or("auto");
        let real_devices = config.get("real-devices").and_then(switch) == Some(true);
        let sockets = config.settings().hooks_sockets();
        let library = libraries.sockets.clone();
        let binding = libraries
            .bind(mode, real_devices, sockets, &system_verbs)
            .map_err(SetupError::Binding)?;
        Ok(Setup {
            config,
            binding,
            sockets: library,
            taken_out: Vec::new(),
        })
    }

    /// The program finds what it would find without Weft, so it does not matter whether there are libraries.
    fn off(config: Config) -> Setup {
        let libraries = Libraries::find(config.get("libdir").map(Path::new)).ok();
        let ours = |libraries: Libraries| {
            let others = [libraries.sockets, libraries.replacement];
            [Some(libraries.preload)]
                .into_iter()
                .chain(others)
                .flatten()
        };
        Setup {
            config,
            binding: Binding::none("Weft is off, and none of its libraries is loaded"),
            sockets: None,
            taken_out: libraries.into_iter().flat_map(ours).collect(),
        }
    }

    /// Has the socket hooks loaded for a program that makes rsockets, so that its ordinary calls on them are seen
    /// (decision 0036). Without a rule the hooks change nothing else.
    pub fn hook_rsockets_of(&mut self, program: &Program) {
        if !program.object.imports_any(&["rsocket"]) {
            return;
        }
        let hooked = Binding {
            sockets: self.sockets.clone(),
            ..self.binding.clone()
        };
        // Where the path cannot be written, its rsockets are served all the same.
        if hooked.check().is_ok() {
            self.binding = hooked;
        }
    }

    /// The variables to set, in the order to show them.
    pub fn variables(&self) -> Vec<Variable> {
        let mut variables = self.taken_out();
        variables.extend(self.preloads());
        let mut bind = |name: &'static str, ours: &Option<PathBuf>, separators: &str| {
            if let Some(ours) = ours {
                let old = std::env::var_os(name).unwrap_or_default();
                variables.push(Variable {
                    name,
                    value: in_front(ours.as_os_str(), &old, separators),
                    source: None,
                });
            }
        };
        bind("LD_LIBRARY_PATH", &self.binding.library_path, ":;");
        variables.extend(self.config.to_set().map(|value| Variable {
            name: value.setting.env,
            value: OsString::from(&value.text),
            source: Some(value.source),
        }));
        variables
    }

    /// The loader's variables without what a `weft run` around this one put there.
    fn taken_out(&self) -> Vec<Variable> {
        let lists = [("LD_PRELOAD", ": "), ("LD_LIBRARY_PATH", ":;")];
        let without = |(name, separators)| {
            let old = std::env::var_os(name)?;
            let value = without(&self.taken_out, &old, separators)?;
            Some(Variable {
                name,
                value,
                source: None,
            })
        };
        lists.into_iter().filter_map(without).collect()
    }

    /// LD_PRELOAD, if anything is to be in it.
    fn preloads(&self) -> Option<Variable> {
        let old = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let ours = [&self.binding.preload, &self.binding.sockets];
        let value = ours
            .into_iter()
            .flatten()
            .fold(old, |list, ours| in_front(ours.as_os_str(), &list, ": "));
        let any = ours.iter().any(|library| library.is_some());
        any.then_some(Variable {
            name: "LD_PRELOAD",
            value,
            source: None,
        })
    }

    /// Where the loader will look for the program's libraries.
    pub fn search(&self) -> Search {
        let variables = self.variables();
        let value = |name: &str| {
            variables
                .iter()
                .find(|variable| variable.name == name)
                .map(|variable| variable.value.clone())
                .or_else(|| std::env::var_os(name))
                .unwrap_or_default()
        };
        Search {
            preload: split(&value("LD_PRELOAD"), ": "),
            library_path: split(&value("LD_LIBRARY_PATH"), ":;"),
            cache: LoaderCache::load(),
        }
    }
}

/// A variable to set for the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its whole new value.
    pub value: OsString,
    /// Where a setting's value came from; nothing for the loader's variables.
    pub source: Option<Source>,
}

/// The machine's libraries as a program finds them that does not run under Weft, even if this
/// command does.
fn outer_search(libraries: &Libraries) -> Search {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut library_path = split(&path, ":;");
    library_path.retain(|folder| Some(folder) != libraries.replacement.as_ref());
    Search {
        preload: Vec::new(),
        library_path,
        cache: LoaderCache::load(),
    }
}

fn split(list: &OsStr, separators: &str) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    list.as_bytes()
        .split(|octet| separators.as_bytes().contains(octet))
        .filter(|entry| !entry.is_empty())
        .map(|entry| PathBuf::from(OsStr::from_bytes(entry)))
        .collect()
}

/// `ours` before what the list already has, and once.
///
/// An empty list stays away: to the loader an empty entry means the working folder.
fn in_front(ours: &OsStr, list: &OsStr, separators: &str) -> OsString {
    let mut value = ours.to_owned();
    for entry in split(list, separators) {
        if entry != ours {
            value.push(":");
            value.push(entry);
        }
    }
    value
}

/// The list without its entries that are `ours`; nothing if none is.
fn without(ours: &[PathBuf], list: &OsStr, separators: &str) -> Option<OsString> {
    let entries = split(list, separators);
    let kept: Vec<_> = entries
        .iter()
        .filter(|entry| !ours.contains(entry))
        .collect();
    let differs = kept.len() < entries.len();
    differs.then(|| {
        let mut value = OsString::new();
        for (number, entry) in kept.into_iter().enumerate() {
            value.push(if number == 0 { "" } else { ":" });
            value.push(entry);
        }
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_first_and_the_rest_stays() {
        let put = |list: &str| {
            in_front("/w/libweft.so".as_ref(), list.as_ref(), ": ")
                .into_string()
                .unwrap()
        };
        assert_eq!(put(""), "/w/libweft.so");
        assert_eq!(put("/a.so"), "/w/libweft.so:/a.so");
        assert_eq!(put("/a.so /b.so:"), "/w/libweft.so:/a.so:/b.so");
        assert_eq!(put("/a.so:/w/libweft.so"), "/w/libweft.so:/a.so");
    }

    #[test]
    fn ours_goes_and_the_rest_stays() {
        let ours = [PathBuf::from("/w/libweft.so")];
        let without = |list: &str| without(&ours, list.as_ref(), ": ");
        assert_eq!(without(""), None);
        assert_eq!(without("/a.so:/b.so"), None);
        assert_eq!(without("/w/libweft.so"), Some("".into()));
        assert_eq!(
            without("/a.so /w/libweft.so:/b.so"),
            Some("/a.so:/b.so".into())
        );
    }
}
