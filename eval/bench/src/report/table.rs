//! Tables in columns: as Markdown, or for a terminal no wider than it is.

use super::Format;

/// A table as its parts; [`Table::draw`] makes the text.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// What a column is called, and how it is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    place: Place,
    /// When the terminal is too narrow the columns with the highest number are left out first; 0 stays.
    spared: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Left,
    Right,
    /// A column of its own in a document; on a terminal a line above the rows that share it.
    Title,
}

impl Column {
    /// A column of words.
    pub(super) const fn words(name: &'static str) -> Column {
        Column {
            name,
            place: Place::Left,
            spared: 0,
        }
    }

    /// A column of numbers.
    pub(super) const fn number(name: &'static str) -> Column {
        Column {
            place: Place::Right,
            ..Column::words(name)
        }
    }

    /// A column of long words that stand above their rows on a terminal.
    pub(super) const fn title(name: &'static str) -> Column {
        Column {
            place: Place::Title,
            ..Column::words(name)
        }
    }

    /// The same column, left out of a narrow table before those of a lower number.
    pub(super) const fn spared(self, spared: u8) -> Column {
        Column { spared, ..self }
    }
}

impl Table {
    pub(super) fn new(columns: &[Column]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// One cell for each column. A title that is the same as in the row above is drawn once on a terminal.
    pub(super) fn add(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    pub(super) fn draw(&self, format: Format) -> String {
        match format {
            Format::Markdown => self.markdown(),
            Format::Table { width } => self.terminal(width),
        }
    }

    fn markdown(&self) -> String {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> = all
            .iter()
            .map(|&at| "-".repeat(self.width_of(at) + 2))
            .collect();
        let mut text = line(self.aligned(&self.names(), &all));
        text += &format!("|{}|\n", rule.join("|"));
        for row in &self.rows {
            text += &line(self.aligned(row, &all));
        }
        text
    }

    fn terminal(&self, width: Option<usize>) -> String {
        const INDENT: &str = "  ";
        let shown = self.fitting(width.map(|width| width.saturating_sub(INDENT.len())));
        let line = |row: &[String]| {
            let cells = self.aligned(row, &shown).join(GAP);
            format!("{}\n", format!("{INDENT}{cells}").trim_end())
        };
        let title_at = self.columns.iter().position(|c| c.place == Place::Title);
        let mut text = line(&self.names());
        let mut above = "";
        for row in &self.rows {
            let title = title_at.map_or("", |at| row[at].as_str());
            if title != above {
                text += &format!("\n{}\n", wrapped(title, "", width));
                above = title;
            }
            text += &line(row);
        }
        text
    }

    /// The columns that stand beside each other on a terminal: as many as there is room for.
    fn fitting(&self, room: Option<usize>) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len())
            .filter(|&at| self.columns[at].place != Place::Title)
            .collect();
        let total = |shown: &[usize]| {
            let gaps = GAP.len() * shown.len().saturating_sub(1);
            shown.iter().map(|&at| self.width_of(at)).sum::<usize>() + gaps
        };
        while room.is_some_and(|room| total(&shown) > room) {
            let least = shown
                .iter()
                .copied()
                .max_by_key(|&at| self.columns[at].spared);
            let Some(least) = least.filter(|&at| self.columns[at].spared > 0) else {
                break;
            };
            shown.retain(|&at| at != least);
        }
        shown
    }

    fn names(&self) -> Vec<String> {
        self.columns.iter().map(|c| c.name.to_owned()).collect()
    }

    fn width_of(&self, at: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[at].chars().count());
        let name = self.columns[at].name.chars().count();
        cells.max().unwrap_or(0).max(name)
    }

    fn aligned(&self, row: &[String], shown: &[usize]) -> Vec<String> {
        shown
            .iter()
            .map(|&at| {
                let gap = " ".repeat(self.width_of(at) - row[at].chars().count());
                match self.columns[at].place {
                    Place::Right => format!("{gap}{}", row[at]),
                    Place::Left | Place::Title => format!("{}{gap}", row[at]),
                }
            })
            .collect()
    }
}

/// Between two columns on a terminal.
const GAP: &str = "  ";

/// `text` in lines of at most `width` columns, broken between words; the second and further ones begin with `indent`.
/// A word that is longer than a line stays whole.
pub(super) fn wrapped(text: &str, indent: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let mut lines = vec![String::new()];
    // By single spaces, so that the space a line begins with is kept.
    for (n, word) in text.split(' ').enumerate() {
        let line = lines.last_mut().expect("there is always a line");
        let gap = usize::from(n > 0);
        if line.trim().is_empty() || line.chars().count() + gap + word.chars().count() <= width {
            line.push_str(&" ".repeat(gap));
            line.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            Column::title("workload"),
            Column::words("stack"),
            Column::number("median"),
            Column::number("p99").spared(1),
            Column::number("min to max").spared(2),
        ]);
        for (title, stack, median) in [
            ("one", "raw-tcp", "10.0"),
            ("one", "weft", "9.00"),
            ("two", "raw-tcp", "1 000"),
        ] {
            table.add(
                [title, stack, median, "7", "1 to 2"]
                    .map(str::to_owned)
                    .to_vec(),
            );
        }
        table
    }

    #[test]
    fn a_document_has_every_column() {
        assert_eq!(
            table().draw(Format::Markdown),
            "| workload | stack   | median | p99 | min to max |\n\
             |----------|---------|--------|-----|------------|\n\
             | one      | raw-tcp |   10.0 |   7 |     1 to 2 |\n\
             | one      | weft    |   9.00 |   7 |     1 to 2 |\n\
             | two      | raw-tcp |  1 000 |   7 |     1 to 2 |\n"
        );
    }

    #[test]
    fn a_terminal_has_the_columns_it_has_room_for() {
        let whole = table().draw(Format::Table { width: Some(36) });
        assert_eq!(
            whole,
            "  stack    median  p99  min to max\n\
             \n\
             one\n  raw-tcp    10.0    7      1 to 2\n  weft       9.00    7      1 to 2\n\
             \n\
             two\n  raw-tcp   1 000    7      1 to 2\n"
        );
        assert_eq!(whole, table().draw(Format::Table { width: None }));
        let widest = |width| {
            let text = table().draw(Format::Table { width: Some(width) });
            text.lines().map(|line| line.chars().count()).max()
        };
        // What is left at last is drawn even where it does not fit.
        assert_eq!(
            [33, 22, 21, 16, 5].map(widest),
            [22, 22, 17, 17, 17].map(Some)
        );
    }

    #[test]
    fn long_lines_break_between_words() {
        assert_eq!(wrapped("  a bb ccc", "    ", Some(6)), "  a bb\n    ccc");
        assert_eq!(wrapped("abcdefgh ij", "", Some(4)), "abcdefgh\nij");
        assert_eq!(wrapped("a b", "", None), "a b");
    }
}
