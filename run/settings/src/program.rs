//! What rules know this program by.

use std::ffi::OsStr;
use std::path::PathBuf;

/// The names by which rules know the program: what it was started as, then its file's (`python3`, `python3.11`).
pub fn names() -> Vec<String> {
    let started_as = std::env::args_os().next();
    let file = std::fs::read_link("/proc/self/exe").ok();
    let paths = started_as
        .into_iter()
        .chain(file.map(PathBuf::into_os_string));
    paths.map(|path| last_part(&path)).collect()
}

fn last_part(path: &OsStr) -> String {
    let path = path.to_string_lossy();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}
