//! Codes, names, what a Terminate includes, and the forms peers send it in.

use super::*;
use crate::ddp::{Tagged, Untagged};
use crate::num::{Msn, Opcode, QueueNumber, Stag};
use alloc::string::ToString;
use proptest::prelude::*;

const SEND: Header = Header::Untagged(Untagged {
    last: true,
    opcode: Opcode::SEND,
    invalidate: 0,
    qn: QueueNumber::SEND,
    msn: Msn(5),
    mo: 0,
});
const WRITE: Header = Header::Tagged(Tagged {
    last: true,
    opcode: Opcode::WRITE,
    stag: Stag(0x5555_0001),
    to: 0x4000,
});
const READ: Header = Header::Untagged(Untagged {
    last: true,
    opcode: Opcode::READ_REQUEST,
    invalidate: 0,
    qn: QueueNumber::READ_REQUEST,
    msn: Msn(3),
    mo: 0,
});
const REQUEST: ReadRequest = ReadRequest {
    sink_stag: Stag(0xaabb_cc01),
    sink_to: 0x1000,
    size: 0x2000,
    source_stag: Stag(0x1122_3302),
    source_to: 0x3000,
};

/// Every fault, with its code in the tables of the RFCs.
const FAULTS: [(PeerFault, u8, u8, u8); 32] = [
    (PeerFault::Crc, 2, 0, 0x02),
    (PeerFault::Marker, 2, 0, 0x03),
    (PeerFault::StartFrame, 2, 0, 0x04),
    (PeerFault::InsufficientIrd, 2, 0, 0x06),
    (PeerFault::NoMatchingRtr, 2, 0, 0x07),
    (PeerFault::SegmentTooShort, 1, 0, 0x00),
    (PeerFault::TaggedStag, 1, 1, 0x00),
    (PeerFault::TaggedBounds, 1, 1, 0x01),
    (PeerFault::TaggedStream, 1, 1, 0x02),
    (PeerFault::TaggedToWrap, 1, 1, 0x03),
    (PeerFault::TaggedVersion, 1, 1, 0x04),
    (PeerFault::WriteAccess, 0, 1, 0x02),
    (PeerFault::QueueNumber, 1, 2, 0x01),
    (PeerFault::NoBuffer, 1, 2, 0x02),
    (PeerFault::IrdExceeded, 1, 2, 0x02),
    (PeerFault::MsnRange, 1, 2, 0x03),
    (PeerFault::MessageOffset, 1, 2, 0x04),
    (PeerFault::MessageTooLong, 1, 2, 0x05),
    (PeerFault::UntaggedVersion, 1, 2, 0x06),
    (PeerFault::RemoteStag, 0, 1, 0x00),
    (PeerFault::RemoteBounds, 0, 1, 0x01),
    (PeerFault::RemoteAccess, 0, 1, 0x02),
    (PeerFault::RemoteStream, 0, 1, 0x03),
    (PeerFault::RemoteToWrap, 0, 1, 0x04),
    (PeerFault::InvalidateStream, 0, 1, 0x09),
    (PeerFault::RdmapVersion, 0, 2, 0x05),
    (PeerFault::UnexpectedOpcode, 0, 2, 0x06),
    (PeerFault::MessageLength, 0, 2, 0x06),
    (PeerFault::UnexpectedReadResponse, 0, 2, 0x06),
    (PeerFault::Terminate, 0, 2, 0x06),
    (PeerFault::AtomicAlignment, 0, 2, 0x07),
    (PeerFault::InvalidateStag, 0, 2, 0x09),
];

/// Exactly the codes for protection errors, with those that the RFCs put elsewhere, are refused accesses.
#[test]
fn refused_accesses_are_the_protection_errors() {
    for (fault, layer, etype, code) in FAULTS {
        let protection = match (layer, etype) {
            (1, 1) => fault != PeerFault::TaggedVersion,
            (0, 1) => true,
            _ => fault == PeerFault::InvalidateStag,
        };
        assert_eq!(
            fault.is_refused_access(),
            protection,
            "{layer}/{etype}/{code}"
        );
    }
}

