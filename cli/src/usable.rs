//! Whether Weft's libraries, once found, can do their part: they are this command's, and programs may load them from
//! where they are.

use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use crate::elf::text;
use crate::libraries::Libraries;

/// The version of this command and of the libraries that were built with it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where libweft.so says which version it is.
const VERSION_SYMBOL: &str = "weft_version";

/// Why the libraries cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// They were built from other sources than this command.
    #[error("{} is of Weft {version}, and this command of Weft {VERSION}", path.display())]
    OtherVersion {
        /// libweft.so.
        path: PathBuf,
        /// What it says of itself.
        version: String,
    },
    /// The loader would pass over them, or end the program.
    #[error("programs may not load libraries from {}: it is mounted noexec", .0.display())]
    NoExec(PathBuf),
}

impl Unusable {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Unusable::OtherVersion { .. } => {
                "install both from one package or one build; --libdir names another folder of libraries"
            }
            Unusable::NoExec(_) => {
                "install Weft where programs may be executed; --libdir names another folder of libraries"
            }
        }
    }
}

/// Says why `libraries` cannot be used, if so.
pub fn check(libraries: &Libraries) -> Result<(), Unusable> {
    let path = &libraries.preload;
    if is_noexec(path) {
        let folder = path.parent().unwrap_or(Path::new("/"));
        return Err(Unusable::NoExec(folder.to_owned()));
    }
    // A library that does not say which version it is may be anybody's build; the loader will tell what it lacks.
    match text::exported(path, VERSION_SYMBOL) {
        Some(version) if version != VERSION => Err(Unusable::OtherVersion {
            path: path.clone(),
            version,
        }),
        _ => Ok(()),
    }
}

fn is_noexec(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_this_test_runs_programs_may_be_loaded_from() {
        // What is mounted noexec is tried in tests/packages, in a name space of its own.
        assert!(!is_noexec(&std::env::current_exe().unwrap()));
    }

    #[test]
    fn both_versions_are_told() {
        let other = Unusable::OtherVersion {
            path: "/w/libweft.so".into(),
            version: "9.9.9".into(),
        };
        let message = other.to_string();
        assert!(
            message.contains("9.9.9") && message.contains(VERSION),
            "{message}"
        );
    }
}
