//! Text on standard output, whose reader may go away before a program is through (`| head`).
//!
//! The standard library ignores SIGPIPE, so that a write to a pipe without a reader is an error, and its `print!`
//! panics for it. To give the signal back its default action, as `cat` has it, would end the program also when a
//! peer closes a socket that it writes to. Here the error is told apart from others, and only where it was the
//! program's own words that nobody took.

use std::io::{self, ErrorKind, Write};

/// Whether anybody takes what a program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The text was taken, or will be.
    Listens,
    /// Nobody will take this or any further text: a program that does nothing else has nothing left to do.
    Gone,
}

/// Prints `text` on standard output.
///
/// # Errors
/// Why it cannot be written, such as a full disk. A reader that has gone away is none.
pub fn print(text: &str) -> io::Result<Reader> {
    print_to(&mut io::stdout().lock(), text)
}

/// Writes `text` to `out`, a standard output in some wrapping, and flushes it.
///
/// # Errors
/// As [`print`].
pub fn print_to(out: &mut dyn Write, text: &str) -> io::Result<Reader> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails every write in one way.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_is_gone_is_told_from_a_text_that_cannot_be_written() {
        let mut taken = Vec::new();
        assert_eq!(print_to(&mut taken, "a\n").unwrap(), Reader::Listens);
        assert_eq!(taken, b"a\n");
        let gone = print_to(&mut Failing(ErrorKind::BrokenPipe), "a");
        assert_eq!(gone.unwrap(), Reader::Gone);
        let full = print_to(&mut Failing(ErrorKind::StorageFull), "a");
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
