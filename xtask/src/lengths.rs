//! How long files, functions and lines are.

use crate::circles::without_tests;
use crate::tree::File;

/// Lines of a Rust file, tests left out, from which on it is a long one.
const LONG_FILE_LINES: usize = 400;
/// Lines of a function from which on it is a long one.
const LONG_FUNCTION_LINES: usize = 60;
/// Columns of a line of prose at most (`.editorconfig`).
const PROSE_COLUMNS: usize = 120;

/// Something long: where, and by how much.
pub type Long = (String, usize);

/// Rust files with too many lines of code.
pub fn files(tree: &[File]) -> Vec<Long> {
    sources(tree)
        .map(|file| (file.path.clone(), without_tests(&file.code).lines().count()))
        .filter(|(_, lines)| *lines > LONG_FILE_LINES)
        .collect()
}

/// Functions with too many lines.
pub fn functions(tree: &[File]) -> Vec<Long> {
    sources(tree).flat_map(functions_of).collect()
}

fn sources(tree: &[File]) -> impl Iterator<Item = &File> {
    tree.iter()
        .filter(|file| file.path.ends_with(".rs") && file.path.contains("/src/"))
        .filter(|file| !file.path.contains("/tests.rs") && !file.path.contains("/tests/"))
}

/// By rustfmt's indentation: a function ends with the brace that stands under its beginning.
fn functions_of(file: &File) -> Vec<Long> {
    let mut long = Vec::new();
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (number, line) in without_tests(&file.code).lines().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code.trim_end() == "}" {
            if let Some((_, start)) = open.pop_if(|(of, _)| *of == indent) {
                let lines = number - start + 1;
                if lines > LONG_FUNCTION_LINES {
                    long.push((format!("{}:{}", file.path, start + 1), lines));
                }
            }
        }
        let begins = code.starts_with("fn ") || code.contains(" fn ") && !code.contains("fn(");
        if begins && !code.ends_with(';') && !code.trim_end().ends_with('}') {
            open.push((indent, number));
        }
    }
    long
}

/// Lines of prose that are too wide: documents without their tables and code, and comments.
pub fn prose(tree: &[File]) -> Vec<Long> {
    tree.iter().flat_map(prose_of).collect()
}

fn prose_of(file: &File) -> Vec<Long> {
    let comment: &[&str] = match file.path.rsplit('.').next() {
        Some("rs") => &["//"],
        Some("c" | "h") => &["/*", "*", "//"],
        Some("py" | "sh" | "toml") => &["#"],
        Some("md") => &[],
        _ => return Vec::new(),
    };
    let is_document = file.path.ends_with(".md");
    let mut in_code = false;
    let mut wide = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let text = line.trim_start();
        if is_document && text.starts_with("```") {
            in_code = !in_code;
        }
        let is_prose = match is_document {
            true => !in_code && !text.starts_with('|') && !line.starts_with("    "),
            false => comment.iter().any(|mark| text.starts_with(mark)) && !is_table(text),
        };
        let columns = line.chars().count();
        if is_prose && columns > PROSE_COLUMNS && line.contains(' ') {
            wide.push((format!("{}:{}", file.path, number + 1), columns));
        }
    }
    wide
}

/// A row of a table in a comment.
fn is_table(text: &str) -> bool {
    text.trim_start_matches(['/', '!', '#', '*', ' '])
        .starts_with('|')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_function_is_found_and_its_tests_are_not() {
        let body = "        f();\n".repeat(LONG_FUNCTION_LINES);
        let text = format!(
            "impl A {{\n    pub fn long() {{\n{body}    }}\n\n    fn short() {{\n    }}\n}}\n"
        );
        let file = File::new("run/a/src/a.rs", text.clone());
        assert_eq!(
            functions_of(&file),
            [("run/a/src/a.rs:2".to_owned(), LONG_FUNCTION_LINES + 2)]
        );
        let tests = File::new(
            "run/a/src/a.rs",
            format!("#[cfg(test)]\nmod tests {{\n{text}}}\n"),
        );
        assert_eq!(functions_of(&tests), []);
    }

    #[test]
    fn a_long_file_is_one_without_its_tests() {
        let long = "fn f() {}\n".repeat(LONG_FILE_LINES + 1);
        let file = File::new("run/a/src/a.rs", long.clone());
        assert_eq!(files(&[file]).len(), 1);
        let tests = File::new(
            "run/a/src/a.rs",
            format!("#[cfg(test)]\nmod tests {{\n{long}}}\n"),
        );
        assert_eq!(files(&[tests]), []);
    }

    #[test]
    fn prose_is_what_people_read_line_by_line() {
        let wide = "word ".repeat(25);
        let document = format!("{wide}\n| {wide} |\n```\n{wide}\n```\n    {wide}\n");
        let places: Vec<String> = prose_of(&File::new("docs/a.md", document))
            .into_iter()
            .map(|(place, _)| place)
            .collect();
        assert_eq!(places, ["docs/a.md:1"]);
        let source = format!("// {wide}\n//! | {wide} |\nlet a = \"{wide}\";\n");
        assert_eq!(prose_of(&File::new("a.rs", source)).len(), 1);
        let link = format!("https://{}", "x".repeat(PROSE_COLUMNS));
        assert_eq!(prose_of(&File::new("docs/a.md", link)), []);
    }
}
