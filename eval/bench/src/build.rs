//! Finding a build of Weft and seeing that it runs.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{bail, ensure, Context, Result};
use jiff::Timestamp;

use crate::architecture::foreign;
use crate::environment::revision_at;
use crate::job::{Invocation, Side};
use crate::record::{BuildRecord, BESIDE, THIS};
use crate::stack::{Programs, Weft};

/// A build of Weft that runs.
#[derive(Clone, Debug)]
pub struct Build {
    /// What starts programs over it.
    pub weft: Weft,
    /// What the record says of it.
    pub record: BuildRecord,
    /// Where it takes its libraries from, as `weft run --show` puts it.
    libraries: Vec<String>,
}

/// What a path leads to.
enum Found {
    /// A command with its libraries.
    Command(PathBuf),
    /// Libraries alone, in this folder.
    Libraries(PathBuf),
}

/// Where a folder may have the command: a build's folder, and an installation's prefix.
const COMMANDS: [&str; 2] = ["weft", "bin/weft"];
/// What a folder of libraries has.
const LIBRARY: &str = "libweft.so";
/// Exit status of a command that does not know its arguments.
const USAGE: i32 = 2;

const WHAT_TO_DO: &str =
    "name target/release of a tree in which `make build` has run, the PREFIX of a `make install`, the command `weft` \
     of either, or a folder with libweft.so";

impl Build {
    /// The build that is judged: `command` is its command, `given` what the user said of it.
    pub fn this(command: &Path, given: Option<&Path>) -> Result<Build> {
        Build::with_command(command, THIS, given)
    }

    /// The build beside it, by what the user gave: a folder, a prefix, a command, or libraries alone, which `launcher`,
    /// the other build's command, then brings programs to.
    pub fn beside(given: &Path, launcher: &Path) -> Result<Build> {
        match found_at(given)? {
            Found::Command(command) => Build::with_command(&command, BESIDE, Some(given)),
            Found::Libraries(folder) => Build::of_libraries(folder, launcher, given),
        }
    }

    fn with_command(command: &Path, name: &str, given: Option<&Path>) -> Result<Build> {
        native(command)?;
        let version = version(command)?;
        let revision = command.parent().and_then(revision_at);
        let of_tree = revision
            .as_ref()
            .map_or(String::new(), |revision| format!(" of {revision}"));
        let weft = Weft::new(command);
        let libraries = tried(&weft, &format!("weft {version}{of_tree}"))?;
        let record = BuildRecord {
            name: name.to_owned(),
            path: given.map(|path| path.display().to_string()),
            version: Some(version),
            revision,
            built: written(command),
        };
        Ok(Build {
            weft,
            record,
            libraries,
        })
    }

    fn of_libraries(folder: PathBuf, launcher: &Path, given: &Path) -> Result<Build> {
        let library = folder.join(LIBRARY);
        native(&library)?;
        let record = BuildRecord {
            name: BESIDE.to_owned(),
            path: Some(given.display().to_string()),
            version: None,
            revision: revision_at(&folder),
            built: written(&library),
        };
        let weft = Weft {
            command: launcher.to_owned(),
            libraries: Some(folder),
        };
        let libraries = tried(&weft, &library.display().to_string())?;
        Ok(Build {
            weft,
            record,
            libraries,
        })
    }

    /// The executables of this build, with `scratch` for what is compiled on the spot.
    pub fn programs(&self, scratch: &Path) -> Programs {
        // Libraries alone have no bench: the launcher's would measure the launcher.
        let own = match &self.weft.libraries {
            Some(folder) => folder.join(COMMANDS[0]),
            None => self.weft.command.clone(),
        };
        Programs {
            bench: (own, vec!["bench".into()]),
            weft: self.weft.clone(),
            scratch: scratch.to_owned(),
        }
    }

    /// Whether it is the same build as `other`. An error where the commands differ and the libraries do not: then
    /// something in the environment makes both load the same code, and a ratio would say nothing.
    pub fn is(&self, other: &Build) -> Result<bool> {
        let same = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if self.libraries != other.libraries {
            return Ok(false);
        }
        ensure!(
            same(&self.weft.command) == same(&other.weft.command),
            "both builds would load the same libraries ({}): unset WEFT_LIBDIR, and take run.libdir out of weft.toml",
            self.libraries.join(" ")
        );
        Ok(true)
    }
}

