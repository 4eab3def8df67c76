//! `weft stat`: what goes over Weft, read from the memory that served processes keep for it.

mod processes;
mod rates;
mod table;

use std::io::IsTerminal;
use std::process::ExitCode;

use crate::args::StatArgs;
use crate::output::{complain, print, write};
use processes::Seen;
use rates::{Look, Meter};

/// Runs the command until it has printed once, its process is gone, or nobody reads on.
pub fn run(args: &StatArgs) -> ExitCode {
    let mut meter = Meter::default();
    let mut screen = Screen::new(args);
    loop {
        let seen = processes::find(args.pid);
        let look = meter.look(&seen.processes);
        if let Some(ended) = gone(args, &screen, &look) {
            return ended;
        }
        if args.once {
            return print(&render(args, &look, &seen));
        }
        if screen.show(&render(args, &look, &seen)).is_err() {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(args.interval);
    }
}

/// The end, when the one process that was asked for is not there.
fn gone(args: &StatArgs, screen: &Screen, look: &Look) -> Option<ExitCode> {
    let pid = args.pid.filter(|_| look.processes.is_empty())?;
    if screen.shown {
        complain(&format!("process {pid} has ended"), None);
        return Some(ExitCode::SUCCESS);
    }
    complain(
        &format!("process {pid} is not served by Weft"),
        Some(
            "it was not started by weft run, has opened no device yet, has WEFT_STAT=off, or \
             belongs to another user",
        ),
    );
    Some(ExitCode::FAILURE)
}

fn render(args: &StatArgs, look: &Look, seen: &Seen) -> String {
    if args.json {
        // One line a look, so that a reader can take them one by one.
        return serde_json::to_string(look).unwrap_or_default() + "\n";
    }
    if look.processes.is_empty() {
        return nobody(seen);
    }
    table::render(look, args.pid.is_some())
}

fn nobody(seen: &Seen) -> String {
    let mut text = "No process is served by Weft right now.\n".to_owned();
    if seen.barred > 0 {
        text += &format!(
            "{} processes of other users could not be looked into; root can.\n",
            seen.barred
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
            over: std::io::stdout().is_terminal() && !args.json && !args.once,
            shown: false,
        }
    }

    fn show(&mut self, text: &str) -> std::io::Result<()> {
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
