//! Addresses of queue pairs: bytes that only the provider that made them understands.

use crate::base::{Error, Result};

/// Most bytes of an address.
pub const ADDRESS_BYTES: usize = 64;

/// Where a queue pair is reached. Made by a provider, carried to peers by any means, and given back
/// to a provider of the same kind there. Compares by its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    length: u8,
    bytes: [u8; ADDRESS_BYTES],
}

impl Address {
    /// No address.
    pub const NONE: Address = Address { length: 0, bytes: [0; ADDRESS_BYTES] };

    /// The address that has these bytes; an error if there are more than [`ADDRESS_BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Address> {
        if bytes.len() > ADDRESS_BYTES {
            return Err(Error::invalid(
                "a network address",
                format!("{} bytes, and addresses have {ADDRESS_BYTES} at most", bytes.len()),
            ));
        }
        let mut address = Address::NONE;
        address.length = bytes.len() as u8;
        address.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(address)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Whether it is [`Address::NONE`].
    pub fn is_none(&self) -> bool {
        self.length == 0
    }
}

impl Default for Address {
    fn default() -> Self {
        Address::NONE
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_too_many_are_refused() {
        let bytes: Vec<u8> = (0..64).collect();
        for n in 0..=64 {
            assert_eq!(Address::from_bytes(&bytes[..n]).unwrap().as_bytes(), &bytes[..n]);
        }
        assert!(Address::from_bytes(&[0; 65]).is_err());
        assert!(Address::from_bytes(&[]).unwrap().is_none());
    }
}
