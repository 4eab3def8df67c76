//! The CRC of a stream's FPDUs, which is looked at before anything of them is taken from the socket.

use weft_iwarp::mpa::fpdu::{crc32c, fpdu_len, CRC_LEN, LENGTH_LEN};

use super::{Next, Receiver, CRC, IN_TRAILER};
use crate::fault::Fault;

/// What a check of the CRC came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// So many octets may be taken.
    Good(usize),
    /// It takes so many octets to say more.
    Need(usize),
}

impl Receiver {
    /// Checks the CRC of the FPDUs at the front of `octets`, which the socket has next. Where payload is at hand its
    /// FPDU was checked before.
    ///
    /// # Errors
    /// The CRC of the first of them does not match.
    pub fn check(&self, octets: &[u8]) -> Result<Check, Fault> {
        if self.flags & CRC == 0 {
            return Ok(Check::Good(octets.len()));
        }
        let mut at = match self.next() {
            Next::Nothing => return Ok(Check::Good(octets.len())),
            Next::Payload(left) | Next::Mapped { left, .. } => {
                left as usize + usize::from(self.trailer)
            }
            Next::Framing(rest) if self.phase == IN_TRAILER => rest,
            // With a CRC no FPDU is taken before it was checked, so none is held in part.
            Next::Framing(_) => 0,
        };
        while let Some(fpdu) = octets.get(at..) {
            let Some(length) = fpdu.first_chunk() else {
                break;
            };
            let len = fpdu_len(usize::from(u16::from_be_bytes(*length)));
            let Some(fpdu) = fpdu.get(..len) else {
                return Ok(if at == 0 {
                    Check::Need(len)
                } else {
                    Check::Good(at)
                });
            };
            let (content, field) = fpdu.split_at(len - CRC_LEN);
            if !is_crc_of(content, field) {
                // What stands before it is good.
                return if at == 0 {
                    Err(Fault::Crc)
                } else {
                    Ok(Check::Good(at))
                };
            }
            at += len;
        }
        Ok(if at == 0 {
            Check::Need(LENGTH_LEN)
        } else {
            Check::Good(at.min(octets.len()))
        })
    }
}

/// While fuzzing every CRC is right, or nothing behind it would be reached.
#[inline]
#[allow(unexpected_cfgs, reason = "the fuzzer's build sets it")]
fn is_crc_of(content: &[u8], field: &[u8]) -> bool {
    cfg!(fuzzing) || crc32c(content).to_le_bytes() == field
}
