//! Rules about files as such: their names, their length, and paths that mean something on one machine only.

use crate::tree::File;
use crate::Problem;

/// A Rust file longer than this holds more than one subject.
const LONGEST_SOURCE: usize = 1000;

/// Names that custom writes with capitals.
const CAPITALS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "Makefile",
    "Cargo.toml",
    "Cargo.lock",
    "Containerfile",
];

/// Files whose name or length breaks the house's rules.
pub fn check(tree: &[File]) -> Vec<Problem> {
    // A corpus is named by the fuzzer, after what a file holds.
    let named_by_us = tree
        .iter()
        .filter(|file| !file.path.starts_with("fuzz/corpus/"));
    named_by_us
        .filter_map(|file| Some(Problem::new(&file.path, complaint(file)?)))
        .collect()
}

fn complaint(file: &File) -> Option<String> {
    let name = file.path.rsplit('/').next()?;
    if CAPITALS.contains(&name) {
        return None;
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    if !file.path.chars().all(|c| plain(c) || c == '/') {
        return Some("names are lower-case ASCII letters, digits, - _ and .".into());
    }
    if name.ends_with(".rs") && name.contains('-') {
        return Some("a Rust file is named in snake_case".into());
    }
    if let Some(record) = file.path.strip_prefix("docs/decisions/") {
        let number = record.split('-').next().unwrap_or_default();
        if number.len() != 4 || !number.chars().all(|c| c.is_ascii_digit()) {
            return Some("a decision record is named NNNN-title.md".into());
        }
    }
    let lines = file.text.lines().count();
    if name.ends_with(".rs") && lines > LONGEST_SOURCE {
        return Some(format!(
            "{lines} lines; more than {LONGEST_SOURCE} is more than one subject"
        ));
    }
    None
}

/// Mentions of folders that exist only where somebody happened to work.
pub fn foreign_paths(tree: &[File]) -> Vec<Problem> {
    // Spelled apart, or this file would report itself.
    let foreign = [
        concat!("/wo", "rk/"),
        concat!("/tmp/bash", "_jobs"),
        concat!("/tmp/we", "ft/"),
    ];
    let mut problems = Vec::new();
    for file in tree {
        for path in foreign {
            problems.extend(
                file.text
                    .match_indices(path)
                    .filter(|(offset, _)| {
                        // As the beginning of a path; `docs/work/` would be somebody's own folder.
                        !file.text[..*offset]
                            .ends_with(|c: char| c.is_alphanumeric() || "-_.".contains(c))
                    })
                    .map(|(offset, _)| {
                        let place = format!("{}:{}", file.path, file.line(offset));
                        Problem::new(place, format!("{path} exists only on one machine"))
                    }),
            );
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str) -> usize {
        check(&[File::new(path, "")]).len()
    }

    #[test]
    fn names() {
        assert_eq!(complaints("run/os/src/tcp_socket.rs"), 0);
        assert_eq!(complaints("LICENSE-MIT"), 0);
        assert_eq!(complaints("fuzz/corpus/stream/0A_b C"), 0);
        assert_eq!(complaints("run/os/src/tcp-socket.rs"), 1);
        assert_eq!(complaints("docs/My Notes.md"), 1);
        assert_eq!(complaints("docs/decisions/0001-progress.md"), 0);
        assert_eq!(complaints("docs/decisions/progress.md"), 1);
    }

    #[test]
    fn a_file_that_collects_everything_is_reported() {
        let long = "//\n".repeat(LONGEST_SOURCE + 1);
        assert_eq!(check(&[File::new("cli/src/main.rs", &long[..])]).len(), 1);
        assert_eq!(check(&[File::new("cli/src/main.rs", &long[3..])]).len(), 0);
    }

    #[test]
    fn paths_of_one_machine() {
        let text = concat!("cd /wo", "rk/main\ncd docs/wo", "rk/x\n");
        let problems = foreign_paths(&[File::new("README.md", text)]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].place, "README.md:1");
    }
}
