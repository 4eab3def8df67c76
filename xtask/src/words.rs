//! Home-made words in the code for which the field has its own.
//!
//! `docs/words.md` says which: the last column of its table names, in backticks, what is not said any more. A word of
//! several parts (`by_hand`) is found where they follow each other in an identifier, however that is written
//! (`ByHand`).

use crate::circles::without_tests;
use crate::tree::File;

/// The glossary.
const PATH: &str = "docs/words.md";

/// Each place in Rust code, tests left out, where a name has a word that the glossary replaces.
pub fn found(tree: &[File]) -> Vec<String> {
    let glossary = tree.iter().find(|file| file.path == PATH);
    let replaced = replaced_words(glossary.map_or("", |file| &file.text));
    let mut places = Vec::new();
    for file in tree.iter().filter(|file| file.path.ends_with(".rs")) {
        let path = snake(&file.path.replace(['/', '.', '-'], "_"));
        let in_path = replaced.iter().filter(|word| has(&path, word));
        places.extend(in_path.map(|word| format!("{}: {word}", file.path)));
        for (number, line) in without_tests(&file.code).lines().enumerate() {
            let names = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            for name in names.filter(|name| !name.is_empty()).map(snake) {
                let words = replaced.iter().filter(|word| has(&name, word));
                places.extend(words.map(|word| format!("{}:{}: {word}", file.path, number + 1)));
            }
        }
    }
    places
}

/// The words in backticks in the last column of the glossary's table.
fn replaced_words(glossary: &str) -> Vec<String> {
    let rows = glossary.lines().filter(|line| line.starts_with('|'));
    rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// A name in lower case, with an underscore between its parts and at both ends.
fn snake(name: &str) -> String {
    let mut snake = String::from("_");
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && was_lower {
            snake.push('_');
        }
        was_lower = c.is_lowercase();
        snake.push(c.to_ascii_lowercase());
    }
    snake.push('_');
    snake
}

fn has(name: &str, word: &str) -> bool {
    name.contains(&format!("_{word}_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "\
        | word | meaning | not |\n| --- | --- | --- |\n| out-of-band exchange | `fn` | `by_hand`, `dial` |\n";

    fn count(path: &str, text: &str) -> usize {
        found(&[File::new(PATH, GLOSSARY), File::new(path, text)]).len()
    }

    #[test]
    fn a_word_is_found_in_every_kind_of_name() {
        for name in [
            "by_hand",
            "ByHand",
            "is_by_hand",
            "BY_HAND_MAX",
            "dial",
            "DialAgain",
        ] {
            assert_eq!(
                count("run/a/src/a.rs", &format!("fn {name}() {{}}\n")),
                1,
                "{name}"
            );
        }
        assert_eq!(count("run/a/src/by_hand.rs", ""), 1);
    }

    #[test]
    fn parts_of_words_comments_and_tests_are_not() {
        let text =
            "// dial\nfn radial() { dialect(); }\n#[cfg(test)]\nmod tests {\n    fn dial() {}\n}\n";
        assert_eq!(count("run/a/src/a.rs", text), 0);
        assert_eq!(count("docs/a.md", "dial"), 0);
    }
}
