//! `weft doctor`: say whether a program will be served, and if not why and what to do.

mod binary;
mod machine;
mod same_host;
mod sockets;

use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use weft_engine::settings::Adapter;

use crate::args::DoctorArgs;
use crate::output::{print, styled, BAD, GOOD, NOTE, STRONG};
use crate::program::Program;
use crate::setup::Setup;

/// One thing doctor looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How it turned out.
    pub level: Level,
    /// What was looked at, in a word or two.
    pub subject: &'static str,
    /// What is so.
    pub what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// How a finding bears on the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Good,
    /// Worth knowing; the program is served all the same.
    Note,
    /// Cannot be told by looking.
    Unclear,
    /// Keeps the program from being served.
    Bad,
}

impl Finding {
    fn new(level: Level, subject: &'static str, what: impl Into<String>) -> Finding {
        Finding {
            level,
            subject,
            what: what.into(),
            advice: None,
        }
    }

    fn good(subject: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(Level::Good, subject, what)
    }

    fn note(subject: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(Level::Note, subject, what)
    }

    fn unclear(subject: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(Level::Unclear, subject, what)
    }

    fn bad(subject: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(Level::Bad, subject, what)
    }

    fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }
}

/// What doctor found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The program as it was named; nothing when only the machine was looked at.
    program: Option<String>,
    /// In the order of looking.
    findings: Vec<Finding>,
    /// The end of it.
    verdict: Verdict,
}

/// Whether the program will be served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The word.
    answer: Answer,
    /// The line behind it.
    reason: String,
}

/// The verdict's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Yes,
    Perhaps,
    No,
}

/// Runs the command: exit status 0 when the answer is yes, else 1.
pub fn run(args: &DoctorArgs) -> ExitCode {
    let report = examine(args);
    let text = if args.json {
        serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
    } else {
        report.to_text()
    };
    match (print(&text), report.verdict.answer) {
        (written, Answer::Yes) => written,
        _ => ExitCode::FAILURE,
    }
}

fn examine(args: &DoctorArgs) -> Report {
    let (setup, mut findings) = installation(args);
    let name = args.command.first();
    // What a program would find of Weft says nothing when it finds none of it.
    let off = setup.as_ref().and_then(|setup| setup.config.off());
    if let Some(name) = name.filter(|_| off.is_none()) {
        match Program::open(name) {
            Ok(program) => findings.extend(binary::examine(program, setup.as_ref())),
            Err(error) => {
                let advice = error.advice();
                findings.push(Finding::bad("program", error.to_string()).advise(advice));
            }
        }
    }
    findings.extend(setup.as_ref().and_then(adapter));
    let settings = setup.as_ref().map(|setup| setup.config.settings());
    let settings = settings.unwrap_or_default();
    findings.extend(machine::examine(&settings));
    findings.extend(same_host::examine(&settings));
    let program = name.map(|name| name.to_string_lossy().into_owned());
    let verdict = verdict(&findings, program.as_deref(), setup.as_ref());
    Report {
        program,
        findings,
        verdict,
    }
}

/// The settings and the libraries, as `weft run` would take them.
fn installation(args: &DoctorArgs) -> (Option<Setup>, Vec<Finding>) {
    let setup = match Setup::new(&args.sources) {
        Ok(setup) => setup,
        Err(error) => {
            let mut finding = Finding::bad("weft", error.to_string());
            finding.advice = error.advice().map(str::to_owned);
            return (None, vec![finding]);
        }
    };
    let binding = &setup.binding;
    let first = match setup.config.off() {
        Some(off) => Finding::bad("weft", off).advise(
            "to have it on, leave --off away, unset WEFT_OFF, or take `off` out of the section [run]",
        ),
        None => Finding::good("weft", format!("{} mode: {}", binding.mode(), binding.why)),
    };
    let mut findings = vec![first];
    for warning in &setup.config.warnings {
        findings.push(Finding::note("weft.toml", warning.clone()));
    }
    (Some(setup), findings)
}

