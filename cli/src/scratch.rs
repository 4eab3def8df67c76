//! Folders for tests to write in.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that goes when the test ends.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new, empty one.
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("weft-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }

    /// The path of `name` in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, with the folders it needs.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Writes a file that may be executed.
    pub fn executable(&self, name: &str, content: &str) -> PathBuf {
        let written = self.file(&format!("{name}.written"), content);
        let path = self.copy(written.to_str().unwrap(), name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Copies a file that will be executed, with the folders it needs. Another process writes it: a child that
    /// another test forks meanwhile would hold this process's descriptor, and the file be "busy".
    pub fn copy(&self, from: &str, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        let status = Command::new("cp").arg(from).arg(&path).status();
        assert!(status.unwrap().success(), "cp {from} {}", path.display());
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind rather than failing a test that has passed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
