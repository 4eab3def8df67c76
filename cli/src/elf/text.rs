//! Text that an object exports under a name, read without loading it.

use std::path::Path;

use goblin::elf::program_header::PT_LOAD;
use goblin::elf::Elf;

/// The text that ends with a zero, at the symbol `name` of the file at `path`; nothing where there is none.
pub fn exported(path: &Path, name: &str) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let elf = Elf::parse(&bytes).ok()?;
    let symbol = elf
        .dynsyms
        .iter()
        .find(|symbol| !symbol.is_import() && elf.dynstrtab.get_at(symbol.st_name) == Some(name))?;
    let address = symbol.st_value;
    let segment = elf.program_headers.iter().find(|segment| {
        segment.p_type == PT_LOAD
            && segment
                .vm_range()
                .contains(&usize::try_from(address).unwrap_or(0))
    })?;
    let offset = address
        .checked_sub(segment.p_vaddr)?
        .checked_add(segment.p_offset)?;
    let text = bytes.get(usize::try_from(offset).ok()?..)?;
    let end = text.iter().position(|octet| *octet == 0)?;
    String::from_utf8(text[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_nothing() {
        let this = std::env::current_exe().unwrap();
        assert_eq!(exported(&this, "weft_version"), None);
        assert_eq!(exported(Path::new("/etc/passwd"), "weft_version"), None);
        assert_eq!(exported(Path::new("/nowhere"), "weft_version"), None);
    }
}
