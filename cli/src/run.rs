//! `weft run`: set the environment and become the program.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use weft_engine::settings::LogLevel;

use crate::args::RunArgs;
use crate::config::{source_of, Config};
use crate::output::{complain, print};
use crate::program::Program;
use crate::setup::{Setup, Variable};

/// Exit statuses of a launcher, as `env`, `nohup` and `timeout` give them.
mod status {
    /// The launcher itself failed.
    pub const LAUNCHER: u8 = 125;
    /// The program is there and cannot be run.
    pub const CANNOT_RUN: u8 = 126;
    /// The program is not there.
    pub const NOT_FOUND: u8 = 127;
}

pub use status::LAUNCHER as LAUNCHER_FAILED;

/// Runs the command; returns only when the program was not started.
pub fn run(args: &RunArgs) -> ExitCode {
    let mut setup = match Setup::new(&args.sources) {
        Ok(setup) => setup,
        Err(error) => {
            complain(&error, error.advice());
            return ExitCode::from(status::LAUNCHER);
        }
    };
    for warning in &setup.config.warnings {
        complain(warning, None);
    }
    let program = match args.command.first().map(|name| Program::open(name)) {
        Some(Ok(program)) => Some(program),
        Some(Err(error)) => {
            complain(&error, Some(&error.advice()));
            return ExitCode::from(match error.is_not_found() {
                true => status::NOT_FOUND,
                false => status::CANNOT_RUN,
            });
        }
        None => None,
    };
    if let Some(program) = &program {
        setup.hook_rsockets_of(program);
    }
    if args.show {
        return print(&show(args, &setup, program.as_ref()));
    }
    match program {
        Some(program) => start(args, &setup, &program),
        // The command line asks for a program unless it only shows.
        None => ExitCode::from(status::LAUNCHER),
    }
}

fn start(args: &RunArgs, setup: &Setup, program: &Program) -> ExitCode {
    // As if Weft were not there, it has no say in what can be served.
    if let Some(off) = setup.config.off() {
        if setup.config.settings().log >= LogLevel::Info {
            complain(
                &format!("{} runs without Weft: {off}", program.path.display()),
                None,
            );
        }
    } else if !args.anyway && (refuse(program) || refuse_adapter(setup)) {
        return ExitCode::from(status::LAUNCHER);
    }
    let error = exec(args, setup, program);
    complain(
        &format!("{} cannot be started: {error}", program.path.display()),
        None,
    );
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => status::NOT_FOUND,
        _ => status::CANNOT_RUN,
    })
}

/// Says why the program would run without Weft, if it would.
fn refuse(program: &Program) -> bool {
    let obstacles = program.obstacles();
    for obstacle in &obstacles {
        complain(
            &format!(
                "{} cannot be served: {obstacle}",
                program.object.path.display()
            ),
            Some(obstacle.advice()),
        );
    }
    if !obstacles.is_empty() {
        complain(
            "it was not started; --anyway starts it, for the programs that it starts itself",
            None,
        );
    }
    !obstacles.is_empty()
}

/// Says why the program would find no device, if the adapter cannot be had.
fn refuse_adapter(setup: &Setup) -> bool {
    let Err(wrong) = weft_adapter::setup::check(&setup.config.settings()) else {
        return false;
    };
    complain(&wrong, Some(&wrong.advice()));
    complain(
        "the program was not started; --anyway starts it, for one that makes the interface itself",
        None,
    );
    true
}

/// Becomes the program. No process of ours stays between it and its parent, so signals, job
/// control and the exit status need no passing on.
fn exec(args: &RunArgs, setup: &Setup, program: &Program) -> io::Error {
    let (name, arguments) = match args.command.split_first() {
        Some((name, arguments)) => (name.as_os_str(), arguments),
        None => (program.path.as_os_str(), &[][..]),
    };
    let mut command = Command::new(&program.path);
    command.arg0(name).args(arguments);
    for variable in setup.variables() {
        command.env(variable.name, variable.value);
    }
    command.exec()
}

fn show(args: &RunArgs, setup: &Setup, program: Option<&Program>) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    if let Some(program) = program {
        row("program", &program.path.display().to_string());
        for script in &program.scripts {
            row(
                "script",
                &format!("run by {}", script.interpreter.display()),
            );
        }
        let obstacles = match setup.config.off() {
            Some(_) => Vec::new(),
            None => program.obstacles(),
        };
        for obstacle in obstacles {
            row("obstacle", &obstacle.to_string());
        }
    }
    row("mode", setup.binding.mode());
    row("", &format!("because: {}", setup.binding.why));
    row("settings", &file_of(&setup.config));
    for value in &setup.config.values {
        if value.text.is_empty() {
            continue;
        }
        let assignment = format!("{} = {}", value.setting.key, value.text);
        row(
            "",
            &format!("  {assignment:<32} {}", source_of(value.source)),
        );
    }
    text.push_str("\nThe same by hand:\n");
    text.push_str(&shell_command(args, &setup.variables()));
    text
}

fn file_of(config: &Config) -> String {
    match &config.file {
        Some(file) => format!("from {}, and:", file.display()),
        None => "(no weft.toml)".to_owned(),
    }
}

/// A command line for a shell that does what `weft run` does.
fn shell_command(args: &RunArgs, variables: &[Variable]) -> String {
    let mut line = String::from("env");
    for variable in variables {
        line += &format!(" {}={}", variable.name, quoted(&variable.value));
    }
    for word in &args.command {
        line += &format!(" {}", quoted(word));
    }
    line + "\n"
}

fn quoted(word: &OsStr) -> String {
    const PLAIN: &str = "-_./:=,+@%";
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || PLAIN.contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("-a=/x:1".as_ref()), "-a=/x:1");
        assert_eq!(quoted("".as_ref()), "''");
        assert_eq!(quoted("it's $x".as_ref()), r"'it'\''s $x'");
    }
}
