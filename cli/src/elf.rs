//! What an ELF file says of itself: enough to foretell what the dynamic loader
//! will do with it.

pub mod cache;
pub mod closure;
pub mod text;

use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use goblin::elf::dynamic::{DF_1_NODEFLIB, DT_FLAGS_1};
use goblin::elf::header::{
    EI_CLASS, ELFCLASS64, EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64,
};
use goblin::elf::{Elf, Header};

/// The libraries whose place Weft takes.
pub const VERBS_LIBRARIES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];

/// A program or a shared library.
#[derive(Debug)]
pub struct Object {
    /// Where it was read.
    pub path: PathBuf,
    /// What it runs on.
    pub machine: Machine,
    /// The dynamic loader it asks for (PT_INTERP); static programs and most libraries have none.
    pub interpreter: Option<String>,
    /// DT_SONAME.
    pub soname: Option<String>,
    /// DT_NEEDED, in order.
    pub needed: Vec<String>,
    /// DT_RPATH, not yet expanded.
    pub rpath: Vec<String>,
    /// DT_RUNPATH, not yet expanded.
    pub runpath: Vec<String>,
    /// DF_1_NODEFLIB: the default folders are not searched.
    pub no_default_libraries: bool,
    /// Symbols it expects from others.
    pub imports: Vec<Import>,
    /// Symbols it offers.
    pub exports: Exports,
    /// Whether libibverbs or librdmacm stands somewhere in it as text, as in programs that
    /// open them by name at run time.
    pub names_verbs: bool,
    /// Whether the Go linker made it, so that it makes its system calls itself.
    pub is_go: bool,
}

/// A symbol expected from another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Its name.
    pub symbol: String,
    /// The version asked for.
    pub version: Option<Version>,
    /// Whether the program can do without.
    pub weak: bool,
}

/// A symbol version that an object needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The library it should come from, as a DT_NEEDED name.
    pub library: String,
    /// For instance `IBVERBS_1.1`.
    pub name: String,
}

/// The symbols an object offers.
#[derive(Clone, Debug, Default)]
pub struct Exports {
    symbols: HashSet<String>,
    versioned: HashSet<(String, String)>,
    /// The versions it defines, its own name left out; empty for an unversioned object.
    pub versions: HashSet<String>,
}

impl Exports {
    /// Whether the loader would bind `import` to it.
    ///
    /// An object without versions serves every version of its symbols.
    pub fn provides(&self, import: &Import) -> bool {
        match &import.version {
            Some(version) if !self.versions.is_empty() => self
                .versioned
                .contains(&(import.symbol.clone(), version.name.clone())),
            _ => self.symbols.contains(&import.symbol),
        }
    }
}

/// Instruction set and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    id: u16,
    bits: u8,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.id {
            EM_X86_64 if self.bits == 32 => "x32",
            EM_X86_64 => "x86-64",
            EM_386 => "i386",
            EM_AARCH64 => "AArch64",
            EM_ARM => "Arm",
            EM_RISCV => "RISC-V",
            EM_PPC64 => "PowerPC 64",
            EM_S390 => "s390",
            other => return write!(f, "machine {other}, {} bits", self.bits),
        };
        f.write_str(name)
    }
}

/// Why a file could not be read as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It could not be read at all.
    #[error("it cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// It does not start as an ELF file does.
    #[error("it is not an ELF file")]
    NotElf,
    /// It starts so, and then makes no sense.
    #[error("it is a damaged ELF file: {0}")]
    Malformed(String),
}

/// What the Go linker puts in front of a program's build information (`debug/buildinfo`).
const GO_BUILD_INFO: &[u8] = b"\xff Go buildinf:";

impl Object {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Object, ElfError> {
        let bytes = std::fs::read(path).map_err(ElfError::Unreadable)?;
        Object::parse(path, &bytes)
    }

