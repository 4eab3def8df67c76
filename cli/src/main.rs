//! The weft command: run programs over Weft, say whether they will be served, show what goes on.

#![forbid(unsafe_code)]
// `print!` panics when its reader goes away: what is said goes through `output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod config;
mod docs;
mod doctor;
mod elf;
mod libraries;
mod link;
mod output;
mod program;
mod run;
#[cfg(test)]
mod scratch;
mod setting_flags;
mod setup;
mod stat;
mod usable;

use std::process::ExitCode;

use args::{Cli, Command, ConfigCommand};
use clap::Parser;

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return usage(&error),
    };
    match command {
        Command::Run(args) => run::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Config {
            what: ConfigCommand::Check { file },
        } => config::check::run(file.as_deref()),
        Command::Stat(args) => stat::run(&args),
        Command::Bench(args) => bench(*args),
        Command::Link(args) => link::run(&args),
        Command::Completions { shell } => docs::completions(shell),
        Command::Man { folder } => docs::man_pages(&folder),
        Command::Docs { page } => docs::page(page),
    }
}

fn bench(args: weft_bench::cli::Args) -> ExitCode {
    match weft_bench::cli::run(args) {
        Ok(status) => status,
        Err(error) => {
            // The whole chain of causes on one line.
            output::complain(&format!("{error:#}"), None);
            ExitCode::FAILURE
        }
    }
}

/// Help, version, or a mistake in the command line.
///
/// `weft run` keeps its own failures apart from the exit statuses of programs.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return output::print(&error.render().ansi().to_string());
    }
    // Where nobody listens there is nothing better to do.
    let _ = error.print();
    let running = std::env::args_os().nth(1).is_some_and(|word| word == "run");
    match running {
        true => ExitCode::from(run::LAUNCHER_FAILED),
        false => ExitCode::from(2),
    }
}
