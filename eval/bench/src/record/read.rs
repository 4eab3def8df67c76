//! Reading a record that anybody may have written: an older version of this program, a runner in another language, a
//! disk that filled, somebody who means harm.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{CellRecord, CommandRecord, Outcome, RowRecord, Run, OLDEST_VERSION, SCHEMA, VERSION};

/// Octets of a record at most: the longest so far has a hundredth of them.
const LONGEST_OCTETS: u64 = 256 << 20;

/// The record in a file.
pub(super) fn run(path: &Path) -> Result<Run> {
    let name = path.display();
    let text = text(path).with_context(|| format!("cannot read {name}"))?;
    let mut value = json(&text).with_context(|| name.to_string())?;
    version(&value).with_context(|| name.to_string())?;
    make_plain(&mut value);
    let mut run: Run = serde_path_to_error::deserialize(value)
        .with_context(|| format!("{name} does not follow the schema"))?;
    run.version = VERSION;
    run.rows
        .iter_mut()
        .flat_map(|row| &mut row.cells)
        .for_each(name_roles);
    check(&run).with_context(|| format!("{name} cannot be a measurement"))?;
    Ok(run)
}

fn text(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let octets = file.metadata()?.len();
    ensure!(
        octets <= LONGEST_OCTETS,
        "it has {octets} octets, and records have {LONGEST_OCTETS} at most"
    );
    let mut text = String::new();
    // Also of a file that grows, or that has no length of its own.
    file.by_ref()
        .take(LONGEST_OCTETS)
        .read_to_string(&mut text)?;
    Ok(text)
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| match error.is_eof() {
        true if text.trim().is_empty() => anyhow::anyhow!("the file is empty"),
        true => anyhow::anyhow!("it ends in the middle ({error}): the file was cut short"),
        false => anyhow::anyhow!("it is not JSON: {error}"),
    })
}

fn version(value: &Value) -> Result<()> {
    ensure!(
        value["schema"] == SCHEMA,
        "it is not a {SCHEMA} record: \"schema\" is {}",
        value["schema"]
    );
    match value["version"].as_u64() {
        Some(v) if (u64::from(OLDEST_VERSION)..=u64::from(VERSION)).contains(&v) => Ok(()),
        Some(v) if v > u64::from(VERSION) => {
            bail!("it is a record of version {v}: a newer weft wrote it, and this one reads up to version {VERSION}")
        }
        _ => bail!(
            "it is not a {SCHEMA} record of version {OLDEST_VERSION} to {VERSION}: \"version\" is {}",
            value["version"]
        ),
    }
}

