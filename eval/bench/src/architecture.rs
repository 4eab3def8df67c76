//! What architecture an executable or a library is built for, by its ELF header.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Octets at the start of an ELF file that name the architecture.
const HEADER: usize = 20;
const MAGIC: [u8; 4] = *b"\x7fELF";

/// What an ELF file is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Architecture {
    /// 1 for 32 bits, 2 for 64.
    class: u8,
    /// 1 for little-endian, 2 for big-endian.
    data: u8,
    /// A number of the ELF registry.
    machine: u16,
}

/// The architecture of `file` in words where it is not this program's. None where it is, and where the file is no ELF
/// file or cannot be read: what starts it says what it is then.
pub(crate) fn foreign(file: &Path) -> Option<String> {
    let own = Architecture::of(Path::new("/proc/self/exe"))?;
    let found = Architecture::of(file)?;
    (found != own).then(|| found.name())
}

impl Architecture {
    fn of(file: &Path) -> Option<Architecture> {
        let mut header = [0; HEADER];
        File::open(file).ok()?.read_exact(&mut header).ok()?;
        Architecture::parse(&header)
    }

    fn parse(header: &[u8; HEADER]) -> Option<Architecture> {
        let (class, data) = (header[4], header[5]);
        let machine = [header[18], header[19]];
        let machine = match data {
            1 => u16::from_le_bytes(machine),
            2 => u16::from_be_bytes(machine),
            _ => return None,
        };
        header.starts_with(&MAGIC).then_some(Architecture {
            class,
            data,
            machine,
        })
    }

    fn name(&self) -> String {
        let name = match self.machine {
            3 => "i386",
            8 => "MIPS",
            20 | 21 => "PowerPC",
            22 => "s390x",
            40 => "32-bit ARM",
            62 if self.class == 1 => "x32",
            62 => "x86-64",
            183 => "AArch64",
            243 => "RISC-V",
            258 => "LoongArch",
            other => return format!("an architecture with the ELF number {other}"),
        };
        name.to_owned()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The start of an ELF file for a machine that nobody runs these tests on.
    pub(crate) fn elf_of_another() -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(b"\x7fELF\x02\x02");
        header[19] = 22;
        header
    }

    #[test]
    fn this_program_is_not_foreign_and_a_script_is_nothing() {
        assert_eq!(foreign(Path::new("/proc/self/exe")), None);
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\nexit # as long as a header\n").unwrap();
        assert_eq!(foreign(&script), None);
        assert_eq!(foreign(&folder.path().join("nothing")), None);
    }

    #[test]
    fn another_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("library");
        let named = |header: [u8; HEADER]| {
            std::fs::write(&file, header).unwrap();
            foreign(&file).unwrap()
        };
        assert_eq!(named(elf_of_another()), "s390x");
        let mut unknown = elf_of_another();
        unknown[18] = 0xfe;
        assert_eq!(
            named(unknown),
            format!("an architecture with the ELF number {}", 0xfe16)
        );
    }
}
