//! Messages that their receiver decrypts, as programs of TLS, QUIC and WireGuard do: ChaCha20-Poly1305 (RFC 8439).
//!
//! The sender sends one sealed message again and again, so that sealing costs it nothing; what is measured is the
//! receiver.

use anyhow::{anyhow, Context, Result};
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Nonce, Tag};

/// Octets of a tag, at the end of each message.
const TAG: usize = 16;

/// The key of both ends. Nothing here is a secret.
pub(super) struct Key(ChaCha20Poly1305);

impl Key {
    /// The key, if messages are to be decrypted.
    pub(super) fn if_wanted(decrypt: bool) -> Option<Key> {
        let cipher = || ChaCha20Poly1305::new(&[7; 32].into());
        decrypt.then(|| Key(cipher()))
    }

    /// A message of so many octets.
    pub(super) fn sealed(&self, size: usize) -> Result<Vec<u8>> {
        let length = size.checked_sub(TAG);
        let length =
            length.with_context(|| format!("a sealed message has {TAG} octets or more"))?;
        let mut message = vec![0x5a; length];
        let tag =
            self.0
                .encrypt_inout_detached(&Nonce::default(), &[], message.as_mut_slice().into());
        let tag =
            tag.map_err(|_| anyhow!("a message of {size} octets is too long to be sealed"))?;
        message.extend_from_slice(&tag);
        Ok(message)
    }

    /// Decrypts messages of `size` octets that stand one behind another.
    pub(super) fn open_each(&self, messages: &mut [u8], size: usize) -> Result<()> {
        for message in messages.chunks_mut(size) {
            let cut = message.len().checked_sub(TAG);
            let (octets, tag) =
                message.split_at_mut(cut.context("a message came without its tag")?);
            let tag = Tag::try_from(&*tag).context("a tag has another length")?;
            let opened = self
                .0
                .decrypt_inout_detached(&Nonce::default(), &[], octets.into(), &tag);
            opened.map_err(|_| anyhow!("a message is not what was sealed"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_and_what_was_changed_or_cut_does_not() {
        assert!(Key::if_wanted(false).is_none());
        let key = Key::if_wanted(true).unwrap();
        let sealed = key.sealed(100).unwrap();
        assert_eq!(sealed.len(), 100);
        let mut three = sealed.repeat(3);
        key.open_each(&mut three, 100).unwrap();
        assert_eq!(three[..84], [0x5a; 84]);
        assert_eq!(three[200..284], [0x5a; 84]);
        let mut changed = sealed.repeat(2);
        changed[150] ^= 1;
        assert!(key.open_each(&mut changed, 100).is_err());
        for cut in [99, 15] {
            assert!(
                key.open_each(&mut sealed[..cut].to_vec(), 100).is_err(),
                "{cut}"
            );
        }
        assert!(key.sealed(15).is_err());
        assert_eq!(key.sealed(16).unwrap().len(), 16);
    }
}
