//! Tests of what is a process's, and not a thread's.

use std::process::Command;

/// Set in the process of such a test.
const ALONE: &str = "WEFT_TEST_ALONE";

/// Whether this is the process of the test `name` alone. Else the test is run in one, and has to pass there.
pub(crate) fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let status = Command::new(own)
        .args(["--exact", name])
        .env(ALONE, "1")
        .status();
    assert!(status.unwrap().success());
    false
}
