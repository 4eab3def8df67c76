//! Finding a build of Weft and seeing that it runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{bail, ensure, Context, Result};
use jiff::Timestamp;

use crate::environment::revision_at;
use crate::record::{BuildRecord, BESIDE, THIS};
use crate::stack::Programs;

/// A build of Weft that runs.
#[derive(Clone, Debug)]
pub struct Build {
    /// Its command, by its full path.
    pub weft: PathBuf,
    /// What the record says of it.
    pub record: BuildRecord,
    /// Where it takes its libraries from, as `weft run --show` puts it.
    libraries: Vec<String>,
}

/// Where a folder may have the command: a build's folder, and an installation's prefix.
const COMMANDS: [&str; 2] = ["weft", "bin/weft"];

const WHAT_TO_DO: &str =
    "name target/release of a tree in which `make build` has run, the PREFIX of a `make install`, or the command `weft` \
     of either";

impl Build {
    /// The build that is judged: `command` is its command, `given` what the user said of it.
    pub fn this(command: &Path, given: Option<&Path>) -> Result<Build> {
        Build::find(command, THIS, given)
    }

    /// The build beside it, by what the user gave: a folder, a prefix or a command.
    pub fn beside(given: &Path) -> Result<Build> {
        Build::find(given, BESIDE, Some(given))
    }

    fn find(place: &Path, name: &str, given: Option<&Path>) -> Result<Build> {
        let weft = command_in(place)?;
        let version = first_line(&weft, &["--version"])?;
        ensure!(
            version.starts_with("weft "),
            "{} is not a build of Weft: `--version` says {version:?}; {WHAT_TO_DO}",
            weft.display()
        );
        let shown = answer(&weft, &["run", "--show", "--", "true"])?;
        let libraries = libraries_in(&String::from_utf8_lossy(&shown.stdout));
        ensure!(
            !libraries.is_empty(),
            "{}: `weft run --show` names no libraries; {WHAT_TO_DO}",
            weft.display()
        );
        // Only a program that is started shows whether they can be loaded.
        answer(&weft, &["run", "--", "true"])?;
        let record = BuildRecord {
            name: name.to_owned(),
            path: given.map(|path| path.display().to_string()),
            version: version.trim_start_matches("weft ").to_owned(),
            revision: weft.parent().and_then(revision_at),
            built: written(&weft),
        };
        Ok(Build {
            weft,
            record,
            libraries,
        })
    }

    /// The executables of this build, with `scratch` for what is compiled on the spot.
    pub fn programs(&self, scratch: &Path) -> Programs {
        Programs {
            bench: (self.weft.clone(), vec!["bench".into()]),
            weft: self.weft.clone(),
            scratch: scratch.to_owned(),
        }
    }

    /// Whether it is the same build as `other`. An error where the commands differ and the libraries do not: then
    /// something in the environment makes both load the same code, and a ratio would say nothing.
    pub fn is(&self, other: &Build) -> Result<bool> {
        let same = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if same(&self.weft) == same(&other.weft) {
            return Ok(true);
        }
        ensure!(
            self.libraries != other.libraries,
            "both builds would load the same libraries ({}): unset WEFT_LIBDIR, and take run.libdir out of weft.toml",
            self.libraries.join(" ")
        );
        Ok(false)
    }
}

fn command_in(place: &Path) -> Result<PathBuf> {
    let found = match std::fs::metadata(place) {
        Ok(found) => found,
        Err(error) => bail!("there is no {} ({error}); {WHAT_TO_DO}", place.display()),
    };
    let command = if found.is_dir() {
        let inside = COMMANDS.iter().map(|name| place.join(name));
        inside.into_iter().find(|path| path.is_file())
    } else {
        Some(place.to_owned())
    };
    let command = command.with_context(|| {
        format!(
            "{} is not a build of Weft: it has neither weft nor bin/weft; {WHAT_TO_DO}",
            place.display()
        )
    })?;
    // Programs run in folders of their own choosing.
    std::path::absolute(&command).with_context(|| format!("cannot resolve {}", command.display()))
}

