//! Just enough of Rust's lexical structure to tell code from comments and strings.

/// The text with comments and the contents of string and character literals replaced by blanks, octet for octet,
/// so that offsets and line numbers stay what they were.
pub fn code_only(text: &str) -> String {
    let source = text.as_bytes();
    let mut code = source.to_vec();
    let mut at = 0;
    while at < source.len() {
        let end = match source[at] {
            b'/' if source[at..].starts_with(b"//") => line_end(source, at),
            b'/' if source[at..].starts_with(b"/*") => block_comment_end(source, at),
            b'"' => string_end(source, at),
            b'r' if !follows_word(source, at) => match raw_string_end(source, at) {
                Some(end) => end,
                None => at,
            },
            b'\'' => char_end(source, at),
            _ => at,
        };
        blank(&mut code[at..end]);
        at = end.max(at + 1);
    }
    String::from_utf8(code).expect("blanks replace whole literals and comments")
}

fn blank(octets: &mut [u8]) {
    for octet in octets.iter_mut().filter(|octet| **octet != b'\n') {
        *octet = b' ';
    }
}

/// Whether the octet before `at` belongs to an identifier (`br"` aside, where the raw string begins at its `r`).
fn follows_word(source: &[u8], at: usize) -> bool {
    let word = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_';
    match at {
        0 => false,
        1 => word(source[0]) && !matches!(source[0], b'b' | b'c'),
        _ => {
            let prefix = matches!(source[at - 1], b'b' | b'c') && !word(source[at - 2]);
            word(source[at - 1]) && !prefix
        }
    }
}

fn line_end(source: &[u8], at: usize) -> usize {
    source[at..]
        .iter()
        .position(|&octet| octet == b'\n')
        .map_or(source.len(), |length| at + length)
}

fn block_comment_end(source: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < source.len() {
        if source[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if source[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    source.len()
}

fn string_end(source: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < source.len() {
        match source[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    source.len()
}

fn raw_string_end(source: &[u8], start: usize) -> Option<usize> {
    let hashes = source[start + 1..]
        .iter()
        .take_while(|&&octet| octet == b'#')
        .count();
    if source.get(start + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let closing: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = start + 2 + hashes;
    let length = source[body..]
        .windows(closing.len())
        .position(|window| window == closing);
    Some(length.map_or(source.len(), |length| body + length + closing.len()))
}

/// The end of a character literal, or `start` for a lifetime.
fn char_end(source: &[u8], start: usize) -> usize {
    let body = &source[start + 1..];
    if body.first() == Some(&b'\\') {
        let close = body.iter().skip(2).position(|&octet| octet == b'\'');
        return close.map_or(source.len(), |length| start + 1 + 2 + length + 1);
    }
    // One character, of up to four octets, and the closing quote; a lifetime has none there.
    let width = match body.first() {
        Some(octet) if *octet >= 0xf0 => 4,
        Some(octet) if *octet >= 0xe0 => 3,
        Some(octet) if *octet >= 0xc0 => 2,
        _ => 1,
    };
    if body.get(width) == Some(&b'\'') {
        start + 1 + width + 1
    } else {
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        code.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn comments_are_blanked() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
    }

    #[test]
    fn strings_are_blanked() {
        assert_eq!(words(r#"a "b \" c" d "\\" e"#), ["a", "d", "e"]);
        assert_eq!(
            words(r###"a r"b \" c r#"d " e"# f br##"g "# h"## i"###),
            ["a", "c", "f", "b", "i"]
        );
    }

    #[test]
    fn a_word_that_ends_in_r_opens_no_raw_string() {
        assert_eq!(words(r#"for"x" var "y" z"#), ["for", "var", "z"]);
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_are_not() {
        assert_eq!(
            words(r"a '\'' b '{' c 'é' &'d x"),
            ["a", "b", "c", "&'d", "x"]
        );
    }

    #[test]
    fn an_open_end_is_no_panic() {
        for text in ["\"a", "r#\"a", "/* a", "'\\", "'", "\"\\"] {
            assert_eq!(code_only(text).len(), text.len());
        }
    }
}
