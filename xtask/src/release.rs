//! `cargo xtask release`: the version, the changelog and the tag of a release, in one commit.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the version stands that everything else takes.
const MANIFEST: &str = "Cargo.toml";
/// What users noticed.
const CHANGELOG: &str = "CHANGELOG.md";
/// Documents that name files of packages.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/packages.md"];
/// How the names of those files begin, before the version.
const PACKAGES: [&str; 3] = ["weft_", "weft-", "weft_rdma-"];
/// The heading of what the next release will have.
const UNRELEASED: &str = "## Unreleased";

/// A version: three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version([u32; 3]);

impl Version {
    fn parse(text: &str) -> Option<Version> {
        let mut numbers = text.split('.').map(|number| {
            let plain = number == "0" || !number.starts_with(['0', '+']);
            number.parse().ok().filter(|_| plain)
        });
        let version = [numbers.next()??, numbers.next()??, numbers.next()??];
        numbers.next().is_none().then_some(Version(version))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Makes the release: changes the files, commits them and tags the commit. With `dry` it prints what it would change
/// and do, and leaves everything as it is.
///
/// # Errors
/// A version that is none or not a later one, changes that are not committed, a tag that is there, nothing to release.
pub fn release(root: &Path, wanted: &str, dry: bool) -> Result<(), String> {
    let Some(next) = Version::parse(wanted) else {
        return Err(format!(
            "{wanted} is no version: give three numbers, such as 1.2.0"
        ));
    };
    let tag = format!("v{next}");
    if !git(root, &["tag", "--list", &tag])?.is_empty() {
        return Err(format!("the tag {tag} is there already"));
    }
    let changed = changes(root, next)?;
    if dry {
        return show(root, &changed, &tag);
    }
    if !git(root, &["status", "--porcelain"])?.is_empty() {
        return Err(
            "there are changes that are not committed: git stash, or commit them first".into(),
        );
    }
    make(root, &changed, next)?;
    println!("made the commit and the tag {tag}; git push --follow-tags publishes them");
    Ok(())
}

/// The files that change, each with what will be in it.
fn changes(root: &Path, next: Version) -> Result<Vec<(&'static str, String)>, String> {
    let read = |path: &str| {
        let text = fs::read_to_string(root.join(path));
        text.map_err(|error| format!("{path}: {error}"))
    };
    let manifest = read(MANIFEST)?;
    let current = current(&manifest)?;
    if next < current {
        return Err(format!(
            "{next} is older than {current}, which {MANIFEST} has"
        ));
    }
    let date = said(Command::new("date").args(["-u", "+%F"]))?;
    let mut changed = vec![
        (MANIFEST, with_version(&manifest, current, next)),
        (CHANGELOG, with_heading(&read(CHANGELOG)?, next, &date)?),
    ];
    for path in DOCUMENTS {
        changed.push((path, with_names(&read(path)?, current, next)));
    }
    Ok(changed)
}

/// Writes the files, brings the lock files along, commits and tags.
fn make(root: &Path, changed: &[(&str, String)], next: Version) -> Result<(), String> {
    for (path, text) in changed {
        fs::write(root.join(path), text).map_err(|error| format!("{path}: {error}"))?;
    }
    // The lock files name our own crates with their versions.
    for workspace in [MANIFEST, "fuzz/Cargo.toml"] {
        let mut cargo = Command::new("cargo");
        cargo.args([
            "update",
            "--workspace",
            "--offline",
            "--quiet",
            "--manifest-path",
            workspace,
        ]);
        said(cargo.current_dir(root))?;
    }
    let (subject, message) = (
        format!("--message=Release {next}"),
        format!("--message=Weft {next}"),
    );
    git(root, &["commit", "--quiet", "--all", &subject])?;
    git(root, &["tag", "--annotate", &format!("v{next}"), &message])?;
    Ok(())
}

/// Prints the changes as a patch, and the commands that would follow.
fn show(root: &Path, changed: &[(&str, String)], tag: &str) -> Result<(), String> {
    let scratch = std::env::temp_dir().join(format!("weft-release-{}", std::process::id()));
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let shown = changed
        .iter()
        .try_for_each(|(path, text)| show_change(root, &scratch, path, text));
    let _ = fs::remove_dir_all(&scratch);
    shown?;
    println!(
        "would then bring the lock files up to date, commit all of it, and make the tag {tag}"
    );
    Ok(())
}

/// Prints how a file would change.
fn show_change(root: &Path, scratch: &Path, path: &str, text: &str) -> Result<(), String> {
    let beside = scratch.join(path.replace('/', "-"));
    fs::write(&beside, text).map_err(|error| format!("{}: {error}", beside.display()))?;
    let mut diff = Command::new("diff");
    diff.args(["--unified", "--label", path, "--label", path, path])
        .arg(&beside);
    // Its exit status is 1 where there are differences.
    let output = diff
        .current_dir(root)
        .output()
        .map_err(|error| format!("diff: {error}"))?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// The version that the workspace has.
fn current(manifest: &str) -> Result<Version, String> {
    let section = manifest
        .split("\n[workspace.package]\n")
        .nth(1)
        .unwrap_or_default();
    let line = section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .find_map(|line| line.strip_prefix("version = "));
    line.and_then(|text| Version::parse(text.trim_matches('"')))
        .ok_or_else(|| format!("{MANIFEST} has no version of the workspace"))
}

/// The manifest with another version of the workspace, and of the crates of ours that others depend on.
fn with_version(manifest: &str, current: Version, next: Version) -> String {
    let (old, new) = (
        format!("version = \"{current}\""),
        format!("version = \"{next}\""),
    );
    let of_ours = |line: &str| {
        line.starts_with(&old) || line.starts_with("weft-") && line.contains("path = ")
    };
    let lines = manifest.lines().map(|line| match of_ours(line) {
        true => line.replace(&old, &new),
        false => line.to_owned(),
    });
    lines.map(|line| line + "\n").collect()
}

/// The changelog with a heading for the release over what was not released yet.
fn with_heading(changelog: &str, next: Version, date: &str) -> Result<String, String> {
    let Some((before, after)) = changelog.split_once(&format!("{UNRELEASED}\n")) else {
        return Err(format!("{CHANGELOG} has no line \"{UNRELEASED}\""));
    };
    let news = after.split("\n## ").next().unwrap_or_default();
    if news.trim().is_empty() {
        return Err(format!(
            "{CHANGELOG} has nothing under \"{UNRELEASED}\": there is nothing to release"
        ));
    }
    Ok(format!(
        "{before}{UNRELEASED}\n\n## {next} - {date}\n{after}"
    ))
}

/// A document with the names that the packages' files will have.
fn with_names(document: &str, current: Version, next: Version) -> String {
    let renamed = |text: String, prefix: &&str| {
        text.replace(&format!("{prefix}{current}"), &format!("{prefix}{next}"))
    };
    PACKAGES.iter().fold(document.to_owned(), renamed)
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    said(Command::new("git").args(arguments).current_dir(root))
}

/// What a program prints; an error with what it complains of where it fails.
fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST_TEXT: &str = "\
[workspace]
members = []

[workspace.package]
version = \"0.1.0\"
edition = \"2021\"

[workspace.dependencies]
weft-os = { path = \"run/os\", version = \"0.1.0\" }
weft-inet = { path = \"proto/inet\" }
other = { version = \"0.1.0\" }
";

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_are_three_numbers_in_order() {
        assert!(version("0.10.0") > version("0.9.12"));
        assert_eq!(version("1.2.3").to_string(), "1.2.3");
        for none in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "v1.2.3",
            "1.2.x",
            "01.2.3",
            "+1.2.3",
            "1.2.3-rc1",
        ] {
            assert_eq!(Version::parse(none), None, "{none}");
        }
    }

    #[test]
    fn the_manifest_gets_the_version_where_it_is_ours() {
        assert_eq!(current(MANIFEST_TEXT), Ok(version("0.1.0")));
        assert!(current("[package]\nversion = \"1.0.0\"\n").is_err());
        let next = with_version(MANIFEST_TEXT, version("0.1.0"), version("0.2.0"));
        assert_eq!(current(&next), Ok(version("0.2.0")));
        assert!(next.contains("weft-os = { path = \"run/os\", version = \"0.2.0\" }"));
        assert!(
            next.contains("other = { version = \"0.1.0\" }"),
            "somebody else's"
        );
    }

    #[test]
    fn the_changelog_gets_a_heading_if_there_is_news() {
        let changelog =
            "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0 - 2026-01-01\n";
        let next = with_heading(changelog, version("0.2.0"), "2026-02-03").unwrap();
        assert!(
            next.contains("## Unreleased\n\n## 0.2.0 - 2026-02-03\n\n### Added\n"),
            "{next}"
        );
        let nothing = "## Unreleased\n\n## 0.1.0 - 2026-01-01\n\n- A thing.\n";
        assert!(with_heading(nothing, version("0.2.0"), "2026-02-03").is_err());
        assert!(with_heading("# Changelog\n", version("0.2.0"), "2026-02-03").is_err());
    }

    #[test]
    fn names_of_packages_follow_and_other_numbers_stay() {
        let text = "`weft_0.1.0_amd64.deb` weft-0.1.0-1.x86_64.rpm weft_rdma-0.1.0-py3 10.1.0.1 sideway 0.1.0";
        let next = with_names(text, version("0.1.0"), version("0.2.0"));
        assert_eq!(
            next,
            "`weft_0.2.0_amd64.deb` weft-0.2.0-1.x86_64.rpm weft_rdma-0.2.0-py3 10.1.0.1 sideway 0.1.0"
        );
    }
}
