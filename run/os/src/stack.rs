//! How large the stack of a thread of ours has to be in somebody's program.

use std::ffi::{c_int, c_void};

use libc::{dl_phdr_info, size_t};

/// Octets of stack to ask for, for a thread whose own frames take `octets`.
///
/// The C library puts the thread-local memory of the program and its libraries on the stack of every thread, ours among
/// them, and takes it from what was asked for. A program may have any amount of it.
pub fn octets_with(octets: usize) -> usize {
    octets + thread_local_octets()
}

/// Octets of thread-local memory of all that is loaded. What was loaded later than the program does not lie on stacks,
/// and counts here all the same.
fn thread_local_octets() -> usize {
    let mut sum = 0usize;
    // SAFETY: `add` is called before this returns, each time with the address of `sum`, which nobody else uses then.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut sum).cast()) };
    sum
}

unsafe extern "C" fn add(info: *mut dl_phdr_info, _size: size_t, sum: *mut c_void) -> c_int {
    // SAFETY: the loader hands over a description that is valid during this call, and `sum` is that of the caller.
    let (info, sum) = unsafe { (&*info, &mut *sum.cast::<usize>()) };
    for number in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: there are so many headers at that address.
        let header = unsafe { &*info.dlpi_phdr.add(number) };
        if header.p_type == libc::PT_TLS {
            // Each begins at a multiple of its alignment.
            *sum = sum.saturating_add((header.p_memsz + header.p_align) as usize);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// As much as the stack of a small thread.
    const LARGE: usize = 250 << 10;

    thread_local! {
        static LARGE_VALUE: Cell<[u8; LARGE]> = const { Cell::new([7; LARGE]) };
    }

    #[inline(never)]
    fn uses_stack(octets: usize) -> usize {
        const FRAME: usize = 4096;
        let frame = std::hint::black_box([1u8; FRAME]);
        let deeper = octets.saturating_sub(FRAME);
        usize::from(frame[octets % FRAME]) + if deeper > 0 { uses_stack(deeper) } else { 0 }
    }

    /// With a stack of `OWN` alone this ends the test by a signal.
    #[test]
    fn a_thread_has_its_octets_beside_the_programs_thread_local_memory() {
        const OWN: usize = 128 << 10;
        assert!(octets_with(0) >= LARGE);
        let thread = std::thread::Builder::new().stack_size(octets_with(OWN));
        let thread = thread.spawn(|| {
            let last = LARGE_VALUE.with(|value| value.as_ptr() as usize + LARGE - 1);
            (uses_stack(OWN - (16 << 10)), last)
        });
        let (frames, last) = thread.unwrap().join().unwrap();
        assert!(frames > 0 && last > 0);
    }
}
