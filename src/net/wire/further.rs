//! Messages behind the first one of a datagram, all of them whole.
//!
//! ```text
//!   Fragment (`more` = 2) | first message | u16 length | u8 channel | 0 | bytes | u16 length | ...
//! ```

use super::datagram::{HEADER, OVERHEAD};
use super::{Reject, field};
use std::ops::Range;

/// Bytes before each of them.
pub const FURTHER: usize = 4;

/// Where the header of the first message counts them, in a datagram.
const MORE: usize = HEADER + 13;

/// Those of a datagram that came: channels and bytes. They lie one behind the other up to its end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Further<'a> {
    rest: &'a [u8],
}

impl<'a> Further<'a> {
    /// `more` messages that take up all of `rest`.
    #[inline]
    pub fn decode(rest: &'a [u8], more: u8) -> Result<Further<'a>, Reject> {
        let all = Further { rest };
        let mut left = all;
        for _ in 0..more {
            left.next().ok_or(Reject::Field)?;
        }
        if left.rest.is_empty() { Ok(all) } else { Err(Reject::Field) }
    }

    /// Bytes of the longest one.
    #[inline]
    pub fn longest(self) -> usize {
        self.map(|(_, bytes)| bytes.len()).max().unwrap_or(0)
    }
}

impl<'a> Iterator for Further<'a> {
    type Item = (u8, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (head, rest) = self.rest.split_first_chunk::<FURTHER>()?;
        let length = u16::from_le_bytes(field(head, 0));
        let (bytes, rest) = rest.split_at_checked(length.into())?;
        if head[3] != 0 {
            return None;
        }
        self.rest = rest;
        Some((head[2], bytes))
    }
}

/// Makes room for one more message of `length` bytes behind the first `used` bytes of a datagram,
/// whose first message is whole: where its own bytes belong. Nothing if it does not fit.
#[inline]
pub fn add(datagram: &mut [u8], used: usize, channel: u8, length: usize) -> Option<Range<usize>> {
    let at = used + FURTHER;
    let (short, more) = (u16::try_from(length).ok()?, datagram.get(MORE)?.checked_add(1)?);
    if used < OVERHEAD || at + length > datagram.len() {
        return None;
    }
    datagram[used..at - 2].copy_from_slice(&short.to_le_bytes());
    datagram[at - 2..at].copy_from_slice(&[channel, 0]);
    datagram[MORE] = more;
    Some(at..at + length)
}
