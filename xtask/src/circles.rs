//! Which modules of a crate import each other.
//!
//! A module here is what stands directly under `src`, a file or a folder. The crate's root (`lib.rs`, `main.rs`) is
//! glue and does not count; nor do tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::File;
use crate::workspace::Package;

/// The imports between the modules of one crate.
#[derive(Debug, Default)]
pub struct Imports {
    arrows: BTreeMap<String, BTreeSet<String>>,
}

impl Imports {
    /// Of one crate.
    pub fn of(package: &Package, tree: &[File]) -> Imports {
        let source = format!("{}/src/", package.folder);
        let files: Vec<(Vec<&str>, &File)> = tree
            .iter()
            .filter(|file| file.path.ends_with(".rs"))
            .filter_map(|file| Some((module_of(file.path.strip_prefix(&source)?), file)))
            .filter(|(module, _)| !module.is_empty())
            .collect();
        let tops: BTreeSet<&str> = files.iter().map(|(module, _)| module[0]).collect();
        let tests = test_modules(tree, &source);
        let mut imports = Imports::default();
        for (module, file) in &files {
            if tests.contains(module) {
                continue;
            }
            let code = without_tests(&file.code);
            let arrows = imports.arrows.entry(module[0].to_owned()).or_default();
            let root = "super::".repeat(module.len());
            let named = named_after(code, "crate::").chain(named_after(code, &root));
            arrows.extend(
                named
                    .filter(|name| tops.contains(name) && *name != module[0])
                    .map(str::to_owned),
            );
        }
        imports
    }

    /// The pairs of modules that import each other.
    pub fn pairs(&self) -> Vec<(&str, &str)> {
        let imports = |from: &str, to: &str| self.arrows.get(from).is_some_and(|a| a.contains(to));
        self.arrows
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| (from.as_str(), to.as_str())))
            .filter(|(from, to)| from < to && imports(to, from))
            .collect()
    }

    /// The most modules that lead to each other, the larger of two first by name; empty where there is no circle.
    pub fn largest_circle(&self) -> Vec<&str> {
        let reached: BTreeMap<&str, BTreeSet<&str>> = self
            .arrows
            .keys()
            .map(|from| (from.as_str(), self.reached_from(from)))
            .collect();
        let circle = |of: &&str| -> Vec<&str> {
            let mutual = |to: &&str| reached.get(to).is_some_and(|back| back.contains(of));
            reached[*of].iter().copied().filter(mutual).collect()
        };
        let circles = reached.keys().map(circle);
        circles.max_by_key(Vec::len).unwrap_or_default()
    }

    fn reached_from<'a>(&'a self, from: &str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&str> = self.arrows[from].iter().map(String::as_str).collect();
        while let Some(module) = next.pop() {
            if reached.insert(module) {
                let further = self.arrows.get(module).into_iter().flatten();
                next.extend(further.map(String::as_str));
            }
        }
        reached
    }
}

/// The names of a module, from the crate's root on; none for the root.
fn module_of(path: &str) -> Vec<&str> {
    let mut names: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if matches!(names.last(), Some(&("mod" | "lib" | "main"))) {
        names.pop();
    }
    names
}

/// Modules that are there for tests alone.
fn test_modules<'a>(tree: &'a [File], source: &str) -> BTreeSet<Vec<&'a str>> {
    let mut modules = BTreeSet::new();
    for file in tree {
        let Some(path) = file.path.strip_prefix(source) else {
            continue;
        };
        for (at, mark) in file.code.match_indices("#[cfg(test)]\n") {
            let declared = file.code[at + mark.len()..].lines().next().unwrap_or("");
            let declared = declared.trim_start_matches("pub(crate) ");
            if let Some(name) = declared
                .strip_prefix("mod ")
                .and_then(|rest| rest.strip_suffix(';'))
            {
                let mut module = module_of(path);
                module.push(name);
                modules.insert(module);
            }
        }
    }
    modules
}

/// The code before the tests at a file's end.
pub fn without_tests(code: &str) -> &str {
    let tests = [
        "#[cfg(test)]\nmod tests {",
        "#[cfg(test)]\npub(crate) mod tests {",
    ];
    let start = tests.iter().filter_map(|mark| code.find(mark)).min();
    &code[..start.unwrap_or(code.len())]
}

/// The first names behind each `prefix`, which a list in braces may follow.
fn named_after<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let starts = code.match_indices(prefix).map(|(at, _)| at);
    let whole = starts.filter(|at| {
        let before = &code[..*at];
        !before.ends_with("::") && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    });
    whole.flat_map(move |at| first_names(&code[at + prefix.len()..]))
}

fn first_names(rest: &str) -> Vec<&str> {
    let Some(list) = rest.strip_prefix('{') else {
        return vec![identifier(rest)];
    };
    let mut depth = 0;
    let mut names = Vec::new();
    let mut start = Some(0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                start = Some(at + 1);
                continue;
            }
            _ => {}
        }
        if let (Some(from), false) = (start, c.is_whitespace()) {
            if at >= from {
                names.push(identifier(&list[at..]));
                start = None;
            }
        }
    }
    names
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let package = Package {
            name: "a".into(),
            folder: "run/a".into(),
            roots: Vec::new(),
            dependencies: Vec::new(),
        };
        let tree: Vec<File> = files
            .iter()
            .map(|(path, text)| File::new(format!("run/a/src/{path}"), *text))
            .collect();
        Imports::of(&package, &tree)
    }

    #[test]
    fn a_circle_is_found_however_the_modules_are_named() {
        let found = imports(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; use a::X;"),
            ("a.rs", "use crate::{d, b::{self, Y}};"),
            ("b/mod.rs", "mod inner;"),
            ("b/inner.rs", "use super::super::c::Z; use super::Y;"),
            ("c.rs", "fn f() -> super::a::X { crate::d::g() }"),
            ("d.rs", "pub fn g() {}"),
        ]);
        assert_eq!(found.largest_circle(), ["a", "b", "c"]);
        assert_eq!(found.pairs(), []);
    }

    #[test]
    fn a_pair_is_a_circle_of_two_and_a_tree_is_none() {
        let found = imports(&[("a.rs", "use crate::b::X;"), ("b.rs", "use crate::a;")]);
        assert_eq!(found.pairs(), [("a", "b")]);
        assert_eq!(found.largest_circle(), ["a", "b"]);
        let tree = imports(&[("a.rs", "use crate::b::X;"), ("b.rs", "use std::crate_a;")]);
        assert!(tree.pairs().is_empty() && tree.largest_circle().is_empty());
    }

    #[test]
    fn comments_and_tests_import_nothing() {
        let found = imports(&[
            ("lib.rs", "mod a; mod b;\n#[cfg(test)]\nmod ticks;\n"),
            (
                "a.rs",
                "// crate::b\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n",
            ),
            ("b.rs", "use crate::a;"),
            ("ticks.rs", "use crate::a; use crate::b;"),
        ]);
        assert_eq!(found.pairs(), []);
        assert!(found.largest_circle().is_empty());
    }
}
