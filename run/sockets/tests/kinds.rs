//! Descriptors look after sockets of any kind: here two that no kernel has.
//!
//! The kernel of these tests is a map from descriptors to inodes. Descriptors are told of some of what happens in it
//! and see the rest when they look, as hooks do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use weft_sockets::descriptors::Descriptors;
use weft_sockets::kind::{Kinds, Origin, Sockets};
use weft_sockets::pool::Pool;
use weft_sockets::references::References;
use weft_sockets::table::{Kind, Socket};

/// The kinds. A new one is a variant here, a field of [`Both`] and an arm of its `sockets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Colour {
    Red,
    Blue,
}

impl Kind for Colour {
    const ALL: &'static [Colour] = &[Colour::Red, Colour::Blue];

    fn place(self) -> usize {
        self as usize
    }
}

struct Both {
    red: Coloured,
    blue: Coloured,
}

impl Kinds for Both {
    type Kind = Colour;

    fn sockets(&self, kind: Colour) -> &dyn Sockets {
        match kind {
            Colour::Red => &self.red,
            Colour::Blue => &self.blue,
        }
    }
}

/// Sockets that each kind can have.
const SOCKETS_MAX: usize = 4096;

/// Open sockets by descriptor: the colour and the inode.
type Kernel = Arc<Mutex<BTreeMap<i32, (Colour, u64)>>>;

/// The sockets of one kind.
struct Coloured {
    colour: Colour,
    looked_for: bool,
    kernel: Kernel,
    records: Pool<Record, 1>,
    /// What was called, in words.
    calls: Mutex<Vec<String>>,
    /// How often references were asked for.
    asked: AtomicUsize,
    /// Something is left to do in every socket.
    has_work: AtomicBool,
}

struct Record {
    number: usize,
    references: References,
}

impl Coloured {
    fn new(colour: Colour, looked_for: bool, kernel: &Kernel) -> Coloured {
        Coloured {
            colour,
            looked_for,
            kernel: kernel.clone(),
            records: Pool::new(SOCKETS_MAX),
            calls: Mutex::default(),
            asked: AtomicUsize::new(0),
            has_work: AtomicBool::new(false),
        }
    }

    fn called(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// Sockets that have a record, by number.
    fn in_use(&self) -> BTreeSet<usize> {
        self.records.taken().map(|record| record.number).collect()
    }
}

impl Sockets for Coloured {
    fn most(&self) -> usize {
        SOCKETS_MAX
    }

    fn is_looked_for(&self) -> bool {
        self.looked_for
    }

    fn is_met_by_read(&self) -> bool {
        self.looked_for && self.colour == Colour::Blue
    }

    fn is_made_by(&self, family: i32, socket_type: i32, protocol: i32) -> bool {
        (family, socket_type, protocol) == (self.colour as i32, 1, 0)
    }

    fn look(&self, fd: i32, _origin: Origin) -> Option<u64> {
        let (colour, inode) = *self.kernel.lock().unwrap().get(&fd)?;
        (colour == self.colour).then_some(inode)
    }

    fn begin(&self, _inode: u64, origin: Origin) -> Option<usize> {
        let make = |number| {
            let references = References::new();
            let record = Box::leak(Box::new(Record { number, references }));
            Some(std::slice::from_ref(&*record))
        };
        let number = self.records.take(make)?.number;
        self.called(format!("begin {number} {origin:?}"));
        Some(number)
    }

    fn handed_on(&self, number: usize, fd: i32) -> u32 {
        self.called(format!("{number} accepts by {fd}"));
        1000 + number as u32
    }

    fn references(&self, number: usize) -> Option<&References> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.records.get(number).map(|record| &record.references)
    }

    fn end(&self, number: usize) {
        self.called(format!("end {number}"));
        self.records.give_back(number);
    }

    fn needs_descriptor(&self, _number: usize) -> bool {
        self.has_work.load(Ordering::Relaxed)
    }

    fn go_on_with(&'static self, number: usize, fd: i32) {
        self.called(format!("{number} goes on with {fd}"));
    }

    fn closing(&'static self, number: usize, fd: i32) {
        self.called(format!("closing {number} by {fd}"));
    }

    fn ending(&self, number: usize, fd: i32, waited: u32) -> bool {
        self.called(format!("ending {number} by {fd}"));
        waited >= ENDING_MS
    }

    fn ending_closed(&self, _waited: u32) -> bool {
        true
    }

    fn is_inherited(&self) -> bool {
        self.looked_for
    }

    fn share(&self, number: usize) {
        self.called(format!("share {number}"));
    }