fn found_at(place: &Path) -> Result<Found> {
    let metadata = match std::fs::metadata(place) {
        Ok(metadata) => metadata,
        Err(error) => bail!("there is no {} ({error}); {WHAT_TO_DO}", place.display()),
    };
    // Programs run in folders of their own choosing.
    let place = std::path::absolute(place)
        .with_context(|| format!("cannot resolve {}", place.display()))?;
    if !metadata.is_dir() {
        return Ok(
            match place.file_name().is_some_and(|name| name == LIBRARY) {
                true => Found::Libraries(place.parent().unwrap_or(Path::new("/")).to_owned()),
                false => Found::Command(place),
            },
        );
    }
    let commands = COMMANDS.iter().map(|name| place.join(name));
    if let Some(command) = commands.into_iter().find(|path| path.is_file()) {
        return Ok(Found::Command(command));
    }
    ensure!(
        place.join(LIBRARY).is_file(),
        "{} is not a build of Weft: it has neither {} nor {LIBRARY}; {WHAT_TO_DO}",
        place.display(),
        COMMANDS.join(" nor ")
    );
    Ok(Found::Libraries(place))
}

/// An error where this machine's programs cannot be of one process with `file`.
fn native(file: &Path) -> Result<()> {
    match foreign(file) {
        Some(architecture) => bail!(
            "{} is built for {architecture}, and this program is not: a build of the same architecture can be measured \
             beside it",
            file.display()
        ),
        None => Ok(()),
    }
}

fn version(command: &Path) -> Result<String> {
    let output = answer(
        &Invocation::new(command, ["--version"]),
        &command.display().to_string(),
    )?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default().trim();
    let version = line.strip_prefix("weft ").with_context(|| {
        format!(
            "{} is not a build of Weft: `--version` says {line:?}; {WHAT_TO_DO}",
            command.display()
        )
    })?;
    Ok(version.to_owned())
}

/// The libraries that a program gets, when one has been started with them. `who` names the build in an error.
fn tried(weft: &Weft, who: &str) -> Result<Vec<String>> {
    let shown = answer(&weft.run(&["--show"]).args(["true"]), who)?;
    let libraries = libraries_in(&String::from_utf8_lossy(&shown.stdout));
    ensure!(
        !libraries.is_empty(),
        "{who}: `{} run --show` names no libraries; {WHAT_TO_DO}",
        weft.command.display()
    );
    for library in preloaded(&libraries) {
        native(library)?;
    }
    // Only a program that is started shows whether they can be loaded. The loader goes on without one that cannot.
    let started = answer(&weft.run(&[]).args(["true"]), who)?;
    let complaint = in_a_line(&started.stderr);
    ensure!(
        !complaint.contains("ERROR: ld.so"),
        "{who}: its libraries cannot be loaded: {complaint}"
    );
    Ok(libraries)
}

/// What the command says when it ends well.
fn answer(command: &Invocation, who: &str) -> Result<Output> {
    let line = command.display();
    let output = Side::default()
        .command(command, None)
        .output()
        .map_err(|error| {
            anyhow::anyhow!(
                "{} does not run ({error}); {WHAT_TO_DO}",
                command.program.display()
            )
        })?;
    let complaint = in_a_line(&output.stderr);
    ensure!(
        output.status.code() != Some(USAGE),
        "{who} is too old to be measured beside another build: `{line}` is unknown to {} ({complaint})",
        command.program.display()
    );
    ensure!(
        output.status.success(),
        "{who}: `{line}` fails at {} ({}): {complaint}; {WHAT_TO_DO}",
        command.program.display(),
        output.status
    );
    Ok(output)
}

