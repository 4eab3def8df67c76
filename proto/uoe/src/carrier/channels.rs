//! A row of channels by number.

use alloc::vec::Vec;

/// Channels of one carrier and direction at most.
pub const CHANNELS_MAX: usize = 1024;

/// Channels by number, from 1. A place is made when its number is first used.
#[derive(Clone, Debug)]
pub(super) struct Channels<T>(Vec<Option<T>>);

impl<T> Default for Channels<T> {
    fn default() -> Self {
        Channels(Vec::new())
    }
}

impl<T> Channels<T> {
    /// The channel of this number, if there is one.
    #[inline]
    pub(super) fn get(&self, channel: u16) -> Option<&T> {
        self.0.get(usize::from(channel).wrapping_sub(1))?.as_ref()
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, channel: u16) -> Option<&mut T> {
        let place = self.0.get_mut(usize::from(channel).wrapping_sub(1))?;
        place.as_mut()
    }

    /// Whether there is or was one of this number.
    pub(super) fn was(&self, channel: u16) -> bool {
        (1..=self.0.len()).contains(&usize::from(channel))
    }

    /// Puts one at this number. `None`: there may be none, or there is one.
    pub(super) fn put(&mut self, channel: u16, new: T) -> Option<()> {
        let index = usize::from(channel).checked_sub(1)?;
        if index >= CHANNELS_MAX || self.get(channel).is_some() {
            return None;
        }
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(new);
        Some(())
    }

    /// The lowest number that is free.
    pub(super) fn free(&self) -> Option<u16> {
        let free = self.0.iter().position(Option::is_none);
        let index = free.unwrap_or(self.0.len());
        (index < CHANNELS_MAX).then_some(index as u16 + 1)
    }

    /// Takes the one of this number out.
    pub(super) fn take(&mut self, channel: u16) -> Option<T> {
        let place = self.0.get_mut(usize::from(channel).wrapping_sub(1))?;
        place.take()
    }

    /// All, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(index, one)| Some((index as u16 + 1, one.as_ref()?)))
    }

    /// The same, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        let numbered = self.0.iter_mut().enumerate();
        numbered.filter_map(|(index, one)| Some((index as u16 + 1, one.as_mut()?)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}
