//! Objects that C holds pointers to: the layout of the header in front, what is ours behind it.

use std::cell::UnsafeCell;
use std::ops::Deref;

use crate::entry::{invalid, Answer};

/// What stands behind a public layout.
pub trait Object: Sized {
    /// The part that programs see.
    type Public;
    /// Marks a live object, to catch stray pointers in debug builds.
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
    magic: u32,
    private: T,
}

impl<T: Object> Handle<T> {
    /// Puts an object on the heap and hands its address to C.
    pub fn create(public: T::Public, private: T) -> *mut T::Pointee {
        let object = Box::new(Handle {
            public: UnsafeCell::new(public),
            magic: T::MAGIC,
            private,
        });
        let base: *mut Handle<T> = Box::into_raw(object);
        base.wrapping_byte_add(T::OFFSET).cast()
    }

    /// The object behind a pointer that C handed in.
    ///
    /// # Errors
    /// `EINVAL` for null.
    ///
    /// # Safety
    /// The pointer is null, or came from [`Handle::create`] and was not released; and it stays
    /// unreleased for `'a`.
    #[inline]
    pub unsafe fn of<'a>(pointer: *mut T::Pointee) -> Answer<&'a Handle<T>> {
        if pointer.is_null() {
            return invalid();
        }
        let base: *const Handle<T> = pointer.wrapping_byte_sub(T::OFFSET).cast();
        // SAFETY: promised by the caller.
        let object = unsafe { &*base };
        debug_assert_eq!(object.magic, T::MAGIC, "not an object of this kind");
        Ok(object)
    }

    /// Takes an object back from C and gives what was private.
    ///
    /// # Safety
    /// As for [`Handle::of`]; and nobody uses the pointer any more.
    pub unsafe fn release(pointer: *mut T::Pointee) -> T {
        let base: *mut Handle<T> = pointer.wrapping_byte_sub(T::OFFSET).cast();
        // SAFETY: promised by the caller; `create` made it from a box.
        let mut object = unsafe { Box::from_raw(base) };
        debug_assert_eq!(object.magic, T::MAGIC, "released twice");
        object.magic = RELEASED;
        object.private
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
