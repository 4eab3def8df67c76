//! The program a person named: where it is, what the kernel will load for it,
//! and what would keep Weft out of it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::elf::{ElfError, Machine, Object};

/// A program that was found and read.
#[derive(Debug)]
pub struct Program {
    /// The file that was named.
    pub path: PathBuf,
    /// The scripts on the way from there to the binary, first the one named.
    pub scripts: Vec<Script>,
    /// What runs in the end: the program itself or the interpreter of the last script.
    pub object: Object,
}

/// A file that starts with `#!`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The script.
    pub path: PathBuf,
    /// What runs it.
    pub interpreter: PathBuf,
}

/// Why there is nothing to start.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No file of this name, there or in any folder of PATH.
    #[error("{}: {}", .0.to_string_lossy(), where_not(.0))]
    NotFound(OsString),
    /// A folder.
    #[error("{} is a folder", .0.display())]
    Folder(PathBuf),
    /// A file that may not be executed.
    #[error("{} may not be executed", .0.display())]
    NotExecutable(PathBuf),
    /// A script whose `#!` line leads nowhere.
    #[error("{} is a script for {}, which is not there", .0.path.display(), .0.interpreter.display())]
    NoInterpreter(Script),
    /// Scripts that interpret scripts, deeper than the kernel follows.
    #[error("{}: scripts lead on to scripts", .0.display())]
    TooManyScripts(PathBuf),
    /// Neither ELF nor a script.
    #[error("{} is not something the kernel can run: {}", .0.display(), .1)]
    NotAProgram(PathBuf, ElfError),
}

impl ProgramError {
    /// Whether there is no such file, as against one that cannot be run.
    pub fn is_not_found(&self) -> bool {
        matches!(self, ProgramError::NotFound(_))
    }

    /// What to do about it.
    pub fn advice(&self) -> String {
        match self {
            ProgramError::NotFound(name) if name.as_bytes().contains(&b'/') => {
                "check the path".to_owned()
            }
            ProgramError::NotFound(_) => {
                "check the spelling, install it, or give its path (./NAME for this folder)"
                    .to_owned()
            }
            ProgramError::Folder(_) => "name a program in it".to_owned(),
            ProgramError::NotExecutable(path) => format!("chmod +x {}", path.display()),
            ProgramError::NoInterpreter(_) => {
                "install the interpreter, or mend the script's first line".to_owned()
            }
            ProgramError::TooManyScripts(_) => "name the interpreter yourself".to_owned(),
            ProgramError::NotAProgram(path, _) => format!(
                "if it is a script without a #! line: weft run -- sh {}",
                path.display()
            ),
        }
    }
}

/// What a name without a file means: with a slash in it only one file is meant, without one PATH was searched.
fn where_not(name: &OsStr) -> &'static str {
    match name.as_bytes().contains(&b'/') {
        true => "no such file",
        false => "not found in any folder of PATH",
    }
}

/// The kernel's own limit on scripts whose interpreter is a script, and `env` once more.
const MOST_SCRIPTS: usize = 5;

impl Program {
    /// Finds `name` as a shell would and reads what it leads to.
    pub fn open(name: &OsStr) -> Result<Program, ProgramError> {
        let path = locate(name, std::env::var_os("PATH").as_deref())?;
        let mut scripts = Vec::new();
        let mut file = path.clone();
        loop {
            match Object::read(&file) {
                Ok(object) => {
                    return Ok(Program {
                        path,
                        scripts,
                        object,
                    })
                }
                Err(ElfError::NotElf) if scripts.len() == MOST_SCRIPTS => {
                    return Err(ProgramError::TooManyScripts(path));
                }
                Err(error) => {
                    let Some(script) = Script::read(&file) else {
                        return Err(ProgramError::NotAProgram(file, error));
                    };
                    if !script.interpreter.is_file() {
                        return Err(ProgramError::NoInterpreter(script));
                    }
                    file = script.interpreter.clone();
                    scripts.push(script);
                }
            }
        }
    }

    /// Everything about the file itself that keeps Weft out.
    pub fn obstacles(&self) -> Vec<Obstacle> {
        let mut found = Vec::new();
        let object = &self.object;
        if let Some(own) = Object::own_machine().filter(|own| *own != object.machine) {
            found.push(Obstacle::OtherMachine {
                program: object.machine,
                own,
            });
        }
        match object.interpreter.as_deref() {
            None => found.push(Obstacle::Static),
            Some(loader) if loader.contains("ld-musl") => {
                found.push(Obstacle::Musl(loader.to_owned()));
            }
            Some(loader) if !Path::new(loader).exists() => {
                found.push(Obstacle::NoLoader(loader.to_owned()));
            }
            Some(_) => {}
        }
        found.extend(secure_execution(&object.path));
        found
    }
}

