//! Segments with payload of a program's.

use alloc::vec::Vec;

use weft_iwarp::ddp::Header;
use weft_iwarp::Stag;

use super::Framer;
use crate::host::{AccessFault, Host};
use crate::scatter::pieces;
use crate::types::{Access, Payload, Sge};

/// Payloads at least this long go by reference; shorter ones are copied beside their header,
/// because an element of a gather list costs more than the copy.
pub(in crate::qp) const BY_REFERENCE_OCTETS_MIN: usize = 1024;

/// Where a segment's payload comes from.
#[derive(Clone, Copy)]
pub(in crate::qp) enum Source<'a> {
    Gather {
        sges: &'a [Sge],
        offset: u32,
        /// What the regions have to grant.
        access: Access,
    },
    Inline(&'a [u8]),
}

impl<'a> Source<'a> {
    /// Octets `offset` to `end` of what a work request of this side sends.
    #[inline]
    pub(in crate::qp) fn of(payload: Payload<'a>, offset: u32, end: u32) -> Source<'a> {
        match payload {
            Payload::Inline(octets) => Source::Inline(&octets[offset as usize..end as usize]),
            Payload::Gather(sges) => Source::Gather {
                sges,
                offset,
                access: Access::NONE,
            },
        }
    }
}

impl Framer<'_> {
    /// One segment with `octets` of payload, by reference where the stream and the size allow it.
    #[inline]
    pub(in crate::qp) fn segment(
        &mut self,
        header: &Header,
        source: Source<'_>,
        octets: usize,
        host: &mut impl Host,
    ) -> Result<(), AccessFault> {
        match source {
            Source::Gather {
                sges,
                offset,
                access,
            } if octets >= BY_REFERENCE_OCTETS_MIN && self.stream.by_reference() => {
                self.segment_by_reference(header, (sges, offset), access, octets, host)?;
            }
            _ => self.segment_copied(header, source, octets, host)?,
        }
        self.note_segment(octets);
        Ok(())
    }

    /// One segment that is a whole message of `octets`. Its payload is copied beside its header, however long it is. A
    /// list of one element, as most are, is not walked.
    #[inline(always)]
    pub(in crate::qp) fn whole_message(
        &mut self,
        header: &Header,
        payload: Payload<'_>,
        octets: usize,
        host: &mut impl Host,
    ) -> Result<(), AccessFault> {
        match payload {
            Payload::Gather(&[only]) => {
                let scope = self.scope;
                self.copied(header, octets, |out| {
                    host.read_checked(only, Access::NONE, scope, out)
                })?;
            }
            _ => {
                self.segment_copied(header, Source::of(payload, 0, octets as u32), octets, host)?
            }
        }
        self.note_segment(octets);
        Ok(())
    }

    /// A segment was framed.
    #[inline]
    fn note_segment(&mut self, octets: usize) {
        self.end_fpdu();
        self.counters.segments_out += 1;
        self.counters.octets_framed += octets as u64;
    }

    fn segment_by_reference(
        &mut self,
        header: &Header,
        (sges, offset): (&[Sge], u32),
        access: Access,
        octets: usize,
        host: &mut impl Host,
    ) -> Result<(), AccessFault> {
        let scope = self.scope;
        let span =
            |piece: Sge| host.check(Stag(piece.lkey), piece.addr, piece.length, access, scope);
        for piece in pieces(sges, offset, octets as u32) {
            span(piece)?;
        }
        let (outbound, outgoing) = (self.stream.outbound(), &mut *self.outgoing);
        outgoing.append(|out| outbound.begin(out, header, &[], octets));
        for piece in pieces(sges, offset, octets as u32) {
            outgoing.append_memory(span(piece)?);
        }
        outgoing.append(|out| outbound.seal_reference(out, octets, header.wire_len()));
        Ok(())
    }

    /// Frames one segment with its payload copied beside the header: what the CRC covers is then
    /// what is sent, whatever the program does to its buffer meanwhile.
    fn segment_copied(
        &mut self,
        header: &Header,
        source: Source<'_>,
        octets: usize,
        host: &mut impl Host,
    ) -> Result<(), AccessFault> {
        let scope = self.scope;
        self.copied(header, octets, |out| {
            match source {
                Source::Inline(payload) => out.extend_from_slice(payload),
                Source::Gather {
                    sges,
                    offset,
                    access,
                } => {
                    for piece in pieces(sges, offset, octets as u32) {
                        host.read_checked(piece, access, scope, out)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Frames one segment whose `octets` of payload `append` appends, or nothing where that fails.
    #[inline(always)]
    fn copied(
        &mut self,
        header: &Header,
        octets: usize,
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), AccessFault>,
    ) -> Result<(), AccessFault> {
        let (outbound, outgoing) = (self.stream.outbound(), &mut *self.outgoing);
        let mark = outgoing.mark();
        let framed = outgoing.append(|out| {
            let start = outbound.begin(out, header, &[], octets);
            append(out)?;
            outbound.seal(out, start);
            Ok(())
        });
        if framed.is_err() {
            outgoing.undo_octets(mark);
        }
        framed
    }
}
