//! House-keeping of the repository: `cargo xtask tidy` holds the rules of the house, `cargo xtask no-os` proves
//! that the protocol crates need no operating system.
//!
//! Both print what they checked and close with a line of counts, `N passed, N failed, N skipped`.

#![forbid(unsafe_code)]

mod arrows;
mod bounds;
mod circles;
mod dependencies;
mod docs;
mod lengths;
mod lexer;
mod materials;
mod names;
mod no_os;
mod release;
mod requirements;
mod sources;
mod third_party;
mod tree;
mod words;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy    the rules of the house: who may import whom, what we build upon, where unsafe may stand, file names,
          documents; and counts that may only fall (circles of imports, long functions, wide prose, replaced words)
  tidy --lower
          the same, after bounds in xtask/bounds were lowered to the counts that have fallen
  rfc     how much of the RFCs is met and shown by a test, and what is not
  no-os   build proto/* without the standard library and look at what the result would still link to
  third-party
          the crates of others in our binaries, and the texts of their licences
  materials
        the same crates as a bill of materials (CycloneDX)
  release [--dry-run] VERSION
        the version, the changelog and the tag of a release, in one commit; --dry-run prints the changes only";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["tidy"] => tidy(),
        ["tidy", "--lower"] => lower().and_then(|()| tidy()),
        ["rfc"] => rfc(),
        ["no-os"] => no_os(),
        ["third-party"] => third_party(),
        ["materials"] => materials(),
        ["release", "--dry-run", version] => release(version, true),
        ["release", version] => release(version, false),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One thing that breaks a rule: where, and which rule in words.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path from the repository's root, with `:line` where there is one; or a crate's name.
    pub place: String,
    /// What is wrong and what would be right.
    pub what: String,
}

impl Problem {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Problem {
        Problem {
            place: place.into(),
            what: what.into(),
        }
    }
}

fn tidy() -> Result<bool, String> {
    let workspace = workspace::read()?;
    let tree = tree::read(&workspace.root)?;
    let everything = workspace::with_dependencies()?;
    let counts = bounds::counts(&workspace.packages, &tree);
    let checks: [(&str, Vec<Problem>); 12] = [
        ("arrows between crates", arrows::check(&workspace.packages)),
        (
            "licences, sources and doubles of other people's crates",
            dependencies::check(&everything),
        ),
        (
            "attributes at the crate roots",
            sources::crate_roots(&workspace.packages, &tree),
        ),
        (
            "lints inherited from the workspace",
            sources::lints(&workspace.packages, &tree),
        ),
        ("unsafe has an address", sources::unsafe_places(&tree)),
        ("reasons for unsafe", sources::vague_reasons(&tree)),
        ("nothing left unfinished", sources::unfinished(&tree)),
        ("file names and sizes", names::check(&tree)),
        ("documents", docs::check(&tree)),
        ("requirements of the RFCs", requirements::check(&tree)),
        ("no paths of a workplace", names::foreign_paths(&tree)),
        ("counts that only fall", bounds::check(&counts, &tree)),
    ];
    let failed = checks
        .iter()
        .filter(|(_, problems)| !problems.is_empty())
        .count();
    for (name, problems) in &checks {
        println!(
            "tidy: {name}: {}",
            if problems.is_empty() { "ok" } else { "FAILED" }
        );
        for problem in problems {
            println!("    {}: {}", problem.place, problem.what);
        }
    }
    for count in counts.iter().filter(|count| count.is > 0) {
        println!("tidy: {}: {}", count.name, count.is);
    }
    println!(
        "{} passed, {failed} failed, 0 skipped",
        checks.len() - failed
    );
    Ok(failed == 0)
}

/// Writes bounds that have fallen.
fn lower() -> Result<(), String> {
    let workspace = workspace::read()?;
    let tree = tree::read(&workspace.root)?;
    let counts = bounds::counts(&workspace.packages, &tree);
    let text = bounds::lowered(&counts, &tree)?;
    let path = workspace.root.join(bounds::PATH);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", bounds::PATH))
}

fn rfc() -> Result<bool, String> {
    let tree = tree::read(&workspace::read()?.root)?;
    print!("{}", requirements::report(&tree));
    Ok(requirements::check(&tree).is_empty())
}

fn third_party() -> Result<bool, String> {
    let everything = workspace::with_dependencies()?;
    print!(
        "{}",
        third_party::document(&third_party::shipped(&everything))?
    );
    Ok(true)
}

fn materials() -> Result<bool, String> {
    let everything = workspace::with_dependencies()?;
    let version = workspace::version(&everything)?;
    let document = materials::document(version, &third_party::shipped(&everything));
    println!("{document:#}");
    Ok(true)
}

fn release(version: &str, dry: bool) -> Result<bool, String> {
    release::release(&workspace::read()?.root, version, dry)?;
    Ok(true)
}

fn no_os() -> Result<bool, String> {
    let workspace = workspace::read()?;
    let crates = no_os::pure_crates(&workspace.packages);
    let problems = no_os::check(&workspace, &crates)?;
    let names: Vec<&str> = crates.iter().map(|package| package.name.as_str()).collect();
    println!(
        "no-os: {}: {}",
        names.join(", "),
        if problems.is_empty() { "ok" } else { "FAILED" }
    );
    for problem in &problems {
        println!("    {}: {}", problem.place, problem.what);
    }
    let failed = usize::from(!problems.is_empty());
    println!("{} passed, {failed} failed, 0 skipped", 1 - failed);
    Ok(problems.is_empty())
}
