//! Counts of what the house has too much of, each with a bound that only falls.
//!
//! The bounds stand in `xtask/bounds`, a line for each count that is not zero. More than the bound is an error, and so
//! is less: then the bound is lowered (`cargo xtask tidy --lower`), and what was gained is kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::circles::Imports;
use crate::tree::File;
use crate::workspace::Package;
use crate::{lengths, words, Problem};

/// The file with the bounds.
pub const PATH: &str = "xtask/bounds";
/// Examples of what is counted that are named when there are too many.
const EXAMPLES: usize = 8;

/// One count.
#[derive(Debug)]
pub struct Count {
    /// What is counted, as in the file of bounds.
    pub name: String,
    /// How much there is.
    pub is: usize,
    /// Where.
    places: Vec<String>,
}

/// All counts of the repository.
pub fn counts(packages: &[Package], tree: &[File]) -> Vec<Count> {
    let mut counts = Vec::new();
    for package in packages {
        let imports = Imports::of(package, tree);
        let pairs = imports.pairs();
        let named = |(one, other): &(&str, &str)| format!("{one} and {other}");
        counts.push(Count {
            name: format!("{}: modules that import each other, pairs", package.folder),
            is: pairs.len(),
            places: pairs.iter().map(named).collect(),
        });
        let circle = imports.largest_circle();
        counts.push(Count {
            name: format!(
                "{}: modules in the largest circle of imports",
                package.folder
            ),
            is: circle.len(),
            places: vec![circle.join(", ")],
        });
    }
    let of_long = |name: &str, long: Vec<lengths::Long>| Count {
        name: name.to_owned(),
        is: long.len(),
        places: long
            .iter()
            .map(|(place, length)| format!("{place} ({length})"))
            .collect(),
    };
    counts.push(of_long(
        "files of more than 400 lines",
        lengths::files(tree),
    ));
    counts.push(of_long(
        "functions of more than 60 lines",
        lengths::functions(tree),
    ));
    counts.push(of_long(
        "lines of prose of more than 120 columns",
        lengths::prose(tree),
    ));
    let words = words::found(tree);
    counts.push(Count {
        name: "words that docs/words.md replaces".to_owned(),
        is: words.len(),
        places: words,
    });
    counts
}

/// Counts that are not what their bounds say.
pub fn check(counts: &[Count], tree: &[File]) -> Vec<Problem> {
    let text = tree.iter().find(|file| file.path == PATH);
    let bounds = match parse(text.map_or("", |file| &file.text)) {
        Ok(bounds) => bounds,
        Err(line) => return vec![Problem::new(PATH, format!("not `NUMBER NAME`: {line}"))],
    };
    let mut problems = Vec::new();
    for count in counts {
        let bound = bounds.get(count.name.as_str()).copied().unwrap_or(0);
        if count.is > bound {
            let mut what = format!("{} now, {bound} is the bound", count.is);
            for place in count.places.iter().take(EXAMPLES) {
                let _ = write!(what, "\n        {place}");
            }
            problems.push(Problem::new(&count.name, what));
        } else if count.is < bound {
            let what = format!(
                "{} now: lower the bound of {bound} (cargo xtask tidy --lower)",
                count.is
            );
            problems.push(Problem::new(&count.name, what));
        }
    }
    let known = |name: &str| counts.iter().any(|count| count.name == name);
    problems.extend(
        bounds
            .keys()
            .filter(|name| !known(name))
            .map(|name| Problem::new(PATH, format!("nothing is counted as `{name}`"))),
    );
    problems
}

/// The file's text with bounds that have fallen; bounds that would have to rise stay.
pub fn lowered(counts: &[Count], tree: &[File]) -> Result<String, String> {
    let text = tree.iter().find(|file| file.path == PATH);
    let bounds = parse(text.map_or("", |file| &file.text))?;
    let mut lines = String::new();
    for count in counts {
        let bound = match (text, bounds.get(count.name.as_str())) {
            (None, _) => count.is,
            (Some(_), bound) => count.is.min(bound.copied().unwrap_or(0)),
        };
        if bound > 0 {
            let _ = writeln!(lines, "{bound} {}", count.name);
        }
    }
    Ok(lines)
}

fn parse(text: &str) -> Result<BTreeMap<&str, usize>, String> {
    let bound = |line: &'_ str| -> Option<(usize, usize)> {
        let (number, _) = line.split_once(' ')?;
        Some((number.parse().ok()?, number.len() + 1))
    };
    text.lines()
        .map(|line| match bound(line) {
            Some((number, at)) => Ok((&line[at..], number)),
            None => Err(line.to_owned()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(is: usize) -> Count {
        Count {
            name: "long lines".to_owned(),
            is,
            places: vec!["a.rs:1".to_owned()],
        }
    }

    fn bounds(text: &str) -> Vec<File> {
        vec![File::new(PATH, text)]
    }

    #[test]
    fn a_count_is_what_its_bound_says() {
        assert!(check(&[count(3)], &bounds("3 long lines\n")).is_empty());
        assert!(check(&[count(0)], &bounds("")).is_empty());
        for (is, text) in [
            (4, "3 long lines\n"),
            (2, "3 long lines\n"),
            (1, ""),
            (0, "x\n"),
        ] {
            assert_eq!(check(&[count(is)], &bounds(text)).len(), 1, "{is} {text}");
        }
        assert_eq!(check(&[], &bounds("3 long lines\n")).len(), 1, "of nothing");
    }

    #[test]
    fn bounds_fall_and_never_rise() {
        let lowered = |is, text| lowered(&[count(is)], &bounds(text)).expect("bounds");
        assert_eq!(lowered(2, "3 long lines\n"), "2 long lines\n");
        assert_eq!(lowered(4, "3 long lines\n"), "3 long lines\n");
        assert_eq!(lowered(0, "3 long lines\n"), "");
        assert_eq!(lowered(4, ""), "");
    }
}