    fn looks_again(&self) -> bool {
        false
    }

    fn release(&self, number: usize) {
        self.called(format!("release {number}"));
    }

    fn passed_by(&self, number: usize) {
        self.called(format!("passed by {number}"));
    }

    fn accepting_unseen(&self, _number: usize) {}

    fn anything_waits(&self) -> bool {
        false
    }

    fn flush_all(&self) {
        self.called("flush all".into());
    }

    fn before_fork(&self) {
        self.called("before fork".into());
    }

    fn confine(&self) {
        self.called("confine".into());
    }
}

/// How long a socket keeps a process that ends.
const ENDING_MS: u32 = 3;

/// A program: its kernel and its descriptors.
struct Program {
    kernel: Kernel,
    /// There as long as the process is, as the hooks' are.
    descriptors: &'static Descriptors<Both>,
    inodes: u64,
}

impl Program {
    fn new() -> Program {
        Program::of(true)
    }

    /// A program whose sockets of both kinds are looked for, or known only when claimed.
    fn of(looked_for: bool) -> Program {
        let kernel = Kernel::default();
        let kinds = Both {
            red: Coloured::new(Colour::Red, looked_for, &kernel),
            blue: Coloured::new(Colour::Blue, looked_for, &kernel),
        };
        Program {
            kernel,
            descriptors: Box::leak(Box::new(Descriptors::over(kinds).unwrap())),
            inodes: 0,
        }
    }

    fn red(&self) -> &Coloured {
        &self.descriptors.kinds().red
    }

    fn blue(&self) -> &Coloured {
        &self.descriptors.kinds().blue
    }

    /// A socket appears as `fd`; nobody is told.
    fn inherits(&mut self, fd: i32, colour: Colour) {
        self.inodes += 1;
        let inode = self.inodes;
        self.kernel.lock().unwrap().insert(fd, (colour, inode));
    }

    /// The program calls `socket`.
    fn makes(&mut self, fd: i32, colour: Colour) {
        self.inherits(fd, colour);
        self.descriptors.made_socket(fd, colour as i32, 1, 0);
    }

    /// The program calls `accept` on `by`, which gives `fd`.
    fn accepts(&mut self, by: i32, fd: i32, colour: Colour) {
        let listener = self.descriptors.listener(by);
        self.inherits(fd, colour);
        self.descriptors.accepted(listener, fd);
    }

    /// The program duplicates `old`, in a way that a hook sees or does not.
    fn duplicates(&self, old: i32, new: i32, seen: bool) {
        let mut kernel = self.kernel.lock().unwrap();
        match kernel.get(&old).copied() {
            Some(socket) => kernel.insert(new, socket),
            None => kernel.remove(&new),
        };
        drop(kernel);
        if seen {
            self.descriptors.duplicated(old, new);
        }
    }

    /// The program calls `close`.
    fn closes(&self, fd: i32) {
        self.descriptors.closing(fd);
        self.kernel.lock().unwrap().remove(&fd);
    }
}

const fn red(number: usize) -> Option<Socket<Colour>> {
    Some(Socket {
        kind: Colour::Red,
        number,
    })
}

const fn blue(number: usize) -> Option<Socket<Colour>> {
    Some(Socket {
        kind: Colour::Blue,
        number,
    })
}

#[test]
fn each_kind_has_numbers_of_its_own() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    program.makes(4, Colour::Blue);
    program.inherits(5, Colour::Blue);
    // Nobody calls a socket with this family and type one of ours.
    program.descriptors.made_socket(6, 77, 1, 0);
    let found = [3, 4, 5, 6].map(|fd| program.descriptors.socket(fd));
    assert_eq!(found, [red(0), blue(0), blue(1), None]);
    assert_eq!(program.red().take_calls(), ["begin 0 Made"]);
    assert_eq!(
        program.blue().take_calls(),
        ["begin 0 Made", "begin 1 Found"]
    );
}

#[test]
fn descriptors_of_one_socket_are_one_socket_however_they_came() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    program.duplicates(3, 4, true);
    program.duplicates(3, 5, false);
    let found = [3, 4, 5].map(|fd| program.descriptors.socket(fd));
    assert_eq!(found, [red(0); 3]);
    program.closes(3);
    program.closes(4);
    assert_eq!(program.red().in_use(), [0].into());
    program.closes(5);
    assert_eq!(program.red().in_use(), [].into());
    let calls = program.red().take_calls();
    assert_eq!(
        calls,
        [
            "begin 0 Made",
            "closing 0 by 3",
            "closing 0 by 4",
            "closing 0 by 5",
            "end 0"
        ]
    );
    // The number is the next socket's.
    program.makes(9, Colour::Red);
    assert_eq!(program.descriptors.socket(9), red(0));
}

