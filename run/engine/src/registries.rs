//! What the modules above the engine keep for the whole process.
//!
//! A registry (the queue pairs by number, the half-open connections) belongs to the module that uses it, and there is
//! one for each engine. So the engine keeps values without knowing their types, one of each type.

use std::any::{Any, TypeId};
use std::sync::Arc;

use parking_lot::RwLock;

type Part = Arc<dyn Any + Send + Sync>;

/// One value of each type that was asked for. A handful: they are looked through.
#[derive(Debug, Default)]
pub(crate) struct Registries {
    registries: RwLock<Vec<(TypeId, Part)>>,
}

impl Registries {
    /// The value of that type, made when it is first asked for.
    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let found = find(&self.registries.read());
        found.unwrap_or_else(|| {
            let mut registries = self.registries.write();
            find(&registries).unwrap_or_else(|| {
                let made = Arc::<T>::default();
                registries.push((TypeId::of::<T>(), made.clone()));
                made
            })
        })
    }
}

fn find<T: Send + Sync + 'static>(registries: &[(TypeId, Part)]) -> Option<Arc<T>> {
    let (_, part) = registries.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
    part.clone().downcast().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_value_of_each_type() {
        let registries = Registries::default();
        let one: Arc<RwLock<u32>> = registries.get();
        *one.write() = 7;
        let other: Arc<RwLock<u64>> = registries.get();
        assert_eq!(*other.read(), 0);
        assert_eq!(*registries.get::<RwLock<u32>>().read(), 7);
    }
}