#[test]
fn codes_and_what_is_included() {
    for (fault, layer, etype, code) in FAULTS {
        let expected = TerminateCode::new(layer, etype, code);
        assert_eq!(fault.code(), expected, "{fault:?}");
        assert!(expected.name().is_some(), "{fault:?}");

        let seen = Fault::new(fault, "a field")
            .in_segment(0x2e, READ)
            .in_read_request(REQUEST);
        let Some(terminate) = seen.terminate() else {
            assert!(matches!(
                fault,
                PeerFault::StartFrame | PeerFault::Terminate
            ));
            continue;
        };
        // RFC 5040 Figure 10.
        let (ddp, rdma) = match (layer, etype) {
            (2, _) | (_, 0) => (false, false),
            (0, 1) => (true, true),
            _ => (true, false),
        };
        assert_eq!(
            (terminate.ddp.is_some(), terminate.read_request.is_some()),
            (ddp, rdma),
            "{fault:?}"
        );
        // Without a segment there is nothing to include: the Read Request stands behind its DDP header.
        assert_eq!(
            Fault::new(fault, "a field")
                .in_read_request(REQUEST)
                .terminate(),
            Some(Terminate::bare(expected))
        );
    }
}

#[test]
fn log_lines_name_the_field() {
    let fault = Fault::new(PeerFault::MsnRange, "MSN").in_segment(0x76, SEND);
    assert_eq!(
        fault.to_string(),
        "DDP untagged: invalid MSN, MSN range is not valid (1/2/03): MSN in Send QN 0 MSN 5 MO 0, last, ULPDU_Length 118"
    );
    assert_eq!(
        TerminateCode::new(1, 2, 2).to_string(),
        "DDP untagged: invalid MSN, no buffer available (1/2/02)"
    );
    assert_eq!(
        TerminateCode::new(9, 1, 2).to_string(),
        "unknown error (9/1/02)"
    );
    assert_eq!(
        Fault::new(PeerFault::Terminate, "QN").to_string(),
        "malformed Terminate: QN"
    );
}

fn decode(octets: &[u8]) -> Terminate {
    Terminate::decode(octets).expect("a control word")
}

fn octets(terminate: &Terminate) -> Vec<u8> {
    let mut octets = Vec::new();
    terminate.encode(&mut octets);
    octets
}

/// The three control words siw writes, and those of the RFC, read alike.
#[test]
fn the_mirrored_form_of_siw() {
    let bare = Terminate::bare(TerminateCode::new(2, 0, 2));
    assert_eq!(decode(&[0x20, 0x02, 0x00, 0x00]), bare);
    assert_eq!(decode(&[0x02, 0x02, 0x00, 0x00]), bare);

    for (fault, header, rfc, siw) in [
        (
            PeerFault::NoBuffer,
            SEND,
            [0x12, 0x02, 0xc0, 0],
            [0x21, 0x02, 0x03, 0],
        ),
        (
            PeerFault::TaggedBounds,
            WRITE,
            [0x11, 0x01, 0xc0, 0],
            [0x11, 0x01, 0x03, 0],
        ),
        (
            PeerFault::RemoteAccess,
            READ,
            [0x01, 0x02, 0xe0, 0],
            [0x10, 0x02, 0x07, 0],
        ),
    ] {
        let mut fault = Fault::new(fault, "any").in_segment(0x76, header);
        if header == READ {
            fault = fault.in_read_request(REQUEST);
        }
        let terminate = fault.terminate().expect("a Terminate");
        let mut wire = octets(&terminate);
        assert_eq!(wire[..4], rfc);
        assert_eq!(decode(&wire), terminate);
        wire[..4].copy_from_slice(&siw);
        assert_eq!(decode(&wire), terminate);
    }
}

