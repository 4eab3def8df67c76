//! How two Weft peers find that both take FPDUs larger than the EMSS.
//!
//! RFC 5044 gives a receiver no way to say which FPDU it likes, hardware is known to choke on
//! large ones, and an echoed start-up flag proves nothing. But the STag and TO of a zero-length
//! Write or Read are free and must not be checked (RFC 5041 section 5.2), so the initiator's
//! ready-to-receive message carries an announcement in its TO, and a responder that knows the
//! announcement answers with a zero-length Write that carries one too. Anybody else ignores
//! both. See decision 0004.

/// The upper six octets of an announcement.
const MAGIC: u64 = 0x5745_4654_0001_0000;

/// The tagged offset that says: this side takes ULPDUs up to the MPA maximum.
pub(super) const fn announcement() -> u64 {
    MAGIC | weft_iwarp::mpa::fpdu::MAX_ULPDU as u64
}

/// The longest ULPDU the peer says it takes, if `to` is an announcement.
pub(super) fn announced(to: u64) -> Option<usize> {
    let ulpdu = (to & 0xFFFF) as usize;
    (to & !0xFFFF == MAGIC && ulpdu >= 128).then(|| ulpdu.min(weft_iwarp::mpa::fpdu::MAX_ULPDU))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_announcement_is_one() {
        assert_eq!(
            announced(announcement()),
            Some(weft_iwarp::mpa::fpdu::MAX_ULPDU)
        );
        for other in [
            0,
            1,
            u64::MAX,
            MAGIC,
            MAGIC | 127,
            announcement() ^ (1 << 40),
        ] {
            assert_eq!(announced(other), None, "{other:#x}");
        }
        assert_eq!(
            announced(MAGIC | 0xFFFF),
            Some(weft_iwarp::mpa::fpdu::MAX_ULPDU),
            "clamped"
        );
    }
}
