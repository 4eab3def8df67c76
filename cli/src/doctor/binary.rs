//! What doctor finds in the program and its libraries.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::{sockets, Finding, Level};
use crate::elf::closure::{Closure, Missing, Search};
use crate::elf::{Exports, Import, Object, VERBS_LIBRARIES};
use crate::libraries::{LIBRARY, SOCKETS_LIBRARY};
use crate::program::Program;
use crate::setup::Setup;

/// Looks at the program as it would be under `setup`.
pub fn examine(program: Program, setup: Option<&Setup>) -> Vec<Finding> {
    let mut findings = identity(&program);
    let obstacles = program.obstacles();
    if !obstacles.is_empty() {
        findings.extend(obstacles.iter().map(|obstacle| {
            Finding::bad("program", obstacle.to_string()).advise(obstacle.advice())
        }));
        return findings;
    }
    let search = setup.map_or_else(Search::default, Setup::search);
    let script = !program.scripts.is_empty();
    let names = names_of(&program);
    let closure = search.closure(program.object);
    findings.extend(libraries(&closure));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sockets = setup.map(|setup| sockets::examine(&closure, script, setup, &names));
    let sockets = sockets.unwrap_or_default();
    let serves = |finding: &Finding| matches!(finding.level, Level::Good | Level::Unclear);
    let served_otherwise = sockets.first().is_some_and(serves);
    let verbs = verbs(&closure, script, setup);
    // A program that came for its sockets need not make RDMA calls.
    if verbs.level == Level::Good || !served_otherwise {
        findings.push(verbs);
    }
    findings.extend(sockets);
    if let Some(setup) = setup {
        findings.extend(symbols(&closure, setup));
        findings.extend(rsockets(&closure, setup));
    }
    findings.extend(other_preloads(&search));
    findings
}

/// What rules know the program by once it runs: what it is started as, then its file.
fn names_of(program: &Program) -> Vec<String> {
    let script = program.scripts.last();
    let started_as = script.map_or(&program.path, |script| &script.interpreter);
    let file = program.object.path.canonicalize();
    let paths = [Some(started_as.clone()), file.ok()];
    let mut names: Vec<String> = paths
        .iter()
        .flatten()
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.dedup();
    names
}

fn identity(program: &Program) -> Vec<Finding> {
    let mut findings = Vec::new();
    for script in &program.scripts {
        findings.push(Finding::good(
            "script",
            format!(
                "{} is run by {}, which is what is looked at",
                script.path.display(),
                script.interpreter.display()
            ),
        ));
    }
    let object = &program.object;
    let linkage = match &object.interpreter {
        Some(loader) => format!("dynamic, loaded by {loader}"),
        None => "without a dynamic loader".to_owned(),
    };
    findings.push(Finding::good(
        "program",
        format!("{}: {}, {linkage}", object.path.display(), object.machine),
    ));
    findings
}

fn libraries(closure: &Closure) -> Vec<Finding> {
    if closure.missing.is_empty() {
        let count = closure.objects.len() - 1;
        return vec![Finding::good(
            "libraries",
            format!("all {count} that it needs are there"),
        )];
    }
    let finding = |missing: &Missing| {
        let Missing { name, needed_by } = missing;
        Finding::bad(
            "libraries",
            format!("{name} is missing (needed by {})", needed_by.display()),
        )
        .advise(format!(
            "install the package that has it (Debian: apt-file search {name}), or add its folder \
             to LD_LIBRARY_PATH"
        ))
    };
    closure.missing.iter().map(finding).collect()
}

/// How the program comes to call verbs, if it does.
fn verbs(closure: &Closure, script: bool, setup: Option<&Setup>) -> Finding {
    let users: Vec<_> = theirs(closure)
        .filter(|object| object.needs_verbs())
        .collect();
    if let Some(first) = users.first() {
        let program = closure.program().path == first.path;
        let by = if program {
            "the program itself".to_owned()
        } else {
            format!("its library {}", first.path.display())
        };
        return Finding::good("verbs", format!("{} asked for by {by}", wanted(&users)));
    }
    match theirs(closure).find(|object| object.names_verbs) {
        Some(object) => by_name(object, setup),
        None => none(closure, script),
    }
}

/// The verbs libraries that `users` ask for.
fn wanted(users: &[&Rc<Object>]) -> String {
    let names: Vec<&str> = VERBS_LIBRARIES
        .into_iter()
        .filter(|name| {
            users
                .iter()
                .any(|object| object.needed.iter().any(|needed| needed == name))
        })
        .collect();
    names.join(" and ")
}

/// The program has the libraries' names in it: it opens them when it runs.
fn by_name(object: &Object, setup: Option<&Setup>) -> Finding {
    let path = object.path.display();
    if setup.is_none_or(|setup| setup.binding.library_path.is_some()) {
        return Finding::good("verbs", format!("opened by name at run time by {path}"));
    }
    Finding::bad(
        "verbs",
        format!("{path} opens libibverbs by name at run time, which preload mode does not catch"),
    )
    .advise("weft run --mode replacement")
}

