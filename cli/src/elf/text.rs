//! Text that an object exports under a name, read without loading it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use goblin::container::Ctx;
use goblin::elf::dynamic::Dynamic;
use goblin::elf::program_header::{ProgramHeader, PT_DYNAMIC, PT_LOAD};
use goblin::elf::sym::Symtab;
use goblin::elf::Elf;

/// Octets from the beginning of a file that hold its ELF header and, in all but strange files, its program headers.
const HEADERS_OCTETS: usize = 4096;
/// Octets of a text at most.
const TEXT_OCTETS_MAX: usize = 256;
/// Octets of a file at most: a longer one is no library.
const FILE_OCTETS_MAX: u64 = 1 << 30;

/// The parts of a file that were read, at their places in it; the others are zero.
///
/// Libraries are of many megabytes, of which a few pages are asked for here. Reading the whole file took most of the
/// time in which `weft run` starts a program.
struct Parts {
    file: File,
    octets: Vec<u8>,
}

impl Parts {
    fn open(path: &Path) -> Option<Parts> {
        let file = File::open(path).ok()?;
        let length = file.metadata().ok()?.len();
        let length = usize::try_from(length)
            .ok()
            .filter(|_| length <= FILE_OCTETS_MAX)?;
        // The kernel gives pages of zeros when they are touched, and not before.
        let octets = vec![0; length];
        Some(Parts { file, octets })
    }

    /// Reads these octets of the file, or those of them that it has.
    fn read(&mut self, range: Range<usize>) -> Option<()> {
        let start = range.start;
        let end = range.end.min(self.octets.len());
        let part = self.octets.get_mut(start..end)?;
        self.file.read_exact_at(part, start as u64).ok()
    }
}

/// The text that ends with a zero, at the symbol `name` of the file at `path`; nothing where there is none.
pub fn exported(path: &Path, name: &str) -> Option<String> {
    let mut parts = Parts::open(path)?;
    parts.read(0..HEADERS_OCTETS)?;
    let header = Elf::parse_header(&parts.octets).ok()?;
    let context = Ctx::new(header.container().ok()?, header.endianness().ok()?);
    let (at, count) = (
        usize::try_from(header.e_phoff).ok()?,
        usize::from(header.e_phnum),
    );
    let segments = ProgramHeader::parse(&parts.octets, at, count, context).ok()?;
    let address = address_of(&mut parts, &segments, context, name)?;
    let segment = segments.iter().find(|segment| {
        segment.p_type == PT_LOAD
            && usize::try_from(address).is_ok_and(|at| segment.vm_range().contains(&at))
    })?;
    let offset = address
        .checked_sub(segment.p_vaddr)?
        .checked_add(segment.p_offset)?;
    let offset = usize::try_from(offset).ok()?;
    parts.read(offset..offset.checked_add(TEXT_OCTETS_MAX)?)?;
    let text = parts.octets.get(offset..)?;
    let end = text.iter().position(|octet| *octet == 0)?;
    String::from_utf8(text[..end].to_vec()).ok()
}

/// The address of a symbol that the object defines.
fn address_of(
    parts: &mut Parts,
    segments: &[ProgramHeader],
    context: Ctx,
    name: &str,
) -> Option<u64> {
    let dynamic = segments
        .iter()
        .find(|segment| segment.p_type == PT_DYNAMIC)?;
    parts.read(dynamic.file_range())?;
    let dynamic = Dynamic::parse(&parts.octets, segments, context).ok()??.info;
    // Nothing says how many symbols there are but their hash table; linkers put the names behind them.
    let symbols = dynamic.symtab..dynamic.strtab;
    let names = dynamic.strtab..dynamic.strtab.checked_add(dynamic.strsz)?;
    parts.read(symbols.clone())?;
    parts.read(names.clone())?;
    let names = parts.octets.get(names)?;
    let is_named = |at: usize| {
        let rest = names
            .get(at..)
            .and_then(|names| names.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    let count = symbols.len().checked_div(dynamic.syment)?;
    let table = Symtab::parse(&parts.octets, symbols.start, count, context).ok()?;
    let found = table
        .iter()
        .find(|symbol| !symbol.is_import() && is_named(symbol.st_name))?;
    Some(found.st_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library that this program has loaded.
    fn c_library() -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps
            .split_whitespace()
            .find(|word| word.ends_with("/libc.so.6"));
        path.map(str::to_owned)
    }

    #[test]
    fn a_librarys_text_is_found() {
        // A program that is linked statically has none.
        let Some(library) = c_library() else {
            return;
        };
        let text = exported(Path::new(&library), "_libc_intl_domainname");
        assert_eq!(text.as_deref(), Some("libc"));
        assert_eq!(exported(Path::new(&library), "_libc_intl_domain"), None);
    }

    #[test]
    fn what_is_not_there_is_nothing() {
        let this = std::env::current_exe().unwrap();
        assert_eq!(exported(&this, "weft_version"), None);
        assert_eq!(exported(Path::new("/etc/passwd"), "weft_version"), None);
        assert_eq!(exported(Path::new("/nowhere"), "weft_version"), None);
        assert_eq!(exported(Path::new("/dev/zero"), "weft_version"), None);
    }
}
