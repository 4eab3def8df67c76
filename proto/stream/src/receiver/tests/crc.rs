//! What a CRC covers, and what it does not.

use super::*;
use weft_iwarp::mpa::fpdu::crc32c;

#[test]
fn nothing_is_taken_that_the_crc_does_not_cover() {
    let mut receiver = Receiver::new(&own(), &foreign(), true);
    let unlike_weft = ConnectionData {
        weft: false,
        ..own()
    };
    let mut sender = Sender::new(&unlike_weft, 1442, true);
    let mut octets = sender.begin_write(5).to_vec();
    octets.extend_from_slice(b"octet\0\0\0");
    let crc = crc32c(&octets);
    octets.truncate(octets.len() - 3);
    let (trailer, len) = frame::trailer(5, crc);
    octets.extend_from_slice(&trailer[..len]);
    let fpdu = octets.len();
    octets.extend(sender.announce().unwrap());

    assert_eq!(receiver.check(&octets[..1]), Ok(Check::Need(2)));
    assert_eq!(receiver.check(&octets[..fpdu - 1]), Ok(Check::Need(fpdu)));
    assert_eq!(receiver.check(&octets[..fpdu + 3]), Ok(Check::Good(fpdu)));
    assert_eq!(receiver.check(&octets), Ok(Check::Good(octets.len())));
    for at in 2..fpdu {
        let mut broken = octets.clone();
        broken[at] ^= 0x10;
        assert_eq!(
            receiver.check(&broken[..fpdu]),
            Err(Fault::Crc),
            "octet {at}"
        );
    }
    // What is left of an FPDU that was checked is good, and the next is looked at.
    let framing = receiver.take_framing(&octets).unwrap();
    assert_eq!(
        receiver.framing_behind(),
        frame::trailer_len(5),
        "the next FPDU is not checked yet"
    );
    receiver.take_payload(2);
    let mut rest = octets[framing.taken + 2..].to_vec();
    assert_eq!(receiver.check(&rest), Ok(Check::Good(rest.len())));
    assert_eq!(receiver.check(&rest[..4]), Ok(Check::Good(4)));
    *rest.last_mut().unwrap() ^= 1;
    let good = rest.len() - MESSAGE_LEN;
    assert_eq!(receiver.check(&rest), Ok(Check::Good(good)));
    receiver.take_payload(3);
    receiver.take_framing(&rest[3..good]).unwrap();
    assert_eq!(receiver.check(&rest[good..]), Err(Fault::Crc));
}
