//! The files of the repository, read once.

use std::path::Path;
use std::process::Command;

use crate::lexer;

/// A file that is, or is about to be, under version control.
#[derive(Debug)]
pub struct File {
    /// Path from the repository's root.
    pub path: String,
    /// The text; empty for a file that is not UTF-8.
    pub text: String,
    /// For Rust, the text with comments and string contents blanked; otherwise empty.
    pub code: String,
}

impl File {
    /// A file with the given path and text.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> File {
        let (path, text) = (path.into(), text.into());
        let code = if path.ends_with(".rs") {
            lexer::code_only(&text)
        } else {
            String::new()
        };
        File { path, text, code }
    }

    /// The line number, from 1, of the octet at `offset`.
    pub fn line(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset]
            .iter()
            .filter(|&&octet| octet == b'\n')
            .count()
    }
}

/// Reads every file that git tracks or would track (what is ignored is left out).
pub fn read(root: &Path) -> Result<Vec<File>, String> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "git ls-files: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let listing = String::from_utf8(output.stdout).map_err(|_| "a file name is not UTF-8")?;
    let paths = listing
        .split_terminator('\0')
        .filter(|path| root.join(path).is_file());
    paths
        .map(|path| {
            let octets =
                std::fs::read(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
            Ok(File::new(
                path,
                String::from_utf8(octets).unwrap_or_default(),
            ))
        })
        .collect()
}