    /// Reads `bytes`, the content of the file at `path`.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Object, ElfError> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        let elf = Elf::parse(bytes).map_err(|error| ElfError::Malformed(error.to_string()))?;
        Ok(Object {
            path: path.to_owned(),
            machine: machine_of(&elf.header),
            interpreter: elf.interpreter.map(str::to_owned),
            soname: elf.soname.map(str::to_owned),
            needed: owned(&elf.libraries),
            rpath: paths(&elf.rpaths),
            runpath: paths(&elf.runpaths),
            no_default_libraries: flags_1(&elf) & DF_1_NODEFLIB != 0,
            imports: imports_of(&elf),
            exports: exports_of(&elf),
            names_verbs: ["libibverbs.so", "librdmacm.so"]
                .iter()
                .any(|name| memchr::memmem::find(bytes, name.as_bytes()).is_some()),
            is_go: memchr::memmem::find(bytes, GO_BUILD_INFO).is_some(),
        })
    }

    /// The machine this command was built for.
    pub fn own_machine() -> Option<Machine> {
        /// Octets of a 64-bit header; the 32-bit one is shorter.
        const HEADER: u64 = 64;
        let mut bytes = Vec::new();
        let file = std::fs::File::open("/proc/self/exe").ok()?;
        file.take(HEADER).read_to_end(&mut bytes).ok()?;
        let header = Elf::parse_header(&bytes).ok()?;
        Some(machine_of(&header))
    }

    /// Whether it asks for a verbs library by DT_NEEDED.
    pub fn needs_verbs(&self) -> bool {
        self.needed
            .iter()
            .any(|name| VERBS_LIBRARIES.contains(&name.as_str()))
    }

    /// Whether it asks for one of these symbols, in any version.
    pub fn imports_any(&self, names: &[&str]) -> bool {
        self.imports
            .iter()
            .any(|import| names.contains(&import.symbol.as_str()))
    }
}

impl Import {
    /// Whether it belongs to the interface between libibverbs and the drivers of real devices.
    pub fn is_private(&self) -> bool {
        self.version
            .as_ref()
            .is_some_and(|version| version.name.starts_with("IBVERBS_PRIVATE_"))
    }

    /// Whether a verbs library should provide it.
    pub fn is_verbs(&self) -> bool {
        match &self.version {
            Some(version) => VERBS_LIBRARIES.contains(&version.library.as_str()),
            None => ["ibv_", "rdma_"]
                .iter()
                .any(|prefix| self.symbol.starts_with(prefix)),
        }
    }
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{}", self.symbol, version.name),
            None => f.write_str(&self.symbol),
        }
    }
}

fn machine_of(header: &Header) -> Machine {
    Machine {
        id: header.e_machine,
        bits: if header.e_ident[EI_CLASS] == ELFCLASS64 {
            64
        } else {
            32
        },
    }
}

