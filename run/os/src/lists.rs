//! Lists of octets for one send or receive: borrowed octets and registered memory, in order.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use smallvec::SmallVec;

use crate::guard;
use crate::mem::{Registered, Unmapped};
use crate::sys::IoVec;

/// Elements a list holds at most: what one system call is given.
pub const LIST_MAX: usize = 256;

/// A list of octet ranges for one system call.
struct List {
    vec: [MaybeUninit<IoVec>; LIST_MAX],
    used: usize,
    octets: usize,
}

impl List {
    fn new() -> List {
        List {
            // A constant of its own for each element: else all of the list is one, and is written with zeroes.
            vec: [const { MaybeUninit::uninit() }; LIST_MAX],
            used: 0,
            octets: 0,
        }
    }

    #[inline]
    fn push(&mut self, base: usize, len: usize) -> bool {
        let Some(slot) = self.vec.get_mut(self.used) else {
            return false;
        };
        slot.write(IoVec { base, len });
        self.used += 1;
        self.octets += len;
        true
    }

    fn as_slice(&self) -> &[IoVec] {
        // SAFETY: the first `used` elements were written by `push`.
        unsafe { std::slice::from_raw_parts(self.vec.as_ptr().cast(), self.used) }
    }
}

/// What one send takes, in order.
pub struct Gather<'a> {
    list: List,
    /// For each element of the list, the registered memory that it is of.
    of: [MaybeUninit<Option<&'a Registered>>; LIST_MAX],
    /// Octets from the list's beginning to where segments end.
    cuts: SmallVec<[usize; 4]>,
    _borrowed: PhantomData<&'a [u8]>,
}

/// An element of a [`Gather`].
#[derive(Clone, Copy, Debug)]
pub enum Run<'a> {
    /// Octets that are borrowed for the call.
    Octets(&'a [u8]),
    /// Registered memory: a transport that keeps a copy of `memory` may read it after the call, too.
    Registered {
        /// The memory.
        memory: &'a Registered,
        /// Where in it the run begins.
        offset: u64,
        /// Octets.
        len: usize,
    },
}

impl<'a> Default for Gather<'a> {
    fn default() -> Self {
        Gather {
            list: List::new(),
            of: [const { MaybeUninit::uninit() }; LIST_MAX],
            cuts: SmallVec::new(),
            _borrowed: PhantomData,
        }
    }
}

impl<'a> Gather<'a> {
    /// A segment of the transport's may end so many octets behind the list's beginning: something whole ends there.
    /// Cuts are added in order. The kernel's TCP makes segments as it likes.
    pub fn cut(&mut self, octets: usize) {
        self.cuts.push(octets);
    }

    /// The cuts in order.
    pub fn cuts(&self) -> &[usize] {
        &self.cuts
    }

    /// Adds octets; false when the list is full.
    #[inline]
    pub fn push(&mut self, octets: &'a [u8]) -> bool {
        self.add(octets.as_ptr() as usize, octets.len(), None)
    }

    #[inline]
    fn add(&mut self, base: usize, len: usize, of: Option<&'a Registered>) -> bool {
        if let Some(slot) = self.of.get_mut(self.list.used) {
            slot.write(of);
        }
        self.list.push(base, len)
    }

    /// Adds registered memory; false when the list is full or the range is outside.
    #[inline]
    pub fn push_registered(&mut self, memory: &'a Registered, offset: u64, len: usize) -> bool {
        match memory.range(offset, len) {
            Some(addr) => self.add(addr, len, Some(memory)),
            None => false,
        }
    }

    /// Octets in the list.
    pub fn octets(&self) -> usize {
        self.list.octets
    }

    /// The elements, for a transport that holds memory by reference.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let elements = self.list.as_slice().iter().zip(&self.of);
        elements.map(|(element, of)| {
            // SAFETY: `add` wrote the owner of each element before the element.
            match unsafe { of.assume_init() } {
                Some(memory) => Run::Registered {
                    memory,
                    offset: element.base as u64 - memory.addr(),
                    len: element.len,
                },
                // SAFETY: the element was made of a slice that is borrowed for as long as the list lives.
                None => Run::Octets(unsafe {
                    std::slice::from_raw_parts(element.base as *const u8, element.len)
                }),
            }
        })
    }

    /// Appends the first `most` octets of the list to `out`, for a transport that is not the kernel's.
    ///
    /// # Errors
    /// Memory in the list is not mapped; nothing is appended then.
    pub fn append_to(&self, most: usize, out: &mut Vec<u8>) -> Result<usize, Unmapped> {
        let before = out.len();
        for element in self.list.as_slice() {
            let len = element.len.min(most - (out.len() - before));
            let start = out.len();
            out.resize(start + len, 0);
            // SAFETY: `out` has `len` octets from `start` on. The list holds borrowed octets and ranges of registered
            // memory, for which the copy is guarded.
            let copied =
                unsafe { guard::copy(out[start..].as_mut_ptr(), element.base as *const u8, len) };
            if !copied {
                out.truncate(before);
                return Err(Unmapped);
            }
        }
        Ok(out.len() - before)
    }

    pub(crate) fn as_slice(&self) -> &[IoVec] {
        self.list.as_slice()
    }
}