#[test]
fn what_a_socket_accepts_is_of_its_kind_and_has_what_it_hands_on() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    program.accepts(3, 4, Colour::Red);
    // Made, and closed in a way no hook saw: the number is of the connection now.
    program.makes(5, Colour::Blue);
    program.accepts(4, 5, Colour::Red);
    let found = [4, 5].map(|fd| program.descriptors.known(fd));
    assert_eq!(found, [red(1), red(2)]);
    assert_eq!(program.blue().in_use(), [].into());
    let calls = program.red().take_calls();
    assert_eq!(
        calls,
        [
            "begin 0 Made",
            "0 accepts by 3",
            "begin 1 Accepted(1000)",
            "1 accepts by 4",
            "begin 2 Accepted(1001)",
        ]
    );
    // A listener that is closed while another thread waits in accept hands on what it was.
    let listener = program.descriptors.listener(3);
    program.closes(3);
    program.inherits(6, Colour::Red);
    program.descriptors.accepted(listener, 6);
    assert_eq!(
        program.red().take_calls().pop().unwrap(),
        "begin 0 Accepted(1000)"
    );
    // Of the kernel's own nothing is looked at, and a call that failed made nothing.
    program.accepts(100, 7, Colour::Red);
    assert_eq!(program.descriptors.socket(7), None);
    program.descriptors.accepted(listener, -1);
}

#[test]
fn only_kinds_that_ask_for_it_are_met_by_read() {
    let mut program = Program::new();
    program.inherits(3, Colour::Red);
    program.inherits(4, Colour::Blue);
    let met = [3, 4].map(|fd| program.descriptors.met_by_read(fd));
    assert_eq!(met, [red(0), blue(0)], "whoever looks sees what it is");
    let mut program = Program::of(false);
    program.inherits(4, Colour::Blue);
    assert_eq!(program.descriptors.met_by_read(4), None);
    assert_eq!(program.blue().asked.load(Ordering::Relaxed), 0);
}

#[test]
fn kinds_that_are_not_looked_for_have_what_is_claimed() {
    let mut program = Program::of(false);
    program.makes(3, Colour::Red);
    program.inherits(4, Colour::Blue);
    let found = [3, 4].map(|fd| program.descriptors.socket(fd));
    assert_eq!(found, [None, None]);
    assert_eq!(program.descriptors.claim(3, Colour::Red), red(0));
    assert_eq!(program.descriptors.claim(3, Colour::Red), red(0));
    assert_eq!(program.descriptors.claim(3, Colour::Blue), None);
    assert_eq!(
        program.descriptors.claim(4, Colour::Red),
        None,
        "it is blue"
    );
    assert_eq!(program.descriptors.claim(-1, Colour::Red), None);
    // What comes of it is known, too.
    program.duplicates(3, 5, true);
    program.accepts(3, 6, Colour::Red);
    let known = [3, 5, 6].map(|fd| program.descriptors.known(fd));
    assert_eq!(known, [red(0), red(0), red(1)]);
    for fd in [3, 5, 6] {
        program.closes(fd);
    }
    assert_eq!(program.red().in_use(), [].into());
    program.descriptors.confine();
    assert_eq!(program.descriptors.claim(4, Colour::Blue), None);
}

#[test]
fn calls_reach_the_kind_that_they_concern() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    program.makes(4, Colour::Blue);
    program.red().take_calls();
    program.blue().take_calls();
    program.descriptors.release(3);
    program.descriptors.passed_by(3);
    assert_eq!(program.red().take_calls(), ["release 0", "passed by 0"]);
    assert_eq!(program.blue().take_calls(), [""; 0]);
    program.descriptors.before_fork();
    program.descriptors.flush_all();
    for colour in [program.red(), program.blue()] {
        assert_eq!(colour.take_calls(), ["before fork", "flush all"]);
    }
    program.descriptors.closing_range(0, u32::MAX);
    assert_eq!(program.red().take_calls(), ["closing 0 by 3", "end 0"]);
    assert_eq!(program.blue().take_calls(), ["closing 0 by 4", "end 0"]);
}

/// A number that stands for something in this process.
const OPEN: i32 = 0;

