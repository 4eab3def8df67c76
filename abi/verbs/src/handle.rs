//! Objects that C holds pointers to: the layout of the header in front, what is ours behind it.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_engine::fork::{Generation, PerProcess};
use weft_engine::Error;

use crate::entry::{invalid, Errno, Outcome};

/// What stands behind a public layout.
pub trait Object: Sized {
    /// The part that programs see.
    type Public;
    /// Marks a live object, to catch stray pointers.
    const MAGIC: u32;
    /// Where the pointer that programs hold points, counted from the beginning of the public part.
    const OFFSET: usize = 0;
    /// What programs hold a pointer to, if not the public part as a whole.
    type Pointee;
}

/// The mark of an object that was released.
const RELEASED: u32 = 0x6465_6164;

/// An object as it lies in memory. Programs write into the public part whenever they like, so no
/// reference to it is made.
#[repr(C)]
pub struct Handle<T: Object> {
    public: UnsafeCell<T::Public>,
    magic: AtomicU32,
    /// The process that it belongs to.
    generation: Generation,
    private: T,
}

/// The engine's side of an object that has descriptors: let go of as the object is retired, whose memory stays.
pub struct Side<T>(Mutex<Option<Arc<T>>>);

impl<T> Side<T> {
    /// Of an object that begins.
    pub fn new(engine: Arc<T>) -> Side<T> {
        Side(Mutex::new(Some(engine)))
    }

    /// For the length of a call, during which another thread may end the object.
    ///
    /// # Errors
    /// `EINVAL`: it has.
    pub fn get(&self) -> Outcome<Arc<T>> {
        let engine = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        engine.clone().ok_or(Errno(libc::EINVAL))
    }

    /// The object is about to be retired.
    pub fn let_go(&self) {
        let engine = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(engine);
    }
}

/// Objects that were retired and whose memory is still there.
static RETIRED: PerProcess<Mutex<VecDeque<Retired>>> = PerProcess::new();
/// So many of them stay.
const RETIRED_MAX: usize = 64;

fn retired() -> MutexGuard<'static, VecDeque<Retired>> {
    let retired = RETIRED.get_or_init(Mutex::default);
    retired.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees what is retired: the program is done with the device.
pub fn free_retired() {
    let retired = std::mem::take(&mut *retired());
    for object in retired {
        // SAFETY: `free` is of the object's own kind, and a program that gives up the device uses nothing of it any
        // more.
        unsafe { (object.free)(object.base) };
    }
}

/// A retired object and how to free it.
struct Retired {
    base: *mut u8,
    free: unsafe fn(*mut u8),
}

// SAFETY: programs make and end these objects on any thread, so each may be freed on any.
unsafe impl Send for Retired {}

impl<T: Object> Handle<T> {
    /// Puts an object on the heap and hands its address to C.
    pub fn create(public: T::Public, private: T) -> *mut T::Pointee {
        let object = Box::new(Handle {
            public: UnsafeCell::new(public),
            magic: AtomicU32::new(T::MAGIC),
            generation: Generation::now(),
            private,
        });
        let base: *mut Handle<T> = Box::into_raw(object);
        base.wrapping_byte_add(T::OFFSET).cast()
    }

