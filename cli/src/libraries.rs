//! Where Weft's libraries are, and how a program is brought to them.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::elf::closure::Search;
use crate::elf::{Object, VERBS_LIBRARIES};

/// The object that holds everything; the others are names for it.
pub const LIBRARY: &str = "libweft.so";

/// The object with the C library's socket calls.
pub const SOCKETS_LIBRARY: &str = "libweft_preload.so";

/// Weft's libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libraries {
    /// `libweft.so`, for LD_PRELOAD.
    pub preload: PathBuf,
    /// The folder with `libibverbs.so.1` and `librdmacm.so.1`, for LD_LIBRARY_PATH.
    pub replacement: Option<PathBuf>,
    /// `libweft_preload.so`, for LD_PRELOAD.
    pub sockets: Option<PathBuf>,
}

/// No libraries in any of these folders.
#[derive(Debug)]
pub struct NotFound {
    /// Where they were looked for.
    pub looked_in: Vec<PathBuf>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LIBRARY} is in none of:")?;
        for folder in &self.looked_in {
            write!(f, "\n    {}", folder.display())?;
        }
        Ok(())
    }
}

impl NotFound {
    /// What to do about it.
    pub const ADVICE: &'static str =
        "install the package again (in the sources: `make build`); --libdir names another folder";
}

impl Libraries {
    /// Looks in the folder the person named, else in the places relative to this command.
    pub fn find(named: Option<&Path>) -> Result<Libraries, NotFound> {
        let looked_in = match (named, std::env::current_exe()) {
            (Some(folder), _) => vec![folder.to_owned()],
            (None, Ok(command)) => beside(&command),
            (None, Err(_)) => Vec::new(),
        };
        looked_in
            .iter()
            .find_map(|folder| Libraries::in_folder(folder))
            .ok_or(NotFound { looked_in })
    }

    /// The libraries in `folder`, by their full paths: the program may change its working folder.
    fn in_folder(folder: &Path) -> Option<Libraries> {
        let folder = std::fs::canonicalize(folder).ok()?;
        let preload = folder.join(LIBRARY);
        let complete = |folder: &PathBuf| {
            VERBS_LIBRARIES
                .iter()
                .all(|name| folder.join(name).is_file())
        };
        let sockets = folder.join(SOCKETS_LIBRARY);
        preload.is_file().then(|| Libraries {
            preload,
            sockets: sockets.is_file().then_some(sockets),
            replacement: [folder.join(OWN_FOLDER), folder].into_iter().find(complete),
        })
    }
}

/// The subfolder of a build that holds only the libraries, so that LD_LIBRARY_PATH shows no more.
const OWN_FOLDER: &str = "weft-libs";

/// Where the libraries of the command at `command` may be: a build's folder, then an
/// installation's `PREFIX/lib/weft` and its multiarch form.
fn beside(command: &Path) -> Vec<PathBuf> {
    let Some(folder) = command.parent() else {
        return Vec::new();
    };
    let prefix = folder.parent().unwrap_or(Path::new("/"));
    vec![
        folder.to_owned(),
        folder.join(OWN_FOLDER),
        prefix.join("lib/weft"),
        prefix.join(format!("lib/{}-linux-gnu/weft", std::env::consts::ARCH)),
    ]
}

/// How a program is brought to the libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// For LD_PRELOAD.
    pub preload: Option<PathBuf>,
    /// For LD_PRELOAD, before the other: the socket calls.
    pub sockets: Option<PathBuf>,
    /// For LD_LIBRARY_PATH.
    pub library_path: Option<PathBuf>,
    /// Why so.
    pub why: &'static str,
}

/// Why the mode that was asked for cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// No folder with `libibverbs.so.1` and `librdmacm.so.1`.
    #[error("there is no libibverbs.so.1 with librdmacm.so.1 in {}", .0.display())]
    NoReplacement(PathBuf),
    /// No `libweft_preload.so` in the folder.
    #[error("there is no {SOCKETS_LIBRARY} in {}", .0.display())]
    NoSockets(PathBuf),
    /// A path the variable has no way to write.
    #[error("{variable} cannot hold the path {}: it has a separator in it", path.display())]
    Unwritable {
        /// The variable.
        variable: &'static str,
        /// The path.
        path: PathBuf,
    },
}

impl BindingError {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            BindingError::NoReplacement(_) => {
                "install the package again (in the sources: `make build`), or use --mode preload"
            }
            BindingError::NoSockets(_) => {
                "install the package again (in the sources: `make build`), or give no rule for sockets (--udp, --ddp)"
            }
            BindingError::Unwritable { .. } => {
                "move Weft to a folder whose path has no space, colon or semicolon"
            }
        }
    }
}

