//! What the adapter tells of connections and interfaces, as tables.

use super::rates::{Control, Each, Interface, Path, Row};
use super::table::Column::{self, Number, Text};
use super::table::{short, table};

/// The paths of a process's connections that go over the adapter, behind an empty line; nothing where there are none.
pub fn paths(row: &Row) -> String {
    let each = row.each.iter();
    let paths: Vec<_> = each
        .filter_map(|each| Some(path_cells(each, each.path.as_ref()?)))
        .collect();
    match paths.is_empty() {
        true => String::new(),
        false => format!("\n{}", table(&PATH_HEAD, paths.into_iter())),
    }
}

/// The interfaces of a process's adapter, in the same way.
pub fn interfaces(row: &Row) -> String {
    match row.interfaces.is_empty() {
        true => String::new(),
        false => format!(
            "\n{}",
            table(&INTERFACE_HEAD, row.interfaces.iter().map(interface_cells))
        ),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::rates::Look;
    use crate::stat::table::render;
    use crate::stat::table::tests::{plain, row};

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
            udp: Vec::new(),
            tcp: Vec::new(),
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
