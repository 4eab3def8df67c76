//! What several rows want that is made on this machine once, in a folder that goes with them.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, Result};
use tempfile::TempDir;

/// Such a folder, and how it is made: when it is asked for first.
#[derive(Debug)]
pub(super) struct Made {
    make: fn() -> Result<TempDir>,
    folder: OnceCell<std::result::Result<TempDir, String>>,
}

impl Made {
    pub(super) fn new(make: fn() -> Result<TempDir>) -> Made {
        Made {
            make,
            folder: OnceCell::new(),
        }
    }

    /// The folder.
    ///
    /// # Errors
    /// It could not be made: what is missing, and how to get it.
    pub(super) fn folder(&self) -> Result<&Path> {
        let make = || (self.make)().map_err(|error| format!("{error:#}"));
        match self.folder.get_or_init(make) {
            Ok(folder) => Ok(folder.path()),
            Err(why) => Err(anyhow!("{why}")),
        }
    }

    /// Something in it. A row whose folder could not be made is not run.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder().unwrap_or(Path::new("")).join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn it_is_made_once_when_it_is_asked_for_and_is_gone_with_its_rows() {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = Made::new(|| {
            MADE.fetch_add(1, Ordering::Relaxed);
            Ok(tempfile::tempdir()?)
        });
        assert_eq!(MADE.load(Ordering::Relaxed), 0);
        let file = made.file("a");
        std::fs::write(&file, "a").unwrap();
        assert_eq!(made.file("a"), file);
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
        drop(made);
        assert!(!file.exists());
    }

    #[test]
    fn why_it_could_not_be_made_is_said_each_time() {
        let made = Made::new(|| Err(anyhow!("no mpicc").context("cannot compile")));
        for _ in 0..2 {
            assert_eq!(
                made.folder().unwrap_err().to_string(),
                "cannot compile: no mpicc"
            );
        }
    }
}
