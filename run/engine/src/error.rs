//! Why a call failed, without numbers: the C edge turns these into errno.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_os::fork::PerProcess;
use weft_verbs::types::PostError;

const EPERM: i32 = 1;
const EMFILE: i32 = 24;

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// An argument is out of its range; says which.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// A limit of the device or of memory is reached; says which.
    #[error("limit reached: {0}")]
    NoMemory(&'static str),
    /// The object is still used by others; says by which.
    #[error("still in use: {0}")]
    Busy(&'static str),
    /// Not served by this device; says what.
    #[error("not served: {0}")]
    Unsupported(&'static str),
    /// The object's state does not take the call; says which state it wants.
    #[error("wrong state: this needs {0}")]
    State(&'static str),
    /// Nothing now, on a non-blocking channel.
    #[error("nothing now, and the channel is non-blocking")]
    WouldBlock,
    /// A signal handler ran while waiting.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The process is a fork of the one that owns the object.
    #[error("verbs objects stay with the process that made them")]
    Forked,
    /// The kernel refused, with its errno.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Os(i32),
}

impl Error {
    /// [`Error::Forked`], said in words once in a process.
    #[cold]
    pub fn forked() -> Error {
        static SAID: PerProcess<AtomicBool> = PerProcess::new();
        let said = SAID.get_or_init(AtomicBool::default);
        if !said.swap(true, Ordering::Relaxed) {
            crate::warn!(
                "process {} uses verbs objects of the process that it was forked from: they stay with that one, and \
                 each such call fails (EACCES). Open the device in the child (ibv_open_device, \
                 rdma_create_event_channel) and make there what it uses",
                std::process::id()
            );
        }
        Error::Forked
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        explain(&error);
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::WouldBlock, _) => Error::WouldBlock,
            (io::ErrorKind::Interrupted, _) => Error::Interrupted,
            (_, Some(errno)) => Error::Os(errno),
            (_, None) => Error::Invalid("address"),
        }
    }
}

/// Says, once of each kind, what to do about errors that the errno alone does not explain.
pub(crate) fn explain(error: &io::Error) {
    static NO_DESCRIPTORS: AtomicBool = AtomicBool::new(false);
    static NOT_PERMITTED: AtomicBool = AtomicBool::new(false);
    match error.raw_os_error() {
        Some(EMFILE) if !NO_DESCRIPTORS.swap(true, Ordering::Relaxed) => {
            let (soft, hard) = weft_os::descriptors::limits();
            crate::error!(
                "no descriptors are left: each connection takes one, and this process may have {soft} \
                 (ulimit -n; hard limit {hard}, ulimit -Hn). Raise the hard limit (as root, or in \
                 /etc/security/limits.conf), or use fewer queue pairs"
            );
        }
        Some(EPERM) if !NOT_PERMITTED.swap(true, Ordering::Relaxed) => {
            crate::error!(
                "the system does not permit a call that Weft needs: in a container the seccomp profile has to allow \
                 socket, epoll_create1 and eventfd2; a firewall may forbid a connection so, too"
            );
        }
        _ => {}
    }
}

impl From<PostError> for Error {
    fn from(error: PostError) -> Error {
        match error {
            PostError::QueueFull => Error::NoMemory("work requests of the queue"),
            PostError::InvalidState => Error::State("a queue pair in a state that takes it"),
            PostError::TooLarge => Error::Invalid("more than the queue was made for"),
            PostError::Unsupported => Error::Unsupported("the operation"),
            PostError::InvalidLength => Error::Invalid("octets of an atomic operation: eight"),
        }
    }
}
