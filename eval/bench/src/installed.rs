//! Which programs of others a machine has.

use anyhow::Result;

/// An error that names the Debian package when the program is not on `PATH`.
pub(crate) fn need(program: &str, package: &str) -> Result<()> {
    anyhow::ensure!(
        on_path(program),
        "{program} is not installed (Debian package {package})"
    );
    Ok(())
}

/// Whether `PATH` has a file of this name.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
