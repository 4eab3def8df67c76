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

/// Prints, or does what the C library's function does, with the arguments that the caller has in registers and on the
/// stack as a `va_list` of the System V ABI (AMD64, 3.5.7). The frame has 176 octets of registers, the 24 of the
/// `va_list`, al, which counts floating-point arguments, and room to align.
#[cfg(target_arch = "x86_64")]
macro_rules! print_or_forward {
    () => {
        "endbr64
        push rbp
        mov rbp, rsp
        sub rsp, 224
        mov [rsp], rdi
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
        movaps [rsp + 160], xmm7
        mov [rsp + 208], rax
        mov dword ptr [rsp + 176], {gp}
        mov dword ptr [rsp + 180], 48
        lea rax, [rbp + 16]
        mov [rsp + 184], rax
        mov [rsp + 192], rsp
        mov rsi, [rsp + {format}]
        lea rdx, [rsp + 176]
        call {before}
        mov edi, [rsp]
        mov rsi, [rsp + {format}]
        lea rdx, [rsp + 176]
        call {print}
        cmp eax, -2
        jne 2f
        lea rdi, [rip + {real}]
        call {found}
        mov r11, rax
        mov rdi, [rsp]
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
        movaps xmm7, [rsp + 160]
        mov rax, [rsp + 208]
        leave
        jmp r11
        2:
        leave
        ret"
    };
}

/// The same with a `va_list` of the Procedure Call Standard for AArch64 (appendix B). The frame has the two registers
/// of the caller, 128 octets of floating-point registers, 64 of others, and the 32 of the `va_list`.
#[cfg(target_arch = "aarch64")]
macro_rules! print_or_forward {
    () => {
        "hint 34
        stp x29, x30, [sp, #-240]!
        mov x29, sp
        stp q0, q1, [sp, #16]
        stp q2, q3, [sp, #48]
        stp q4, q5, [sp, #80]
        stp q6, q7, [sp, #112]
        stp x0, x1, [sp, #144]
        stp x2, x3, [sp, #160]
        stp x4, x5, [sp, #176]
        stp x6, x7, [sp, #192]
        add x9, sp, #240
        str x9, [sp, #208]
        add x9, sp, #208
        str x9, [sp, #216]
        add x9, sp, #144
        str x9, [sp, #224]
        mov w9, #({gp} - 64)
        str w9, [sp, #232]
        mov w9, #-128
        str w9, [sp, #236]
        bl {before}
        ldr w0, [sp, #144]
        ldr x1, [sp, #(144 + {format})]
        add x2, sp, #208
        bl {print}
        cmn w0, #2
        b.ne 2f
        adrp x0, {real}
        add x0, x0, :lo12:{real}
        bl {found}
        mov x16, x0
        ldp q0, q1, [sp, #16]
        ldp q2, q3, [sp, #48]
        ldp q4, q5, [sp, #80]
        ldp q6, q7, [sp, #112]
        ldp x0, x1, [sp, #144]
        ldp x2, x3, [sp, #160]
        ldp x4, x5, [sp, #176]
        ldp x6, x7, [sp, #192]
        ldp x29, x30, [sp], #240
        br x16
        2:
        ldp x29, x30, [sp], #240
        ret"
    };
}

/// `prints!(name, format, arguments)`: functions that print to a descriptor. They gather their arguments as a `va_list`
/// has them, ask [`print`], and are the C library's where that has not printed. `format` is where its register is among
/// those of arguments, `arguments` where the first one behind it would be, in octets.
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
                    print_or_forward!(),
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
