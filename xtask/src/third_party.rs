//! What others wrote and is in our binaries, with the texts of their licences, as those ask to be passed on.
//!
//! `make build` leaves it beside the binaries, and every package carries it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

/// The packages whose binaries are handed on.
const SHIPPED: &[&str] = &["weft", "weft-abi-verbs", "weft-abi-preload"];

/// How the names of files with a licence or a notice begin, in small letters.
const LICENCE_FILES: &[&str] = &["licen", "copying", "notice", "unlicense", "copyright"];

/// A crate of somebody else's that is built into a binary of ours.
#[derive(Debug, PartialEq, Eq)]
pub struct Crate<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Its licence, as an SPDX expression.
    pub licence: &'a str,
    /// Its manifest, beside which its licence files stand.
    manifest: &'a str,
}

/// The crates of others in our binaries, in order of their names, from the whole of `cargo metadata`.
pub fn shipped(metadata: &Value) -> Vec<Crate<'_>> {
    let packages = list(&metadata["packages"]);
    let by_id = |id: &str| packages.iter().find(|package| package["id"] == id);
    let nodes = list(&metadata["resolve"]["nodes"]);
    let mut waiting: Vec<&str> = packages
        .iter()
        .filter(|package| package["source"].is_null() && SHIPPED.contains(&text(&package["name"])))
        .map(|package| text(&package["id"]))
        .collect();
    let mut reached: BTreeSet<&str> = waiting.iter().copied().collect();
    while let Some(id) = waiting.pop() {
        let node = nodes.iter().find(|node| node["id"] == id);
        let dependencies = node.map_or(&[][..], |node| list(&node["deps"]));
        let linked = dependencies.iter().filter(|of| is_linked(of));
        waiting.extend(
            linked
                .map(|of| text(&of["pkg"]))
                .filter(|id| reached.insert(id)),
        );
    }
    let mut crates: Vec<Crate> = reached
        .into_iter()
        .filter_map(by_id)
        .filter(|package| !package["source"].is_null())
        .map(|package| Crate {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: text(&package["license"]),
            manifest: text(&package["manifest_path"]),
        })
        .collect();
    crates.sort_by_key(|of| (of.name, of.version));
    crates
}

/// Whether a dependency is one of the program itself, and not of its tests or its build script.
fn is_linked(dependency: &Value) -> bool {
    list(&dependency["dep_kinds"])
        .iter()
        .any(|kind| kind["kind"].is_null())
}

/// The document: every crate with its licence, then each text once, with the crates it came with.
pub fn document(crates: &[Crate<'_>]) -> Result<String, String> {
    let mut document = String::from(
        "Weft's binaries contain these Rust crates, and parts of the Rust standard library (MIT OR Apache-2.0).\n\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for of in crates {
        let _ = writeln!(document, "{} {}: {}", of.name, of.version, of.licence);
        for found in licence_texts(Path::new(of.manifest))? {
            let who = texts.entry(found).or_default();
            who.push(format!("{} {}", of.name, of.version));
        }
    }
    document.push_str("\nThe texts that came with them:\n");
    for (licence, who) in texts {
        let _ = write!(
            document,
            "\n{}\n{}:\n\n{licence}",
            "-".repeat(80),
            who.join(", ")
        );
    }
    Ok(document)
}

/// What stands in the licence files beside a manifest, each without space at the ends of lines.
fn licence_texts(manifest: &Path) -> Result<BTreeSet<String>, String> {
    let folder = manifest.parent().unwrap_or(Path::new("."));
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut texts = BTreeSet::new();
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if LICENCE_FILES.iter().any(|start| name.starts_with(start)) && entry.path().is_file() {
            let text = std::fs::read_to_string(entry.path())
                .map_err(|error| format!("{}: {error}", entry.path().display()))?;
            let lines = text
                .trim()
                .lines()
                .map(|line| line.trim_end().to_owned() + "\n");
            texts.insert(lines.collect());
        }
    }
    Ok(texts)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn what_is_linked_is_there_and_what_only_tests_is_not() {
        let metadata = workspace::with_dependencies().unwrap();
        let crates = shipped(&metadata);
        let has = |name: &str| crates.iter().any(|of| of.name == name);
        assert!(has("clap") && has("libc") && has("parking_lot_core"));
        assert!(!has("proptest") && !has("weft-engine"));
    }

    #[test]
    fn each_crate_is_named_and_each_text_stands_once() {
        let metadata = workspace::with_dependencies().unwrap();
        let crates = shipped(&metadata);
        let document = document(&crates).unwrap();
        for of in &crates {
            assert!(document.contains(&format!("{} {}: ", of.name, of.version)));
        }
        // Below each line of dashes, the crates and the text.
        let dashes = "-".repeat(80);
        let parts = document.split(&dashes).skip(1);
        let texts: Vec<&str> = parts
            .filter_map(|part| Some(part.split_once(":\n\n")?.1))
            .collect();
        let distinct: BTreeSet<&str> = texts.iter().copied().collect();
        assert!(texts.len() > 10, "{}", texts.len());
        assert_eq!(texts.len(), distinct.len());
    }
}
