//! What the command says, and where.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use weft_os::stdout::{print_to, Reader};

/// Good news.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What a person has to act on.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Worth knowing.
pub const NOTE: Style = AnsiColor::Yellow.on_default();
/// Headings.
pub const STRONG: Style = Style::new().bold();

/// `text` in `style`; [`print()`] takes the style away where there is no terminal.
pub fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Says on standard error what went wrong, and what to do about it on a line of its own.
pub fn complain(what: &(impl Display + ?Sized), advice: Option<&str>) {
    let mut text = format!("{}: {what}\n", styled(BAD, "weft"));
    if let Some(advice) = advice {
        text += &format!("      {advice}\n");
    }
    // There is nobody left to tell when standard error is closed.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Prints `text` on standard output, in colour on a terminal.
///
/// A reader that has gone away (`| head`) is no error.
pub fn print(text: &str) -> ExitCode {
    match write(text) {
        Ok(Reader::Listens | Reader::Gone) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("cannot write: {error}"), None);
            ExitCode::FAILURE
        }
    }
}

/// [`print()`] for those who go on writing while somebody reads.
///
/// # Errors
/// Why it cannot be written.
pub fn write(text: &str) -> io::Result<Reader> {
    print_to(&mut anstream::stdout().lock(), text)
}