/// The upper header bits say that the control word is the RFC's, whatever the reserved bits and the code are.
#[test]
fn a_control_word_with_upper_header_bits_is_read_as_it_stands() {
    let mut wire = octets(
        &Fault::new(PeerFault::NoBuffer, "any")
            .in_segment(0x76, SEND)
            .terminate()
            .expect("a Terminate"),
    );
    wire[2] |= 0x07;
    assert_eq!(decode(&wire).code, TerminateCode::new(1, 2, 2));
    assert_eq!(decode(&wire).ddp, Some((0x76, SEND)));
    // Its mirror image would be in the tables: base or bounds violation.
    wire[..2].copy_from_slice(&[0x10, 0x01]);
    assert_eq!(decode(&wire).code, TerminateCode::new(1, 0, 1));
}

/// `02 06` without headers is an unexpected opcode by the RFC and insufficient IRD from siw; the log gives both.
#[test]
fn a_control_word_with_two_readings() {
    let terminate = decode(&[0x02, 0x06, 0x00, 0x00]);
    assert_eq!(terminate.code, TerminateCode::new(0, 2, 6));
    assert_eq!(terminate.code.mirrored(), Some(TerminateCode::new(2, 0, 6)));
    let line = terminate.to_string();
    assert!(
        line.contains("unexpected opcode") && line.contains("insufficient IRD"),
        "{line}"
    );
    // With a header there is no doubt.
    assert!(!Fault::new(PeerFault::UnexpectedOpcode, "opcode")
        .in_segment(18, SEND)
        .terminate()
        .unwrap()
        .to_string()
        .contains("siw"));
}

/// Chelsio and Intel RNICs send error type 3 for the LLP.
#[test]
fn error_type_3_for_the_llp() {
    let terminate = decode(&[0x23, 0x02, 0x00, 0x00]);
    assert_eq!(terminate.code.name(), Some("MPA: CRC mismatch"));
}

#[test]
fn headers_cut_short_are_left_out() {
    let whole = Fault::new(PeerFault::RemoteAccess, "STag")
        .in_segment(0x2e, READ)
        .in_read_request(REQUEST)
        .terminate()
        .unwrap();
    let wire = octets(&whole);
    assert_eq!(wire.len(), Terminate::MAX_LEN);
    assert_eq!(Terminate::decode(&wire[..3]), None);
    assert_eq!(decode(&wire[..4]), Terminate::bare(whole.code));
    assert_eq!(decode(&wire[..23]), Terminate::bare(whole.code));
    let without_request = Terminate {
        read_request: None,
        ..whole
    };
    assert_eq!(decode(&wire[..24]), without_request);
    assert_eq!(decode(&wire[..51]), without_request);
    assert_eq!(decode(&wire), whole);
}

prop_compose! {
    fn terminate()(
        layer in 0u8..16, etype in 0u8..16, code: u8,
        ddp in proptest::option::of((any::<u16>(), prop_oneof![Just(SEND), Just(WRITE), Just(READ)])),
        versions in (0u8..4, 0u8..4), with_request: bool, sink: u32, source_to: u64, size: u32,
    ) -> Terminate {
        let request = ReadRequest { sink_stag: Stag(sink), source_to, size, ..REQUEST };
        Terminate {
            code: TerminateCode::new(layer, etype, code),
            versions: match ddp {
                Some(_) => Versions { ddp: versions.0, rdmap: versions.1 },
                None => Versions::IETF,
            },
            read_request: (with_request && ddp.is_some()).then_some(request),
            ddp,
        }
    }
}

proptest! {
    #[test]
    fn round_trip(terminate in terminate()) {
        let decoded = decode(&octets(&terminate));
        // Without header bits an unknown code may be a known one of siw's; any other comes back as it was.
        if terminate.ddp.is_some() || terminate.code.name().is_some() || terminate.code.mirrored().is_none() {
            prop_assert_eq!(decoded, terminate);
        } else {
            prop_assert_eq!(Some(decoded.code), terminate.code.mirrored());
        }
    }

    /// Any octets decode to something that encodes, and never panic.
    #[test]
    fn any_octets(octets_in in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Some(terminate) = Terminate::decode(&octets_in) {
            let again = octets(&terminate);
            prop_assert!(again.len() <= Terminate::MAX_LEN);
        }
    }
}
