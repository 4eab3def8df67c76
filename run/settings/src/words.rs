//! Phrases of messages: what is near a mistyped word, and lists that end in "or".

/// The candidate that differs from `name` by at most two edits (one where `name` has three letters or fewer), if any.
pub fn nearest(name: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    const SHORT_LETTERS: usize = 3;
    let near = if name.len() <= SHORT_LETTERS { 1 } else { 2 };
    candidates
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= near)
        .map(|candidate| (edits(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= near)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string alignment),
/// whatever the case of their letters.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    let (a, b) = (a.as_bytes(), b.as_bytes());
    // `rows[i][j]`: from the first i octets of `a` to the first j of `b`.
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = substituted.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

/// "a", "a or b", "a, b or c".
pub fn one_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [firsts @ .., last] => format!("{} or {last}", firsts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_count_what_differs() {
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("same", "SAME"), 0);
        assert_eq!(edits("lgo", "log"), 1);
        assert_eq!(edits("prot", "port"), 1);
    }

    #[test]
    fn short_words_have_to_be_nearer() {
        let near = |name| nearest(name, ["gso", "off", "port"].into_iter());
        assert_eq!(near("of"), Some("off"));
        assert_eq!(near("GSO"), Some("gso"));
        assert_eq!(near("prto"), Some("port"));
        assert_eq!(near("on"), None);
    }

    #[test]
    fn the_last_of_a_list_stands_behind_or() {
        assert_eq!(one_of(&[]), "");
        assert_eq!(one_of(&["a"]), "a");
        assert_eq!(one_of(&["a", "b", "c"]), "a, b or c");
    }
}