fn in_a_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// The files in LD_PRELOAD.
fn preloaded(libraries: &[String]) -> impl Iterator<Item = &Path> {
    let lists = libraries
        .iter()
        .filter_map(|word| word.strip_prefix("LD_PRELOAD="));
    lists.flat_map(|list| list.split(':')).map(Path::new)
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
    use std::process::Command;

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
        // A child of another test that was made while this file is open for writing keeps it from being run: the
        // program that is run is written by a process that has no children.
        let text = path.with_extension("text");
        fs::write(&text, script).unwrap();
        let copied = Command::new("cp").arg(&text).arg(path).status().unwrap();
        assert!(copied.success());
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn beside(place: &Path) -> Build {
        Build::beside(place, Path::new("/no/launcher")).unwrap()
    }

    fn complaint(place: &Path) -> String {
        format!(
            "{:#}",
            Build::beside(place, Path::new("/no/launcher")).unwrap_err()
        )
    }

    #[test]
    fn a_build_is_a_folder_a_prefix_or_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let [built, installed] = ["built", "prefix"].map(|name| folder.path().join(name));
        command(&built.join("weft"), "/built");
        command(&installed.join("bin/weft"), "/installed");
        for place in [&built, &installed, &built.join("weft")] {
            let build = beside(place);
            assert_eq!(build.record.version.as_deref(), Some("1.2.3"));
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
        assert!(complaint(place).contains("neither weft nor bin/weft nor libweft.so"));
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
    fn a_folder_of_libraries_is_a_build_without_a_bench() {
        let folder = tempfile::tempdir().unwrap();
        let (launcher, libraries) = (folder.path().join("this/weft"), folder.path().join("old"));
        let script = format!(
            "#!/bin/sh\n[ \"$*\" = 'run --libdir {0} -- true' ] && exit\n\
             [ \"$*\" = 'run --libdir {0} --show -- true' ] && echo 'env LD_PRELOAD={0}/libweft.so true'\n",
            libraries.display()
        );
        executable(&launcher, &script);
        executable(&libraries.join(LIBRARY), "");
        for place in [&libraries, &libraries.join(LIBRARY)] {
            let build = Build::beside(place, &launcher).unwrap();
            assert_eq!(build.record.version, None);
            assert_eq!(build.weft.libraries.as_ref(), Some(&libraries));
            assert_eq!(build.weft.command, launcher);
            assert!(!build.programs(folder.path()).bench.0.exists());
        }
    }

    #[test]
    fn a_build_that_is_too_old_is_named_with_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("weft");
        executable(&old, "#!/bin/sh\n[ $1 = --version ] && { echo weft 0.0.7; exit; }\necho no run >&2\nexit 2\n");
        let told = complaint(folder.path());
        for words in [
            "weft 0.0.7",
            "too old",
            "`weft run --show -- true` is unknown",
            "no run",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
    }

    #[test]
    fn a_command_or_a_library_of_another_architecture_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (other, mixed) = (folder.path().join("other"), folder.path().join("mixed"));
        for file in [other.join("weft"), mixed.join(LIBRARY)] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, crate::architecture::tests::elf_of_another()).unwrap();
        }
        command(&mixed.join("weft"), &mixed.display().to_string());
        for place in [other, mixed] {
            let told = complaint(&place);
            assert!(told.contains("is built for s390x"), "{told}");
        }
    }

    #[test]
    fn libraries_that_the_loader_leaves_out_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let weft = folder.path().join("weft");
        let script = "#!/bin/sh\ncase \"$*\" in\n--version) echo weft 1 ;;\n*--show*) echo 'env LD_PRELOAD=/a.so true' ;;\n\
                      *) echo \"ERROR: ld.so: object '/a.so' cannot be preloaded\" >&2 ;;\nesac\n";
        executable(&weft, script);
        let told = complaint(&weft);
        assert!(
            told.contains("weft 1: its libraries cannot be loaded"),
            "{told}"
        );
    }

    #[test]
    fn two_commands_with_the_same_libraries_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, third] = ["one", "other", "third"].map(|name| folder.path().join(name));
        command(&one, "/shared");
        command(&other, "/shared");
        command(&third, "/own");
        let [one, other, third] = [one, other, third].map(|path| beside(&path));
        assert!(one.is(&one).unwrap());
        assert!(!one.is(&third).unwrap());
        let error = one.is(&other).unwrap_err().to_string();
        assert!(error.contains("WEFT_LIBDIR"), "{error}");
    }
}
