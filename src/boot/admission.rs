//! Who may take part in a rendezvous that anybody could connect to: who knows its secret.
//!
//! ```text
//! leader                                   caller
//!   Challenge{version, nonce a}  ----->
//!                                <-----      Proof{nonce b, HMAC(secret, "caller" a b)}
//!   Proof{nonce a, HMAC(secret, "leader" a b)}  ----->
//! ```
//! Neither says the secret, and each knows of the other that it has it. This keeps strangers out, and
//! others' leaders; what goes over the connection afterwards is neither hidden nor sealed, so it is no
//! protection from who reads or changes what is on the wire.

use super::wire::NONCE;
use crate::base::{Error, Result};
use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::GetRandomFlags;
use sha2::Sha256;

/// Shortest and longest secret.
const LENGTHS: std::ops::RangeInclusive<usize> = 8..=1024;

/// A number used once.
pub(super) type Nonce = [u8; NONCE];

/// What the processes of a rendezvous know and others do not.
pub(super) struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Whose proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Leader,
    Caller,
}

impl Secret {
    /// That of 8 to 1024 bytes.
    pub fn new(secret: &str) -> Result<Secret> {
        if !LENGTHS.contains(&secret.len()) {
            let (least, most) = (LENGTHS.start(), LENGTHS.end());
            let why = format!("it has {} bytes; {least} to {most} are asked for", secret.len());
            return Err(Error::invalid("secret of a rendezvous", why));
        }
        Ok(Secret(secret.into()))
    }

    /// What this side says to show that it knows the secret; `leader` and `caller` are their nonces.
    pub fn proof(&self, side: Side, leader: &Nonce, caller: &Nonce) -> Result<[u8; 32]> {
        Ok(self.keyed(side, leader, caller)?.finalize().into_bytes().into())
    }

    /// Whether the other side has shown it. Takes as long wherever the first difference is.
    ///
    /// # Errors
    /// Those of [`Secret::proof`].
    pub fn is_shown(
        &self,
        by: Side,
        leader: &Nonce,
        caller: &Nonce,
        proof: &[u8; 32],
    ) -> Result<bool> {
        Ok(self.keyed(by, leader, caller)?.verify_slice(proof).is_ok())
    }

    fn keyed(&self, side: Side, leader: &Nonce, caller: &Nonce) -> Result<Hmac<Sha256>> {
        let keyed = Hmac::<Sha256>::new_from_slice(&self.0);
        let keyed = keyed.map_err(|e| Error::invalid("secret of a rendezvous", e.to_string()))?;
        let side: &[u8] = match side {
            Side::Leader => b"hither leader",
            Side::Caller => b"hither caller",
        };
        Ok(keyed.chain_update(leader).chain_update(caller).chain_update(side))
    }
}

/// A fresh nonce.
pub(super) fn nonce() -> Result<Nonce> {
    let mut bytes = [0; NONCE];
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|e| Error::os("getrandom", e))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_shows_it_and_only_once() {
        let (ours, others) =
            (Secret::new("long enough").unwrap(), Secret::new("long enougH").unwrap());
        let (a, b, c) = (nonce().unwrap(), nonce().unwrap(), nonce().unwrap());
        let proof = ours.proof(Side::Caller, &a, &b).unwrap();
        assert!(ours.is_shown(Side::Caller, &a, &b, &proof).unwrap());
        assert!(!others.is_shown(Side::Caller, &a, &b, &proof).unwrap(), "another secret");
        assert!(!ours.is_shown(Side::Leader, &a, &b, &proof).unwrap(), "sent back");
        for (leader, caller) in [(&c, &b), (&a, &c), (&b, &a)] {
            assert!(
                !ours.is_shown(Side::Caller, leader, caller, &proof).unwrap(),
                "of another greeting"
            );
        }
        for at in 0..32 {
            let mut changed = proof;
            changed[at] ^= 0x10;
            assert!(!ours.is_shown(Side::Caller, &a, &b, &changed).unwrap());
        }
    }

    #[test]
    fn secrets_are_not_shown_and_have_a_length() {
        for text in ["", "1234567", &"x".repeat(1025)] {
            let error = Secret::new(text).unwrap_err().to_string();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
        assert!(!format!("{:?}", Secret::new("12345678").unwrap()).contains("1234"));
    }
}