/// Whether the adapter can be had that is asked for.
fn adapter(setup: &Setup) -> Option<Finding> {
    let settings = setup.config.settings();
    if settings.adapter == Adapter::Off || settings.off {
        return None;
    }
    Some(match weft_adapter::setup::check(&settings) {
        Ok(()) => {
            let interfaces = setup.config.get("interface").unwrap_or_default();
            Finding::good("adapter", format!("inline: {interfaces}"))
        }
        Err(wrong) => Finding::bad("adapter", wrong.to_string()).advise(wrong.advice()),
    })
}

fn verdict(findings: &[Finding], program: Option<&str>, setup: Option<&Setup>) -> Verdict {
    let first = |level| findings.iter().find(|finding| finding.level == level);
    let subject = program.unwrap_or("this machine");
    let (answer, reason) = if let Some(bad) = first(Level::Bad) {
        (Answer::No, reason_of(subject, &bad.what))
    } else if let Some(unclear) = first(Level::Unclear) {
        let what = first_line(&unclear.what);
        (
            Answer::Perhaps,
            format!("it cannot be told from outside: {what}"),
        )
    } else {
        let mode = setup.map_or("", |setup| setup.binding.mode());
        let reason = match program {
            Some(program) => format!("weft run -- {program} will be served, in {mode} mode"),
            None => format!("weft run is ready, in {mode} mode"),
        };
        (Answer::Yes, reason)
    };
    Verdict { answer, reason }
}

fn reason_of(subject: &str, what: &str) -> String {
    let what = first_line(what);
    if what.starts_with(subject) {
        what.to_owned()
    } else {
        format!("{subject} will not be served: {what}")
    }
}

fn first_line(text: &str) -> &str {
    text.lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches(':')
}

impl Report {
    fn to_text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let mark = match finding.level {
                Level::Good => styled(GOOD, "ok  "),
                Level::Note => styled(NOTE, "note"),
                Level::Unclear => styled(NOTE, "?   "),
                Level::Bad => styled(BAD, "FAIL"),
            };
            let _ = writeln!(text, "{mark} {:<12} {}", finding.subject, finding.what);
            if let Some(advice) = &finding.advice {
                let _ = writeln!(text, "     {:<12} -> {advice}", "");
            }
        }
        let answer = match self.verdict.answer {
            Answer::Yes => styled(GOOD, "yes"),
            Answer::Perhaps => styled(NOTE, "perhaps"),
            Answer::No => styled(BAD, "no"),
        };
        let verdict = styled(STRONG, "verdict");
        let _ = writeln!(text, "{verdict}: {answer}: {}", self.verdict.reason);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(findings: &[Finding]) -> Verdict {
        verdict(findings, Some("prog"), None)
    }

    #[test]
    fn the_worst_finding_decides() {
        let good = Finding::good("a", "fine");
        let note = Finding::note("b", "by the way");
        let unclear = Finding::unclear("c", "who knows");
        let bad = Finding::bad("d", "broken:\n    in detail");
        assert_eq!(of(&[good.clone(), note.clone()]).answer, Answer::Yes);
        assert_eq!(of(&[good.clone(), unclear.clone()]).answer, Answer::Perhaps);
        let worst = of(&[good, note, unclear, bad]);
        assert_eq!(worst.answer, Answer::No);
        assert_eq!(worst.reason, "prog will not be served: broken");
    }

    #[test]
    fn advice_stands_under_its_finding() {
        let report = Report {
            program: None,
            findings: vec![Finding::note("open files", "few").advise("raise it")],
            verdict: of(&[]),
        };
        let text = anstream::adapter::strip_str(&report.to_text()).to_string();
        assert!(
            text.starts_with(
                "note open files   few\n                  -> raise it\nverdict: yes: "
            ),
            "{text}"
        );
    }
}
