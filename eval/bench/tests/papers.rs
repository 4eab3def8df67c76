//! `docs/papers.md` has everything that the works of 2005 measured, and names only rows that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use weft_bench::path::PathKind;
use weft_bench::plan::workloads;

const ROW_FAMILIES: [&str; 23] = [
    "ablation/",
    "cluster/",
    "send-",
    "write-",
    "read-",
    "connect",
    "udp-",
    "socket-",
    "streams-",
    "hot-spot-",
    "gather-",
    "fan-",
    "adapter/",
    "redis-",
    "fetch-",
    "ud-",
    "sockets-idle",
    "pick-",
    "ganglia-",
    "report-",
    "mpi-",
    "app-",
    "two-links/",
];

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    fs::read_to_string(path).unwrap()
}

/// Rows of the tables whose columns are these, as their cells.
fn rows<'a>(text: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let cells = |line: &'a str| -> Vec<&'a str> {
        line.trim_matches('|').split(" | ").map(str::trim).collect()
    };
    let mut lines = text.lines();
    let mut rows = Vec::new();
    while let Some(line) = lines.next() {
        if line == head {
            let table = lines.by_ref().take_while(|line| line.starts_with('|'));
            rows.extend(table.skip(1).map(cells));
        }
    }
    rows
}

fn all(text: &str) -> Vec<Vec<&str>> {
    let measured = rows(text, "| name | what | theirs | here | ours |");
    let planned = rows(text, "| name | what | here |");
    measured.into_iter().chain(planned).collect()
}

/// Words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn each_name_has_an_answer_or_a_reason() {
    let (text, names) = (document("papers.md"), document("papers.txt"));
    let wanted: BTreeSet<&str> = names.lines().collect();
    let all = all(&text);
    let named: Vec<&str> = all.iter().map(|row| row[0]).collect();
    let once: BTreeSet<&str> = named.iter().copied().collect();
    assert_eq!(named.len(), once.len(), "a name stands there twice");
    assert_eq!(once, wanted);
    assert!(wanted.len() > 100);
    for row in &all {
        let here = row[if row.len() == 3 { 2 } else { 3 }];
        assert!(here.len() > 3, "{} has neither a row nor a reason", row[0]);
    }
    for row in rows(&text, "| name | claim | theirs | Weft | ratio | again |") {
        assert!(
            wanted.contains(row[0]),
            "{} is a headline of nothing",
            row[0]
        );
        assert_eq!(row.len(), 6, "{row:?}");
    }
}

#[test]
fn the_rows_that_it_names_are_there() {
    let there: BTreeSet<String> = [
        PathKind::Loopback,
        PathKind::Veth,
        PathKind::Adapter,
        PathKind::Cluster,
        PathKind::TwoLinks,
        PathKind::Ablation,
    ]
    .into_iter()
    .flat_map(|path| {
        let workloads = workloads(path, true, &Default::default());
        workloads.into_iter().map(move |workload| match path {
            PathKind::Adapter | PathKind::Cluster | PathKind::TwoLinks | PathKind::Ablation => {
                format!("{}/{}", path.name(), workload.id())
            }
            _ => workload.id(),
        })
    })
    .collect();
    let text = document("papers.md");
    let mut named = 0;
    for row in all(&text) {
        for word in row.iter().flat_map(|cell| quoted(cell)) {
            if ROW_FAMILIES.iter().any(|family| word.starts_with(family)) {
                assert!(there.contains(word), "{}: there is no row {word}", row[0]);
                named += 1;
            }
        }
    }
    assert!(named > 40, "{named}");
    // What a command takes is a part of a name.
    for row in rows(&text, "| name | claim | theirs | Weft | ratio | again |") {
        let only = row[5]
            .split("--only ")
            .nth(1)
            .unwrap_or_else(|| panic!("{}: no row", row[0]));
        let part = only.trim_end_matches('`').split(' ').next().unwrap();
        assert!(
            there.iter().any(|id| id.contains(part)),
            "{}: {part}",
            row[0]
        );
    }
}
