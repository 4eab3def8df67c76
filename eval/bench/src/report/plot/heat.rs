//! A map of squares: all rows and stacks at a glance.

use maud::{html, Markup};

use super::{at, picture, short, WIDTH};

/// What a square says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// What the others are compared with.
    Reference,
    /// Better than the reference.
    Wins,
    /// Neither better nor worse.
    Level,
    /// Worse than the reference.
    Loses,
    /// It was not decided.
    Open,
    /// It failed.
    Failed,
    /// There is no figure.
    Empty,
}

/// A square.
#[derive(Clone, Debug, PartialEq)]
pub struct Square {
    /// What it says.
    pub tone: Tone,
    /// The words for it: row, stack, ratio.
    pub words: String,
}

impl Tone {
    /// Its sign, as colour alone does not tell everybody.
    pub fn sign(self) -> &'static str {
        match self {
            Tone::Reference => "R",
            Tone::Wins => "+",
            Tone::Level => "=",
            Tone::Loses => "\u{2212}",
            Tone::Open => "?",
            Tone::Failed => "!",
            Tone::Empty => "",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Tone::Reference => "reference-fill",
            Tone::Wins => "wins-fill",
            Tone::Level => "level-fill",
            Tone::Loses => "loses-fill",
            Tone::Open => "open-fill",
            Tone::Failed => "failed-fill",
            Tone::Empty => "empty-fill",
        }
    }

    /// All that a reader may meet, with the words for the legend.
    pub const ALL: [(Tone, &'static str); 6] = [
        (Tone::Reference, "reference"),
        (Tone::Wins, "wins"),
        (Tone::Level, "level, or within the noise"),
        (Tone::Loses, "loses"),
        (Tone::Open, "not decided"),
        (Tone::Failed, "failed"),
    ];
}

/// Characters of a row's name that there is room for.
const NAME: usize = 23;
const NAMES: f64 = 130.0;
const TOP: f64 = 16.0;
const SQUARE: f64 = 14.0;

/// The picture; `id` is unique on the page. Columns have numbers, which the list below it explains.
pub fn heat_map(id: &str, title: &str, columns: usize, rows: &[(String, Vec<Square>)]) -> Markup {
    let height = TOP + rows.len() as f64 * SQUARE + 4.0;
    let wide = ((WIDTH - NAMES - 4.0) / columns.max(1) as f64).min(22.0);
    let drawn = html! {
        @for column in 0..columns {
            text class="tick" x=(at(NAMES + (column as f64 + 0.5) * wide)) y="11" text-anchor="middle" { (column + 1) }
        }
        @for (number, (name, squares)) in rows.iter().enumerate() {
            @let top = TOP + number as f64 * SQUARE;
            text class="name" x=(at(NAMES - 4.0)) y=(at(top + 10.5)) text-anchor="end" {
                (short(name, NAME))
            }
            @for (column, square) in squares.iter().enumerate() {
                @if square.tone != Tone::Empty {
                    g {
                        title { (square.words) }
                        rect class=(square.tone.class()) x=(at(NAMES + column as f64 * wide)) y=(at(top))
                            width=(at(wide - 1.0)) height=(at(SQUARE - 1.0)) {}
                        text class="sign" x=(at(NAMES + (column as f64 + 0.5) * wide - 0.5)) y=(at(top + 10.0))
                            text-anchor="middle" { (square.tone.sign()) }
                    }
                }
            }
        }
    };
    let losing = rows
        .iter()
        .flat_map(|(_, s)| s)
        .filter(|s| s.tone == Tone::Loses)
        .count();
    let description = format!(
        "{} rows and {columns} stacks; {losing} cells lose against their reference. The tables below have all figures.",
        rows.len()
    );
    picture(id, title, &description, height, &drawn)
}

/// What the signs and colours say.
pub fn tones() -> Markup {
    html! {
        ul class="legend" {
            @for (tone, words) in Tone::ALL {
                li {
                    svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true" {
                        rect class=(tone.class()) width="14" height="14" {}
                        text class="sign" x="7" y="11" text-anchor="middle" { (tone.sign()) }
                    }
                    " " (words)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tone_has_a_sign_and_a_colour_of_its_own() {
        let signs: std::collections::HashSet<_> = Tone::ALL.iter().map(|(t, _)| t.sign()).collect();
        let classes: std::collections::HashSet<_> =
            Tone::ALL.iter().map(|(t, _)| t.class()).collect();
        assert_eq!(
            (signs.len(), classes.len()),
            (Tone::ALL.len(), Tone::ALL.len())
        );
        assert!(Tone::ALL.iter().all(|(tone, _)| !tone.sign().is_empty()));
        assert_eq!(
            tones().into_string().matches("<li>").count(),
            Tone::ALL.len()
        );
    }

    #[test]
    fn a_square_has_words_and_an_empty_one_is_left_out() {
        let square = |tone, words: &str| Square {
            tone,
            words: words.to_owned(),
        };
        let rows = [(
            "<i>".to_owned(),
            vec![
                square(Tone::Loses, "connect, weft: 6.1"),
                square(Tone::Empty, "nothing"),
            ],
        )];
        let text = heat_map("h", "all", 2, &rows).into_string();
        assert!(
            text.contains("connect, weft: 6.1") && text.contains("&lt;i&gt;"),
            "{text}"
        );
        assert!(text.contains("1 rows and 2 stacks; 1 cells lose"), "{text}");
        assert!(!text.contains("nothing"), "{text}");
    }
}
