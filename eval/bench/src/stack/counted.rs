//! Both ends of a workload in one process and one thread, for counting instructions: a small C program on the system's
//! libibverbs, under `weft run`. What it takes does not depend on how long two programs spin for each other.

use std::path::PathBuf;

use anyhow::{bail, Result};

use super::compiled::{Source, CC};
use super::{Programs, Weft};
use crate::job::Invocation;
use crate::verbs::{Op, Verbs};

const SOURCE: Source = Source {
    name: "instructions",
    compiler: CC,
    text: include_str!("../../c/instructions.c"),
    libraries: &["-libverbs"],
};

/// The C program, compiled when it is first asked for.
#[derive(Clone)]
pub(super) struct Counted {
    weft: Weft,
    scratch: PathBuf,
}

impl Counted {
    pub(super) fn new(programs: &Programs) -> Counted {
        Counted {
            weft: programs.weft.clone(),
            scratch: programs.scratch.clone(),
        }
    }

    /// The program under callgrind, which says on standard output how many instructions it has counted. An error says
    /// why there is none for this workload.
    pub(super) fn program(&self, workload: &Verbs, messages: u64) -> Result<Invocation> {
        let order = order(workload, messages)?;
        SOURCE.compile(&self.scratch)?;
        let program = self
            .weft
            .run(&[])
            .args(["valgrind", "--tool=callgrind", "--log-fd=1"])
            .args(["--callgrind-out-file=/dev/null"])
            .args([SOURCE.program(&self.scratch)])
            .args(order)
            // A thread that looks by the clock would look the more often the slower callgrind is.
            .env("WEFT_SERVE_TICK_US", "1000000");
        Ok(program)
    }
}

/// What the program is told to do.
fn order(workload: &Verbs, messages: u64) -> Result<Vec<String>> {
    let (kind, op, size, list) = match *workload {
        Verbs::Latency { op, size, .. } => ("latency", op, size, None),
        Verbs::Bulk { op, size, .. } => ("stream", op, size, Some(1)),
        Verbs::Rate {
            op,
            size,
            post_list,
            ..
        } => ("stream", op, size, Some(post_list)),
        Verbs::Connect | Verbs::BringUp => {
            bail!("connections are not counted: most of what they take is the kernel's")
        }
    };
    if op == Op::UdSend {
        bail!("datagrams are not counted: their number depends on how they are gathered in time");
    }
    let words = [
        kind.to_owned(),
        op.name().to_owned(),
        size.to_string(),
        messages.to_string(),
    ];
    let list = list.map(|list| list.to_string());
    Ok(words.into_iter().chain(list).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Mode;

    #[test]
    fn the_order_says_what_the_row_says() {
        let latency = Verbs::Latency {
            op: Op::CompareSwap,
            size: 8,
            mode: Mode::Polling,
            pinned: true,
        };
        let rate = Verbs::Rate {
            op: Op::Send,
            size: 64,
            depth: 128,
            post_list: 16,
        };
        let told = |workload| order(&workload, 5120).unwrap().join(" ");
        assert_eq!(told(latency), "latency compare-swap 8 5120");
        assert_eq!(told(rate), "stream send 64 5120 16");
    }

    #[test]
    fn what_is_not_counted_says_why() {
        let complaint = order(&Verbs::Connect, 1).unwrap_err().to_string();
        assert!(complaint.contains("kernel"), "{complaint}");
    }
}
