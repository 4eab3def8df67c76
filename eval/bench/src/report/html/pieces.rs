//! One picture of what each piece of the way costs.

use maud::{html, Markup};

use crate::record::Run;
use crate::report::pieces::{self, Pieces};
use crate::report::plot::{differences, more_in_words, Difference, Section};

/// The picture of a path; nothing where no row tells it.
pub(super) fn of_path(id: &str, run: &Run, path: &str) -> Markup {
    let rows = pieces::of(run, path);
    let with_some = rows.iter().filter(|row| !row.pieces.is_empty());
    let sections: Vec<Section> = with_some.map(section).collect();
    if sections.is_empty() {
        return html! {};
    }
    let title = "Which piece is worth how much";
    let axis = "CPU of both ends for an octet, more or less (ns)";
    html! {
        figure {
            figcaption { (title) }
            (differences(id, title, axis, &sections))
            p class="soft" {
                "Both programs, from their start to their end, user and kernel; the median of the differences within "
                "the repetitions, thin lines from the least to the greatest. Each row has its own scale. What the kernel "
                "did in nobody's name is in the raw data (" (crate::metric::BUSY_PER_OCTET) ")."
            }
        }
    }
}

fn section(row: &Pieces) -> Section {
    let bars = row.pieces.iter().map(|piece| Difference {
        name: piece.cell.stack.clone(),
        more: piece.more,
        range: piece.range,
        words: more_in_words(piece.more, "ns", pieces::share(piece.more, row.base)),
    });
    let (_, name) = row.row.id.split_once('/').unwrap_or(("", &row.row.id));
    Section {
        title: format!("{name}: {} takes {:.3} ns", row.reference, row.base),
        bars: bars.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_a_bar_beside_what_has_everything() {
        let run = pieces::tests::run(&[("all on", &[0.5]), ("one copy more", &[0.75])]);
        let text = of_path("p", &run, "ablation").into_string();
        assert!(text.contains("tcp-bulk: all on takes 0.500 ns"), "{text}");
        assert!(text.contains("one copy more: +0.25 ns (+50 %)"), "{text}");
        assert!(of_path("p", &run, "veth").into_string().is_empty());
    }
}
