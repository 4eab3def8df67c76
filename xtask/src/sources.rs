//! Rules about Rust sources: what a crate root declares, where unsafe may stand, that nothing is left unfinished.

use crate::tree::File;
use crate::workspace::Package;
use crate::Problem;

/// Folders that may hold unsafe code; the crates everywhere else forbid it.
const UNSAFE_HOMES: &[&str] = &["run/os/", "abi/"];

fn may_be_unsafe(path: &str) -> bool {
    // Examples are programs of people who use bindings of C, whose calls are unsafe.
    path.starts_with("examples/") || UNSAFE_HOMES.iter().any(|home| path.starts_with(home))
}

/// Crate roots that lack `#![forbid(unsafe_code)]` or, in `proto/`, `#![no_std]`.
pub fn crate_roots(packages: &[Package], tree: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in packages {
        let mut wanted = Vec::new();
        if !may_be_unsafe(&format!("{}/", package.folder)) {
            wanted.push("#![forbid(unsafe_code)]");
        }
        if package.folder.starts_with("proto/") {
            wanted.push("#![no_std]");
        }
        for root in &package.roots {
            let code = tree
                .iter()
                .find(|file| file.path == *root)
                .map_or("", |file| &file.code);
            for attribute in wanted
                .iter()
                .filter(|attribute| !code.contains(**attribute))
            {
                problems.push(Problem::new(
                    root,
                    format!("the crate root has to say {attribute}"),
                ));
            }
        }
    }
    problems
}

/// Crates that do not take the workspace's lints, which hold (with clippy) that each unsafe block says why it is
/// sound; and the places that switch that lint off.
pub fn lints(packages: &[Package], tree: &[File]) -> Vec<Problem> {
    let text_of = |path: &str| {
        tree.iter()
            .find(|file| file.path == path)
            .map_or("", |file| &file.text)
    };
    let mut problems = Vec::new();
    if !text_of("Cargo.toml").contains("undocumented_unsafe_blocks = \"deny\"") {
        problems.push(Problem::new(
            "Cargo.toml",
            "deny clippy::undocumented_unsafe_blocks",
        ));
    }
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        if !text_of(&manifest).contains("[lints]\nworkspace = true") {
            problems.push(Problem::new(
                manifest,
                "take the workspace's lints: [lints] workspace = true",
            ));
        }
    }
    let switched_off = [
        "allow(clippy::undocumented_unsafe_blocks",
        "expect(clippy::undocumented_unsafe_blocks",
    ];
    problems.extend(find_all(tree, &switched_off, |_| {
        "every unsafe block says why it is sound".into()
    }));
    problems
}

/// Reasons that leave it to somebody else to know what is needed.
pub fn vague_reasons(tree: &[File]) -> Vec<Problem> {
    // Spelled apart, or this file would report itself.
    let vague = concat!("promised by ", "the caller");
    let mut problems = Vec::new();
    for file in tree.iter().filter(|file| file.path.ends_with(".rs")) {
        problems.extend(file.text.match_indices(vague).map(|(offset, _)| {
            let place = format!("{}:{}", file.path, file.line(offset));
            Problem::new(place, "say what the caller promises")
        }));
    }
    problems
}

/// Uses of `unsafe` outside the crates that may have it.
pub fn unsafe_places(tree: &[File]) -> Vec<Problem> {
    let elsewhere = tree.iter().filter(|file| !may_be_unsafe(&file.path));
    elsewhere
        .flat_map(|file| {
            words(&file.code, "unsafe").map(|offset| {
                let place = format!("{}:{}", file.path, file.line(offset));
                Problem::new(
                    place,
                    format!("unsafe stands only in {}", UNSAFE_HOMES.join(" and ")),
                )
            })
        })
        .collect()
}

/// Placeholders for work not done, and lints that hide code nobody calls.
pub fn unfinished(tree: &[File]) -> Vec<Problem> {
    let in_code = [
        "todo!",
        "unimplemented!",
        "dbg!",
        "allow(dead_code)",
        "expect(dead_code)",
    ];
    let mut problems = find_all(tree, &in_code, |what| format!("{what} is left in the code"));
    // Spelled apart, or this file would report itself.
    for mark in [concat!("FIX", "ME"), concat!("X", "XX")] {
        for file in tree.iter().filter(|file| is_source(&file.path)) {
            problems.extend(words(&file.text, mark).map(|offset| {
                let place = format!("{}:{}", file.path, file.line(offset));
                Problem::new(
                    place,
                    format!("{mark}: do it, or say in docs/status.md that it is not done"),
                )
            }));
        }
    }
    problems
}

