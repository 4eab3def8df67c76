//! Looks as tables.

use crate::output::{styled, BAD, STRONG};

use super::rates::{CarriedBy, Control, Each, Interface, Look, Path, Refused, Row, ServedBy};

/// The processes, and each one's connections if `connections`.
pub fn render(look: &Look, connections: bool) -> String {
    let mut text = table(&PROCESS_HEAD, look.processes.iter().map(process_cells));
    if connections {
        for row in look.processes.iter().filter(|row| !row.each.is_empty()) {
            text.push('\n');
            text += &table(&CONNECTION_HEAD, row.each.iter().map(connection_cells));
            let paths: Vec<_> = row
                .each
                .iter()
                .filter_map(|each| Some(path_cells(each, each.path.as_ref()?)))
                .collect();
            if !paths.is_empty() {
                text.push('\n');
                text += &table(&PATH_HEAD, paths.into_iter());
            }
        }
        for row in look
            .processes
            .iter()
            .filter(|row| !row.interfaces.is_empty())
        {
            text.push('\n');
            text += &table(&INTERFACE_HEAD, row.interfaces.iter().map(interface_cells));
        }
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
    text
}

/// A column's name; text to the left, numbers to the right.
enum Column {
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

const PATH_HEAD: [Column; 9] = [
    Number("QP"),
    Text("CONTROL"),
    Number("RATE"),
    Number("RTT us"),
    Number("SENT AGAIN"),
    Number("HOLES"),
    Number("PLACED AHEAD"),
    Number("COPIED"),
    Number("BUFFERED"),
];

fn path_cells(each: &Each, path: &Path) -> Vec<String> {
    vec![
        each.queue_pair.to_string(),
        match path.control {
            Control::Cubic => "cubic",
            Control::Reno => "reno",
            Control::Rate => "rate",
            Control::None => "none",
        }
        .to_owned(),
        short(path.rate as f64),
        format!("{:.1}", path.rtt_ns as f64 / 1e3),
        short(path.retransmissions as f64),
        path.holes.to_string(),
        short(each.placed_ahead as f64),
        short(each.copied as f64),
        short(each.buffered as f64),
    ]
}

const INTERFACE_HEAD: [Column; 5] = [
    Text("INTERFACE"),
    Number("FRAMES IN"),
    Number("OUT"),
    Number("LOST"),
    Number("DROPPED"),
];

fn interface_cells(interface: &Interface) -> Vec<String> {
    vec![
        interface.name.clone(),
        short(interface.frames_in as f64),
        short(interface.frames_out as f64),
        short(interface.frames_lost as f64),
        short(interface.frames_dropped as f64),
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

fn errors(count: u64) -> String {
    match count {
        0 => "0".to_owned(),
        count => styled(BAD, count),
    }
}

/// Three significant digits with an SI prefix: `999`, `1.23k`, `45.6M`.
fn short(value: f64) -> String {
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

fn table(head: &[Column], rows: impl Iterator<Item = Vec<String>>) -> String {
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
mod tests {
    use super::*;
    use crate::stat::rates::Rates;

    fn plain(text: &str) -> String {
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

    fn row() -> Row {
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
        };
        let text = plain(&render(&look, true));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[4].contains("127.0.0.1:7174"), "{text}");
        assert!(lines[4].ends_with("1442       1"), "{text}");
    }

    #[test]
    fn an_adapters_paths_and_interfaces_are_shown_with_its_connections() {
        let mut row = row();
        row.each[0].path = Some(Path {
            control: Control::Cubic,
            rate: 125_000_000,
            rtt_ns: 100_250_000,
            retransmissions: 7,
            holes: 2,
        });
        row.each[0].placed_ahead = 45_678;
        row.each[0].copied = 1448;
        row.interfaces.push(Interface {
            name: "eth0".to_owned(),
            frames_in: 10,
            frames_out: 11,
            frames_lost: 0,
            frames_dropped: 3,
        });
        let look = Look {
            processes: vec![row],
        };
        let text = plain(&render(&look, true));
        assert!(
            text.ends_with(
                "\nQP  CONTROL  RATE    RTT us  SENT AGAIN  HOLES  PLACED AHEAD  COPIED  BUFFERED\n\
                 17  cubic    125M  100250.0           7      2         45.7k   1.45k         0\n\
                 \n\
                 INTERFACE  FRAMES IN  OUT  LOST  DROPPED\n\
                 eth0              10   11     0        3\n"
            ),
            "{text}"
        );
        assert!(!plain(&render(&look, false)).contains("CONTROL"));
    }
}
