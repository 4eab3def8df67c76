
/// Put in by tests/mutants: which mutant is on is said by the environment.
pub mod weft_mutants {
    #![allow(missing_docs, clippy::all)]
    extern crate std;
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::OnceLock;

    static REACHED: [AtomicBool; HOW_MANY] = [const { AtomicBool::new(false) }; HOW_MANY];

    fn active() -> u32 {
        static ACTIVE: OnceLock<u32> = OnceLock::new();
        *ACTIVE.get_or_init(|| {
            let number = std::env::var("WEFT_MUTANT").ok();
            number.and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
        })
    }

    /// Writes down that a test comes by here, once for each process.
    fn reached(number: u32) {
        static FILE: OnceLock<Option<std::fs::File>> = OnceLock::new();
        if active() != u32::MAX || REACHED[number as usize].swap(true, Ordering::Relaxed) {
            return;
        }
        let file = FILE.get_or_init(|| {
            let path = std::env::var_os("WEFT_MUTANTS_REACHED")?;
            std::fs::OpenOptions::new().append(true).create(true).open(path).ok()
        });
        if let Some(mut file) = file.as_ref() {
            let _ = file.write_all(std::format!("{number}\n").as_bytes());
        }
    }

    pub fn on(number: u32) -> bool {
        reached(number);
        active() == number
    }

    pub fn term(number: u32, value: bool) -> bool {
        reached(number);
        let active = active();
        if active == number {
            true
        } else if active == number.wrapping_add(1) {
            false
        } else {
            value
        }
    }

    pub trait Said: Sized {
        fn nothing() -> Self;
        fn no(&self) -> bool;
    }

    impl<E> Said for Result<(), E> {
        fn nothing() -> Self {
            Ok(())
        }
        fn no(&self) -> bool {
            self.is_err()
        }
    }

    pub fn unless<S: Said>(number: u32, said: S) -> S {
        if on(number) && said.no() {
            S::nothing()
        } else {
            said
        }
    }
}
