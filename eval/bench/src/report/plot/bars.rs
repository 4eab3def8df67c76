//! Bars: figures of one sort beside each other.

use maud::{html, Markup};

use super::scale::Scale;
use super::{at, picture, short, tick, Label, WIDTH};

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Figure, above zero.
    pub value: f64,
    /// Least and greatest of what the figure is the middle of.
    pub range: Option<(f64, f64)>,
    /// Whether it loses against the reference: it is red, and its words say so.
    pub loses: bool,
    /// Whether it is what the others are compared with.
    pub is_reference: bool,
}

/// Characters of a name that there is room for, with the words behind it.
const NAME: usize = 44;
const STEP: f64 = 32.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 18.0;
const LEFT: f64 = 6.0;
const RIGHT: f64 = 60.0;

/// The picture; `id` is unique on the page. Names stand above their bars, so that long ones have room.
pub fn bars(id: &str, title: &str, x: &Label, bars: &[Bar]) -> Markup {
    let height = TOP + STEP * bars.len() as f64 + BOTTOM;
    let values: Vec<f64> = bars
        .iter()
        .flat_map(|bar| {
            bar.range
                .map_or([bar.value, bar.value], |(_, high)| [bar.value, high])
        })
        .collect();
    let scale = Scale::from_zero(&values);
    let to_x = |value: f64| LEFT + scale.part(value) * (WIDTH - LEFT - RIGHT);
    let drawn = html! {
        text class="axis" x="2" y="12" { (x.text()) }
        @for value in scale.ticks(5) {
            line class="grid" x1=(at(to_x(value))) x2=(at(to_x(value))) y1=(at(TOP)) y2=(at(height - BOTTOM)) {}
            text class="tick" x=(at(to_x(value))) y=(at(height - 5.0)) text-anchor="middle" { (tick(value)) }
        }
        @for (number, bar) in bars.iter().enumerate() {
            (one(bar, TOP + STEP * number as f64, x, &to_x))
        }
    };
    let all: Vec<String> = bars
        .iter()
        .map(|bar| format!("{} {} {}{}", bar.name, tick(bar.value), x.unit, words(bar)))
        .collect();
    picture(
        id,
        title,
        &format!("{}: {}.", x.text(), all.join(", ")),
        height,
        &drawn,
    )
}

fn one(bar: &Bar, top: f64, x: &Label, to_x: &impl Fn(f64) -> f64) -> Markup {
    let class = match (bar.loses, bar.is_reference) {
        (true, _) => "bar loses-fill",
        (false, true) => "bar reference-fill",
        (false, false) => "bar c0-fill",
    };
    let end = to_x(bar.value);
    let words_at = bar.range.map_or(end, |(_, high)| end.max(to_x(high)));
    html! {
        g {
            title { (bar.name) ": " (tick(bar.value)) " " (x.unit) (words(bar)) }
            text class="name" x=(at(LEFT)) y=(at(top + 11.0)) { (short(&bar.name, NAME)) (words(bar)) }
            rect class=(class) x=(at(LEFT)) y=(at(top + 15.0)) width=(at((end - LEFT).max(0.5))) height="10" {}
            @if let Some((low, high)) = bar.range {
                line class="spread" x1=(at(to_x(low))) x2=(at(to_x(high))) y1=(at(top + 20.0)) y2=(at(top + 20.0)) {}
            }
            text class="tick" x=(at(words_at + 4.0)) y=(at(top + 24.0)) { (tick(bar.value)) }
        }
    }
}

fn words(bar: &Bar) -> &'static str {
    match (bar.loses, bar.is_reference) {
        (true, _) => ", loses",
        (false, true) => ", reference",
        (false, false) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Better;

    #[test]
    fn a_losing_bar_is_red_and_says_so() {
        let bar = |name: &str, value, loses, is_reference| Bar {
            name: name.to_owned(),
            value,
            range: Some((value * 0.8, value * 1.2)),
            loses,
            is_reference,
        };
        let label = Label {
            what: "connect".to_owned(),
            unit: "µs".to_owned(),
            better: Some(Better::Lower),
        };
        let all = [
            bar("raw-tcp", 50.0, false, true),
            bar("weft", 300.0, true, false),
        ];
        let text = bars("b", "connect", &label, &all).into_string();
        assert!(
            text.contains("raw-tcp, reference") && text.contains("weft, loses"),
            "{text}"
        );
        assert_eq!(text.matches("loses-fill").count(), 1);
        assert!(text.contains("connect (µs), lower is better"), "{text}");
        assert!(!bars("b", "none", &label, &[]).into_string().contains("NaN"));
    }
}
