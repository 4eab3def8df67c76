//! How a run stands to the targets.

use super::table::{Column, Table};
use super::{heading, number, spread, with_unit, Format};
use crate::record::Run;
use crate::summary::Ratio;
use crate::targets::{self, Against, Bound, Verdict};

/// Nothing where no row has a target.
pub(super) fn table(run: &Run, format: Format) -> String {
    let standings = targets::judge(run);
    if standings.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        Column::words("path"),
        Column::title("target"),
        Column::words("stack"),
        Column::number("measured").spared(1),
        Column::number("against").spared(3),
        Column::number("ratio"),
        Column::number("spread").spared(2),
        Column::words("bound"),
        Column::words("verdict"),
    ]);
    for s in standings {
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), |v| with_unit(v, s.metric));
        let (measured, against) = s.medians.map_or((None, None), |(m, a)| (Some(m), a));
        let [ratio, spread] = held(s.ratio, &s.target.against);
        let what = format!("{} ({})", s.target.what, s.target.workload.id);
        let bound = bound(s.target.bound);
        let verdict = verdict(s.verdict).to_owned();
        table.add(vec![
            s.path,
            what,
            s.target.stack,
            figure(measured),
            figure(against),
            ratio,
            spread,
            bound,
            verdict,
        ]);
    }
    heading("Targets", format) + &table.draw(format)
}

/// What is held against the bound, and its spread.
fn held(ratio: Option<Ratio>, against: &Against) -> [String; 2] {
    let Some(r) = ratio else {
        return ["-".to_owned(), "-".to_owned()];
    };
    let from_to = format!("{} to {}", number(r.min), number(r.max));
    match against {
        Against::Reference | Against::Same(_) => [format!("{:.2}", r.of_medians), spread(&r)],
        Against::BeyondReference => [format!("+{}", number(r.of_medians)), from_to],
        Against::Alone(_) => ["-".to_owned(), from_to],
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Passes => "passes",
        Verdict::FallsShort => "FALLS SHORT",
        Verdict::NotMeasured => "not measured",
    }
}

fn bound(bound: Bound) -> String {
    match bound {
        Bound::AtMost { target, passes } if passes > target => {
            format!("<= {} ({} passes)", short(target), short(passes))
        }
        Bound::AtMost { target, .. } => format!("<= {}", short(target)),
        Bound::AtLeast { target, passes } if passes < target => {
            format!(">= {target} ({passes} passes)")
        }
        Bound::AtLeast { target, .. } => format!(">= {target}"),
    }
}

/// A bound in hundredths at most.
fn short(bound: f64) -> f64 {
    (bound * 100.0).round() / 100.0
}