fn is_source(path: &str) -> bool {
    let scripts = path.starts_with("scripts/") || path.starts_with("tests/");
    scripts
        || [".rs", ".c", ".h", ".py", ".sh"]
            .iter()
            .any(|ending| path.ends_with(ending))
}

fn find_all(tree: &[File], needles: &[&str], what: impl Fn(&str) -> String) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree {
        for needle in needles {
            for (offset, _) in file.code.match_indices(needle) {
                let starts_a_word =
                    !file.code[..offset].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                if starts_a_word {
                    problems.push(Problem::new(
                        format!("{}:{}", file.path, file.line(offset)),
                        what(needle),
                    ));
                }
            }
        }
    }
    problems
}

/// The offsets at which `word` stands as a whole word.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(offset, _)| offset)
        .filter(move |&offset| {
            !text[..offset].ends_with(joins) && !text[offset + word.len()..].starts_with(joins)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str) -> Package {
        Package {
            name: "a".into(),
            folder: folder.into(),
            roots: vec![format!("{folder}/src/lib.rs")],
            dependencies: Vec::new(),
        }
    }

    #[test]
    fn a_protocol_crate_declares_both_attributes() {
        let good = File::new(
            "proto/a/src/lib.rs",
            "#![no_std]\n#![forbid(unsafe_code)]\n",
        );
        assert_eq!(crate_roots(&[package("proto/a")], &[good]), []);
        let only_in_a_comment = File::new(
            "proto/a/src/lib.rs",
            "// #![no_std] #![forbid(unsafe_code)]\n",
        );
        assert_eq!(
            crate_roots(&[package("proto/a")], &[only_in_a_comment]).len(),
            2
        );
    }

    #[test]
    fn a_crate_that_may_be_unsafe_declares_nothing() {
        assert_eq!(
            crate_roots(&[package("abi/a")], &[File::new("abi/a/src/lib.rs", "")]),
            []
        );
        assert_eq!(
            crate_roots(&[package("run/a")], &[File::new("run/a/src/lib.rs", "")]).len(),
            1
        );
    }

    #[test]
    fn lints_are_inherited() {
        let root = || File::new("Cargo.toml", "undocumented_unsafe_blocks = \"deny\"\n");
        let good = File::new("abi/a/Cargo.toml", "[lints]\nworkspace = true\n");
        assert_eq!(lints(&[package("abi/a")], &[root(), good]), []);
        assert_eq!(
            lints(
                &[package("abi/a")],
                &[root(), File::new("abi/a/Cargo.toml", "")]
            )
            .len(),
            1
        );
        assert_eq!(lints(&[], &[]).len(), 1);
        let off = File::new(
            "abi/a/src/lib.rs",
            "#[allow(clippy::undocumented_unsafe_blocks)]\n",
        );
        assert_eq!(lints(&[], &[root(), off]).len(), 1);
    }

    #[test]
    fn unsafe_is_found_by_the_word_and_the_place() {
        let text = "// unsafe\nlet unsafely = \"unsafe\";\nunsafe { f() }\n";
        let problems = unsafe_places(&[File::new("run/engine/src/a.rs", text)]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].place, "run/engine/src/a.rs:3");
        assert_eq!(unsafe_places(&[File::new("run/os/src/a.rs", text)]), []);
    }

    #[test]
    fn a_reason_says_what_is_promised() {
        let vague = concat!("// SAFETY: promised by ", "the caller.\nunsafe { f() }\n");
        let problems = vague_reasons(&[File::new("abi/a/src/a.rs", vague)]);
        assert_eq!(problems[0].place, "abi/a/src/a.rs:1");
        let plain = "// SAFETY: the caller promises: `a` is mapped.\nunsafe { f() }\n";
        assert_eq!(vague_reasons(&[File::new("abi/a/src/a.rs", plain)]), []);
    }

    #[test]
    fn unfinished_work_is_found() {
        let macros = File::new(
            "cli/src/a.rs",
            "fn f() {\n    todo!(\"later\")\n}\n// todo! in words is fine\n",
        );
        assert_eq!(unfinished(&[macros])[0].place, "cli/src/a.rs:2");
        let mark = File::new("scripts/a", concat!("# FIX", "ME: later\n"));
        assert_eq!(unfinished(&[mark]).len(), 1);
        let hidden = File::new("cli/src/a.rs", "#[allow(dead_code)]\nfn f() {}\n");
        assert_eq!(unfinished(&[hidden]).len(), 1);
    }
}
