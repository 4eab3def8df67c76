//! Who may import whom (ARCHITECTURE.md, "The arrows").

use crate::workspace::Package;
use crate::Problem;

/// A row for every crate: its folder and the folders of ours it may depend on. A crate that is not in the table is
/// a problem: adding one means deciding its place.
const ALLOWED: &[(&str, &[&str])] = &[
    ("proto/iwarp", &[]),
    ("proto/inet", &[]),
    ("proto/datagram", &[]),
    ("proto/stream", &["proto/iwarp"]),
    ("proto/discovery", &[]),
    ("proto/uoe", &[]),
    ("run/os", &[]),
    ("proto/verbs", &["proto/iwarp"]),
    ("run/settings", &["run/os"]),
    (
        "run/discovery",
        &["proto/discovery", "run/settings", "run/os"],
    ),
    (
        "run/uoe",
        &[
            "proto/uoe",
            "run/discovery",
            "run/engine",
            // For its tests alone, which lay a cable.
            "run/adapter",
            "run/settings",
            "run/os",
        ],
    ),
    ("run/engine", &["proto/verbs", "run/settings", "run/os"]),
    (
        "run/sockets",
        &[
            "proto/iwarp",
            "proto/datagram",
            "proto/stream",
            "run/discovery",
            "run/uoe",
            "run/settings",
            "run/os",
        ],
    ),
    ("run/adapter", &["run/engine", "proto/inet", "run/os"]),
    ("abi/rsockets", &[]),
    ("abi/verbs", &["run/engine", "run/adapter", "abi/rsockets"]),
    (
        "abi/preload",
        &[
            "run/sockets",
            "run/uoe",
            "run/adapter",
            "run/settings",
            "run/os",
            "abi/rsockets",
        ],
    ),
    ("eval/applications", &["run/os"]),
    (
        "eval/bench",
        &["run/adapter", "run/engine", "run/os", "eval/applications"],
    ),
    ("eval/link", &["proto/inet"]),
    ("eval/bridge", &["eval/link", "run/os"]),
    (
        "cli",
        &[
            "run/engine",
            "run/adapter",
            "run/sockets",
            "run/uoe",
            "run/os",
            "eval/bench",
            "eval/link",
            "eval/bridge",
        ],
    ),
    ("xtask", &[]),
    ("tests/simulation", &[ANYTHING]),
    ("tests/loom", &["run/os", "proto/verbs"]),
];

const ANYTHING: &str = "*";

/// Every dependency between our crates that the table does not allow, and every one that it allows and nobody has: the
/// table says what is, and a grant that is not used is one that nobody decided.
pub fn check(packages: &[Package]) -> Vec<Problem> {
    packages
        .iter()
        .flat_map(|package| check_package(package, packages))
        .collect()
}

fn check_package(package: &Package, packages: &[Package]) -> Vec<Problem> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(folder, _)| *folder == package.folder) else {
        let what = format!(
            "the folder {} is not in the table of arrows",
            package.folder
        );
        return vec![Problem::new(&package.name, what)];
    };
    if allowed.contains(&ANYTHING) {
        return Vec::new();
    }
    let (mut too_many, mut unused) = (Vec::new(), Vec::new());
    for other in packages {
        let depends = package.dependencies.contains(&other.name);
        match (depends, allowed.contains(&other.folder.as_str())) {
            (true, false) => too_many.push(other),
            (false, true) => unused.push(other),
            _ => {}
        }
    }
    let too_many = too_many
        .into_iter()
        .map(|other| format!("{} may not depend on {}", package.folder, other.folder));
    let unused = unused.into_iter().map(|other| {
        format!(
            "{} does not depend on {}, which the table of arrows allows",
            package.folder, other.folder
        )
    });
    let problems = too_many.chain(unused);
    problems
        .map(|what| Problem::new(&package.name, what))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, dependencies: &[&str]) -> Package {
        Package {
            name: format!("weft-{}", folder.replace('/', "-")),
            folder: folder.into(),
            roots: Vec::new(),
            dependencies: dependencies.iter().map(|name| (*name).into()).collect(),
        }
    }

    #[test]
    fn an_arrow_of_the_design_passes() {
        let packages = [
            package("proto/iwarp", &[]),
            package("proto/verbs", &["weft-proto-iwarp", "libm"]),
        ];
        assert_eq!(check(&packages), []);
    }

    #[test]
    fn an_arrow_against_the_design_is_reported() {
        let packages = [
            package("proto/verbs", &["weft-run-os"]),
            package("run/os", &[]),
        ];
        let problems = check(&packages);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].what, "proto/verbs may not depend on run/os");
    }

    #[test]
    fn a_leaf_may_not_look_up() {
        let packages = [
            package("proto/iwarp", &["weft-proto-verbs"]),
            package("proto/verbs", &["weft-proto-iwarp"]),
        ];
        assert_eq!(check(&packages).len(), 1);
    }

    #[test]
    fn an_arrow_that_nobody_uses_is_reported() {
        let packages = [package("proto/iwarp", &[]), package("proto/verbs", &[])];
        let problems = check(&packages);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].what.contains("does not depend on proto/iwarp"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_crate_outside_the_table_is_reported() {
        let problems = check(&[package("run/new", &[])]);
        assert!(
            problems[0].what.contains("run/new is not in the table"),
            "{problems:?}"
        );
    }

    #[test]
    fn tests_may_depend_on_anything() {
        let packages = [
            package("tests/simulation", &["weft-abi-verbs"]),
            package("abi/verbs", &[]),
        ];
        assert_eq!(check(&packages), []);
    }
}
