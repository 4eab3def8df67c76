//! The tables of `docs/conformance`: every path and name in them exists, and a requirement without code or test says
//! why.

use std::collections::HashMap;

use crate::tree::File;
use crate::Problem;

const FOLDER: &str = "docs/conformance/";
const COLUMNS: usize = 6;

/// One row: what a section of an RFC requires, what meets it and what shows it.
#[derive(Debug)]
pub struct Requirement<'a> {
    /// The table, `docs/conformance/rfc5044.md`, with the line.
    pub place: String,
    /// The section's number.
    pub section: &'a str,
    /// What is required.
    pub what: &'a str,
    level: &'a str,
    code: Vec<&'a str>,
    tests: Vec<&'a str>,
    /// Why code or test is missing, or what else there is to say.
    pub remark: &'a str,
}

impl Requirement<'_> {
    /// Whether nothing meets it or nothing shows it.
    pub fn is_hole(&self) -> bool {
        self.code.is_empty() || self.tests.is_empty()
    }
}

/// The rows of every table, and what is wrong with their form.
pub fn read(tree: &[File]) -> (Vec<Requirement<'_>>, Vec<Problem>) {
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    let tables = tree
        .iter()
        .filter(|file| file.path.starts_with(&format!("{FOLDER}rfc")));
    for file in tables {
        let lines = file.text.lines().enumerate();
        for (number, line) in lines.filter(|(_, line)| line.starts_with("| ")) {
            let place = format!("{}:{}", file.path, number + 1);
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if cells.len() != COLUMNS + 2 {
                problems.push(Problem::new(place, "is no row of six columns"));
            } else if !matches!(cells[1], "section" | "---") {
                rows.push(Requirement {
                    place,
                    section: cells[1],
                    what: cells[2],
                    level: cells[3],
                    code: names(cells[4]),
                    tests: names(cells[5]),
                    remark: cells[6],
                });
            }
        }
    }
    (rows, problems)
}

/// What stands between backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// What is wrong with the tables.
pub fn check(tree: &[File]) -> Vec<Problem> {
    let (rows, mut problems) = read(tree);
    let files: HashMap<&str, &str> = tree
        .iter()
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    if rows.is_empty() {
        problems.push(Problem::new(FOLDER, "holds no requirement"));
    }
    for row in &rows {
        let mut complain = |what: String| problems.push(Problem::new(&row.place, what));
        if !matches!(row.level, "MUST" | "SHOULD" | "MAY") {
            complain(format!("{} is neither MUST, SHOULD nor MAY", row.level));
        }
        if row.is_hole() && row.remark.is_empty() {
            complain("has no code or no test and does not say why".to_owned());
        }
        for name in row.code.iter().chain(&row.tests) {
            if !exists(&files, name) {
                complain(format!("there is no {name}"));
            }
        }
        for name in row.tests.iter().filter(|name| !is_test(&files, name)) {
            complain(format!("{name} is no test"));
        }
    }
    problems
}

/// Whether `path::item` names something that is defined in that file.
fn exists(files: &HashMap<&str, &str>, name: &str) -> bool {
    let Some((path, item)) = name.split_once("::") else {
        return false;
    };
    files
        .get(path)
        .is_some_and(|text| definition(text, item).is_some())
}

/// The line that defines `item`.
fn definition(text: &str, item: &str) -> Option<usize> {
    const KEYWORDS: [&str; 8] = [
        "fn ", "struct ", "enum ", "const ", "static ", "trait ", "def ", "class ",
    ];
    text.lines().position(|line| {
        KEYWORDS.iter().any(|keyword| {
            line.split_once(keyword).is_some_and(|(before, after)| {
                let ends = |c: char| !c.is_alphanumeric() && c != '_';
                let here = after.strip_prefix(item);
                before
                    .chars()
                    .all(|c| c.is_alphanumeric() || " ()_".contains(c))
                    && here.is_some_and(|rest| rest.starts_with(ends))
            })
        })
    })
}

/// Whether the function that `name` means carries `#[test]`; what is not Rust is a test by where it stands.
fn is_test(files: &HashMap<&str, &str>, name: &str) -> bool {
    let Some((path, item)) = name.split_once("::") else {
        return false;
    };
    if !path.ends_with(".rs") {
        return path.starts_with("tests/");
    }
    let text = files.get(path).copied().unwrap_or_default();
    let Some(at) = definition(text, item) else {
        return false;
    };
    let before: Vec<&str> = text.lines().take(at).map(str::trim).collect();
    let attributes = before
        .iter()
        .rev()
        .take_while(|line| line.starts_with("#["));
    attributes
        .into_iter()
        .any(|line| line.starts_with("#[test]"))
}

/// The report: for each table how much of it is met and shown, and the holes with their reasons.
pub fn report(tree: &[File]) -> String {
    let (rows, _) = read(tree);
    let mut text = String::new();
    let mut tables: Vec<&str> = rows.iter().map(|row| table(&row.place)).collect();
    tables.dedup();
    for name in tables {
        let of_table = || rows.iter().filter(|row| table(&row.place) == name);
        let holes = of_table().filter(|row| row.is_hole()).count();
        text += &format!(
            "{name}: {} requirements, {holes} holes\n",
            of_table().count()
        );
        for row in of_table().filter(|row| row.is_hole()) {
            text += &format!("    {} {}: {}\n", row.section, row.what, row.remark);
        }
    }
    text
}

fn table(place: &str) -> &str {
    let name = place.trim_start_matches(FOLDER);
    name.split('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_of(row: &str) -> Vec<Problem> {
        let code = "impl X {\n    pub(super) fn met(&self) {}\n}\n#[test]\nfn shown() {}\nfn helper() {}\n";
        check(&[
            File::new(
                "docs/conformance/rfc1.md",
                format!("| section | a | b | c | d | e |\n| --- | - | - | - | - | - |\n{row}\n"),
            ),
            File::new("a.rs", code),
        ])
    }

    #[test]
    fn names_that_exist_are_no_problem() {
        assert_eq!(
            table_of("| 1 | it | MUST | `a.rs::met` | `a.rs::shown` | |"),
            []
        );
    }

    #[test]
    fn each_flaw_is_one_problem() {
        for row in [
            "| 1 | it | MUST | `a.rs::meet` | `a.rs::shown` | |",
            "| 1 | it | MUST | `b.rs::met` | `a.rs::shown` | |",
            "| 1 | it | MUST | `a.rs::met` | `a.rs::helper` | |",
            "| 1 | it | MUST | - | `a.rs::shown` | |",
            "| 1 | it | WILL | `a.rs::met` | `a.rs::shown` | |",
            "| 1 | it | MUST | `a.rs::met` | `a.rs::shown` |",
        ] {
            let problems = table_of(row)
                .into_iter()
                .filter(|p| p.place.contains(".md"));
            assert_eq!(problems.count(), 1, "{row}");
        }
    }

    #[test]
    fn a_hole_with_its_reason_is_reported() {
        let row = "| 1 | it | MUST | - | - | because |";
        assert_eq!(table_of(row), []);
        let text = report(&[File::new("docs/conformance/rfc1.md", row)]);
        assert_eq!(text, "rfc1: 1 requirements, 1 holes\n    1 it: because\n");
    }
}
