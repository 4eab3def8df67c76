//! Rules about the documents: links lead somewhere, the index lists everything, the changelog is kept.

use std::collections::HashSet;

use crate::tree::File;
use crate::Problem;

/// What is wrong with the documents.
pub fn check(tree: &[File]) -> Vec<Problem> {
    let mut problems = changelog(tree);
    problems.extend(links(tree));
    problems.extend(index(tree));
    problems
}

fn changelog(tree: &[File]) -> Vec<Problem> {
    let text = tree
        .iter()
        .find(|file| file.path == "CHANGELOG.md")
        .map_or("", |file| &file.text);
    match text.lines().any(|line| line.trim() == "## Unreleased") {
        true => Vec::new(),
        false => vec![Problem::new(
            "CHANGELOG.md",
            "has no section \"## Unreleased\"",
        )],
    }
}

fn links(tree: &[File]) -> Vec<Problem> {
    let mut known: HashSet<&str> = tree.iter().map(|file| file.path.as_str()).collect();
    for file in tree {
        known.extend(
            file.path
                .match_indices('/')
                .map(|(end, _)| &file.path[..end]),
        );
    }
    let mut problems = Vec::new();
    for file in tree.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in targets(&file.text) {
            let path = resolve(&file.path, target);
            if !path.is_empty() && !known.contains(path.as_str()) {
                let place = format!("{}:{line}", file.path);
                problems.push(Problem::new(
                    place,
                    format!("the link {target} leads nowhere"),
                ));
            }
        }
    }
    problems
}

/// Every document under docs/ is named in its index, or in the index of its own folder.
fn index(tree: &[File]) -> Vec<Problem> {
    let indexes = tree
        .iter()
        .filter(|file| file.path.starts_with("docs/") && file.path.ends_with("README.md"));
    let listed: HashSet<String> = indexes
        .flat_map(|index| targets(&index.text).map(|(_, target)| resolve(&index.path, target)))
        .collect();
    let documents = tree
        .iter()
        .filter(|file| file.path.starts_with("docs/") && file.path.ends_with(".md"));
    documents
        .filter(|file| file.path != "docs/README.md" && !listed.contains(&file.path))
        .map(|file| Problem::new(&file.path, "is not listed in docs/README.md"))
        .collect()
}

/// The link targets of a Markdown text that stay in the repository, with their line numbers. Code blocks and code
/// spans are left out.
fn targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code_block = false;
    let lines = text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code_block ^= fence;
        !in_code_block && !fence
    });
    lines.flat_map(|(number, line)| {
        let outside_spans = |offset: usize| line[..offset].matches('`').count() % 2 == 0;
        let starts = line
            .match_indices("](")
            .filter(move |(offset, _)| outside_spans(*offset));
        starts.filter_map(move |(offset, _)| {
            let target = line[offset + 2..].split([')', ' ', '#']).next()?;
            let elsewhere =
                target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            (!elsewhere).then_some((number + 1, target))
        })
    })
}

/// The path from the repository's root that `target` means in the document at `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_has_an_unreleased_section() {
        assert_eq!(
            changelog(&[File::new("CHANGELOG.md", "# Changelog\n\n## Unreleased\n")]),
            []
        );
        assert_eq!(
            changelog(&[File::new("CHANGELOG.md", "# Changelog\n\n## 0.1.0\n")]).len(),
            1
        );
        assert_eq!(changelog(&[]).len(), 1);
    }

    #[test]
    fn links_lead_to_files_and_folders() {
        let index = |text: &str| {
            [
                File::new("docs/README.md", text),
                File::new("run/os/src/lib.rs", ""),
            ]
        };
        assert_eq!(
            links(&index(
                "[a](../run/os/src/lib.rs#x) [b](../run/os) [c](https://example.org/x)"
            )),
            []
        );
        assert_eq!(links(&index("`[a](b)` and\n```\n[a](b)\n```\n")), []);
        let problems = links(&index("see\n[a](../run/oss)\n"));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].place, "docs/README.md:2");
    }

    #[test]
    fn every_document_is_listed() {
        let tree = [
            File::new("docs/README.md", "[d](decisions/README.md) [s](status.md)"),
            File::new("docs/status.md", ""),
            File::new("docs/decisions/README.md", "[one](0001-one.md)"),
            File::new("docs/decisions/0001-one.md", ""),
            File::new("docs/lost.md", ""),
        ];
        let problems = index(&tree);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].place, "docs/lost.md");
    }
}
