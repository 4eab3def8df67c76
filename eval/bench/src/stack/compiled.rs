//! Small programs in C and C++ against the system's headers, compiled on the spot: what no program on the machine
//! measures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};

use super::need;

/// A program, what compiles it, and what it is linked with.
pub(crate) struct Source {
    /// Name of the program.
    pub(crate) name: &'static str,
    /// What compiles it.
    pub(crate) compiler: Compiler,
    /// Its text.
    pub(crate) text: &'static str,
    /// Options for the linker.
    pub(crate) libraries: &'static [&'static str],
}

/// A compiler of C or C++.
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    /// The Debian package that has it.
    pub(crate) package: &'static str,
    /// Those with the headers that programs for it want.
    pub(crate) headers: &'static str,
}

/// The system's, for programs of verbs.
pub(crate) const CC: Compiler = Compiler {
    program: "cc",
    package: "gcc",
    headers: "librdmacm-dev, libibverbs-dev",
};

/// The system's of C++, for programs of UDT.
pub(crate) const CXX: Compiler = Compiler {
    program: "c++",
    package: "g++",
    headers: "libudt-dev, g++",
};

/// MPICH's, for programs of MPI.
pub(crate) const MPICC: Compiler = Compiler {
    program: "mpicc.mpich",
    package: "libmpich-dev",
    headers: "libmpich-dev, gcc",
};

impl Source {
    /// Where the program is once it is compiled.
    pub(crate) fn program(&self, scratch: &Path) -> PathBuf {
        scratch.join(self.name)
    }

    /// Compiles it unless that has been done. An error says what is missing and how to get it.
    pub(crate) fn compile(&self, scratch: &Path) -> Result<()> {
        let program = self.program(scratch);
        if program.is_file() {
            return Ok(());
        }
        let Compiler {
            program: cc,
            package,
            headers,
        } = self.compiler;
        need(cc, package)?;
        let source = program.with_extension(match cc {
            "c++" => "cpp",
            _ => "c",
        });
        fs::write(&source, self.text)
            .with_context(|| format!("cannot write {}", source.display()))?;
        let output = Command::new(cc)
            .args(["-O2", "-o"])
            .args([&program, &source])
            .args(self.libraries)
            .output()
            .with_context(|| format!("cannot run {cc}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{} does not compile (Debian packages {headers}): {}",
            source.file_name().unwrap_or_default().display(),
            errors.lines().next().unwrap_or_default()
        );
        Ok(())
    }
}
