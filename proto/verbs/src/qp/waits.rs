//! Why octets that arrive ahead of order are not placed at once.

use weft_iwarp::Unplaced;

/// Why octets ahead of order wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// The setting is to place nothing ahead of order.
    Policy,
    /// Neither a CRC nor the peer's word tells where FPDUs begin.
    Unproven,
    /// What begins here goes on behind the segment: an FPDU longer than one, or cut anew.
    NotWhole,
    /// No FPDU begins where the segment does.
    NoFpdu,
    /// The last segment of its message.
    LastSegment,
    /// A message that carries no octets to memory, or none at all.
    Control,
    /// The queue pair may lose messages, and which ones is known in order only.
    Unreliable,
    /// The receive of a Send is not known yet, or the Read of a Read Response.
    NoTarget,
    /// The memory may not be written to, or is not there, as things stand. Order decides whether that is a fault.
    Refused,
    /// The key is a memory window's, which may name other memory when order comes.
    Window,
    /// The payload goes to more than one run of memory.
    Scattered,
    /// Octets of a later FPDU are where some of these go.
    Overlap,
    /// As many FPDUs are placed as the ledger holds.
    LedgerFull,
}

impl Waits {
    /// All reasons, in the order of [`crate::placing::PlacingCounters::waits`].
    pub const ALL: [Waits; 13] = [
        Waits::Policy,
        Waits::Unproven,
        Waits::NotWhole,
        Waits::NoFpdu,
        Waits::LastSegment,
        Waits::Control,
        Waits::Unreliable,
        Waits::NoTarget,
        Waits::Refused,
        Waits::Window,
        Waits::Scattered,
        Waits::Overlap,
        Waits::LedgerFull,
    ];
}

impl From<Unplaced> for Waits {
    fn from(unplaced: Unplaced) -> Waits {
        match unplaced {
            Unplaced::NotWhole => Waits::NotWhole,
            Unplaced::NoFpdu => Waits::NoFpdu,
            Unplaced::LastSegment => Waits::LastSegment,
            Unplaced::Control => Waits::Control,
        }
    }
}