/// Nobody asks for verbs; whether that is the last word depends on what else the program can do.
fn none(closure: &Closure, script: bool) -> Finding {
    const OPENERS: [&str; 2] = ["dlopen", "dlmopen"];
    const STARTERS: [&str; 11] = [
        "execl",
        "execle",
        "execlp",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "fexecve",
        "posix_spawn",
        "posix_spawnp",
        "system",
    ];
    const WHAT: &str = "nothing it loads asks for libibverbs or librdmacm";
    let can = |names: &[&str]| theirs(closure).any(|object| object.imports_any(names));
    let (opens, starts) = (can(&OPENERS), can(&STARTERS));
    if !script && !opens && !starts {
        return Finding::bad(
            "verbs",
            format!("{WHAT}, and it neither opens libraries nor starts programs"),
        )
        .advise("there is nothing to serve: it makes no RDMA calls");
    }
    let unseen = match (opens, starts) {
        (true, true) => "what it opens with dlopen or starts as another program",
        (true, false) => "what it opens with dlopen",
        (false, _) => "what it starts as another program",
    };
    Finding::unclear("verbs", WHAT).advise(format!(
        "{unseen} cannot be seen from outside; `weft run --log info` tells at run time"
    ))
}

/// Whether its rsockets (rsocket(7)) are served; nothing for a program that makes none.
fn rsockets(closure: &Closure, setup: &Setup) -> Option<Finding> {
    if !theirs(closure).any(|object| object.imports_any(&["rsocket"])) {
        return None;
    }
    Some(match &setup.sockets {
        Some(_) => Finding::good("rsockets", "its rsockets are TCP sockets over DDP"),
        None => Finding::bad(
            "rsockets",
            format!("it makes rsockets, and {SOCKETS_LIBRARY} is not there to serve them"),
        )
        .advise("install the package again (in the sources: `make build`)"),
    })
}

/// Whether each verbs symbol asked for is ours.
fn symbols(closure: &Closure, setup: &Setup) -> Option<Finding> {
    let ours: Vec<Exports> = setup
        .binding
        .objects()
        .into_iter()
        .map(|object| object.exports)
        .collect();
    let asked: Vec<&Import> = theirs(closure)
        .flat_map(|object| &object.imports)
        .filter(|import| import.is_verbs() && !import.weak)
        .collect();
    let lacking: Vec<&Import> = asked
        .iter()
        .copied()
        .filter(|import| !ours.iter().any(|exports| exports.provides(import)))
        .collect();
    if asked.is_empty() {
        None
    } else if lacking.is_empty() {
        Some(Finding::good(
            "symbols",
            format!("all {} are provided", asked.len()),
        ))
    } else if setup.binding.library_path.is_some() {
        Some(nobody_provides(&lacking))
    } else {
        Some(rdma_core_provides(asked.len(), &lacking))
    }
}

/// In preload mode the machine's own libibverbs is loaded behind ours and has the rest.
fn rdma_core_provides(asked: usize, lacking: &[&Import]) -> Finding {
    let (private, public): (Vec<&Import>, Vec<&Import>) =
        lacking.iter().partition(|import| import.is_private());
    if lacking.len() == asked {
        return Finding::bad("symbols", "libweft.so provides none that it asks for")
            .advise("install the package again (in the sources: `make build`)");
    }
    if public.is_empty() {
        let ours = asked - private.len();
        return Finding::good(
            "symbols",
            format!(
                "{ours} are provided; {} for drivers of real devices stay with rdma-core",
                private.len()
            ),
        );
    }
    Finding::note(
        "symbols",
        format!(
            "not in Weft, and so left to this machine's rdma-core: {}",
            names(&public)
        ),
    )
    .advise("a program that calls one of these with weft0 will fail there")
}

fn nobody_provides(lacking: &[&Import]) -> Finding {
    Finding::bad(
        "symbols",
        format!("not provided by Weft: {}", names(lacking)),
    )
    .advise("with rdma-core installed, weft run --mode preload")
}

/// The first few names, each once.
fn names(imports: &[&Import]) -> String {
    const SHOWN: usize = 6;
    let all: BTreeSet<String> = imports.iter().map(ToString::to_string).collect();
    let shown: Vec<&str> = all.iter().take(SHOWN).map(String::as_str).collect();
    match all.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Objects that are neither verbs libraries, Weft's or the machine's, nor the C library.
pub(super) fn theirs(closure: &Closure) -> impl Iterator<Item = &Rc<Object>> {
    closure.objects.iter().filter(|object| {
        let soname = object.soname.as_deref().unwrap_or_default();
        let rest = [LIBRARY, SOCKETS_LIBRARY, "libc.so.6"];
        !VERBS_LIBRARIES.contains(&soname) && !rest.contains(&soname)
    })
}

/// Others that put themselves in front of the same or of socket calls.
fn other_preloads(search: &Search) -> Vec<Finding> {
    const RIVALS: [&str; 5] = [
        "librspreload",
        "libvma",
        "libxlio",
        "libonload",
        "libvcl_ldpreload",
    ];
    search
        .preload
        .iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            RIVALS.iter().any(|rival| name.starts_with(rival)).then(|| {
                Finding::note(
                    "LD_PRELOAD",
                    format!("{name} is preloaded too and takes socket calls for itself"),
                )
                .advise("take it out of LD_PRELOAD unless both are wanted")
            })
        })
        .collect()
}