fn flags_1(elf: &Elf<'_>) -> u64 {
    elf.dynamic.as_ref().map_or(0, |dynamic| {
        dynamic
            .dyns
            .iter()
            .find(|entry| entry.d_tag == DT_FLAGS_1)
            .map_or(0, |entry| entry.d_val)
    })
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Each entry of the file may itself be a list with colons.
fn paths(entries: &[&str]) -> Vec<String> {
    entries
        .iter()
        .flat_map(|entry| entry.split(':'))
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The symbol's version is hidden: not the default one, but still bound by those who ask for it.
const VERSION_HIDDEN: u16 = 0x8000;

/// Version index of every dynamic symbol; 0 and 1 (local, global) carry no name.
fn version_index(elf: &Elf<'_>, symbol: usize) -> u16 {
    elf.versym
        .as_ref()
        .and_then(|versym| versym.get_at(symbol))
        .map_or(0, |entry| entry.vs_val & !VERSION_HIDDEN)
}

fn imports_of(elf: &Elf<'_>) -> Vec<Import> {
    let mut wanted = std::collections::HashMap::new();
    for need in elf.verneed.iter().flat_map(|section| section.iter()) {
        let library = elf.dynstrtab.get_at(need.vn_file).unwrap_or_default();
        for version in need.iter() {
            let name = elf.dynstrtab.get_at(version.vna_name).unwrap_or_default();
            wanted.insert(
                version.vna_other & !VERSION_HIDDEN,
                Version {
                    library: library.to_owned(),
                    name: name.to_owned(),
                },
            );
        }
    }
    elf.dynsyms
        .iter()
        .enumerate()
        .filter(|(_, symbol)| symbol.is_import())
        .filter_map(|(index, symbol)| {
            let name = elf.dynstrtab.get_at(symbol.st_name)?;
            Some(Import {
                symbol: name.to_owned(),
                version: wanted.get(&version_index(elf, index)).cloned(),
                weak: symbol.st_bind() == goblin::elf::sym::STB_WEAK,
            })
        })
        .collect()
}

fn exports_of(elf: &Elf<'_>) -> Exports {
    const BASE: u16 = 1;
    let mut names = std::collections::HashMap::new();
    for definition in elf.verdef.iter().flat_map(|section| section.iter()) {
        if definition.vd_flags & BASE != 0 {
            continue;
        }
        let name = definition
            .iter()
            .next()
            .and_then(|first| elf.dynstrtab.get_at(first.vda_name));
        if let Some(name) = name {
            names.insert(definition.vd_ndx, name);
        }
    }
    let mut exports = Exports {
        versions: names.values().map(|name| (*name).to_owned()).collect(),
        ..Exports::default()
    };
    for (index, symbol) in elf.dynsyms.iter().enumerate() {
        let defined = symbol.st_shndx != 0 && symbol.st_bind() != goblin::elf::sym::STB_LOCAL;
        let Some(name) = elf.dynstrtab.get_at(symbol.st_name).filter(|_| defined) else {
            continue;
        };
        if let Some(version) = names.get(&version_index(elf, index)) {
            exports
                .versioned
                .insert((name.to_owned(), (*version).to_owned()));
        }
        exports.symbols.insert(name.to_owned());
    }
    exports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_dynamic_program() {
        let object = Object::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(object.interpreter.is_some());
        assert!(object.needed.iter().any(|name| name == "libc.so.6"));
        assert_eq!(Some(object.machine), Object::own_machine());
        let printf_like = object
            .imports
            .iter()
            .find(|import| import.symbol == "memcpy")
            .expect("everything copies");
        assert_eq!(printf_like.version.as_ref().unwrap().library, "libc.so.6");
        assert!(!object.needs_verbs());
    }

    #[test]
    fn text_is_not_elf() {
        let path = Path::new("script");
        assert!(matches!(
            Object::parse(path, b"#!/bin/sh\n"),
            Err(ElfError::NotElf)
        ));
        assert!(matches!(
            Object::parse(path, b"\x7fELF and no more"),
            Err(ElfError::Malformed(_))
        ));
    }

    /// Pseudo-random numbers from a fixed seed (Knuth's MMIX generator).
    fn numbers() -> impl Iterator<Item = usize> {
        let step = |state: &u64| {
            let next = state.wrapping_mul(6_364_136_223_846_793_005);
            Some(next.wrapping_add(1_442_695_040_888_963_407))
        };
        std::iter::successors(Some(1), step).map(|state| (state >> 33) as usize)
    }

    #[test]
    fn damaged_files_are_refused_or_read_but_never_a_panic() {
        let sound = std::fs::read("/bin/true").unwrap();
        let mut numbers = numbers();
        let mut next = |below: usize| numbers.next().unwrap() % below;
        for round in 0..3000 {
            let mut damaged = sound.clone();
            for _ in 0..1 + round % 8 {
                // Headers at the front and tables of symbols shortly after are what is parsed.
                let at = next(damaged.len().min(0x2000));
                damaged[at] = next(256) as u8;
            }
            damaged.truncate(damaged.len() - (round % 5) * 1000);
            let _ = Object::parse(Path::new("damaged"), &damaged);
        }
    }

    fn import(symbol: &str, version: Option<&str>) -> Import {
        Import {
            symbol: symbol.to_owned(),
            version: version.map(|name| Version {
                library: "libibverbs.so.1".to_owned(),
                name: name.to_owned(),
            }),
            weak: false,
        }
    }

    #[test]
    fn an_unversioned_object_serves_every_version() {
        let mut exports = Exports::default();
        exports.symbols.insert("ibv_open_device".to_owned());
        assert!(exports.provides(&import("ibv_open_device", Some("IBVERBS_1.1"))));
        assert!(exports.provides(&import("ibv_open_device", None)));
        assert!(!exports.provides(&import("ibv_close_device", None)));
    }

    #[test]
    fn a_versioned_object_serves_the_versions_it_has() {
        let mut exports = Exports::default();
        exports.symbols.insert("ibv_open_device".to_owned());
        exports
            .versioned
            .insert(("ibv_open_device".to_owned(), "IBVERBS_1.1".to_owned()));
        exports.versions.insert("IBVERBS_1.1".to_owned());
        assert!(exports.provides(&import("ibv_open_device", Some("IBVERBS_1.1"))));
        assert!(!exports.provides(&import("ibv_open_device", Some("IBVERBS_1.0"))));
        assert!(exports.provides(&import("ibv_open_device", None)));
    }

    #[test]
    fn verbs_imports_are_known_by_library_or_by_prefix() {
        assert!(import("anything", Some("IBVERBS_1.1")).is_verbs());
        assert!(import("rdma_connect", None).is_verbs());
        assert!(!import("memcpy", None).is_verbs());
    }
}
