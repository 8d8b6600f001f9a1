//! What a message says of itself beside its number and its bytes, as it travels: its label, and which
//! endpoint of its receiver it is for.
//!
//! ```text
//!   63      54 53       48 47       8 7      0
//!   |    0    | endpoint  |   imm    |  kind  |
//! ```
//! Endpoint 0 is the process's own. The others have tagged messages only, so the program's kinds make
//! no sense there.

use crate::link::KINDS;
use crate::link::control::FIRST_RESERVED;
use crate::shm::ring::Label;
use crate::shm::segment::PORTS;

/// Where the endpoint's number is.
const ENDPOINT: u32 = 48;

const _: () = assert!(PORTS < 1 << 6);

/// The word of a message for an endpoint.
pub(super) fn encode(endpoint: u8, label: Label) -> u64 {
    u64::from(endpoint) << ENDPOINT | label.imm() << 8 | u64::from(label.kind())
}

/// What a peer's word says. Kinds that the link has for itself mean something in this node's memory
/// only: what has one makes no sense here, and nobody could do anything with it.
pub(super) fn decode(word: u64) -> Option<(u8, Label)> {
    let endpoint = u8::try_from(word >> ENDPOINT).ok().filter(|n| usize::from(*n) <= PORTS)?;
    let kind = u8::try_from(word & 0xff).ok().filter(|kind| *kind < FIRST_RESERVED)?;
    if endpoint != 0 && kind < KINDS {
        return None;
    }
    let label = Label::new(kind, word >> 8 & ((1 << (ENDPOINT - 8)) - 1)).ok()?;
    Some((endpoint, label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_come_back_as_they_were_and_others_are_nothing(word: u64, endpoint in 0u8..64) {
            let tagged = Label::new(KINDS + (word & 0xf) as u8, word >> 24).unwrap();
            prop_assert_eq!(decode(encode(endpoint, tagged)), Some((endpoint, tagged)));
            let own = Label::new((word & 0x7f) as u8, word >> 24).unwrap();
            let come = decode(encode(endpoint, own));
            prop_assert_eq!(come, (endpoint == 0).then_some((0, own)));
            // What is read is what was written, all of it.
            if let Some((endpoint, label)) = decode(word) {
                prop_assert_eq!(encode(endpoint, label), word);
            }
        }
    }

    #[test]
    fn the_link_s_own_kinds_and_numbers_that_no_endpoint_has_are_nothing() {
        let tagged = Label::new(KINDS, 1).unwrap();
        assert_eq!(decode(encode(PORTS as u8, tagged)), Some((PORTS as u8, tagged)));
        assert_eq!(decode(encode(0, tagged) | 1 << 54), None);
        assert_eq!(decode(encode(0, tagged) | 1 << 63), None);
        assert_eq!(decode(u64::from(FIRST_RESERVED)), None);
    }
}
