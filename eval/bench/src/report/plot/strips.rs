//! Rows of ratios: each row has a line of its own, and each of its figures a mark on an axis that all share.

use maud::{html, Markup};

use super::{at, mark, short, tick};

/// Width of the picture in its own units: it stands alone, where pictures of a page stand beside each other.
const WIDTH: f64 = 760.0;
/// Room for names of rows, and how many characters that is.
const NAMES: f64 = 190.0;
const NAME: usize = 32;
const RIGHT: f64 = 16.0;
const TOP: f64 = 58.0;
const STEP: f64 = 18.0;
const LEGEND_STEP: f64 = 16.0;
const LEGEND_COLUMNS: usize = 4;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Strip {
    /// Its name.
    pub name: String,
    /// Its figures.
    pub ratios: Vec<Ratio>,
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Which of the names in the legend it is of.
    pub of: usize,
    /// How many times as good as what it is compared with; above zero.
    pub times: f64,
    /// Whether it loses: it has a red ring.
    pub loses: bool,
}

/// The picture, with what it needs to stand in a file of its own: `style` has its colours.
pub fn strips(title: &str, says: &str, style: &str, names: &[String], strips: &[Strip]) -> Markup {
    let bottom = TOP + STEP * strips.len() as f64;
    let legend_rows = names.len().div_ceil(LEGEND_COLUMNS);
    let height = bottom + 30.0 + LEGEND_STEP * legend_rows as f64;
    let all = strips.iter().flat_map(|strip| &strip.ratios);
    let powers = all.map(|ratio| ratio.times.max(1e-9).log2());
    let (low, high) = powers.fold((-1.0f64, 1.0f64), |(low, high), power| {
        (low.min(power.floor()), high.max(power.ceil()))
    });
    let to_x = |power: f64| NAMES + (power - low) / (high - low) * (WIDTH - NAMES - RIGHT);
    let losing = strips.iter().flat_map(|strip| &strip.ratios);
    let losing = losing.filter(|ratio| ratio.loses).count();
    let words = format!("{says} {} rows; {losing} figures lose.", strips.len());
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height:.0}")) width=(WIDTH) role="img"
            aria-labelledby="t d" {
            title id="t" { (title) }
            desc id="d" { (words) }
            style { (maud::PreEscaped(style)) }
            rect class="paper" width=(WIDTH) height=(at(height)) {}
            text class="axis" x="8" y="16" { (title) }
            text x="8" y="31" { (says) }
            @for power in low as i32..=high as i32 {
                @let x = at(to_x(f64::from(power)));
                line class=(if power == 0 { "spread" } else { "grid" }) x1=(x) x2=(x) y1=(at(TOP - 6.0)) y2=(at(bottom)) {}
                text class="tick" x=(x) y=(at(TOP - 10.0)) text-anchor="middle" { (times(power)) }
            }
            @for (number, strip) in strips.iter().enumerate() {
                (one(strip, names, TOP + STEP * (number as f64 + 0.5), &to_x))
            }
            @for (number, name) in names.iter().enumerate() {
                @let x = 14.0 + (number % LEGEND_COLUMNS) as f64 * (WIDTH - 14.0) / LEGEND_COLUMNS as f64;
                @let y = bottom + 24.0 + (number / LEGEND_COLUMNS) as f64 * LEGEND_STEP;
                (mark(number, x, y - 3.5))
                text x=(at(x + 9.0)) y=(at(y)) { (short(name, 28)) }
            }
        }
    }
}

fn one(strip: &Strip, names: &[String], y: f64, to_x: &impl Fn(f64) -> f64) -> Markup {
    html! {
        line class="grid" x1=(at(NAMES)) x2=(at(WIDTH - RIGHT)) y1=(at(y)) y2=(at(y)) {}
        text class="name" x=(at(NAMES - 8.0)) y=(at(y + 3.0)) text-anchor="end" { (short(&strip.name, NAME)) }
        @for ratio in &strip.ratios {
            @let x = to_x(ratio.times.max(1e-9).log2());
            g {
                title {
                    (strip.name) ", " (names.get(ratio.of).map_or("", String::as_str)) ": " (tick(ratio.times)) " x"
                    @if ratio.loses { ", loses" }
                }
                (mark(ratio.of, x, y))
                @if ratio.loses { circle class="ring" cx=(at(x)) cy=(at(y)) r="6" {} }
            }
        }
    }
}

/// A power of two as people say how many times something is as good.
fn times(power: i32) -> String {
    match power {
        0.. => format!("{} x", 1u64 << power.min(40)),
        _ => format!("1/{} x", 1u64 << (-power).min(40)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losing_figures_have_a_ring_and_lie_left_of_the_line() {
        let strip = |of, times, loses| Strip {
            name: "<b>".to_owned(),
            ratios: vec![Ratio { of, times, loses }],
        };
        let names = ["one".to_owned(), "other".to_owned()];
        let drawn = [strip(0, 0.25, true), strip(1, 3.0, false)];
        let text = strips("title", "says.", "", &names, &drawn).into_string();
        assert_eq!(text.matches("class=\"ring\"").count(), 1, "{text}");
        assert!(
            text.contains("&lt;b&gt;, one: 0.25 x, loses") && !text.contains("<b>"),
            "{text}"
        );
        assert!(text.contains("2 rows; 1 figures lose."), "{text}");
        // From a quarter to four times.
        for tick in ["1/4 x", "1/2 x", ">1 x", "2 x", "4 x"] {
            assert!(text.contains(tick), "{tick}: {text}");
        }
        assert!(!text.contains("1/8 x") && !text.contains("8 x"), "{text}");
    }

    #[test]
    fn nothing_at_all_is_a_picture_too() {
        let text = strips("title", "says.", "", &[], &[]).into_string();
        assert!(text.contains("0 rows"), "{text}");
    }
}
