//! Packets of the handshake that changes queue pairs, as they travel in messages between two
//! processes: over datagrams, or over the queue pairs that there are.

use super::{Reject, field};
use crate::base::adapt::Packet;

/// The longest address of a queue pair.
pub const END_POINT: usize = 64;

const FIXED: usize = 9;

/// A packet of the handshake (paper 000 §4.2), and what the network adds to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Control {
    /// The packet.
    pub packet: Packet,
    /// The connection it is about, numbered from 1 by both sides alike: the number of the one that
    /// is there, plus 1, while a new one is made.
    pub connection: u32,
    length: u8,
    end_point: [u8; END_POINT],
}

impl Control {
    /// With the address of the sender's queue pair, if the packet begins a connection and that is
    /// one; empty means that the new connection is by datagrams. Nothing if the address is longer
    /// than [`END_POINT`], or if the packet has none.
    pub fn new(packet: Packet, connection: u32, end_point: &[u8]) -> Option<Control> {
        let mut bytes = [0; END_POINT];
        bytes.get_mut(..end_point.len())?.copy_from_slice(end_point);
        let (length, end_point) = (end_point.len() as u8, bytes);
        (has_end_point(packet) || length == 0).then_some(Control {
            packet,
            connection,
            length,
            end_point,
        })
    }

    /// The address of the sender's queue pair; empty where there is none.
    pub fn end_point(&self) -> &[u8] {
        &self.end_point[..usize::from(self.length).min(END_POINT)]
    }

    /// Its form on the wire, and how many bytes of it are used.
    pub fn encode(&self) -> ([u8; FIXED + END_POINT], usize) {
        let mut bytes = [0; FIXED + END_POINT];
        bytes[0..4].copy_from_slice(&self.packet.encode().to_le_bytes());
        bytes[4..8].copy_from_slice(&self.connection.to_le_bytes());
        bytes[8] = self.length;
        bytes[FIXED..].copy_from_slice(&self.end_point);
        (bytes, FIXED + self.end_point().len())
    }

    /// What a peer has sent.
    pub fn decode(bytes: &[u8]) -> Result<Control, Reject> {
        let Some((fixed, end_point)) = bytes.split_first_chunk::<FIXED>() else {
            return Err(Reject::Short);
        };
        if end_point.len() != usize::from(fixed[8]) {
            return Err(Reject::Length);
        }
        let packet = Packet::decode(u32::from_le_bytes(field(fixed, 0))).ok_or(Reject::Field)?;
        Control::new(packet, u32::from_le_bytes(field(fixed, 4)), end_point).ok_or(Reject::Field)
    }
}

/// Those that begin a connection tell where it ends.
fn has_end_point(packet: Packet) -> bool {
    matches!(packet, Packet::ConnReq { moves: Some(_) } | Packet::ConnRep { ready: true })
}
