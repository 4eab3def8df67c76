//! Everything the dynamic loader will load for a program, and what it will not find.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::cache::LoaderCache;
use super::{Machine, Object};

/// Where libraries are looked for besides what the objects say themselves.
#[derive(Debug, Default)]
pub struct Search {
    /// LD_PRELOAD, in order.
    pub preload: Vec<PathBuf>,
    /// LD_LIBRARY_PATH, in order.
    pub library_path: Vec<PathBuf>,
    /// The loader's index.
    pub cache: LoaderCache,
}

/// A program with its libraries.
#[derive(Debug)]
pub struct Closure {
    /// In the order of loading: program, preloaded objects, then breadth first.
    pub objects: Vec<Rc<Object>>,
    /// What could not be found.
    pub missing: Vec<Missing>,
}

/// A library that could not be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its DT_NEEDED name.
    pub name: String,
    /// Who asks for it.
    pub needed_by: PathBuf,
}

/// The folders every loader of ours searches last.
const DEFAULT_FOLDERS: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// An object together with those that led to it, whose DT_RPATH counts too.
struct Loaded {
    object: Rc<Object>,
    parent: Option<Rc<Loaded>>,
}

impl Search {
    /// Walks from `program` through everything it needs, as the loader does.
    pub fn closure(&self, program: Object) -> Closure {
        let machine = program.machine;
        let root = Rc::new(Loaded {
            object: Rc::new(program),
            parent: None,
        });
        let mut closure = Closure {
            objects: vec![Rc::clone(&root.object)],
            missing: Vec::new(),
        };
        let mut known = HashSet::new();
        let mut queue = VecDeque::from([Rc::clone(&root)]);
        for path in &self.preload {
            if let Ok(object) = Object::read(path) {
                queue.push_back(closure.load(object, &root, &mut known));
            }
        }
        while let Some(loaded) = queue.pop_front() {
            for name in &loaded.object.needed {
                if !known.insert(name.clone()) {
                    continue;
                }
                match self.find(name, &loaded, machine) {
                    Some(object) => queue.push_back(closure.load(object, &loaded, &mut known)),
                    None => closure.missing.push(Missing {
                        name: name.clone(),
                        needed_by: loaded.object.path.clone(),
                    }),
                }
            }
        }
        closure
    }

    /// The file that `name` stands for where `program` asks for it.
    pub fn library(&self, name: &str, machine: Machine) -> Option<Object> {
        let folders = self.library_path.iter().map(|folder| folder.join(name));
        folders
            .chain(self.cache.lookup(name).iter().cloned())
            .chain(default_candidates(name))
            .find_map(|path| readable(&path, machine))
    }

    fn find(&self, name: &str, asked_by: &Rc<Loaded>, machine: Machine) -> Option<Object> {
        if name.contains('/') {
            return readable(Path::new(name), machine);
        }
        let object = &asked_by.object;
        let in_folders = |folders: Vec<PathBuf>| {
            folders
                .into_iter()
                .find_map(|folder| readable(&folder.join(name), machine))
        };
        in_folders(rpaths(asked_by))
            .or_else(|| in_folders(self.library_path.clone()))
            .or_else(|| in_folders(expand(&object.runpath, &object.path)))
            .or_else(|| {
                let cached = self.cache.lookup(name);
                let allowed = !object.no_default_libraries;
                cached
                    .iter()
                    .cloned()
                    .chain(default_candidates(name))
                    .filter(|_| allowed)
                    .find_map(|path| readable(&path, machine))
            })
    }
}

