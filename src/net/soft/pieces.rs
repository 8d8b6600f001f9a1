//! Lists of local pieces, kept by value, and moving bytes between them and frames.

use super::PIECES;
use super::keys::Keys;
use crate::net::provider::{Access, Local, PostError};

/// A few pieces.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    list: [Local; PIECES],
    count: usize,
}

impl Pieces {
    pub fn new(pieces: &[Local]) -> Result<Pieces, PostError> {
        let mut list = [Local { address: 0, length: 0, key: 0 }; PIECES];
        list.get_mut(..pieces.len()).ok_or(PostError::TooManyPieces)?.copy_from_slice(pieces);
        Ok(Pieces { list, count: pieces.len() })
    }

    pub fn length(&self) -> u64 {
        self.list[..self.count].iter().map(|piece| u64::from(piece.length)).sum()
    }

    /// Calls `f` for each part of `length` bytes at `offset` of the whole: the piece cut to it.
    /// None if they do not lie inside, or `f` said none.
    fn each(
        &self,
        mut offset: u64,
        mut length: u64,
        mut f: impl FnMut(Local) -> Option<()>,
    ) -> Option<()> {
        for piece in &self.list[..self.count] {
            let whole = u64::from(piece.length);
            if offset >= whole {
                offset -= whole;
                continue;
            }
            let part = (whole - offset).min(length);
            if part == 0 {
                break;
            }
            let address = piece.address.checked_add(offset)?;
            f(Local { address, length: part as u32, key: piece.key })?;
            length -= part;
            offset = 0;
        }
        (length == 0).then_some(())
    }

    /// Puts `bytes` at `offset` of the whole. None if a piece is not registered for that; what came
    /// before it is there.
    pub fn scatter(&self, keys: &Keys, offset: u64, mut bytes: &[u8]) -> Option<()> {
        self.each(offset, bytes.len() as u64, |part| {
            let (now, later) = bytes.split_at(part.length as usize);
            bytes = later;
            let (memory, at) =
                keys.find(part.key, part.address, part.length.into(), Access::LOCAL_WRITE)?;
            memory.write(at, now).then_some(())
        })
    }

    /// Appends `length` bytes at `offset` of the whole.
    pub fn gather(&self, keys: &Keys, offset: u64, length: u64, to: &mut Vec<u8>) -> Option<()> {
        self.each(offset, length, |part| {
            let (memory, at) =
                keys.find(part.key, part.address, part.length.into(), Access::LOCAL_READ)?;
            memory.append(at, part.length as usize, to).then_some(())
        })
    }

    /// Whether all of it may be used so now.
    pub fn check(&self, keys: &Keys, need: Access) -> bool {
        self.list[..self.count]
            .iter()
            .filter(|piece| piece.length > 0)
            .all(|piece| keys.find(piece.key, piece.address, piece.length.into(), need).is_some())
    }
}