/// The verbs libraries the machine has of its own.
#[derive(Debug, Default)]
pub struct SystemVerbs {
    objects: Vec<Object>,
}

impl SystemVerbs {
    /// Looks for them as the loader would.
    pub fn find(search: &Search) -> SystemVerbs {
        let Some(machine) = Object::own_machine() else {
            return SystemVerbs::default();
        };
        let objects = VERBS_LIBRARIES
            .iter()
            .filter_map(|name| search.library(name, machine));
        SystemVerbs {
            objects: objects.collect(),
        }
    }

    /// Whether the machine has none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether everything linked against them would link against `folder` too: each version
    /// they define is defined there under the same soname.
    fn covered_by(&self, folder: &Path) -> bool {
        self.objects.iter().all(|system| {
            let soname = system.soname.as_deref().unwrap_or_default();
            let Ok(ours) = Object::read(&folder.join(soname)) else {
                return false;
            };
            system.exports.versions.is_subset(&ours.exports.versions)
        })
    }
}

impl Libraries {
    /// How to bring a program here in `mode`, a value of the setting `mode`.
    ///
    /// `real_devices`: whether the machine's own devices are to be seen, which takes its rdma-core.
    /// `sockets`: whether socket calls are to come to Weft too.
    pub fn bind(
        &self,
        mode: &str,
        real_devices: bool,
        sockets: bool,
        system: &SystemVerbs,
    ) -> Result<Binding, BindingError> {
        let mut binding = match mode {
            "preload" => self.preloading("asked for"),
            "replacement" => self
                .replacing("asked for")
                .ok_or_else(|| BindingError::NoReplacement(self.folder()))?,
            _ if real_devices => self.preloading("the machine's own devices are asked for"),
            _ => self.automatic(system),
        };
        if sockets {
            let library = self.sockets.clone();
            binding.sockets = Some(library.ok_or_else(|| BindingError::NoSockets(self.folder()))?);
        }
        binding.check()?;
        Ok(binding)
    }

    fn automatic(&self, system: &SystemVerbs) -> Binding {
        let Some(folder) = &self.replacement else {
            return self.preloading("the replacement libraries are not built");
        };
        let replacing = |why| Binding {
            preload: None,
            sockets: None,
            library_path: Some(folder.clone()),
            why,
        };
        if system.is_empty() {
            return replacing("this machine has no rdma-core");
        }
        if !system.covered_by(folder) {
            return self.preloading("this machine's rdma-core is newer than what Weft can replace");
        }
        let both = Binding {
            preload: Some(self.preload.clone()),
            sockets: None,
            library_path: Some(folder.clone()),
            why: "in front of this machine's rdma-core, and in its place for programs that open \
                  it by name",
        };
        match both.check() {
            Ok(()) => both,
            Err(_) => replacing("the path of the libraries cannot be written in LD_PRELOAD"),
        }
    }

    fn preloading(&self, why: &'static str) -> Binding {
        Binding {
            preload: Some(self.preload.clone()),
            sockets: None,
            library_path: None,
            why,
        }
    }

    fn replacing(&self, why: &'static str) -> Option<Binding> {
        Some(Binding {
            preload: None,
            sockets: None,
            library_path: Some(self.replacement.clone()?),
            why,
        })
    }

    fn folder(&self) -> PathBuf {
        self.preload.parent().unwrap_or(Path::new("/")).to_owned()
    }
}

impl Binding {
    /// No library at all.
    pub fn none(why: &'static str) -> Binding {
        Binding {
            preload: None,
            sockets: None,
            library_path: None,
            why,
        }
    }

