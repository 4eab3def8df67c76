//! What others wrote and we build upon: under which licences, from where, and which crates twice.
//!
//! Advisories are not looked for here, as their database has to be fetched: `cargo deny check advisories` does that
//! (`scripts/test advisories`).

use serde_json::Value;

use crate::Problem;

/// Licences under which a crate may be used and shipped with ours.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The only place that crates come from, besides this repository.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates that are there in more than one version, since those who use them have not agreed on one yet.
const DOUBLES: &[&str] = &[
    "bitflags",
    "crypto-common",
    "defmt",
    "getrandom",
    "syn",
    "thiserror",
    "thiserror-impl",
];

/// Everything about other people's crates that the tables do not allow, from the whole of `cargo metadata`.
pub fn check(metadata: &Value) -> Vec<Problem> {
    let packages = metadata["packages"].as_array();
    let all: Vec<Dependency> = packages.into_iter().flatten().map(dependency).collect();
    let foreign = all.iter().filter(|package| package.source.is_some());
    let mut problems: Vec<Problem> = foreign.flat_map(of_one).collect();
    problems.extend(doubles(&all));
    problems
}

struct Dependency<'a> {
    name: &'a str,
    version: &'a str,
    licence: Option<&'a str>,
    /// Nothing for a crate of this repository.
    source: Option<&'a str>,
}

fn dependency(package: &Value) -> Dependency<'_> {
    Dependency {
        name: package["name"].as_str().unwrap_or_default(),
        version: package["version"].as_str().unwrap_or_default(),
        licence: package["license"].as_str(),
        source: package["source"].as_str(),
    }
}

fn of_one(package: &Dependency<'_>) -> Vec<Problem> {
    let place = format!("{} {}", package.name, package.version);
    let mut problems = Vec::new();
    if package.source != Some(REGISTRY) {
        let from = package.source.unwrap_or_default();
        problems.push(Problem::new(
            &place,
            format!("comes from {from}, not from crates.io"),
        ));
    }
    match package.licence {
        Some(licence) if is_allowed(licence) => {}
        Some(licence) => problems.push(Problem::new(
            &place,
            format!("its licence, {licence}, is not in the table of xtask/src/dependencies.rs"),
        )),
        None => problems.push(Problem::new(&place, "names no licence")),
    }
    problems
}

fn doubles(all: &[Dependency<'_>]) -> Vec<Problem> {
    let versions = |name: &str| -> Vec<&str> {
        let same = all.iter().filter(|package| package.name == name);
        same.map(|package| package.version).collect()
    };
    let mut names: Vec<&str> = all.iter().map(|package| package.name).collect();
    names.sort_unstable();
    names.dedup();
    let mut problems = Vec::new();
    for name in names {
        let versions = versions(name);
        match (versions.len() > 1, DOUBLES.contains(&name)) {
            (true, false) => problems.push(Problem::new(
                name,
                format!(
                    "is built in the versions {}: let those who use it agree, or put it into the table",
                    versions.join(" and ")
                ),
            )),
            (false, true) => problems.push(Problem::new(
                name,
                "is there once only: take it out of the table of doubles",
            )),
            (true, true) | (false, false) => {}
        }
    }
    problems
}

/// Whether an SPDX expression leaves us a choice that the table allows.
fn is_allowed(expression: &str) -> bool {
    // Older manifests write a slash for `OR`.
    let expression = expression.replace('/', " OR ");
    any_of(&expression)
}

/// `AND` binds stronger than `OR`; what stands in brackets is one term.
fn any_of(expression: &str) -> bool {
    split(expression, " OR ")
        .iter()
        .any(|choice| split(choice, " AND ").iter().all(|term| one(term)))
}

fn one(term: &str) -> bool {
    let term = term.trim();
    match term
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
    {
        Some(inner) => any_of(inner),
        None => LICENCES.contains(&term),
    }
}

/// Parts of an expression between `word`s that stand outside of brackets.
fn split<'a>(expression: &'a str, word: &str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, letter) in expression.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 && at >= start && expression[at..].starts_with(word) => {
                parts.push(&expression[start..at]);
                start = at + word.len();
            }
            _ => {}
        }
    }
    parts.push(&expression[start.min(expression.len())..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_licence_is_allowed_if_there_is_a_choice_that_is() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT OR Apache-2.0) AND MPL-2.0",
            "Apache-2.0 WITH Other-exception",
        ] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    fn package(name: &str, version: &str, licence: Value, source: Value) -> Value {
        json!({"name": name, "version": version, "license": licence, "source": source})
    }

    /// What is wrong with `one` beside the doubles that the table expects.
    fn problems(more: &[Value]) -> Vec<String> {
        let known = DOUBLES.iter().flat_map(|name| {
            ["1.0.0", "2.0.0"].map(|v| package(name, v, json!("MIT"), json!(REGISTRY)))
        });
        let packages: Vec<Value> = known.chain(more.iter().cloned()).collect();
        let found = check(&json!({ "packages": packages }));
        found
            .into_iter()
            .map(|p| format!("{}: {}", p.place, p.what))
            .collect()
    }

    #[test]
    fn each_rule_is_held() {
        let ours = package("weft", "0.1.0", json!(null), json!(null));
        let good = package("a", "1.0.0", json!("MIT"), json!(REGISTRY));
        assert_eq!(problems(&[ours, good.clone()]), [""; 0]);
        for (bad, what) in [
            (
                package("b", "1.0.0", json!("MIT"), json!("git+https://x")),
                "comes from",
            ),
            (
                package("b", "1.0.0", json!("GPL-3.0"), json!(REGISTRY)),
                "its licence",
            ),
            (
                package("b", "1.0.0", json!(null), json!(REGISTRY)),
                "names no licence",
            ),
            (
                package("a", "2.0.0", json!("MIT"), json!(REGISTRY)),
                "1.0.0 and 2.0.0",
            ),
        ] {
            let found = problems(&[good.clone(), bad]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(what), "{found:?}");
        }
        let once =
            check(&json!({ "packages": [package("syn", "1.0.0", json!("MIT"), json!(REGISTRY))] }));
        assert!(once
            .iter()
            .any(|p| p.place == "syn" && p.what.contains("once only")));
    }
}
