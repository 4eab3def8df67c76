//! Looks as tables.

use crate::output::{styled, BAD, STRONG};

use super::rates::{CarriedBy, Each, Look, Refused, Row, ServedBy};
use super::{adapter, datagrams, streams};

/// The processes, and each one's connections if `connections`.
pub fn render(look: &Look, connections: bool) -> String {
    let mut text = table(&PROCESS_HEAD, look.processes.iter().map(process_cells));
    if connections {
        for row in look.processes.iter().filter(|row| !row.each.is_empty()) {
            text.push('\n');
            text += &table(&CONNECTION_HEAD, row.each.iter().map(connection_cells));
            text += &adapter::paths(row);
        }
        look.processes
            .iter()
            .for_each(|row| text += &adapter::interfaces(row));
    }
    let refused: Vec<_> = look
        .processes
        .iter()
        .flat_map(|row| row.refused.iter().map(move |each| refused_cells(row, each)))
        .collect();
    if !refused.is_empty() {
        text.push('\n');
        text += &table(&REFUSED_HEAD, refused.into_iter());
    }
    let verbs = (!look.processes.is_empty()).then_some(text);
    let tcp = streams::tables(&look.tcp, connections);
    let udp = datagrams::tables(&look.udp, connections);
    let others = [tcp, udp].into_iter().filter(|text| !text.is_empty());
    verbs
        .into_iter()
        .chain(others)
        .collect::<Vec<_>>()
        .join("\n")
}

