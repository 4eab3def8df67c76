//! The guarded copy and exchange of x86-64.
//!
//! A copy of some length has three ways to go: `rep movsb`, vectors of 32 octets (AVX), and of 16. The first is not
//! for every processor: on AMD's Zen 3 it takes fifteen times as long where the target lies 1 to 62 octets behind the
//! source, both modulo 4096 (measured). A payload that goes from the start of a page to its place behind a header
//! lies like that. So all of AMD's processors copy by vectors, whatever the length; where `rep movsb` is good they
//! are as good. On others `rep movsb` copies what has 4096 octets and more, as in glibc (not measured here).

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::__cpuid;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// From how many octets on `rep movsb` copies: at first where nothing is known of the processor.
static STRING_OCTETS_MIN: AtomicUsize = AtomicUsize::new(512);
/// Whether vectors of 32 octets can be used.
static HAS_AVX: AtomicBool = AtomicBool::new(false);

/// The same where vectors of 32 octets do as well for what is shorter.
const STRING_OCTETS_MIN_BESIDE_AVX: usize = 4096;
/// Makers of processors whose `rep movsb` is not used: the words that CPUID leaf 0 has in EBX, EDX and ECX.
const MAKERS_WITHOUT_STRINGS: [&[u8; 12]; 2] = [b"AuthenticAMD", b"HygonGenuine"];

/// Finds out how this processor copies best. Until it has been called copies go the way that works everywhere.
pub(super) fn choose() {
    if !is_x86_feature_detected!("avx") {
        return;
    }
    let strings = match MAKERS_WITHOUT_STRINGS.contains(&&maker()) {
        true => usize::MAX,
        false => STRING_OCTETS_MIN_BESIDE_AVX,
    };
    STRING_OCTETS_MIN.store(strings, Ordering::Relaxed);
    HAS_AVX.store(true, Ordering::Relaxed);
}

