//! `/etc/ld.so.cache`: where the dynamic loader finds libraries by soname.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The loader's index of libraries.
#[derive(Debug, Default)]
pub struct LoaderCache {
    by_name: HashMap<String, Vec<PathBuf>>,
}

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;

impl LoaderCache {
    /// The machine's cache; empty when there is none or it is of another kind.
    pub fn load() -> LoaderCache {
        std::fs::read("/etc/ld.so.cache")
            .ok()
            .and_then(|bytes| LoaderCache::parse(&bytes))
            .unwrap_or_default()
    }

    /// Every file under this soname, in the loader's order; other machines' among them.
    pub fn lookup(&self, soname: &str) -> &[PathBuf] {
        self.by_name.get(soname).map_or(&[], Vec::as_slice)
    }

    /// Reads the format glibc has written since 2.2, alone or behind the older one.
    fn parse(bytes: &[u8]) -> Option<LoaderCache> {
        let start = memchr::memmem::find(bytes, MAGIC)?;
        // String offsets count from the start of this header.
        let bytes = &bytes[start..];
        let count = number(bytes, MAGIC.len())? as usize;
        let mut by_name: HashMap<String, Vec<PathBuf>> = HashMap::new();
        for index in 0..count {
            let entry = HEADER.checked_add(index.checked_mul(ENTRY)?)?;
            let name = text(bytes, number(bytes, entry + 4)?)?;
            let path = text(bytes, number(bytes, entry + 8)?)?;
            by_name
                .entry(name.to_owned())
                .or_default()
                .push(Path::new(path).to_owned());
        }
        Some(LoaderCache { by_name })
    }
}

/// The 32-bit number at `offset`, in the machine's own order as the loader writes it.
fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    let octets = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(octets.try_into().ok()?))
}

/// The NUL-terminated text at `offset`.
fn text(bytes: &[u8], offset: u32) -> Option<&str> {
    let tail = bytes.get(offset as usize..)?;
    let end = memchr::memchr(0, tail)?;
    std::str::from_utf8(&tail[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache_of(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend((entries.len() as u32).to_ne_bytes());
        header.resize(HEADER, 0);
        let strings_at = HEADER + ENTRY * entries.len();
        let mut strings = Vec::new();
        for (name, path) in entries {
            let name_at = (strings_at + strings.len()) as u32;
            strings.extend(name.bytes().chain([0]));
            let path_at = (strings_at + strings.len()) as u32;
            strings.extend(path.bytes().chain([0]));
            header.extend(0x0303u32.to_ne_bytes());
            header.extend(name_at.to_ne_bytes());
            header.extend(path_at.to_ne_bytes());
            header.extend([0; 12]);
        }
        header.extend(strings);
        header
    }

    #[test]
    fn names_lead_to_paths() {
        let bytes = cache_of(&[("liba.so.1", "/x/liba.so.1"), ("liba.so.1", "/y/liba.so.1")]);
        let cache = LoaderCache::parse(&bytes).unwrap();
        assert_eq!(
            cache.lookup("liba.so.1"),
            [Path::new("/x/liba.so.1"), Path::new("/y/liba.so.1")]
        );
        assert!(cache.lookup("libb.so.1").is_empty());
    }

    #[test]
    fn an_older_cache_in_front_is_stepped_over() {
        let mut bytes = b"ld.so-1.7.0 and its entries".to_vec();
        bytes.extend(cache_of(&[("liba.so.1", "/x/liba.so.1")]));
        let cache = LoaderCache::parse(&bytes).unwrap();
        assert_eq!(cache.lookup("liba.so.1").len(), 1);
    }

    #[test]
    fn a_cut_cache_is_refused() {
        let bytes = cache_of(&[("liba.so.1", "/x/liba.so.1")]);
        for length in 0..bytes.len() {
            assert!(LoaderCache::parse(&bytes[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn this_machine_has_a_c_library() {
        if Path::new("/etc/ld.so.cache").exists() {
            assert!(!LoaderCache::load().lookup("libc.so.6").is_empty());
        }
    }
}
