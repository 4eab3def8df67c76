//! The workspace as `cargo metadata` describes it.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// The workspace: where it is and its member crates.
#[derive(Debug)]
pub struct Workspace {
    /// The repository's root.
    pub root: PathBuf,
    /// Where cargo puts what it builds.
    pub target: PathBuf,
    /// The member crates.
    pub packages: Vec<Package>,
}

/// A member crate.
#[derive(Debug, Clone)]
pub struct Package {
    /// The package's name.
    pub name: String,
    /// Its folder from the repository's root, with forward slashes.
    pub folder: String,
    /// The root files of its library and its programs, from the repository's root.
    pub roots: Vec<String>,
    /// Every crate it depends on, ours and others', for any purpose (build and tests too).
    pub dependencies: Vec<String>,
}

/// Asks cargo about the workspace this program was built from.
pub fn read() -> Result<Workspace, String> {
    let metadata = metadata(&["--no-deps"])?;
    parse(&metadata).ok_or_else(|| "cargo metadata has another form than expected".into())
}

/// What cargo says of every crate that is built, those of others too.
pub fn with_dependencies() -> Result<Value, String> {
    // What is only built elsewhere need not have been fetched.
    metadata(&["--filter-platform=x86_64-unknown-linux-gnu"])
}

/// The version of what is built here, from [`with_dependencies`].
pub fn version(everything: &Value) -> Result<&str, String> {
    let packages = everything["packages"].as_array();
    let own = |package: &&Value| package["name"] == "weft" && package["source"].is_null();
    let own = packages.and_then(|packages| packages.iter().find(own));
    own.and_then(|own| own["version"].as_str())
        .ok_or_else(|| "there is no package weft".to_owned())
}

fn metadata(arguments: &[&str]) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))
}

fn parse(metadata: &Value) -> Option<Workspace> {
    let root = PathBuf::from(metadata["workspace_root"].as_str()?);
    let target = PathBuf::from(metadata["target_directory"].as_str()?);
    let packages = metadata["packages"].as_array()?;
    let packages = packages
        .iter()
        .map(|package| parse_package(package, &root))
        .collect::<Option<_>>()?;
    Some(Workspace {
        root,
        target,
        packages,
    })
}

fn parse_package(package: &Value, root: &std::path::Path) -> Option<Package> {
    let from_root = |path: &Value| {
        let path = std::path::Path::new(path.as_str()?);
        Some(path.strip_prefix(root).ok()?.to_str()?.to_owned())
    };
    let manifest = from_root(&package["manifest_path"])?;
    let targets = package["targets"].as_array()?;
    let dependencies = package["dependencies"].as_array()?;
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        folder: manifest
            .strip_suffix("/Cargo.toml")
            .unwrap_or("")
            .to_owned(),
        roots: targets
            .iter()
            .filter(|target| is_library_or_program(target))
            .map(|target| from_root(&target["src_path"]))
            .collect::<Option<_>>()?,
        dependencies: dependencies
            .iter()
            .map(|dependency| Some(dependency["name"].as_str()?.to_owned()))
            .collect::<Option<_>>()?,
    })
}

/// Examples, tests and benches are roots too, but small ones that stand under the same token checks.
fn is_library_or_program(target: &Value) -> bool {
    let kinds = target["kind"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    !kinds.iter().any(|kind| {
        matches!(
            kind.as_str(),
            Some("test" | "bench" | "example" | "custom-build")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_the_workspace_it_was_built_from() {
        let workspace = read().unwrap();
        let xtask = workspace
            .packages
            .iter()
            .find(|package| package.name == "xtask")
            .unwrap();
        assert_eq!(xtask.folder, "xtask");
        assert_eq!(xtask.roots, ["xtask/src/main.rs"]);
        assert!(xtask.dependencies.contains(&"serde_json".to_owned()));
    }

    #[test]
    fn a_test_program_is_not_a_crate_root_to_check() {
        let package = json!({
            "name": "a", "manifest_path": "/repo/x/a/Cargo.toml", "dependencies": [],
            "targets": [
                {"kind": ["lib"], "src_path": "/repo/x/a/src/lib.rs"},
                {"kind": ["test"], "src_path": "/repo/x/a/tests/t.rs"},
            ],
        });
        let package = parse_package(&package, std::path::Path::new("/repo")).unwrap();
        assert_eq!(package.folder, "x/a");
        assert_eq!(package.roots, ["x/a/src/lib.rs"]);
    }
}