/// Finds the file a shell would start for `name`: as it stands when it has a slash, else in
/// the folders of `path` (the value of PATH).
pub fn locate(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    let not_found = || ProgramError::NotFound(name.to_owned());
    if name.as_bytes().contains(&b'/') {
        return startable(Path::new(name)).unwrap_or_else(|| Err(not_found()));
    }
    if name.is_empty() {
        return Err(not_found());
    }
    let mut refused = None;
    for folder in std::env::split_paths(path.unwrap_or(OsStr::new("/usr/bin:/bin"))) {
        // An empty entry is the working folder.
        let folder = match folder.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => folder,
        };
        match startable(&folder.join(name)) {
            Some(Ok(found)) => return Ok(found),
            // Like execvp: something that may not run is passed over, and told if nothing else is found.
            Some(Err(error)) if refused.is_none() => refused = Some(error),
            _ => {}
        }
    }
    Err(refused.unwrap_or_else(not_found))
}

fn startable(path: &Path) -> Option<Result<PathBuf, ProgramError>> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(if metadata.is_dir() {
        Err(ProgramError::Folder(path.to_owned()))
    } else if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err() {
        Err(ProgramError::NotExecutable(path.to_owned()))
    } else {
        Ok(path.to_owned())
    })
}

impl Script {
    /// Reads the `#!` line of the file at `path`, if it has one.
    ///
    /// `env` is followed to the program it will start.
    fn read(path: &Path) -> Option<Script> {
        /// As much of the line as the kernel reads.
        const LONGEST: u64 = 256;
        let mut head = Vec::new();
        let file = std::fs::File::open(path).ok()?;
        file.take(LONGEST).read_to_end(&mut head).ok()?;
        let line = head.strip_prefix(b"#!")?;
        let line = line.split(|octet| *octet == b'\n').next()?;
        let words: Vec<&[u8]> = line
            .split(|octet| matches!(octet, b' ' | b'\t'))
            .filter(|word| !word.is_empty())
            .collect();
        let interpreter = PathBuf::from(OsString::from_vec(words.first()?.to_vec()));
        Some(Script {
            path: path.to_owned(),
            interpreter: env_target(&interpreter, &words[1..]).unwrap_or(interpreter),
        })
    }
}

/// What `#!/usr/bin/env WORDS` starts.
fn env_target(interpreter: &Path, words: &[&[u8]]) -> Option<PathBuf> {
    if interpreter.file_name()? != "env" {
        return None;
    }
    let name = words
        .iter()
        .find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    locate(OsStr::from_bytes(name), std::env::var_os("PATH").as_deref()).ok()
}

/// What keeps the dynamic loader from putting Weft into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No dynamic loader at all.
    Static,
    /// The loader of another C library, by its path.
    Musl(String),
    /// The loader it asks for is not there.
    NoLoader(String),
    /// Built for another instruction set or width than Weft.
    OtherMachine {
        /// The program's.
        program: Machine,
        /// Weft's.
        own: Machine,
    },
    /// The loader ignores LD_PRELOAD and LD_LIBRARY_PATH.
    Secure(Elevation),
}

/// How a program gets more rights than its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elevation {
    /// Set-user-ID, to this user.
    User(u32),
    /// Set-group-ID, to this group.
    Group(u32),
    /// File capabilities.
    Capabilities,
}

impl Obstacle {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Obstacle::Static => {
                "link it dynamically: no library can be put in front of calls that were bound \
                 when it was built"
            }
            Obstacle::Musl(_) => "use a build of the program for glibc",
            Obstacle::NoLoader(_) => "install the C library it was built for",
            Obstacle::OtherMachine { .. } => "use a build of the program for this machine",
            Obstacle::Secure(_) => {
                "start it from an account that already has the rights (sudo weft run -- PROGRAM), \
                 or run a copy without the extra rights: Weft needs none"
            }
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Static => f.write_str("it is statically linked"),
            Obstacle::Musl(loader) => {
                write!(
                    f,
                    "it uses the musl C library ({loader}), and Weft uses glibc"
                )
            }
            Obstacle::NoLoader(loader) => {
                write!(
                    f,
                    "it asks for the dynamic loader {loader}, which is not there"
                )
            }
            Obstacle::OtherMachine { program, own } => {
                write!(f, "it is a {program} program, and this Weft is for {own}")
            }
            Obstacle::Secure(elevation) => {
                match elevation {
                    Elevation::User(id) => write!(f, "it is setuid to user {id}")?,
                    Elevation::Group(id) => write!(f, "it is setgid to group {id}")?,
                    Elevation::Capabilities => write!(f, "it has file capabilities")?,
                }
                f.write_str(
                    ", and for such programs the loader ignores LD_PRELOAD and LD_LIBRARY_PATH",
                )
            }
        }
    }
}

