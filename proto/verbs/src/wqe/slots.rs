//! A queue whose elements stay where they are put.
//!
//! An element that left is not made anew for its successor: the successor fills the same memory, and what the two have
//! in common, above all what neither uses, is not written again.

use alloc::vec::Vec;

/// Elements in the order they came, in memory that is used in turn. It grows as needed and does not shrink.
#[derive(Debug)]
pub(super) struct Slots<T> {
    /// As many as a power of two, or none.
    slots: Vec<T>,
    /// The number of the first element. Elements are numbered as they come; numbers wrap around.
    first: usize,
    /// The number of the next one.
    end: usize,
}

/// Slots there are once one is needed.
const SLOTS_MIN: usize = 4;

impl<T> Slots<T> {
    pub(super) const fn new() -> Slots<T> {
        Slots {
            slots: Vec::new(),
            first: 0,
            end: 0,
        }
    }

    /// Elements in the queue.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.end.wrapping_sub(self.first)
    }

    #[inline]
    fn place_of(&self, number: usize) -> usize {
        number & self.slots.len().wrapping_sub(1)
    }

    /// The element behind `ahead` others.
    #[inline]
    pub(super) fn get(&self, ahead: usize) -> Option<&T> {
        match ahead < self.len() {
            true => self
                .slots
                .get(self.place_of(self.first.wrapping_add(ahead))),
            false => None,
        }
    }

    /// As [`Slots::get`].
    #[inline]
    pub(super) fn get_mut(&mut self, ahead: usize) -> Option<&mut T> {
        let place = self.place_of(self.first.wrapping_add(ahead));
        match ahead < self.len() {
            true => self.slots.get_mut(place),
            false => None,
        }
    }

    /// The elements, first one first.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (first, len) = (self.place_of(self.first), self.len());
        let (wrapped, straight) = self.slots.split_at_mut(first);
        straight.iter_mut().chain(wrapped).take(len)
    }

    /// The next element, as an earlier one left it or as `vacant` makes it: the caller sets all of it that is used.
    #[inline]
    pub(super) fn push(&mut self, vacant: impl Fn() -> T) -> &mut T {
        if self.len() == self.slots.len() {
            self.grow(vacant);
        }
        let place = self.place_of(self.end);
        self.end = self.end.wrapping_add(1);
        &mut self.slots[place]
    }

    #[cold]
    fn grow(&mut self, vacant: impl Fn() -> T) {
        let first = self.place_of(self.first);
        self.slots.rotate_left(first);
        (self.first, self.end) = (0, self.slots.len());
        let wanted = (2 * self.slots.len()).max(SLOTS_MIN);
        self.slots.resize_with(wanted, vacant);
    }

    /// The first element leaves. Its memory stays as it is.
    ///
    /// # Panics
    /// In debug builds, where there is none.
    #[inline]
    pub(super) fn drop_front(&mut self) {
        debug_assert!(self.len() > 0, "no element is left");
        self.first = self.first.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    #[test]
    fn it_is_a_queue_whatever_comes_and_goes() {
        let mut slots = Slots::new();
        let mut model = VecDeque::new();
        let mut next = 0_u32;
        // Comes and goes in all phases of the two counts, with growth at several places of the first element.
        for round in 0..200_usize {
            for _ in 0..round % 7 {
                *slots.push(|| u32::MAX) = next;
                model.push_back(next);
                next += 1;
            }
            for _ in 0..(round % 5).min(model.len()) {
                slots.drop_front();
                model.pop_front();
            }
            assert_eq!(slots.len(), model.len());
            assert!(slots.iter_mut().map(|n| *n).eq(model.iter().copied()));
            for at in 0..=model.len() {
                assert_eq!(slots.get(at), model.get(at));
                assert_eq!(slots.get_mut(at).copied(), model.get(at).copied());
            }
        }
        assert!(model.len() > SLOTS_MIN, "it has grown");
    }

    #[test]
    fn an_element_comes_as_its_predecessor_in_that_place_left_it() {
        let mut slots = Slots::new();
        *slots.push(|| 0) = 7;
        for _ in 1..SLOTS_MIN {
            slots.push(|| 0);
        }
        slots.drop_front();
        assert_eq!(*slots.push(|| 0), 7);
        assert_eq!(slots.get(SLOTS_MIN), None);
    }
}
