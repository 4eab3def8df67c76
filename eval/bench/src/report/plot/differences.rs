//! Bars that begin at a line in the middle: what is more, to the right, and what is less, to the left. Each section has
//! a scale of its own.

use maud::{html, Markup};

use super::{at, picture, short, tick, WIDTH};

/// Bars of one scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// What they are, and what the line stands for.
    pub title: String,
    /// The bars.
    pub bars: Vec<Difference>,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its name.
    pub name: String,
    /// How much more; below zero it is less.
    pub more: f64,
    /// Least and greatest of what the figure is the middle of.
    pub range: Option<(f64, f64)>,
    /// The figure in words.
    pub words: String,
}

/// Characters that there is room for in a line.
const LINE: usize = 64;
const STEP: f64 = 26.0;
const HEAD: f64 = 24.0;
const TOP: f64 = 18.0;
const LEFT: f64 = 6.0;
const RIGHT: f64 = 12.0;

/// The picture; `id` is unique on the page.
pub fn differences(id: &str, title: &str, axis: &str, sections: &[Section]) -> Markup {
    let heights = sections.iter().map(|s| HEAD + STEP * s.bars.len() as f64);
    let height = TOP + heights.clone().sum::<f64>() + 8.0;
    let tops: Vec<f64> = heights
        .scan(TOP, |top, height| {
            let own = *top;
            *top += height;
            Some(own)
        })
        .collect();
    let drawn = html! {
        text class="axis" x="2" y="12" { (axis) }
        @for (section, top) in sections.iter().zip(tops) {
            text class="sign" x=(at(LEFT)) y=(at(top + 14.0)) { (short(&section.title, LINE)) }
            (bars(section, top + HEAD))
        }
    };
    let one = |section: &Section| {
        let bars = section.bars.iter();
        let bars: Vec<String> = bars.map(|b| format!("{} {}", b.name, b.words)).collect();
        format!("{}: {}.", section.title, bars.join(", "))
    };
    let all: Vec<String> = sections.iter().map(one).collect();
    let says = format!("{axis}. {}", all.join(" "));
    picture(id, title, &says, height, &drawn)
}

fn bars(section: &Section, top: f64) -> Markup {
    let ends = section.bars.iter().flat_map(|bar| {
        let (low, high) = bar.range.unwrap_or((bar.more, bar.more));
        [bar.more, low, high]
    });
    let (low, high) = ends
        .filter(|end| end.is_finite())
        .fold((0.0_f64, 0.0_f64), |(low, high), end| {
            (low.min(end), high.max(end))
        });
    let span = (high - low).max(f64::MIN_POSITIVE);
    let to_x = |value: f64| {
        let part = (value - low) / span;
        let part = if part.is_finite() { part } else { 0.0 };
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    };
    html! {
        @for (number, bar) in section.bars.iter().enumerate() {
            (one(bar, top + STEP * number as f64, &to_x))
        }
    }
}

fn one(bar: &Difference, top: f64, to_x: &impl Fn(f64) -> f64) -> Markup {
    let (begin, end) = (to_x(bar.more.min(0.0)), to_x(bar.more.max(0.0)));
    let class = match bar.more < 0.0 {
        true => "bar reference-fill",
        false => "bar c0-fill",
    };
    html! {
        g {
            title { (bar.name) ": " (bar.words) }
            text class="name" x=(at(LEFT)) y=(at(top + 10.0)) {
                (short(&format!("{}: {}", bar.name, bar.words), LINE))
            }
            // The line that stands for no difference: beside the bar alone, as the words may stand over it.
            line class="spread" x1=(at(to_x(0.0))) x2=(at(to_x(0.0))) y1=(at(top + 12.0)) y2=(at(top + 22.0)) {}
            rect class=(class) x=(at(begin)) y=(at(top + 13.0)) width=(at((end - begin).max(0.5))) height="8" {}
            @if let Some((low, high)) = bar.range {
                line class="spread" x1=(at(to_x(low))) x2=(at(to_x(high))) y1=(at(top + 17.0)) y2=(at(top + 17.0)) {}
            }
        }
    }
}

/// A difference in words: `+0.05 ns (+12 %)`.
pub fn more_in_words(more: f64, unit: &str, percent: f64) -> String {
    let sign = if more < 0.0 { "−" } else { "+" };
    let figure = tick(more.abs());
    format!("{sign}{figure} {unit} ({percent:+.0} %)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(more: &[f64]) -> String {
        let bars = more.iter().map(|&more| Difference {
            name: "one <copy> more".to_owned(),
            more,
            range: Some((more - 0.1, more + 0.1)),
            words: more_in_words(more, "ns", 100.0 * more),
        });
        let section = Section {
            title: "TCP: all on takes 1 ns".to_owned(),
            bars: bars.collect(),
        };
        differences("d", "pieces", "work of the cores", &[section]).into_string()
    }

    #[test]
    fn what_is_less_goes_left_and_what_is_more_goes_right() {
        let text = drawn(&[0.5, -0.25]);
        assert_eq!(text.matches("c0-fill").count(), 1);
        assert_eq!(text.matches("reference-fill").count(), 1);
        assert!(text.contains("+0.5 ns (+50 %)"), "{text}");
        assert!(text.contains("−0.25 ns (-25 %)"), "{text}");
        assert!(!text.contains("<copy>"), "{text}");
    }

    #[test]
    fn whatever_the_figures_the_places_are_places() {
        for more in [&[][..], &[0.0], &[f64::NAN], &[1e-300, -1e300]] {
            let text = drawn(more);
            let places = [" x=\"", " x1=\"", " x2=\""].map(|key| text.split(key).skip(1));
            let figures = places.into_iter().flatten();
            for figure in figures.filter_map(|text| text.split('"').next()) {
                let place: f64 = figure.parse().unwrap();
                assert!((0.0..=WIDTH).contains(&place), "{more:?}: {place}");
            }
        }
    }
}
