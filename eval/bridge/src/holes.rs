//! The file that says when holes in TCP streams were filled.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_link::{Filled, Stream};

use crate::open::OpenError;

/// The file of both directions: one JSON object on each line.
#[derive(Clone, Debug)]
pub(crate) struct HolesFile(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    to: BufWriter<File>,
    file: PathBuf,
    /// What went wrong first. Nothing more is written then.
    problem: Option<String>,
}

impl HolesFile {
    /// Makes the file.
    pub(crate) fn create(file: &Path) -> Result<HolesFile, OpenError> {
        let file = file.to_owned();
        match File::create(&file) {
            Ok(to) => Ok(HolesFile(Arc::new(Mutex::new(State {
                to: BufWriter::new(to),
                file,
                problem: None,
            })))),
            Err(error) => Err(OpenError::Holes { file, error }),
        }
    }

    /// Writes that a hole was filled at `at` since 1970: how much was there without one before and since, and how much
    /// of the difference came last. The rest had waited.
    pub(crate) fn filled(&self, filled: &Filled, at: Duration) {
        let Filled {
            stream: Stream { from, to },
            before,
            after,
            brought,
        } = filled;
        let at_ns = at.as_nanos();
        self.write(|file| {
            writeln!(
                file,
                r#"{{"from":"{from}","to":"{to}","at_ns":{at_ns},"before":{before},"after":{after},"brought":{brought}}}"#
            )
        });
    }

    /// Writes how long a stream was at the end.
    pub(crate) fn end(&self, Stream { from, to }: Stream, end: u64) {
        self.write(|file| writeln!(file, r#"{{"from":"{from}","to":"{to}","end":{end}}}"#));
    }

    /// Makes sure that everything is in the file.
    pub(crate) fn flush(&self) {
        self.write(Write::flush);
    }

    /// Why the file is not whole.
    pub(crate) fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    fn write(&self, with: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let mut state = self.state();
        if state.problem.is_some() {
            return;
        }
        if let Err(error) = with(&mut state.to) {
            state.problem = Some(format!("{}: {error}", state.file.display()));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
