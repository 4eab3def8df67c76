//! The command as a person would run it, in a place where nothing else has a say.

#[path = "../../src/scratch.rs"]
mod scratch;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub use scratch::Scratch;

/// A folder to work in, with libraries that stand in for Weft's.
pub struct Place {
    scratch: Scratch,
}

impl Place {
    /// Libraries that any program can load and that do nothing to it.
    pub fn new() -> Place {
        let place = Place {
            scratch: Scratch::new(),
        };
        place.library("libm.so.6", "lib/weft/libweft.so");
        place.with_sockets()
    }

    /// The machine's own verbs libraries stand in for Weft's; nothing without rdma-core.
    pub fn with_verbs() -> Option<Place> {
        let place = Place {
            scratch: Scratch::new(),
        };
        let made = place.library("libibverbs.so.1", "lib/weft/libweft.so")
            && place.library("libibverbs.so.1", "lib/weft/weft-libs/libibverbs.so.1")
            && place.library("librdmacm.so.1", "lib/weft/weft-libs/librdmacm.so.1");
        made.then_some(place)
    }

    /// A library with the socket hooks beside them, which does nothing.
    pub fn with_sockets(self) -> Place {
        self.library("libm.so.6", "lib/weft/libweft_preload.so");
        self
    }

    /// Copies a library of the machine.
    fn library(&self, name: &str, to: &str) -> bool {
        let folders = ["/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64"];
        let to = self.path(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        folders
            .iter()
            .any(|folder| std::fs::copy(Path::new(folder).join(name), &to).is_ok())
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// Writes a file.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        self.scratch.file(name, content)
    }

    /// Copies a file that will be executed.
    pub fn copy(&self, from: &str, name: &str) -> PathBuf {
        self.scratch.copy(from, name)
    }

    /// Writes a file that may be executed.
    pub fn executable(&self, name: &str, content: &str) -> PathBuf {
        self.scratch.executable(name, content)
    }

    /// The command, told where the libraries are.
    pub fn weft(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare(Path::new(env!("CARGO_BIN_EXE_weft")));
        command
            .args(arguments)
            .env("WEFT_LIBDIR", self.path("lib/weft"));
        command
    }

    /// `program` without any setting of the person who runs the tests.
    pub fn bare(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("WEFT_") || name.starts_with("LD_") {
                command.env_remove(&*name);
            }
        }
        command
            .current_dir(self.path(""))
            .env("HOME", self.path("home"))
            .env("XDG_CONFIG_HOME", self.path("home/config"));
        command
    }
}

/// What it printed.
pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it complained about.
pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