/// A column's name; text to the left, numbers to the right.
pub(super) enum Column {
    Text(&'static str),
    Number(&'static str),
}

use Column::{Number, Text};

const PROCESS_HEAD: [Column; 12] = [
    Number("PID"),
    Text("PROGRAM"),
    Number("CONN"),
    Number("QP"),
    Number("MR"),
    Number("IN"),
    Number("OUT"),
    Number("OPS"),
    Number("IN/s"),
    Number("OUT/s"),
    Number("OPS/s"),
    Number("ERRORS"),
];

fn process_cells(row: &Row) -> Vec<String> {
    let rate = |rate: fn(&super::rates::Rates) -> f64| match &row.rates {
        Some(rates) => short(rate(rates)),
        None => "-".to_owned(),
    };
    let by = match row.served_by {
        ServedBy::Polling => " (polling)",
        ServedBy::Thread => "",
    };
    vec![
        row.pid.to_string(),
        format!("{}{by}", row.program),
        row.connections.to_string(),
        row.queue_pairs.to_string(),
        row.memory_regions.to_string(),
        short(row.octets_in as f64),
        short(row.octets_out as f64),
        short((row.sends + row.recvs) as f64),
        rate(|rates| rates.octets_in),
        rate(|rates| rates.octets_out),
        rate(|rates| rates.operations),
        errors(row.errors),
    ]
}

const CONNECTION_HEAD: [Column; 13] = [
    Number("QP"),
    Text("LOCAL"),
    Text("PEER"),
    Number("IN"),
    Number("OUT"),
    Number("SENDS"),
    Number("RECVS"),
    Number("SEGS IN"),
    Number("SEGS OUT"),
    Text("CRC"),
    Text("VIA"),
    Number("MULPDU"),
    Number("ERRORS"),
];

fn connection_cells(each: &Each) -> Vec<String> {
    vec![
        each.queue_pair.to_string(),
        each.local.clone(),
        each.peer.clone(),
        short(each.octets_in as f64),
        short(each.octets_out as f64),
        short(each.sends as f64),
        short(each.recvs as f64),
        short(each.segments_in as f64),
        short(each.segments_out as f64),
        if each.crc { "on" } else { "off" }.to_owned(),
        match each.carrier {
            CarriedBy::Tcp => "tcp",
            CarriedBy::Rings => "rings",
            CarriedBy::Adapter => "adapter",
        }
        .to_owned(),
        each.mulpdu.to_string(),
        errors(each.errors),
    ]
}

const REFUSED_HEAD: [Column; 5] = [
    Number("PID"),
    Text("PROGRAM"),
    Text("WAS REACHED INTO BY"),
    Number("REFUSED"),
    Number("CONN SLOWED"),
];

fn refused_cells(row: &Row, refused: &Refused) -> Vec<String> {
    vec![
        row.pid.to_string(),
        row.program.clone(),
        refused.address.clone(),
        errors(refused.accesses),
        refused.slowed.to_string(),
    ]
}

pub(super) fn errors(count: u64) -> String {
    match count {
        0 => "0".to_owned(),
        count => styled(BAD, count),
    }
}

/// Three significant digits with an SI prefix: `999`, `1.23k`, `45.6M`.
pub(super) fn short(value: f64) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let mut value = value;
    let mut prefix = 0;
    while value >= 999.5 && prefix + 1 < PREFIXES.len() {
        value /= 1000.0;
        prefix += 1;
    }
    let digits = match value {
        _ if prefix == 0 => 0,
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", PREFIXES[prefix])
}

pub(super) fn table(head: &[Column], rows: impl Iterator<Item = Vec<String>>) -> String {
    let names: Vec<String> = head
        .iter()
        .map(|column| match column {
            Text(name) | Number(name) => styled(STRONG, name),
        })
        .collect();
    let lines: Vec<Vec<String>> = std::iter::once(names).chain(rows).collect();
    let widths: Vec<usize> = (0..head.len())
        .map(|at| lines.iter().map(|line| width(&line[at])).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = head
            .iter()
            .zip(line)
            .zip(&widths)
            .map(|((column, cell), width)| aligned(column, cell, *width))
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn aligned(column: &Column, cell: &str, to: usize) -> String {
    let gap = " ".repeat(to.saturating_sub(width(cell)));
    match column {
        Text(_) => format!("{cell}{gap}"),
        Number(_) => format!("{gap}{cell}"),
    }
}

/// Columns on the terminal: styles take none.
fn width(cell: &str) -> usize {
    anstream::adapter::strip_str(cell)
        .to_string()
        .chars()
        .count()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::stat::rates::Rates;

    pub(in crate::stat) fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (7.0, "7"),
            (999.0, "999"),
            (1000.0, "1.00k"),
            (1234.0, "1.23k"),
            (9996.0, "10.0k"),
            (45_678.0, "45.7k"),
            (99_960.0, "100k"),
            (999_499.0, "999k"),
            (999_600.0, "1.00M"),
            (1.5e9, "1.50G"),
            (u64::MAX as f64, "18447P"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    pub(in crate::stat) fn row() -> Row {
        Row {
            pid: 4711,
            program: "rping".to_owned(),
            connections: 1,
            connections_ever: 2,
            queue_pairs: 1,
            memory_regions: 3,
            octets_in: 1_500_000,
            octets_out: 12,
            sends: 3,
            recvs: 4,
            errors: 0,
            refused_accesses: 3,
            slowed: 2,
            half_open: 0,
            crowded_out: 0,
            wrong_qkeys: 0,
            wrong_bring_ups: 0,
            served_by: ServedBy::Polling,
            rates: Some(Rates {
                octets_in: 2000.0,
                octets_out: 0.0,
                operations: 7.0,
            }),
            each: vec![Each {
                queue_pair: 17,
                local: "127.0.0.1:7174".to_owned(),
                peer: "127.0.0.1:40000".to_owned(),
                octets_in: 1,
                octets_out: 2,
                sends: 3,
                recvs: 4,
                segments_in: 5,
                segments_out: 6,
                errors: 1,
                crc: true,
                mulpdu: 1442,
                refused_accesses: 1,
                carrier: CarriedBy::Rings,
                placed_ahead: 0,
                copied: 0,
                buffered: 0,
                path: None,
            }],
            refused: Vec::new(),
            interfaces: Vec::new(),
        }
    }

    #[test]
    fn columns_line_up() {
        let look = Look {
            processes: vec![row()],
            udp: Vec::new(),
            tcp: Vec::new(),
        };
        assert_eq!(
            plain(&render(&look, false)),
            " PID  PROGRAM          CONN  QP  MR     IN  OUT  OPS   IN/s  OUT/s  OPS/s  ERRORS\n\
             4711  rping (polling)     1   1   3  1.50M   12    7  2.00k      0      7       0\n"
        );
    }

    #[test]
    fn who_reached_for_memory_is_named() {
        let mut row = row();
        row.refused.push(Refused {
            address: "10.0.0.7".to_owned(),
            accesses: 3,
            slowed: 2,
        });
        let look = Look {
            processes: vec![row],
            udp: Vec::new(),
            tcp: Vec::new(),
        };
        let text = plain(&render(&look, false));
        assert!(
            text.ends_with(
                "\n PID  PROGRAM  WAS REACHED INTO BY  REFUSED  CONN SLOWED\n\
                 4711  rping    10.0.0.7                   3            2\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn connections_are_shown_when_asked_for() {
        let look = Look {
            processes: vec![row()],
            udp: Vec::new(),
            tcp: Vec::new(),
        };
        let text = plain(&render(&look, true));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[4].contains("127.0.0.1:7174"), "{text}");
        assert!(lines[4].ends_with("1442       1"), "{text}");
    }
}