/// Who made the processor.
// Newer Rust has it that asking the processor is safe.
#[allow(unused_unsafe)]
fn maker() -> [u8; 12] {
    // SAFETY: every x86-64 processor has CPUID and its leaf 0.
    let leaf = unsafe { __cpuid(0) };
    let mut name = [0; 12];
    for (part, word) in name.chunks_exact_mut(4).zip([leaf.ebx, leaf.edx, leaf.ecx]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    name
}

// rdi = target, rsi = source, rdx = octets; returns 0, or 1 after a fault.
// Ascending order: a program that watches the last octet sees the others placed before it. The last few octets are
// two words that may overlap, or two pairs of vectors, all read before the first is written: source and target may
// overlap, too. So may the
// first vector of a long copy and the block behind it, which begins where the target is aligned: the block is read
// before that vector is written. A fault leaves the upper halves of the vectors as they are, which costs what uses them
// next some time and is no fault of its own.
std::arch::global_asm!(
    ".text",
    ".p2align 5",
    ".hidden weft_guarded_copy",
    ".globl weft_guarded_copy",
    ".type weft_guarded_copy,@function",
    "weft_guarded_copy:",
    "cmp rdx, 256",
    "jae 3f",
    "2:",
    "cmp rdx, 32",
    "jb 4f",
    "cmp rdx, 64",
    "jbe 12f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "add rsi, 32",
    "add rdi, 32",
    "sub rdx, 32",
    "jmp 2b",
    "12:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + rdx - 32]",
    "movups xmm3, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "movups [rdi + rdx - 16], xmm3",
    "xor eax, eax",
    "ret",
    "4:",
    "cmp rdx, 16",
    "jb 5f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "xor eax, eax",
    "ret",
    "5:",
    "cmp rdx, 8",
    "jb 7f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + rdx - 8]",
    "mov [rdi], rax",
    "mov [rdi + rdx - 8], rcx",
    "xor eax, eax",
    "ret",
    "7:",
    "cmp rdx, 4",
    "jb 8f",
    "mov eax, [rsi]",
    "mov ecx, [rsi + rdx - 4]",
    "mov [rdi], eax",
    "mov [rdi + rdx - 4], ecx",
    "xor eax, eax",
    "ret",
    "8:",
    "test rdx, rdx",
    "jz 6f",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jmp 8b",
    "3:",
    "cmp rdx, [rip + {string_octets_min}]",
    "jae 9f",
    "cmp byte ptr [rip + {has_avx}], 0",
    "je 2b",
    "vmovups ymm4, [rsi]",
    "mov r8, rdi",
    "mov ecx, edi",
    "neg ecx",
    "and ecx, 31",
    "add rsi, rcx",
    "add rdi, rcx",
    "sub rdx, rcx",
    "vmovups ymm0, [rsi]",
    "vmovups ymm1, [rsi + 32]",
    "vmovups ymm2, [rsi + 64]",
    "vmovups ymm3, [rsi + 96]",
    "vmovups [r8], ymm4",
    // The lines that a long copy goes to are mostly another core's, which read them last: they are asked for ahead of
    // the writes.
    "cmp rdx, 4096",
    "jb 22f",
    "24:",
    "prefetchw [rdi + 512]",
    "prefetchw [rdi + 576]",
    "vmovups [rdi], ymm0",
    "vmovups [rdi + 32], ymm1",
    "vmovups [rdi + 64], ymm2",
    "vmovups [rdi + 96], ymm3",
    "add rsi, 128",
    "add rdi, 128",
    "sub rdx, 128",
    "cmp rdx, 128",
    "jb 23f",
    "vmovups ymm0, [rsi]",
    "vmovups ymm1, [rsi + 32]",
    "vmovups ymm2, [rsi + 64]",
    "vmovups ymm3, [rsi + 96]",
    "jmp 24b",
    "22:",
    "vmovups [rdi], ymm0",
    "vmovups [rdi + 32], ymm1",
    "vmovups [rdi + 64], ymm2",
    "vmovups [rdi + 96], ymm3",
    "add rsi, 128",
    "add rdi, 128",
    "sub rdx, 128",
    "cmp rdx, 128",
    "jb 23f",
    "vmovups ymm0, [rsi]",
    "vmovups ymm1, [rsi + 32]",
    "vmovups ymm2, [rsi + 64]",
    "vmovups ymm3, [rsi + 96]",
    "jmp 22b",
    "23:",
    "vzeroupper",
    "jmp 2b",
    "9:",
    "mov rcx, rdx",
    "rep movsb",
    "6:",
    "xor eax, eax",
    "ret",
    // rdi = target, rsi = expected value, replaced by the one found, rdx = new value; returns 0,
    // or 1 after a fault. It stands here so that the same exit serves it.
    ".p2align 4",
    ".hidden weft_guarded_compare_exchange",
    ".globl weft_guarded_compare_exchange",
    "weft_guarded_compare_exchange:",
    "mov rax, [rsi]",
    "lock cmpxchg [rdi], rdx",
    "mov [rsi], rax",
    "xor eax, eax",
    "ret",
    ".hidden weft_guarded_copy_fault",
    ".globl weft_guarded_copy_fault",
    "weft_guarded_copy_fault:",
    "mov eax, 1",
    "ret",
    ".size weft_guarded_copy, . - weft_guarded_copy",
    string_octets_min = sym STRING_OCTETS_MIN,
    has_avx = sym HAS_AVX,
);

/// The instruction that a signal interrupted.
pub(super) fn instruction(context: &mut libc::ucontext_t) -> &mut i64 {
    &mut context.uc_mcontext.gregs[libc::REG_RIP as usize]
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::guard;
    use crate::mem::Registered;

    /// Runs a test by each way that a copy may go, one test at a time. Others that copy meanwhile go by it too, which
    /// is as good.
    fn by_each_way(test: impl Fn(&str)) {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        guard::install();
        choose();
        let has_avx = HAS_AVX.load(Ordering::Relaxed);
        let before = STRING_OCTETS_MIN.load(Ordering::Relaxed);
        for (way, avx, strings) in [
            ("strings", false, 256),
            ("vectors of 16 octets", false, usize::MAX),
            ("vectors of 32 octets", has_avx, usize::MAX),
        ] {
            HAS_AVX.store(avx, Ordering::Relaxed);
            STRING_OCTETS_MIN.store(strings, Ordering::Relaxed);
            test(way);
        }
        HAS_AVX.store(has_avx, Ordering::Relaxed);
        STRING_OCTETS_MIN.store(before, Ordering::Relaxed);
    }

    fn octets(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn a_copy_is_exact_whatever_its_length_and_wherever_it_begins() {
        by_each_way(|way| {
            let source = octets(5000);
            for len in (0..700).chain([4095, 4096, 4097, 4900]) {
                for (to, from) in [(0, 0), (1, 0), (0, 1), (31, 7), (20, 64), (63, 1)] {
                    let mut target = vec![0xEE_u8; 64 + len + 64];
                    // SAFETY: both ranges lie in the vectors, which nobody else has.
                    let copied = unsafe {
                        guard::copy(target[to..].as_mut_ptr(), source[from..].as_ptr(), len)
                    };
                    assert!(copied);
                    assert_eq!(
                        target[to..to + len],
                        source[from..from + len],
                        "{way}: {len}"
                    );
                    let around = target[..to].iter().chain(&target[to + len..]);
                    assert!(around.copied().all(|o| o == 0xEE), "{way}: {len}");
                }
            }
        });
    }

    #[test]
    fn octets_move_to_where_others_of_them_were_read() {
        by_each_way(|way| {
            for distance in [1, 8, 31, 32, 33, 100, 127, 128, 500] {
                for len in [64, 256, 300, 1000, 2000] {
                    let mut memory = octets(distance + len);
                    let moved = memory[distance..].to_vec();
                    let start = memory.as_mut_ptr();
                    // SAFETY: both ranges lie in the vector, which nobody else has.
                    assert!(unsafe { guard::copy(start, start.add(distance), len) });
                    assert_eq!(memory[..len], moved, "{way}: {len} by {distance}");
                }
            }
        });
    }

    #[test]
    fn memory_that_ends_in_a_copy_is_no_fault_of_the_process() {
        const PAGE: usize = 4096;
        // SAFETY: the mapping is new and this test's; its second half is unmapped again before it is used.
        let page = unsafe {
            let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            let kind = kind | libc::MAP_ANONYMOUS;
            let page = libc::mmap(std::ptr::null_mut(), 2 * PAGE, rights, kind, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            let behind = page.cast::<u8>().add(PAGE);
            assert_eq!(libc::mprotect(behind.cast(), PAGE, libc::PROT_NONE), 0);
            page.cast::<u8>()
        };
        by_each_way(|way| {
            let mut ours = octets(2000);
            for (len, there) in [
                (1, 0),
                (300, 0),
                (300, 31),
                (300, 290),
                (2000, 500),
                (2000, 1999),
            ] {
                // SAFETY: the range ends where nothing can be read, and the vector has room.
                let copied = unsafe { guard::copy(ours.as_mut_ptr(), page.add(PAGE - there), len) };
                assert!(!copied, "{way}: {there} of {len} can be read");
                // SAFETY: the range ends where nothing can be written, which is tested.
                let copied = unsafe { guard::copy(page.add(PAGE - there), ours.as_ptr(), len) };
                assert!(!copied, "{way}: {there} of {len} can be written");
            }
        });
        // SAFETY: nobody else knows the mapping.
        assert_eq!(unsafe { libc::munmap(page.cast(), 2 * PAGE) }, 0);
        // What is copied afterwards is none the worse.
        let memory = Registered::allocate(600).unwrap();
        memory.write(0, &octets(600)).unwrap();
        let mut back = vec![0; 600];
        memory.read(0, &mut back).unwrap();
        assert_eq!(back, octets(600));
    }
}