impl Closure {
    fn load(
        &mut self,
        object: Object,
        parent: &Rc<Loaded>,
        known: &mut HashSet<String>,
    ) -> Rc<Loaded> {
        known.extend(object.soname.clone());
        let file = std::fs::canonicalize(&object.path).ok();
        let again =
            |other: &&Rc<Object>| file.is_some() && std::fs::canonicalize(&other.path).ok() == file;
        // One file under two names is loaded once.
        let object = match self.objects.iter().find(again) {
            Some(loaded) => Rc::clone(loaded),
            None => {
                self.objects.push(Rc::new(object));
                Rc::clone(&self.objects[self.objects.len() - 1])
            }
        };
        Rc::new(Loaded {
            object,
            parent: Some(Rc::clone(parent)),
        })
    }

    /// The program itself.
    pub fn program(&self) -> &Object {
        &self.objects[0]
    }
}

/// DT_RPATH of the object and of those that led to it; a DT_RUNPATH turns an object's own off,
/// and the asking object's DT_RUNPATH turns all of them off.
fn rpaths(asked_by: &Rc<Loaded>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if !asked_by.object.runpath.is_empty() {
        return folders;
    }
    let mut next = Some(asked_by);
    while let Some(loaded) = next {
        if loaded.object.runpath.is_empty() {
            folders.extend(expand(&loaded.object.rpath, &loaded.object.path));
        }
        next = loaded.parent.as_ref();
    }
    folders
}

/// Puts the object's folder for `$ORIGIN`; other tokens have one value here.
fn expand(folders: &[String], object: &Path) -> Vec<PathBuf> {
    let origin = std::fs::canonicalize(object).unwrap_or_else(|_| object.to_owned());
    let origin = origin.parent().unwrap_or(Path::new("/")).to_string_lossy();
    folders
        .iter()
        .map(|folder| {
            let expanded = folder
                .replace("${ORIGIN}", &origin)
                .replace("$ORIGIN", &origin)
                .replace("${LIB}", LIB)
                .replace("$LIB", LIB);
            PathBuf::from(expanded)
        })
        .collect()
}

/// What `$LIB` stands for on Debian.
const LIB: &str = match cfg!(target_arch = "aarch64") {
    true => "lib/aarch64-linux-gnu",
    false => "lib/x86_64-linux-gnu",
};

fn default_candidates(name: &str) -> impl Iterator<Item = PathBuf> + '_ {
    DEFAULT_FOLDERS
        .iter()
        .map(move |folder| Path::new(folder).join(name))
}

/// The object at `path` if it is one for `machine`; the loader passes over others.
fn readable(path: &Path, machine: Machine) -> Option<Object> {
    Object::read(path)
        .ok()
        .filter(|object| object.machine == machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> Search {
        Search {
            cache: LoaderCache::load(),
            ..Search::default()
        }
    }

    #[test]
    fn this_test_has_all_its_libraries() {
        let program = Object::read(&std::env::current_exe().unwrap()).unwrap();
        let closure = search().closure(program);
        assert_eq!(closure.missing, []);
        assert!(closure
            .objects
            .iter()
            .any(|object| object.soname.as_deref() == Some("libc.so.6")));
    }

    #[test]
    fn what_is_nowhere_is_missing() {
        let path = std::env::current_exe().unwrap();
        let mut program = Object::read(&path).unwrap();
        program.needed.push("libnowhere.so.9".to_owned());
        let closure = search().closure(program);
        assert_eq!(
            closure.missing,
            [Missing {
                name: "libnowhere.so.9".to_owned(),
                needed_by: path
            }]
        );
    }

    #[test]
    fn origin_is_the_objects_folder() {
        let folders = expand(
            &["$ORIGIN/../lib".to_owned(), "${ORIGIN}".to_owned()],
            Path::new("/nowhere/bin/program"),
        );
        assert_eq!(
            folders,
            [Path::new("/nowhere/bin/../lib"), Path::new("/nowhere/bin")]
        );
    }

    #[test]
    fn every_object_is_loaded_once() {
        let program = Object::read(&std::env::current_exe().unwrap()).unwrap();
        let closure = search().closure(program);
        let mut paths: Vec<_> = closure.objects.iter().map(|object| &object.path).collect();
        let all = paths.len();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), all);
    }
}