    /// The object behind a pointer that C handed in.
    ///
    /// # Errors
    /// `EINVAL` for null and for an object that is retired; `EACCES` for one of a process that this one was forked
    /// from.
    ///
    /// # Safety
    /// The pointer is null, or came from [`Handle::create`] and was not released; and it stays
    /// unreleased for `'a`. To be retired is not to be released, for a while.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut T::Pointee) -> Outcome<&'a Handle<T>> {
        if pointer.is_null() {
            return invalid();
        }
        let base: *const Handle<T> = pointer.wrapping_byte_sub(T::OFFSET).cast();
        // SAFETY: the caller promises: the pointer is null, or came from [`Handle::create`] and was not released; and
        // it stays unreleased for `'a`. To be retired is not to be released, for a while.
        let object = unsafe { &*base };
        let magic = object.magic.load(Ordering::Relaxed);
        if magic == RELEASED {
            return invalid();
        }
        debug_assert_eq!(magic, T::MAGIC, "not an object of this kind");
        // Here, where every call comes by before it does anything: the parent's locks may be held for good, and its
        // descriptors are others in this process.
        if object.generation.is_over() {
            return Err(Error::forked().into());
        }
        Ok(object)
    }

    /// Takes an object back from C and gives what was private.
    ///
    /// # Safety
    /// As for [`Handle::of`]; and nobody uses the pointer any more.
    pub unsafe fn release(pointer: *mut T::Pointee) -> T {
        let base: *mut Handle<T> = pointer.wrapping_byte_sub(T::OFFSET).cast();
        // SAFETY: the caller promises: what `Handle::of` asks for; and nobody uses the pointer any more; `create`
        // made it from a box.
        let object = unsafe { Box::from_raw(base) };
        let before = object.magic.swap(RELEASED, Ordering::Relaxed);
        debug_assert_eq!(before, T::MAGIC, "released twice");
        object.private
    }

    /// Takes an object back from C, and leaves it where it is until others have been retired too. Some programs end
    /// queues that a thread of theirs still polls, `rping` among them when it loses its peer: such a thread gets
    /// `EINVAL` instead of memory that is something else by then.
    ///
    /// # Safety
    /// As for [`Handle::of`]. What makes the object work was ended.
    pub unsafe fn retire(pointer: *mut T::Pointee) {
        let base: *mut Handle<T> = pointer.wrapping_byte_sub(T::OFFSET).cast();
        // SAFETY: the caller promises: what `Handle::of` asks for. What makes the object work was ended.
        let before = unsafe { &*base }.magic.swap(RELEASED, Ordering::Relaxed);
        debug_assert_eq!(before, T::MAGIC, "retired twice");
        let oldest = {
            let mut retired = retired();
            retired.push_back(Retired {
                base: base.cast(),
                free: Self::free,
            });
            match retired.len() > RETIRED_MAX {
                true => retired.pop_front(),
                false => None,
            }
        };
        if let Some(oldest) = oldest {
            // SAFETY: `free` is of the object's own kind, and nobody has used the pointer for as long as it took to
            // retire the others.
            unsafe { (oldest.free)(oldest.base) };
        }
    }

    /// # Safety
    /// `base` is a [`Handle<T>`] that `create` made from a box, and nobody uses it any more.
    unsafe fn free(base: *mut u8) {
        // SAFETY: the caller promises: `base` is a [`Handle<T>`] that `create` made from a box, and nobody uses it
        // any more.
        drop(unsafe { Box::from_raw(base.cast::<Handle<T>>()) });
    }

    /// The public part, for reads and writes of single fields through the pointer.
    #[inline]
    pub fn public(&self) -> *mut T::Public {
        self.public.get()
    }
}

impl<T: Object> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.private
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(Arc<()>);

    impl Object for Thing {
        type Public = u64;
        type Pointee = u64;
        const MAGIC: u32 = 1;
    }

    #[test]
    fn what_was_let_go_is_gone_when_the_last_call_is_over() {
        let alive = Arc::new(());
        let side = Side::new(alive.clone());
        let held = side.get();
        side.let_go();
        assert_eq!(side.get(), Err(Errno(libc::EINVAL)));
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(held);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn a_retired_object_is_refused_and_freed_when_many_others_are_retired() {
        let alive = Arc::new(());
        let thing = || Handle::create(7, Thing(alive.clone()));
        let first = thing();
        // SAFETY: all are things, and none is used after it was freed.
        unsafe {
            assert!(Handle::<Thing>::of(first).is_ok_and(|it| Arc::strong_count(&it.0) == 2));
            Handle::<Thing>::retire(first);
            for _ in 1..RETIRED_MAX {
                Handle::<Thing>::retire(thing());
            }
            assert!(Handle::<Thing>::of(first).is_err());
            assert_eq!(*first, 7, "its public part is still there");
            assert_eq!(Arc::strong_count(&alive), 1 + RETIRED_MAX);
            for _ in 0..2 * RETIRED_MAX {
                Handle::<Thing>::retire(thing());
            }
        }
        assert_eq!(Arc::strong_count(&alive), 1 + RETIRED_MAX);
    }
}
