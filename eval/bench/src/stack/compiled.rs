//! Small C programs against the system's headers of verbs or of MPI, compiled on the spot: what no program on the machine
//! measures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};

use super::need;

/// What compiles a C program, and the Debian packages that has it and what it needs.
pub(super) struct Compiler {
    /// The command.
    pub(super) program: &'static str,
    /// Its package.
    pub(super) package: &'static str,
    /// Those of headers and libraries.
    pub(super) headers: &'static str,
}

/// For programs of verbs.
pub(super) const CC: Compiler = Compiler {
    program: "cc",
    package: "gcc",
    headers: "librdmacm-dev, libibverbs-dev",
};

/// A C program and what it is linked with.
pub(super) struct Source {
    /// Name of the program.
    pub(super) name: &'static str,
    /// Its text.
    pub(super) text: &'static str,
    /// What compiles it.
    pub(super) compiler: Compiler,
    /// Options for the linker.
    pub(super) libraries: &'static [&'static str],
}

impl Source {
    /// Where the program is once it is compiled.
    pub(super) fn program(&self, scratch: &Path) -> PathBuf {
        scratch.join(self.name)
    }

    /// Compiles it unless that has been done. An error says what is missing and how to get it.
    pub(super) fn compile(&self, scratch: &Path) -> Result<()> {
        let program = self.program(scratch);
        if program.is_file() {
            return Ok(());
        }
        let cc = self.compiler.program;
        need(cc, self.compiler.package)?;
        let source = program.with_extension("c");
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
            "{}.c does not compile (Debian packages {}): {}",
            self.name,
            self.compiler.headers,
            errors.lines().next().unwrap_or_default()
        );
        Ok(())
    }
}
