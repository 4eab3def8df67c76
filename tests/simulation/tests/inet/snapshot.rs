//! Tables kept as text in the repository: a change of behaviour shows as a change of numbers in review.

use std::path::PathBuf;

/// Compares a table with the file of that name. `UPDATE_SNAPSHOTS=1` writes the file instead.
pub fn check(name: &str, table: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/inet/snapshots")
        .join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, table).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept == table {
        return;
    }
    let mut differences = String::new();
    for (old, new) in kept
        .lines()
        .zip(table.lines())
        .filter(|(old, new)| old != new)
    {
        differences += &format!("- {old}\n+ {new}\n");
    }
    panic!(
        "{} differs (UPDATE_SNAPSHOTS=1 accepts it):\n{differences}",
        path.display()
    );
}