/// Takes out of every text what would not be shown but do something: a terminal obeys control characters, and marks
/// of direction let a line read as another one.
fn make_plain(value: &mut Value) {
    match value {
        Value::String(text) => plain(text),
        Value::Array(items) => items.iter_mut().for_each(make_plain),
        Value::Object(members) => {
            let taken = std::mem::take(members);
            members.extend(taken.into_iter().map(|(mut name, mut value)| {
                plain(&mut name);
                make_plain(&mut value);
                (name, value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn plain(text: &mut String) {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(acts) {
        *text = text
            .chars()
            .map(|c| match c {
                '\t' => ' ',
                c if acts(c) => char::REPLACEMENT_CHARACTER,
                c => c,
            })
            .collect();
    }
}

/// A command as version 2 has it, or as version 1 had it: its line alone.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum AnyCommand {
    Line(String),
    Whole {
        role: String,
        host: String,
        #[serde(default)]
        core: Option<usize>,
        command: String,
    },
}

impl From<AnyCommand> for CommandRecord {
    fn from(any: AnyCommand) -> CommandRecord {
        match any {
            AnyCommand::Line(command) => CommandRecord {
                role: String::new(),
                host: String::new(),
                core: None,
                command,
            },
            AnyCommand::Whole {
                role,
                host,
                core,
                command,
            } => CommandRecord {
                role,
                host,
                core,
                command,
            },
        }
    }
}

/// In version 1 there were two programs, the server's line first.
fn name_roles(cell: &mut CellRecord) {
    if let [server, client] = cell.commands.as_mut_slice() {
        if server.role.is_empty() && client.role.is_empty() {
            server.role = "server".to_owned();
            client.role = "client".to_owned();
        }
    }
}

/// Whether what follows the schema can be the record of a run. Reports rely on it.
fn check(run: &Run) -> Result<()> {
    let mut paths = HashSet::new();
    for path in &run.paths {
        ensure!(
            paths.insert(&path.name),
            "two paths are called {:?}",
            path.name
        );
    }
    let mut rows = HashSet::new();
    for row in &run.rows {
        ensure!(rows.insert(&row.id), "two rows are called {:?}", row.id);
        ensure!(
            paths.contains(&row.path),
            "row {:?} is on a path {:?}, which the record does not have",
            row.id,
            row.path
        );
        check_row(row).with_context(|| format!("row {:?}", row.id))?;
    }
    Ok(())
}

fn check_row(row: &RowRecord) -> Result<()> {
    let mut cells = HashSet::new();
    for cell in &row.cells {
        let name = cell.label();
        ensure!(cells.insert(name.clone()), "two cells are called {name:?}");
        let mut repetitions = HashSet::new();
        for sample in &cell.samples {
            ensure!(
                repetitions.insert(sample.repetition),
                "{name:?} has repetition {} twice",
                sample.repetition
            );
            check_sample(row, &sample.outcome)
                .with_context(|| format!("{name:?}, repetition {}", sample.repetition))?;
        }
    }
    Ok(())
}

/// The figure that a row is judged by is divided by others and drawn on scales that have no zero.
fn check_sample(row: &RowRecord, outcome: &Outcome) -> Result<()> {
    // The bounds are what no figure of a machine comes near, and what products and squares of it still fit.
    const BOUNDS: std::ops::RangeInclusive<f64> = 1e-30..=1e30;
    let Outcome::Metrics(metrics) = outcome else {
        return Ok(());
    };
    let key = row.metric.key;
    let judged = metrics
        .get(key)
        .with_context(|| format!("there is no {key}, which the row is judged by"))?;
    ensure!(BOUNDS.contains(judged), "{key} is {judged:e}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::run_of;
    use crate::summary::tests::{cell_of, row_of};
    use crate::verbs::Verbs;

    fn record() -> Value {
        let cells = vec![
            cell_of("raw-tcp", "connect_us", &[Some(10.0), Some(11.0)]),
            cell_of("weft crc=on", "connect_us", &[Some(40.0), None]),
        ];
        serde_json::to_value(run_of(vec![row_of("loopback", Verbs::Connect, cells)])).unwrap()
    }

    fn read(text: &str) -> Result<Run> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("record.json");
        std::fs::write(&file, text).unwrap();
        run(&file)
    }

    fn complaint(change: impl FnOnce(&mut Value)) -> String {
        let mut record = record();
        change(&mut record);
        format!("{:#}", read(&record.to_string()).unwrap_err())
    }

    #[test]
    fn what_was_written_is_read() {
        let run = read(&record().to_string()).unwrap();
        assert_eq!(serde_json::to_value(&run).unwrap(), record());
    }

    #[test]
    fn a_record_of_version_1_is_read_as_one_of_today() {
        let mut old = record();
        old["version"] = 1.into();
        for name in ["full", "targets", "paths"] {
            old["options"].as_object_mut().unwrap().remove(name);
        }
        for path in old["paths"].as_array_mut().unwrap() {
            path.as_object_mut()
                .unwrap()
                .retain(|name, _| name != "hosts" && name != "links");
        }
        old["rows"][0]["cells"][0]["commands"] = serde_json::json!(["serve 1", "ask 1"]);
        let run = read(&old.to_string()).unwrap();
        assert_eq!(run.version, VERSION);
        let commands = &run.rows[0].cells[0].commands;
        assert_eq!(
            (commands[0].role.as_str(), commands[0].command.as_str()),
            ("server", "serve 1")
        );
        assert_eq!(
            (commands[1].role.as_str(), commands[1].command.as_str()),
            ("client", "ask 1")
        );
    }

    #[test]
    fn every_cut_of_a_record_is_refused_in_words() {
        let whole = record().to_string();
        for end in (0..whole.len()).step_by(7) {
            let error = format!("{:#}", read(&whole[..end]).unwrap_err());
            assert!(
                error.contains("cut short")
                    || error.contains("is empty")
                    || error.contains("not JSON"),
                "{end}: {error}"
            );
        }
    }

    #[test]
    fn what_is_of_another_kind_or_time_is_told_so() {
        let text = |t: &str| format!("{:#}", read(t).unwrap_err());
        assert!(text("{}").contains("\"schema\" is null"));
        assert!(text("[1]").contains("not a weft-bench record"));
        assert!(text("\u{0}").contains("not JSON"));
        assert!(complaint(|r| r["version"] = 3.into()).contains("a newer weft wrote it"));
        assert!(complaint(|r| r["version"] = "2".into()).contains("\"version\" is \"2\""));
        assert!(format!("{:#}", run(Path::new("no-such-file")).unwrap_err())
            .contains("cannot read no-such-file"));
        assert!(run(Path::new("/")).is_err());
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place() {
        let sample = |r: &mut Value, value: Value| {
            r["rows"][0]["cells"][0]["samples"][1]["metrics"]["connect_us"] = value;
        };
        let wrong = complaint(|r| r["paths"][0]["mtu"] = "long".into());
        assert!(wrong.contains("paths[0].mtu"), "{wrong}");
        for value in [0.0, -1.0, 1e300] {
            let wrong = complaint(|r| sample(r, value.into()));
            assert!(
                wrong.contains("\"raw-tcp\", repetition 2: connect_us is"),
                "{wrong}"
            );
        }
        let wrong = complaint(|r| r["rows"][0]["metric"] = "furlongs".into());
        assert!(wrong.contains("furlongs"), "{wrong}");
        let wrong = complaint(|r| r["rows"][0]["metric"] = "call_ns".into());
        assert!(wrong.contains("there is no call_ns"), "{wrong}");
        let wrong = complaint(|r| r["rows"][0]["path"] = "nowhere".into());
        assert!(wrong.contains("\"nowhere\""), "{wrong}");
        let wrong = complaint(|r| r["rows"][0]["cells"][1]["stack"] = "raw-tcp".into());
        assert!(
            wrong.contains("two cells are called \"raw-tcp\""),
            "{wrong}"
        );
        let wrong = complaint(|r| r["rows"][0]["cells"][0]["samples"][1]["repetition"] = 1.into());
        assert!(wrong.contains("repetition 1 twice"), "{wrong}");
    }

    #[test]
    fn text_that_would_act_on_a_terminal_is_made_plain() {
        let mut hostile = record();
        hostile["environment"]["cpu"] = "a\u{1b}]0;title\u{7}\u{9b}2J\u{202e}b\tc".into();
        hostile["environment"]["tools"]["\u{1b}c"] = "v".into();
        let run = read(&hostile.to_string()).unwrap();
        assert_eq!(
            run.environment.cpu,
            "a\u{fffd}]0;title\u{fffd}\u{fffd}2J\u{fffd}b c"
        );
        assert!(run.environment.tools.contains_key("\u{fffd}c"));
    }
}
