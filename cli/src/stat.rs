//! `weft stat`: what goes over Weft, read from the memory that served processes keep for it.

mod adapter;
mod datagrams;
mod processes;
mod rates;
mod streams;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use weft_os::stdout::Reader;

use crate::args::StatArgs;
use crate::output::{complain, print, write};
use rates::{Look, Meter};

/// Time from one look to the next, where nothing else was asked for.
const USUAL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the command: prints once, or again and again until its process is gone or nobody reads on.
pub fn run(args: &StatArgs) -> ExitCode {
    let goes_on = goes_on(args, std::io::stdout().is_terminal());
    let interval = args.interval.unwrap_or(USUAL_INTERVAL);
    let mut meter = Meter::default();
    let mut screen = Screen::new(args);
    loop {
        let seen = processes::find(args.pid);
        let barred = seen.barred;
        let look = meter.look(seen);
        if let Some(ended) = gone(args, &screen, &look) {
            return ended;
        }
        if !goes_on {
            return print(&render(args, &look, barred));
        }
        match screen.show(&render(args, &look, barred)) {
            Ok(Reader::Listens) => {}
            Ok(Reader::Gone) => return ExitCode::SUCCESS,
            Err(error) => {
                complain(&format!("cannot write: {error}"), None);
                return ExitCode::FAILURE;
            }
        }
        std::thread::sleep(interval);
    }
}

/// Whether to look again and again. Without a terminal only who asks for it wants that: a script that calls `weft stat`
/// waits for its end.
fn goes_on(args: &StatArgs, terminal: bool) -> bool {
    let asked = args.watch || args.interval.is_some();
    asked || (terminal && !args.once && !args.json)
}

/// The end, when the one process that was asked for is not there.
fn gone(args: &StatArgs, screen: &Screen, look: &Look) -> Option<ExitCode> {
    let pid = args.pid.filter(|_| is_nobody(look))?;
    if screen.shown {
        complain(&format!("process {pid} has ended"), None);
        return Some(ExitCode::SUCCESS);
    }
    complain(
        &format!("process {pid} is not served by Weft"),
        Some(
            "it was not started by weft run; or it has opened no device, has no TCP socket that a rule of \
             --ddp is about, and sent or received no datagram that could take a connection yet; or it \
             has WEFT_STAT=off, or belongs to another user",
        ),
    );
    Some(ExitCode::FAILURE)
}

fn render(args: &StatArgs, look: &Look, barred: usize) -> String {
    if args.json {
        // One line a look, so that a reader can take them one by one.
        return serde_json::to_string(look).unwrap_or_default() + "\n";
    }
    if is_nobody(look) {
        return nobody(barred);
    }
    table::render(look, args.pid.is_some())
}

fn is_nobody(look: &Look) -> bool {
    look.processes.is_empty() && look.udp.is_empty() && look.tcp.is_empty()
}

fn nobody(barred: usize) -> String {
    let mut text = "No process is served by Weft right now.\n".to_owned();
    if barred > 0 {
        text += &format!(
            "{} processes of other users could not be looked into; root can.\n",
            barred
        );
    }
    text + "Start one: weft run -- PROGRAM\n"
}

/// Where the looks go: over each other on a terminal, one after the other elsewhere.
struct Screen {
    over: bool,
    shown: bool,
}

impl Screen {
    fn new(args: &StatArgs) -> Screen {
        Screen {
            over: std::io::stdout().is_terminal() && !args.json,
            shown: false,
        }
    }

    fn show(&mut self, text: &str) -> std::io::Result<Reader> {
        const HOME: &str = "\x1b[H";
        const CLEAR_LINE: &str = "\x1b[K";
        const CLEAR_REST: &str = "\x1b[J";
        let first = !std::mem::replace(&mut self.shown, true);
        if !self.over {
            return write(text);
        }
        let start = if first { "\x1b[2J" } else { "" };
        let lines = text.replace('\n', &format!("{CLEAR_LINE}\n"));
        write(&format!("{start}{HOME}{lines}{CLEAR_REST}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_repeated_on_a_terminal_or_when_asked_for() {
        let plain = StatArgs {
            once: false,
            watch: false,
            json: false,
            interval: None,
            pid: None,
        };
        let json = StatArgs {
            json: true,
            ..plain
        };
        let once = StatArgs {
            once: true,
            ..plain
        };
        let watch = StatArgs {
            watch: true,
            ..plain
        };
        let interval = StatArgs {
            interval: Some(USUAL_INTERVAL),
            json: true,
            ..plain
        };
        for (args, on_terminal, elsewhere) in [
            (plain, true, false),
            (json, false, false),
            (once, false, false),
            (watch, true, true),
            (interval, true, true),
        ] {
            assert_eq!(goes_on(&args, true), on_terminal, "{args:?}");
            assert_eq!(goes_on(&args, false), elsewhere, "{args:?}");
        }
    }
}
