//! Printing to a descriptor (`dprintf` and its relatives), which the C library does by calls of its own that no hook
//! sees: on a connection over DDP the text is made first and then written as any other.

use std::ffi::{c_char, c_int, c_void};

use crate::real::Real;
use crate::socket::Socket;

/// Prints to a descriptor as `vdprintf` does, where that is a connection over DDP; else gives -2.
unsafe extern "C-unwind" fn print(
    fd: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    type Signature =
        unsafe extern "C-unwind" fn(*mut *mut c_char, *const c_char, *mut c_void) -> c_int;
    static REAL: Real<Signature> = Real::new(c"vasprintf");
    listed!(REAL);
    if crate::mine::mine_or_file(fd).is_none_or(|mine| !mine.is_framed()) {
        return -2;
    }
    let mut text = std::ptr::null_mut();
    // SAFETY: the program's own format and arguments.
    let len = unsafe { REAL.get()(&mut text, format, arguments) };
    if len < 0 {
        return -1;
    }
    let (mut written, len) = (0, len as usize);
    while written < len {
        // SAFETY: the text is `len` octets long.
        match unsafe { crate::send::write(fd, text.wrapping_add(written).cast(), len - written) } {
            now if now > 0 => written += now as usize,
            _ => break,
        }
    }
    // SAFETY: `vasprintf` made it, and it is not used any more.
    unsafe { libc::free(text.cast()) };
    match written == len {
        true => len as c_int,
        false => -1,
    }
}

/// Keeps the registers of arguments on the stack.
#[cfg(target_arch = "x86_64")]
macro_rules! keep {
    () => {
        "mov [rsp], rdi
        mov [rsp + 8], rsi
        mov [rsp + 16], rdx
        mov [rsp + 24], rcx
        mov [rsp + 32], r8
        mov [rsp + 40], r9
        movaps [rsp + 48], xmm0
        movaps [rsp + 64], xmm1
        movaps [rsp + 80], xmm2
        movaps [rsp + 96], xmm3
        movaps [rsp + 112], xmm4
        movaps [rsp + 128], xmm5
        movaps [rsp + 144], xmm6
        movaps [rsp + 160], xmm7"
    };
}

/// Gives them back.
#[cfg(target_arch = "x86_64")]
macro_rules! give_back {
    () => {
        "mov rdi, [rsp]
        mov rsi, [rsp + 8]
        mov rdx, [rsp + 16]
        mov rcx, [rsp + 24]
        mov r8, [rsp + 32]
        mov r9, [rsp + 40]
        movaps xmm0, [rsp + 48]
        movaps xmm1, [rsp + 64]
        movaps xmm2, [rsp + 80]
        movaps xmm3, [rsp + 96]
        movaps xmm4, [rsp + 112]
        movaps xmm5, [rsp + 128]
        movaps xmm6, [rsp + 144]
        movaps xmm7, [rsp + 160]"
    };
}

/// `prints!(name: fd, format in these registers)`: functions that print to a descriptor. They gather their arguments as
/// a `va_list` has them (System V ABI, AMD64, 3.5.7), ask [`print`], and are the C library's where that has not
/// printed.
#[cfg(target_arch = "x86_64")]
macro_rules! prints {
    ($($name:ident, $format:literal, $gp:literal;)*) => {
        $(
            /// # Safety
            /// As for the C library's function.
            #[unsafe(naked)]
            #[no_mangle]
            pub unsafe extern "C" fn $name() {
                static REAL: Real<unsafe extern "C" fn()> =
                    Real::new(match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => panic!(),
                    });
                listed!(REAL);
                std::arch::naked_asm!(
                    "endbr64",
                    "push rbp",
                    "mov rbp, rsp",
                    // 176 octets of registers, 24 of the va_list, al, and room to align.
                    "sub rsp, 224",
                    keep!(),
                    "mov [rsp + 208], rax",
                    "mov dword ptr [rsp + 176], {gp}",
                    "mov dword ptr [rsp + 180], 48",
                    "lea rax, [rbp + 16]",
                    "mov [rsp + 184], rax",
                    "mov [rsp + 192], rsp",
                    "mov rsi, [rsp + {format}]",
                    "lea rdx, [rsp + 176]",
                    "call {before}",
                    "mov edi, [rsp]",
                    "mov rsi, [rsp + {format}]",
                    "lea rdx, [rsp + 176]",
                    "call {print}",
                    "cmp eax, -2",
                    "jne 2f",
                    "lea rdi, [rip + {real}]",
                    "call {found}",
                    "mov r11, rax",
                    give_back!(),
                    "mov rax, [rsp + 208]",
                    "leave",
                    "jmp r11",
                    "2:",
                    "leave",
                    "ret",
                    gp = const $gp,
                    format = const $format,
                    real = sym REAL,
                    found = sym crate::process::found,
                    before = sym crate::process::before_printing,
                    print = sym print,
                )
            }
        )*
    };
}

// The format is the second argument, or behind a flag the third; what follows it are the arguments.
#[cfg(target_arch = "x86_64")]
prints! {
    dprintf, 8, 16;
    __dprintf_chk, 16, 24;
}

hook!(fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int, real => {
    crate::process::before_printing(fd);
    // SAFETY: the program's own call.
    match unsafe { print(fd, format, arguments) } {
        -2 => real(),
        printed => printed,
    }
});

hook!(fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int, real => {
    crate::process::before_printing(fd);
    // SAFETY: the program's own call.
    match unsafe { print(fd, format, arguments) } {
        -2 => real(),
        printed => printed,
    }
});