fn first_line(weft: &Path, args: &[&str]) -> Result<String> {
    let output = answer(weft, args)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// What the command says when it ends well.
fn answer(weft: &Path, args: &[&str]) -> Result<Output> {
    let output = Command::new(weft).args(args).output().map_err(|error| {
        anyhow::anyhow!("{} does not run ({error}); {WHAT_TO_DO}", weft.display())
    })?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{} {}` fails ({}): {}; {WHAT_TO_DO}",
        weft.display(),
        args.join(" "),
        output.status,
        errors
            .split_ascii_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    );
    Ok(output)
}

/// The variables that bring a program to the libraries, in the line that `weft run --show` ends with.
fn libraries_in(shown: &str) -> Vec<String> {
    let line = shown.lines().find(|line| line.starts_with("env "));
    let words = line.unwrap_or_default().split(' ');
    words
        .filter(|word| word.starts_with("LD_PRELOAD=") || word.starts_with("LD_LIBRARY_PATH="))
        .map(str::to_owned)
        .collect()
}

fn written(file: &Path) -> Option<String> {
    let modified = std::fs::metadata(file).ok()?.modified().ok()?;
    let at = Timestamp::try_from(modified).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A command that answers as `weft` does, with its libraries at `libraries`.
    fn command(path: &Path, libraries: &str) {
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in\n--version) echo weft 1.2.3 ;;\n\
             'run --show -- true') echo 'env LD_PRELOAD={libraries}/libweft.so true' ;;\n'run -- true') ;;\n\
             *) exit 9 ;;\nesac\n"
        );
        executable(path, &script);
    }

    fn executable(path: &Path, script: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn complaint(place: &Path) -> String {
        format!("{:#}", Build::beside(place).unwrap_err())
    }

    #[test]
    fn a_build_is_a_folder_a_prefix_or_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let [built, installed] = ["built", "prefix"].map(|name| folder.path().join(name));
        command(&built.join("weft"), "/built");
        command(&installed.join("bin/weft"), "/installed");
        for place in [&built, &installed, &built.join("weft")] {
            let build = Build::beside(place).unwrap();
            assert_eq!(build.record.version, "1.2.3");
            assert_eq!(build.record.name, BESIDE);
            assert_eq!(build.record.path.as_deref(), place.to_str());
            assert!(build.record.built.is_some());
        }
    }

    #[test]
    fn what_is_no_build_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        assert!(complaint(&place.join("nothing")).contains("there is no"));
        assert!(complaint(place).contains("neither weft nor bin/weft"));
        let other = place.join("other");
        executable(&other, "#!/bin/sh\necho some program\n");
        assert!(complaint(&other).contains("is not a build of Weft"));
        let broken = place.join("broken");
        let script = "#!/bin/sh\n[ $1 = --version ] && { echo weft 1; exit; }\necho libweft.so is missing >&2\nexit 125\n";
        executable(&broken, script);
        assert!(complaint(&broken).contains("libweft.so is missing"));
        fs::write(place.join("weft"), "no program").unwrap();
        assert!(complaint(place).contains("does not run"));
        for place in [place.join("nothing"), other, broken, place.to_owned()] {
            assert!(
                complaint(&place).contains("make build"),
                "{}",
                place.display()
            );
        }
    }

    #[test]
    fn two_commands_with_the_same_libraries_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, third] = ["one", "other", "third"].map(|name| folder.path().join(name));
        command(&one, "/shared");
        command(&other, "/shared");
        command(&third, "/own");
        let [one, other, third] = [one, other, third].map(|path| Build::beside(&path).unwrap());
        assert!(one.is(&one).unwrap());
        assert!(!one.is(&third).unwrap());
        let error = one.is(&other).unwrap_err().to_string();
        assert!(error.contains("WEFT_LIBDIR"), "{error}");
    }
}
