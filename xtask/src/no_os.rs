//! The proof that `proto/*` needs no operating system.
//!
//! A throw-away crate that depends on the protocol crates and nothing else is built as a static library which
//! defines its own panic handler and allocator. If anything in the graph pulled in `std`, rustc would refuse the
//! second panic handler. The finished library bundles the code of every crate in the graph, so the symbols it still
//! leaves undefined are all that the protocol crates ask of their surroundings; they have to be the few that the
//! compiler itself calls. This works on the host's own target, where a bare-metal one would have to be installed.
//!
//! Default features are off: a protocol crate may have a feature `std` for what only picks faster code (the CRC by the
//! CPU's abilities), and the proof is that it does its work without.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::workspace::{Package, Workspace};
use crate::Problem;

/// Undefined symbols that come from the compiler: memory primitives, the unwinder's hooks in `core` and `alloc` as
/// they are shipped, arithmetic wider than a register.
const COMPILER_SYMBOLS: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "strlen",
    "rust_eh_personality",
    "_Unwind_Resume",
    "_GLOBAL_OFFSET_TABLE_",
    "__multi3",
    "__divti3",
    "__udivti3",
    "__modti3",
    "__umodti3",
];

/// The crates under `proto/`.
pub fn pure_crates(packages: &[Package]) -> Vec<Package> {
    packages
        .iter()
        .filter(|package| package.folder.starts_with("proto/"))
        .cloned()
        .collect()
}

/// Builds the proof; what it finds wrong.
pub fn check(workspace: &Workspace, crates: &[Package]) -> Result<Vec<Problem>, String> {
    let folder = workspace.target.join("no-os");
    write_crate(&folder, &workspace.root, crates)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    if let Err(said) = build(&folder) {
        return Ok(vec![Problem::new(
            "proto/*",
            format!("does not build without std:\n{said}"),
        )]);
    }
    let library = folder.join("target/release/libno_os.a");
    let foreign = undefined_symbols(&library)?;
    Ok(foreign
        .into_iter()
        .filter(|symbol| !is_the_compilers(symbol))
        .map(|symbol| Problem::new("proto/*", format!("asks its surroundings for {symbol}")))
        .collect())
}

/// Rust's own mangled names (`_R`) are `core`, `alloc` and the graph's crates among themselves: `std` would have
/// been refused before.
fn is_the_compilers(symbol: &str) -> bool {
    symbol.starts_with("_R") || COMPILER_SYMBOLS.contains(&symbol)
}

fn write_crate(folder: &Path, root: &Path, crates: &[Package]) -> std::io::Result<()> {
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), manifest(root, crates))?;
    fs::write(folder.join("src/lib.rs"), source(crates))?;
    // The same versions as in the workspace, so that nothing is looked up.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    Ok(())
}

fn manifest(root: &Path, crates: &[Package]) -> String {
    let mut text = String::from(
        "[package]\nname = \"no-os\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[workspace]\n\n\
         [lib]\nname = \"no_os\"\ncrate-type = [\"staticlib\"]\n\n[profile.release]\npanic = \"abort\"\n\n[dependencies]\n",
    );
    for package in crates {
        let path = root.join(&package.folder);
        text += &format!(
            "{} = {{ path = {:?}, default-features = false }}\n",
            package.name,
            path.display().to_string()
        );
    }
    text
}

fn source(crates: &[Package]) -> String {
    let uses = crates
        .iter()
        .map(|package| format!("pub use {};\n", package.name.replace('-', "_")));
    let shell = "
use core::alloc::{GlobalAlloc, Layout};

struct NoMemory;

// SAFETY: an allocator may always answer that there is no memory.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
";
    format!("#![no_std]\n{}{shell}", uses.collect::<String>())
}

/// Runs cargo in `folder`; on failure, what it said.
fn build(folder: &Path) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "--quiet"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn undefined_symbols(library: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("nm")
        .args(["--format=posix", "--no-sort"])
        .arg(library)
        .output()
        .map_err(|error| format!("cannot run nm (Debian package binutils): {error}"))?;
    if !output.status.success() {
        return Err(format!("nm: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(left_undefined(&String::from_utf8_lossy(&output.stdout)))
}

/// The symbols that some object of a library needs and none of them defines, from `nm --format=posix`: lines of
/// name and type, where `U` is undefined (`v` and `w`, weak ones, may stay so).
fn left_undefined(listing: &str) -> Vec<String> {
    let symbols = listing.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        Some((fields.next()?, fields.next()?))
    });
    let (needed, defined): (Vec<_>, Vec<_>) = symbols.partition(|(_, kind)| *kind == "U");
    let defined: std::collections::HashSet<&str> =
        defined.into_iter().map(|(name, _)| name).collect();
    let mut left: Vec<String> = needed
        .into_iter()
        .filter(|(name, _)| !defined.contains(name))
        .map(|(name, _)| name.to_owned())
        .collect();
    left.sort();
    left.dedup();
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_object_defines_is_left() {
        let listing =
            "a.o:\nmine T 0 4\nwrite U \nother U \n\nb.o:\nother t 0 1\nwrite U \nweak w \n";
        assert_eq!(left_undefined(listing), ["write"]);
    }

    fn scratch(name: &str, dependency: &str) -> Workspace {
        let root = std::env::temp_dir().join(format!("xtask-no-os-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("proto/a/src")).unwrap();
        fs::write(root.join("proto/a/src/lib.rs"), dependency).unwrap();
        let manifest = "[package]\nname = \"a\"\nversion = \"0.0.0\"\nedition = \"2021\"\n";
        fs::write(root.join("proto/a/Cargo.toml"), manifest).unwrap();
        fs::write(root.join("Cargo.lock"), "version = 3\n").unwrap();
        let package = Package {
            name: "a".into(),
            folder: "proto/a".into(),
            roots: Vec::new(),
            dependencies: Vec::new(),
        };
        Workspace {
            target: root.join("target"),
            root,
            packages: vec![package],
        }
    }

    fn problems(name: &str, source: &str) -> Vec<Problem> {
        let workspace = scratch(name, source);
        let problems = check(&workspace, &workspace.packages).unwrap();
        fs::remove_dir_all(&workspace.root).unwrap();
        problems
    }

    #[test]
    fn a_crate_of_core_and_alloc_passes() {
        let source = "#![no_std]\nextern crate alloc;\npub fn f(x: &[u8]) -> alloc::vec::Vec<u8> { x.to_vec() }\n";
        assert_eq!(problems("pure", source), []);
    }

    #[test]
    fn a_crate_with_std_is_reported() {
        let problems = problems("std", "pub fn f() { println!(\"x\") }\n");
        assert!(problems[0].what.contains("panic_impl"), "{problems:?}");
    }

    #[test]
    fn a_crate_that_calls_the_system_is_reported() {
        let source =
            "#![no_std]\nextern \"C\" { fn write(fd: i32, p: *const u8, n: usize) -> isize; }\n\
                      pub fn f() { unsafe { write(1, b\"x\".as_ptr(), 1); } }\n";
        let problems = problems("call", source);
        assert!(
            problems
                .iter()
                .any(|problem| problem.what.contains("write")),
            "{problems:?}"
        );
    }
}
