//! The engine's errors, as far as the models can meet them.

/// Why a wait ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Error {
    WouldBlock,
    Interrupted,
    Other,
    /// Of a child of a fork; no model forks.
    Forked,
}

impl Error {
    pub(crate) fn forked() -> Error {
        Error::Forked
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        match error.kind() {
            std::io::ErrorKind::Interrupted => Error::Interrupted,
            _ => Error::Other,
        }
    }
}
