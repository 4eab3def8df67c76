//! The capture that both directions write.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_link::{Capture, Way};

use crate::open::OpenError;

/// Octets that are written to the file together.
const BUFFER: usize = 1 << 20;

/// A capture file. Interface 0 is the first one of the bridge, 1 the second.
#[derive(Clone, Debug)]
pub(crate) struct SharedCapture(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    capture: Capture<BufWriter<File>>,
    file: PathBuf,
    /// What went wrong first. Nothing more is written then: half a block makes what follows unreadable.
    problem: Option<String>,
}

impl SharedCapture {
    /// Makes the file.
    pub(crate) fn create(file: &Path, names: &[String; 2]) -> Result<SharedCapture, OpenError> {
        let begun = File::create(file).and_then(|to| {
            let names = [names[0].as_str(), names[1].as_str()];
            let mut capture = Capture::begin(BufWriter::with_capacity(BUFFER, to), &names)?;
            capture.flush()?;
            Ok(capture)
        });
        let file = file.to_owned();
        match begun {
            Ok(capture) => Ok(SharedCapture(Arc::new(Mutex::new(State {
                capture,
                file,
                problem: None,
            })))),
            Err(error) => Err(OpenError::Capture { file, error }),
        }
    }

    /// Writes a frame that was at an interface at `at` since 1970.
    pub(crate) fn frame(&self, interface: u32, way: Way, at: Duration, octets: &[u8]) {
        self.write(|capture| capture.frame(interface, way, at, octets));
    }

    /// Makes sure that everything is in the file.
    pub(crate) fn flush(&self) {
        self.write(Capture::flush);
    }

    /// Why the capture is not whole.
    pub(crate) fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    fn write(&self, with: impl FnOnce(&mut Capture<BufWriter<File>>) -> io::Result<()>) {
        let mut state = self.state();
        if state.problem.is_some() {
            return;
        }
        if let Err(error) = with(&mut state.capture) {
            state.problem = Some(format!("{}: {error}", state.file.display()));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