#[test]
fn a_number_that_is_overwritten_is_closed_first() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    program.red().take_calls();
    // It will be refused: the number stays what it is.
    program.descriptors.overwriting(-1, 3);
    assert_eq!(program.red().take_calls(), [""; 0]);
    assert_eq!(program.descriptors.known(3), red(0));
    program.descriptors.overwriting(OPEN, 3);
    assert_eq!(program.red().take_calls(), ["closing 0 by 3", "end 0"]);
    assert_eq!(program.descriptors.known(3), None);
}

#[test]
fn who_has_work_left_is_told_of_a_descriptor_that_stays() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    program.duplicates(3, 9, true);
    program.makes(4, Colour::Red);
    program.red().has_work.store(true, Ordering::Relaxed);
    program.red().take_calls();
    program.closes(3);
    let calls = program.red().take_calls();
    assert_eq!(calls, ["closing 0 by 3", "0 goes on with 9"]);
    program.closes(9);
    let calls = program.red().take_calls();
    assert_eq!(calls, ["closing 0 by 9", "end 0"], "no other is left");
}

#[test]
fn a_number_that_comes_again_is_what_it_is_now() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    // Closed in a way no hook saw, and made again as something else.
    program.makes(3, Colour::Blue);
    assert_eq!(program.descriptors.known(3), blue(0));
    assert_eq!(program.red().in_use(), [].into());
    program.descriptors.made_other(3);
    assert_eq!(program.descriptors.socket(3), None);
    assert_eq!(program.blue().in_use(), [].into());
    program.inherits(3, Colour::Red);
    program.descriptors.arrived(3);
    assert_eq!(program.descriptors.socket(3), red(0));
}

#[test]
fn an_inode_that_comes_again_as_another_kind_is_of_that_kind() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    // Closed in a way no hook saw; long after, the kernel gives the number to another socket.
    let mut kernel = program.kernel.lock().unwrap();
    let (_, inode) = kernel.remove(&3).unwrap();
    kernel.insert(4, (Colour::Blue, inode));
    drop(kernel);
    assert_eq!(program.descriptors.socket(4), blue(0));
}

#[test]
fn sockets_that_are_gone_leave_nothing_behind() {
    let mut program = Program::new();
    for _ in 0..50_000 {
        program.makes(3, Colour::Red);
        assert_eq!(program.descriptors.socket(3), red(0));
        program.closes(3);
    }
}

#[test]
fn whoever_confines_itself_is_not_looked_at() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    program.inherits(4, Colour::Red);
    program.descriptors.confine();
    program.descriptors.confine();
    let calls = program.red().take_calls();
    assert_eq!(
        calls,
        ["begin 0 Made", "flush all", "confine", "flush all"],
        "each kind is told once"
    );
    program.makes(5, Colour::Red);
    assert_eq!(
        [3, 4, 5].map(|fd| program.descriptors.socket(fd)),
        [red(0), None, None]
    );
}

#[test]
fn sockets_beyond_the_last_number_are_the_kernels() {
    let mut program = Program::new();
    let mut fd = 0;
    while program.descriptors.known(fd - 1).is_some() || fd == 0 {
        program.makes(fd, Colour::Red);
        fd += 1;
    }
    let most = program.red().in_use().len();
    assert_eq!(most, SOCKETS_MAX);
    // One kind's want of numbers is not the other's.
    program.makes(fd, Colour::Blue);
    assert_eq!(program.descriptors.socket(fd), blue(0));
    program.closes(17);
    program.makes(17, Colour::Red);
    assert_eq!(program.descriptors.socket(17), red(17));
}

#[test]
fn a_socket_is_found_among_thousands_without_walking() {
    let mut program = Program::new();
    for fd in 0..4000 {
        program.makes(fd, Colour::Red);
    }
    for fd in 0..4000 {
        program.duplicates(fd, 10_000 + fd, false);
        let before = program.red().asked.load(Ordering::Relaxed);
        let found = program.descriptors.socket(10_000 + fd);
        assert_eq!(found, red(fd as usize));
        let asked = program.red().asked.load(Ordering::Relaxed) - before;
        assert!(asked <= 8, "{asked} records were looked at");
    }
}