/// Where one receive puts octets, in order.
pub struct Scatter<'a> {
    list: List,
    _borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Default for Scatter<'a> {
    fn default() -> Self {
        Scatter {
            list: List::new(),
            _borrowed: PhantomData,
        }
    }
}

impl<'a> Scatter<'a> {
    /// Adds a buffer; false when the list is full.
    pub fn push(&mut self, buffer: &'a mut [u8]) -> bool {
        self.list.push(buffer.as_mut_ptr() as usize, buffer.len())
    }

    /// Adds registered memory; false when the list is full or the range is outside.
    pub fn push_registered(&mut self, memory: &'a Registered, offset: u64, len: usize) -> bool {
        match memory.range(offset, len) {
            Some(addr) => self.list.push(addr, len),
            None => false,
        }
    }

    /// Octets the list has room for.
    pub fn octets(&self) -> usize {
        self.list.octets
    }

    /// Puts octets into the list from its beginning on, for a transport that is not the kernel's; how many it took.
    ///
    /// # Errors
    /// Memory in the list is not mapped. What is before it may have been written.
    pub fn fill(&self, octets: &[u8]) -> Result<usize, Unmapped> {
        self.fill_from(0, octets)
    }

    /// Puts octets into the list behind its first `skip` octets; how many it took.
    ///
    /// # Errors
    /// As for [`Scatter::fill`].
    pub fn fill_from(&self, skip: usize, octets: &[u8]) -> Result<usize, Unmapped> {
        let (mut skip, mut rest) = (skip, octets);
        for element in self.list.as_slice() {
            let skipped = skip.min(element.len);
            skip -= skipped;
            let element = IoVec {
                base: element.base + skipped,
                len: element.len - skipped,
            };
            let (now, later) = rest.split_at(element.len.min(rest.len()));
            // SAFETY: every element is a mutably borrowed buffer or registered memory, which may be overwritten; the
            // copy is guarded where nothing is mapped.
            if !unsafe { guard::copy(element.base as *mut u8, now.as_ptr(), now.len()) } {
                return Err(Unmapped);
            }
            rest = later;
        }
        Ok(octets.len() - rest.len())
    }

    pub(crate) fn as_slice(&self) -> &[IoVec] {
        self.list.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::unmapped;

    #[test]
    fn a_list_has_the_cuts_that_were_made() {
        let mut gather = Gather::default();
        gather.push(b"onesecond");
        assert!(gather.cuts().is_empty());
        gather.cut(3);
        gather.cut(9);
        assert_eq!(gather.cuts(), [3, 9]);
    }

    #[test]
    fn lists_are_copied_from_and_to_without_the_kernel() {
        let memory = Registered::allocate(64).unwrap();
        memory.write(8, b"registered").unwrap();
        let mut gather = Gather::default();
        gather.push(b"head");
        gather.push_registered(&memory, 8, 10);
        let mut out = b"before".to_vec();
        assert_eq!(gather.append_to(9, &mut out), Ok(9));
        assert_eq!(out, b"beforeheadregis");
        let mut head = [0; 3];
        let mut scatter = Scatter::default();
        scatter.push(&mut head);
        scatter.push_registered(&memory, 40, 20);
        assert_eq!(scatter.fill(b"012x"), Ok(4));
        assert_eq!(scatter.fill_from(3, b"3456"), Ok(4));
        assert_eq!(scatter.fill_from(23, b"beyond"), Ok(0));
        let mut placed = [0; 5];
        memory.read(40, &mut placed).unwrap();
        assert_eq!((&head, &placed), (b"012", b"3456\0"));
        let gone = unmapped(4096);
        let mut gather = Gather::default();
        gather.push(b"head");
        gather.push_registered(&gone, 0, 4096);
        assert_eq!(gather.append_to(4100, &mut out), Err(Unmapped));
        assert_eq!(out.len(), 15);
        let mut scatter = Scatter::default();
        scatter.push_registered(&gone, 0, 4096);
        assert_eq!(scatter.fill(b"x"), Err(Unmapped));
    }
}