    /// The mode in a word or two.
    pub fn mode(&self) -> &'static str {
        match (&self.preload, &self.library_path) {
            (Some(_), Some(_)) => "preload and replacement",
            (Some(_), None) => "preload",
            (None, Some(_)) => "replacement",
            (None, None) => "off",
        }
    }

    /// Whether the variables can hold the paths: the loader knows no quoting.
    pub fn check(&self) -> Result<(), BindingError> {
        let holds = |variable, path: &Option<PathBuf>, separators: &[char]| match path {
            Some(path) if path.to_string_lossy().contains(separators) => {
                Err(BindingError::Unwritable {
                    variable,
                    path: path.clone(),
                })
            }
            _ => Ok(()),
        };
        holds("LD_PRELOAD", &self.preload, &[' ', ':', '$'])?;
        holds("LD_PRELOAD", &self.sockets, &[' ', ':', '$'])?;
        holds("LD_LIBRARY_PATH", &self.library_path, &[':', ';', '$'])
    }

    /// The objects whose symbols a program will find first.
    pub fn objects(&self) -> Vec<Object> {
        let replacing = self
            .library_path
            .iter()
            .flat_map(|folder| VERBS_LIBRARIES.iter().map(move |name| folder.join(name)));
        self.preload
            .iter()
            .cloned()
            .chain(replacing)
            .filter_map(|path| Object::read(&path).ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn touched(scratch: &Scratch, names: &[&str]) {
        for name in names {
            scratch.file(name, "");
        }
    }

    #[test]
    fn a_build_and_an_installation_are_found() {
        let folders = beside(Path::new("/opt/weft/bin/weft"));
        assert_eq!(folders[0], Path::new("/opt/weft/bin"));
        assert!(folders.contains(&PathBuf::from("/opt/weft/lib/weft")));
        assert!(beside(Path::new("/weft")).contains(&PathBuf::from("/lib/weft")));
    }

    #[test]
    fn the_folder_of_libraries_alone_is_preferred() {
        let scratch = Scratch::new();
        touched(
            &scratch,
            &["libweft.so", "libibverbs.so.1", "librdmacm.so.1"],
        );
        let folder = std::fs::canonicalize(scratch.path("")).unwrap();
        let found = Libraries::find(Some(&scratch.path(""))).unwrap();
        assert_eq!(found.preload, folder.join("libweft.so"));
        assert_eq!(found.replacement, Some(folder.clone()));

        touched(
            &scratch,
            &["weft-libs/libibverbs.so.1", "weft-libs/librdmacm.so.1"],
        );
        let found = Libraries::find(Some(&scratch.path(""))).unwrap();
        assert_eq!(found.replacement, Some(folder.join("weft-libs")));
    }

    #[test]
    fn half_a_replacement_is_none() {
        let scratch = Scratch::new();
        touched(&scratch, &["libweft.so", "libibverbs.so.1"]);
        let found = Libraries::find(Some(&scratch.path(""))).unwrap();
        assert_eq!(found.replacement, None);
    }

    #[test]
    fn where_it_looked_is_told() {
        let error = Libraries::find(Some(Path::new("/nowhere"))).unwrap_err();
        assert_eq!(error.to_string(), "libweft.so is in none of:\n    /nowhere");
    }

    fn libraries(folder: &str) -> Libraries {
        Libraries {
            preload: Path::new(folder).join(LIBRARY),
            sockets: None,
            replacement: Some(PathBuf::from(folder)),
        }
    }

    #[test]
    fn without_rdma_core_its_place_is_taken() {
        let binding = libraries("/w")
            .bind("auto", false, false, &SystemVerbs::default())
            .unwrap();
        assert_eq!(binding.mode(), "replacement");
        assert_eq!(binding.preload, None);
    }

    #[test]
    fn a_newer_rdma_core_is_left_in_place() {
        let system = SystemVerbs::find(&Search {
            cache: crate::elf::cache::LoaderCache::load(),
            ..Search::default()
        });
        if system.is_empty() {
            eprintln!("skipped: no rdma-core here");
            return;
        }
        // No objects at all cover nothing.
        let binding = libraries("/nowhere")
            .bind("auto", false, false, &system)
            .unwrap();
        assert_eq!(binding.mode(), "preload");
    }

    #[test]
    fn a_path_with_a_space_cannot_be_preloaded() {
        let libraries = libraries("/my libraries");
        let none = SystemVerbs::default();
        assert!(matches!(
            libraries.bind("preload", false, false, &none),
            Err(BindingError::Unwritable {
                variable: "LD_PRELOAD",
                ..
            })
        ));
        assert_eq!(
            libraries.bind("auto", false, false, &none).unwrap().mode(),
            "replacement"
        );
    }

    #[test]
    fn socket_calls_come_to_weft_only_when_a_rule_asks() {
        let none = SystemVerbs::default();
        let mut libraries = libraries("/w");
        let bind = |libraries: &Libraries, sockets| libraries.bind("auto", false, sockets, &none);
        assert_eq!(
            bind(&libraries, true),
            Err(BindingError::NoSockets("/w".into()))
        );
        libraries.sockets = Some("/w/libweft_preload.so".into());
        assert_eq!(bind(&libraries, false).unwrap().sockets, None);
        assert_eq!(bind(&libraries, true).unwrap().sockets, libraries.sockets);
    }

    #[test]
    fn a_replacement_that_is_not_there_cannot_be_asked_for() {
        let libraries = Libraries {
            preload: "/w/libweft.so".into(),
            sockets: None,
            replacement: None,
        };
        let none = SystemVerbs::default();
        assert!(matches!(
            libraries.bind("replacement", false, false, &none),
            Err(BindingError::NoReplacement(_))
        ));
        assert_eq!(
            libraries.bind("auto", false, false, &none).unwrap().mode(),
            "preload"
        );
    }
}
