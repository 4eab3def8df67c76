//! Lines along an axis: one figure against another.

use maud::{html, Markup};

use super::scale::Scale;
use super::{at, colour, dashes, mark, picture, place_on_x, tick, Label, WIDTH};

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its places, in the order of x.
    pub points: Vec<Point>,
}

/// A place on a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Along the axis, above zero.
    pub x: f64,
    /// Figure, above zero.
    pub y: f64,
    /// Least and greatest of what the figure is the middle of.
    pub range: Option<(f64, f64)>,
    /// Whether it loses against the reference: it has a red ring, and its words say so.
    pub loses: bool,
}

const HEIGHT: f64 = 250.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 40.0;

/// The picture; `id` is unique on the page.
pub fn lines(id: &str, title: &str, x: &Label, y: &Label, lines: &[Line]) -> Markup {
    let points = || lines.iter().flat_map(|line| &line.points);
    let xs: Vec<f64> = points().map(|p| p.x).collect();
    let ys: Vec<f64> = points()
        .flat_map(|p| p.range.map_or([p.y, p.y], |(low, high)| [low, high]))
        .collect();
    let (x_scale, y_scale) = (Scale::logarithmic(&xs), Scale::fitting(&ys));
    let to_x = |value: f64| LEFT + 6.0 + x_scale.part(value) * (WIDTH - LEFT - RIGHT - 12.0);
    let to_y = |value: f64| HEIGHT - BOTTOM - y_scale.part(value) * (HEIGHT - TOP - BOTTOM);
    let drawn = html! {
        text class="axis" x="2" y="12" { (y.text()) }
        @for value in y_scale.ticks(7) {
            line class="grid" x1=(at(LEFT)) x2=(at(WIDTH - RIGHT)) y1=(at(to_y(value))) y2=(at(to_y(value))) {}
            text class="tick" x=(at(LEFT - 4.0)) y=(at(to_y(value) + 3.0)) text-anchor="end" { (tick(value)) }
        }
        @for value in apart(&xs, to_x) {
            text class="tick" x=(at(to_x(value))) y=(at(HEIGHT - BOTTOM + 14.0)) text-anchor="middle" {
                (place_on_x(value, &x.unit))
            }
        }
        text class="axis" x=(at(WIDTH / 2.0)) y=(at(HEIGHT - 6.0)) text-anchor="middle" { (x.text()) }
        @for (number, line) in lines.iter().enumerate() {
            (one(number, line, x, y, &to_x, &to_y))
        }
    };
    picture(id, title, &description(x, y, lines), HEIGHT, &drawn)
}

fn one(
    number: usize,
    line: &Line,
    x: &Label,
    y: &Label,
    to_x: &impl Fn(f64) -> f64,
    to_y: &impl Fn(f64) -> f64,
) -> Markup {
    let way: Vec<String> = line
        .points
        .iter()
        .map(|p| format!("{},{}", at(to_x(p.x)), at(to_y(p.y))))
        .collect();
    html! {
        g {
            polyline class=(format!("line {}", colour(number))) points=(way.join(" "))
                stroke-dasharray=(dashes(number)) {}
            @for p in &line.points {
                g {
                    title {
                        (line.name) ", " (place_on_x(p.x, &x.unit)) ": " (tick(p.y)) " " (y.unit)
                        @if p.loses { ", loses" }
                    }
                    @if let Some((low, high)) = p.range {
                        line class=(format!("range {}", colour(number))) x1=(at(to_x(p.x))) x2=(at(to_x(p.x)))
                            y1=(at(to_y(low))) y2=(at(to_y(high))) {}
                    }
                    @if p.loses { circle class="ring" cx=(at(to_x(p.x))) cy=(at(to_y(p.y))) r="6" {} }
                    (mark(number, to_x(p.x), to_y(p.y)))
                }
            }
        }
    }
}

/// The places of the points that have room for their words.
fn apart(xs: &[f64], to_x: impl Fn(f64) -> f64) -> Vec<f64> {
    const ROOM: f64 = 30.0;
    let mut found: Vec<f64> = Vec::new();
    for value in crate::stats::sorted(xs) {
        if found
            .last()
            .is_none_or(|last| to_x(value) - to_x(*last) >= ROOM)
        {
            found.push(value);
        }
    }
    found
}

fn description(x: &Label, y: &Label, lines: &[Line]) -> String {
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let losing = lines
        .iter()
        .flat_map(|l| &l.points)
        .filter(|p| p.loses)
        .count();
    format!(
        "{} along {}, for {}. {losing} points lose against the reference. The table below has all figures.",
        y.text(),
        x.text(),
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Better;

    #[test]
    fn a_picture_has_units_direction_and_words_for_those_who_do_not_see_it() {
        let label = |what: &str, unit: &str, better| Label {
            what: what.to_owned(),
            unit: unit.to_owned(),
            better,
        };
        let points = [(64.0, 5.0), (4096.0, 9.0)].map(|(x, y)| Point {
            x,
            y,
            range: Some((y * 0.9, y * 1.1)),
            loses: x > 100.0,
        });
        let line = Line {
            name: "a <b>".to_owned(),
            points: points.to_vec(),
        };
        let text = lines(
            "p1",
            "latency",
            &label("message size", "octets", None),
            &label("half round trip", "µs", Some(Better::Lower)),
            &[line],
        )
        .into_string();
        for part in [
            "role=\"img\"",
            "aria-labelledby=\"p1-t p1-d\"",
            "half round trip (µs), lower is better",
            "message size (octets)",
            ">4K<",
            "1 points lose",
            "class=\"ring\"",
            "a &lt;b&gt;, 4K: 9 µs, loses",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(
            !text.contains("NaN") && !text.contains("inf") && !text.contains("<b>"),
            "{text}"
        );
    }
}
