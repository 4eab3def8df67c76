//! Pictures as SVG inside a page: no script, no font or colour of their own. Colours are the page's CSS variables, so
//! that the reader's setting of light or dark decides; lines also differ by dashes and marks, as not everybody tells
//! colours apart.

mod bars;
mod differences;
mod heat;
mod lines;
mod scale;
mod strips;

use maud::{html, Markup};

pub use bars::{bars, Bar};
pub use differences::{differences, more_in_words, Difference, Section};
pub use heat::{heat_map, tones, Square, Tone};
pub use lines::{lines, Line, Point};
pub use strips::{strips, Ratio, Strip};

use crate::metric::Better;

/// Width of a picture in its own units; the page stretches it.
const WIDTH: f64 = 360.0;
/// Colours that the page has, `--c0` and so on; further lines begin again with other marks.
const COLOURS: usize = 8;

/// Unit of an axis along which the tail of a distribution is as long as its middle: a place is one over the part of
/// all that lies beyond it, and is called by the percentile.
pub const PERCENTILE: &str = "percentile";

/// What an axis says.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// What it is.
    pub what: String,
    /// Unit; empty for a count.
    pub unit: String,
    /// Which way is better; none where neither is.
    pub better: Option<Better>,
}

impl Label {
    /// `half round trip (µs), lower is better`.
    fn text(&self) -> String {
        let unit = match self.unit.as_str() {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        let better = match self.better {
            Some(Better::Lower) => ", lower is better",
            Some(Better::Higher) => ", higher is better",
            None => "",
        };
        format!("{}{unit}{better}", self.what)
    }
}

/// A picture around what is drawn, with the words that a screen reader says in its place.
fn picture(id: &str, title: &str, description: &str, height: f64, drawn: &Markup) -> Markup {
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height:.0}")) role="img"
            aria-labelledby=(format!("{id}-t {id}-d")) xmlns="http://www.w3.org/2000/svg" {
            title id=(format!("{id}-t")) { (title) }
            desc id=(format!("{id}-d")) { (description) }
            (drawn)
        }
    }
}

/// A coordinate: a tenth of a unit is finer than anybody sees.
fn at(value: f64) -> String {
    format!("{value:.1}")
}

/// Class of the colour of line `number`.
fn colour(number: usize) -> String {
    format!("c{}", number % COLOURS)
}

/// The mark of line `number` around a place.
fn mark(number: usize, x: f64, y: f64) -> Markup {
    const R: f64 = 3.0;
    let class = format!("mark {}", colour(number));
    let points = |points: &[(f64, f64)]| {
        let points = points
            .iter()
            .map(|(dx, dy)| format!("{},{}", at(x + dx * R), at(y + dy * R)));
        points.collect::<Vec<_>>().join(" ")
    };
    match (number / COLOURS + number) % 4 {
        0 => html! { circle class=(class) cx=(at(x)) cy=(at(y)) r=(R) {} },
        1 => {
            html! { rect class=(class) x=(at(x - R)) y=(at(y - R)) width=(2.0 * R) height=(2.0 * R) {} }
        }
        2 => {
            html! { polygon class=(class) points=(points(&[(0.0, -1.3), (1.2, 0.9), (-1.2, 0.9)])) {} }
        }
        _ => {
            html! { polygon class=(class) points=(points(&[(0.0, -1.4), (1.4, 0.0), (0.0, 1.4), (-1.4, 0.0)])) {} }
        }
    }
}

/// Dashes of line `number`.
fn dashes(number: usize) -> &'static str {
    ["", "6 3", "2 3", "8 3 2 3"][(number / 4 + number) % 4]
}

/// What the marks stand for.
pub fn legend(names: &[(String, bool)]) -> Markup {
    html! {
        ul class="legend" {
            @for (number, (name, loses)) in names.iter().enumerate() {
                li {
                    svg viewBox="0 0 24 10" width="24" height="10" aria-hidden="true" {
                        line class=(format!("line {}", colour(number))) x1="0" y1="5" x2="24" y2="5"
                            stroke-dasharray=(dashes(number)) {}
                        (mark(number, 12.0, 5.0))
                    }
                    " "
                    @if *loses { span class="loses" { (name) " (loses)" } } @else { (name) }
                }
            }
        }
    }
}

/// A figure on an axis: three digits, thousands as words of their own.
fn tick(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        v if v == 0.0 || v >= 100.0 || v.fract() == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{suffix}")
}

/// A name that has room for so many characters; the whole one is in the words of what it names.
fn short(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        Some(_) => name.chars().take(most - 1).chain(['…']).collect(),
        None => name.to_owned(),
    }
}

/// A size in octets as people say it, other numbers as they are.
fn place_on_x(value: f64, unit: &str) -> String {
    match unit {
        "octets" if value >= 0.0 && value.fract() == 0.0 => {
            crate::verbs::Size(value as u64).to_string()
        }
        PERCENTILE => {
            let percent = format!("{:.2}", 100.0 - 100.0 / value.max(1.0));
            percent
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
        }
        _ => tick(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_on_axes_are_short() {
        let values = [
            0.0,
            0.05,
            1.0,
            1.5,
            12.34,
            123.4,
            9999.0,
            12345.0,
            2_500_000.0,
        ];
        assert_eq!(
            values.map(tick),
            ["0", "0.05", "1", "1.5", "12.3", "123", "9999", "12.3k", "2.5M"]
        );
        assert_eq!(place_on_x(4096.0, "octets"), "4K");
        assert_eq!(place_on_x(16.0, ""), "16");
        let places = [2.0, 10.0, 100.0, 1000.0, 10000.0].map(|x| place_on_x(x, PERCENTILE));
        assert_eq!(places, ["50", "90", "99", "99.9", "99.99"]);
        assert_eq!(
            (short("abc", 3), short("abcdé", 4)),
            ("abc".to_owned(), "abc…".to_owned())
        );
    }

    #[test]
    fn neighbouring_lines_differ_in_colour_mark_and_dashes() {
        for number in 0..15 {
            let looks = |n| (colour(n), mark(n, 0.0, 0.0).into_string(), dashes(n));
            let (one, other) = (looks(number), looks(number + 1));
            assert!(
                one.0 != other.0 && one.1 != other.1 && one.2 != other.2,
                "{number}"
            );
        }
        // Sixteen lines are sixteen looks.
        let looks: std::collections::HashSet<_> = (0..16)
            .map(|n| (mark(n, 0.0, 0.0).into_string(), dashes(n)))
            .collect();
        assert_eq!(looks.len(), 16);
    }

    #[test]
    fn names_are_text_and_not_markup() {
        let names = [("<script>alert(1)</script>".to_owned(), true)];
        let text = legend(&names).into_string();
        assert!(
            text.contains("&lt;script&gt;") && !text.contains("<script"),
            "{text}"
        );
        assert!(text.contains("(loses)"), "{text}");
    }
}