#[test]
fn threads_that_find_and_close_one_socket_share_its_record() {
    const THREADS: i32 = 4;
    const ROUNDS: i32 = 5_000;
    let mut program = Program::new();
    program.makes(0, Colour::Red);
    std::thread::scope(|scope| {
        for own in 1..=THREADS {
            let program = &program;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    program.duplicates(0, own, false);
                    assert_eq!(program.descriptors.socket(own), red(0));
                    program.closes(own);
                }
            });
        }
    });
    assert_eq!(program.descriptors.socket(0), red(0));
    let calls = program.red().take_calls();
    let begun = calls.iter().filter(|call| call.starts_with("begin"));
    assert_eq!(begun.count(), 1);
    assert!(!calls.contains(&"end 0".into()));
    program.closes(0);
    assert_eq!(program.red().in_use(), [].into());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Make(i32, Colour),
    Inherit(i32, Colour),
    Duplicate { old: i32, new: i32, seen: bool },
    Close(i32),
    CloseRange(i32, i32),
    Other(i32),
    Look(i32),
}

fn step() -> impl Strategy<Value = Step> {
    let fd = || 0..12i32;
    let colour = || prop_oneof![Just(Colour::Red), Just(Colour::Blue)];
    prop_oneof![
        (fd(), colour()).prop_map(|(fd, colour)| Step::Make(fd, colour)),
        (fd(), colour()).prop_map(|(fd, colour)| Step::Inherit(fd, colour)),
        (fd(), fd(), any::<bool>()).prop_map(|(old, new, seen)| Step::Duplicate { old, new, seen }),
        fd().prop_map(Step::Close),
        (fd(), fd()).prop_map(|(first, last)| Step::CloseRange(first, last)),
        fd().prop_map(Step::Other),
        fd().prop_map(Step::Look),
    ]
}

proptest! {
    /// Whatever a program does with its descriptors, those that are known stand for the right socket, and a socket has
    /// one record for as long as a known descriptor stands for it.
    #[test]
    fn records_are_those_of_the_sockets_that_are_known(steps in prop::collection::vec(step(), 0..120)) {
        let mut program = Program::new();
        for step in steps {
            let is_free = |fd| !program.kernel.lock().unwrap().contains_key(&fd) && program.descriptors.known(fd).is_none();
            match step {
                Step::Make(fd, colour) => program.makes(fd, colour),
                // What nobody is told of appears where nothing was, or is only met after another hook.
                Step::Inherit(fd, colour) if is_free(fd) => {
                    program.inherits(fd, colour);
                    program.descriptors.arrived(fd);
                }
                Step::Duplicate { old, new, seen } if seen => program.duplicates(old, new, true),
                Step::Duplicate { old, new, .. } if is_free(new) => {
                    program.duplicates(old, new, false);
                    program.descriptors.arrived(new);
                }
                Step::Close(fd) => program.closes(fd),
                Step::CloseRange(first, last) => {
                    program.descriptors.closing_range(first as u32, last as u32);
                    program.kernel.lock().unwrap().retain(|fd, _| !(first..=last).contains(fd));
                }
                Step::Other(fd) => {
                    program.kernel.lock().unwrap().remove(&fd);
                    program.descriptors.made_other(fd);
                }
                Step::Look(fd) => {
                    let found = program.descriptors.socket(fd).map(|socket| socket.kind);
                    let there = program.kernel.lock().unwrap().get(&fd).map(|(colour, _)| *colour);
                    prop_assert_eq!(found, there);
                }
                Step::Inherit(..) | Step::Duplicate { .. } => {}
            }
            let mut records = BTreeMap::new();
            for fd in 0..12 {
                let Some(socket) = program.descriptors.known(fd) else { continue };
                let (colour, inode) = program.kernel.lock().unwrap()[&fd];
                prop_assert_eq!(socket.kind, colour);
                let other = records.insert(inode, (colour, socket.number));
                prop_assert!(other.is_none_or(|other| other == (colour, socket.number)));
            }
            for coloured in [program.red(), program.blue()] {
                let wanted: BTreeSet<usize> = records
                    .values()
                    .filter(|(colour, _)| *colour == coloured.colour)
                    .map(|(_, number)| *number)
                    .collect();
                prop_assert_eq!(coloured.in_use(), wanted);
            }
            let sockets: BTreeSet<(Colour, usize)> = records.values().copied().collect();
            prop_assert_eq!(sockets.len(), records.len(), "two sockets have one record");
        }
    }
}

#[test]
fn what_is_passed_on_is_shared() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    program.red().take_calls();
    program.descriptors.passing(3);
    program.descriptors.passing(4);
    assert_eq!(program.red().take_calls(), ["share 0"]);
}

#[test]
fn a_process_ends_when_its_sockets_let_it() {
    let mut program = Program::new();
    program.makes(3, Colour::Red);
    program.makes(4, Colour::Blue);
    program.red().take_calls();
    program.descriptors.ending();
    for sockets in [program.red(), program.blue()] {
        assert!(sockets.take_calls().len() > 1);
    }
}