/// Whether the kernel will tell the loader to run in secure mode (AT_SECURE), and because of what.
fn secure_execution(path: &Path) -> Option<Obstacle> {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2000;
    const GROUP_EXECUTE: u32 = 0o0010;

    if rights_cannot_grow(path) {
        return None;
    }
    let metadata = std::fs::metadata(path).ok()?;
    let mode = metadata.mode();
    let user = rustix::process::getuid();
    let elevation = if mode & SET_USER != 0 && metadata.uid() != user.as_raw() {
        Elevation::User(metadata.uid())
    } else if mode & SET_GROUP != 0
        && mode & GROUP_EXECUTE != 0
        && metadata.gid() != rustix::process::getgid().as_raw()
    {
        Elevation::Group(metadata.gid())
    } else if !user.is_root() && has_file_capabilities(path) {
        Elevation::Capabilities
    } else {
        return None;
    };
    Some(Obstacle::Secure(elevation))
}

/// Whether the mount or the process bars every gain of rights by exec.
fn rights_cannot_grow(path: &Path) -> bool {
    let nosuid = rustix::fs::statvfs(path)
        .is_ok_and(|mount| mount.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID));
    nosuid || rustix::thread::no_new_privs().unwrap_or(false)
}

fn has_file_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    rustix::fs::getxattr(path, "security.capability", &mut value).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_name_is_looked_up_in_path() {
        let scratch = Scratch::new();
        let tool = scratch.executable("a/tool", "#!/bin/sh\n");
        scratch.file("b/tool", "not executable");
        let path = std::env::join_paths([scratch.path("b"), scratch.path("a")]).unwrap();
        assert_eq!(locate("tool".as_ref(), Some(&path)).unwrap(), tool);
        assert!(matches!(
            locate("other".as_ref(), Some(&path)),
            Err(ProgramError::NotFound(_))
        ));
    }

    #[test]
    fn what_is_found_has_a_slash_so_that_nobody_looks_again() {
        // `cargo test` runs in the folder of the package.
        let found = locate("src".as_ref(), Some("".as_ref()));
        assert!(matches!(found, Err(ProgramError::Folder(path)) if path == Path::new("./src")));
    }

    #[test]
    fn a_file_that_may_not_run_is_told_from_none() {
        let scratch = Scratch::new();
        let plain = scratch.file("plain", "x");
        assert!(matches!(
            locate(plain.as_os_str(), None),
            Err(ProgramError::NotExecutable(_))
        ));
        assert!(matches!(
            locate(scratch.path("").as_os_str(), None),
            Err(ProgramError::Folder(_))
        ));
        assert!(matches!(
            locate(scratch.path("none").as_os_str(), None),
            Err(ProgramError::NotFound(_))
        ));
    }

    #[test]
    fn scripts_lead_to_their_interpreter() {
        let scratch = Scratch::new();
        let script = scratch.executable("script", "#! /bin/sh -e\necho\n");
        let program = Program::open(script.as_os_str()).unwrap();
        assert_eq!(
            program.scripts,
            [Script {
                path: script,
                interpreter: "/bin/sh".into()
            }]
        );
        assert!(program.object.interpreter.is_some());
    }

    #[test]
    fn env_is_followed_to_what_it_starts() {
        let scratch = Scratch::new();
        let script = scratch.executable("script", "#!/usr/bin/env -S A=1 sh -e\n");
        let program = Program::open(script.as_os_str()).unwrap();
        assert_eq!(program.scripts[0].interpreter.file_name().unwrap(), "sh");
    }

    #[test]
    fn a_script_without_its_interpreter_says_so() {
        let scratch = Scratch::new();
        let script = scratch.executable("script", "#!/nowhere/interpreter\n");
        let error = Program::open(script.as_os_str()).unwrap_err();
        assert!(error.to_string().ends_with("which is not there"), "{error}");
    }

    #[test]
    fn scripts_in_a_circle_end() {
        let scratch = Scratch::new();
        let path = scratch.path("circle");
        let script = scratch.executable("circle", &format!("#!{}\n", path.display()));
        assert!(matches!(
            Program::open(script.as_os_str()),
            Err(ProgramError::TooManyScripts(_))
        ));
    }

    #[test]
    fn text_without_a_first_line_is_no_program() {
        let scratch = Scratch::new();
        let text = scratch.executable("text", "echo hello\n");
        assert!(matches!(
            Program::open(text.as_os_str()),
            Err(ProgramError::NotAProgram(..))
        ));
    }

    #[test]
    fn an_ordinary_program_has_no_obstacle() {
        let program = Program::open("true".as_ref()).unwrap();
        assert_eq!(program.obstacles(), []);
    }
}
