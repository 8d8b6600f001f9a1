//! What a launcher and its agents on other hosts say to each other, and the bytes of it.
//!
//! ```text
//! agent: PREAMBLE (what a login shell prints before it is passed over), then frames both ways:
//! 0        4      5
//! | length | kind | fields, little-endian; byte strings with their length in front |
//! ```

use super::Exit;
use crate::boot::wire::{Message, Reader};
use crate::topo::Block;

/// What an agent's output begins with.
pub const PREAMBLE: &[u8] = b"\0hither agent\0";
/// Version of these frames.
pub const VERSION: u32 = 1;
/// Longest frame.
const MOST: usize = 16 << 20;
/// Most that may come before the preamble.
const MOST_BEFORE: usize = 64 << 10;

/// What an agent is to start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Order {
    pub node: u32,
    pub ranks: u32,
    pub blocks: Vec<Block>,
    pub program: Vec<u8>,
    pub args: Vec<Vec<u8>>,
    /// Names and values in turn.
    pub env: Vec<Vec<u8>>,
    pub directory: Vec<u8>,
    pub heap: u64,
    /// How ranks are bound: 0 not, 1 close together, 2 spread.
    pub bind: u32,
    /// The address, interface or subnet that the user wants the network to use; empty for none.
    pub address: String,
    /// Addresses that the host's name stands for, where the launcher is.
    pub candidates: Vec<String>,
    /// Milliseconds without a word after which the launcher counts as gone.
    pub silence: u64,
}

/// From the launcher to an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Down {
    Prepare(Box<Order>),
    Go,
    Wiring {
        rank: u32,
        with_memory: bool,
        message: Message,
    },
    Signal {
        rank: u32,
        signal: u32,
    },
    Ending,
    /// So much output has been written.
    Credit {
        rank: u32,
        stream: u32,
        bytes: u32,
    },
    /// Nobody reads that any more.
    Close {
        rank: u32,
        stream: u32,
    },
    Alive,
}

/// From an agent to the launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Up {
    Hello {
        version: u32,
    },
    /// Its ranks' network will use this address.
    Ready {
        address: String,
    },
    /// The processes of its ranks, in their order.
    Started {
        pids: Vec<u32>,
    },
    Failed {
        why: String,
    },
    Wiring {
        rank: u32,
        message: Message,
    },
    Output {
        rank: u32,
        stream: u32,
        bytes: Vec<u8>,
    },
    Exited {
        rank: u32,
        exit: Exit,
    },
    Note {
        text: String,
    },
    /// All its ranks have ended and all their output has been sent.
    Done,
    Alive,
}

struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8) -> Writer {
        Writer(vec![0, 0, 0, 0, kind])
    }

    fn u32(mut self, value: u32) -> Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(self, bytes: &[u8]) -> Writer {
        let mut out = self.u32(bytes.len() as u32);
        out.0.extend_from_slice(bytes);
        out
    }

    fn list(self, items: &[impl AsRef<[u8]>]) -> Writer {
        let out = self.u32(items.len() as u32);
        items.iter().fold(out, |out, item| out.bytes(item.as_ref()))
    }

    fn end(mut self) -> Vec<u8> {
        let length = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0
    }
}

fn list(left: &mut Reader<'_>) -> Option<Vec<Vec<u8>>> {
    let count = left.u32()?;
    (0..count).map(|_| left.bytes(MOST)).collect()
}

fn texts(left: &mut Reader<'_>) -> Option<Vec<String>> {
    list(left)?.into_iter().map(|bytes| String::from_utf8(bytes).ok()).collect()
}

fn message(left: &mut Reader<'_>) -> Option<Message> {
    Message::decode(&left.bytes(MOST)?).ok()
}

fn kind<'a>(frame: &'a [u8]) -> Option<(u8, Reader<'a>)> {
    let (kind, fields) = frame.split_first()?;
    Some((*kind, Reader(fields)))
}

impl Down {
    /// The frame.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Down::Prepare(order) => {
                let mut out = Writer::new(1)
                    .u32(order.node)
                    .u32(order.ranks)
                    .u32(order.bind)
                    .u64(order.heap)
                    .u64(order.silence)
                    .u32(order.blocks.len() as u32);
                for block in &order.blocks {
                    out = out.u32(block.node).u32(block.nodes).u32(block.each);
                }
                out.bytes(&order.program)
                    .list(&order.args)
                    .list(&order.env)
                    .bytes(&order.directory)
                    .bytes(order.address.as_bytes())
                    .list(&order.candidates)
            }
            Down::Go => Writer::new(2),
            Down::Wiring { rank, with_memory, message } => {
                Writer::new(3).u32(*rank).u32((*with_memory).into()).bytes(&message.encode())
            }
            Down::Signal { rank, signal } => Writer::new(4).u32(*rank).u32(*signal),
            Down::Ending => Writer::new(5),
            Down::Credit { rank, stream, bytes } => {
                Writer::new(6).u32(*rank).u32(*stream).u32(*bytes)
            }
            Down::Close { rank, stream } => Writer::new(7).u32(*rank).u32(*stream),
            Down::Alive => Writer::new(8),
        }
        .end()
    }

    /// Reads what [`next`] gave; `None` if it is no such frame.
    pub fn decode(frame: &[u8]) -> Option<Down> {
        let (kind, mut left) = kind(frame)?;
        let down = match kind {
            1 => {
                let (node, ranks, bind) = (left.u32()?, left.u32()?, left.u32()?);
                let (heap, silence, count) = (left.u64()?, left.u64()?, left.u32()?);
                let block = |left: &mut Reader<'_>| {
                    let (node, nodes, each) = (left.u32()?, left.u32()?, left.u32()?);
                    Some(Block { node, nodes, each })
                };
                let blocks = (0..count).map(|_| block(&mut left)).collect::<Option<_>>()?;
                let program = left.bytes(MOST)?;
                let (args, env) = (list(&mut left)?, list(&mut left)?);
                let (directory, address) = (left.bytes(MOST)?, left.text(MOST)?);
                let candidates = texts(&mut left)?;
                Down::Prepare(Box::new(Order {
                    node,
                    ranks,
                    blocks,
                    program,
                    args,
                    env,
                    directory,
                    heap,
                    bind,
                    address,
                    candidates,
                    silence,
                }))
            }
            2 => Down::Go,
            3 => {
                let (rank, with) = (left.u32()?, left.u32()?);
                Down::Wiring { rank, with_memory: with == 1, message: message(&mut left)? }
            }
            4 => Down::Signal { rank: left.u32()?, signal: left.u32()? },
            5 => Down::Ending,
            6 => Down::Credit { rank: left.u32()?, stream: left.u32()?, bytes: left.u32()? },
            7 => Down::Close { rank: left.u32()?, stream: left.u32()? },
            8 => Down::Alive,
            _ => return None,
        };
        left.0.is_empty().then_some(down)
    }
}

impl Up {
    /// The frame.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Up::Hello { version } => Writer::new(1).u32(*version),
            Up::Ready { address } => Writer::new(2).bytes(address.as_bytes()),
            Up::Started { pids } => {
                let out = Writer::new(3).u32(pids.len() as u32);
                pids.iter().fold(out, |out, pid| out.u32(*pid))
            }
            Up::Failed { why } => Writer::new(4).bytes(why.as_bytes()),
            Up::Wiring { rank, message } => Writer::new(5).u32(*rank).bytes(&message.encode()),
            Up::Output { rank, stream, bytes } => {
                Writer::new(6).u32(*rank).u32(*stream).bytes(bytes)
            }
            Up::Exited { rank, exit } => Writer::new(7).u32(*rank).u32(exit.cause()),
            Up::Note { text } => Writer::new(8).bytes(text.as_bytes()),
            Up::Done => Writer::new(9),
            Up::Alive => Writer::new(10),
        }
        .end()
    }

    /// Reads what [`next`] gave; `None` if it is no such frame.
    pub fn decode(frame: &[u8]) -> Option<Up> {
        let (kind, mut left) = kind(frame)?;
        let up = match kind {
            1 => Up::Hello { version: left.u32()? },
            2 => Up::Ready { address: left.text(MOST)? },
            3 => {
                let count = left.u32()?;
                Up::Started { pids: (0..count).map(|_| left.u32()).collect::<Option<_>>()? }
            }
            4 => Up::Failed { why: left.text(MOST)? },
            5 => Up::Wiring { rank: left.u32()?, message: message(&mut left)? },
            6 => {
                let (rank, stream) = (left.u32()?, left.u32().filter(|stream| *stream < 2)?);
                Up::Output { rank, stream, bytes: left.bytes(MOST)? }
            }
            7 => Up::Exited { rank: left.u32()?, exit: Exit::of_cause(left.u32()?)? },
            8 => Up::Note { text: left.text(MOST)? },
            9 => Up::Done,
            10 => Up::Alive,
            _ => return None,
        };
        left.0.is_empty().then_some(up)
    }
}

/// Takes the first whole frame off what has come, without its length; `None` if there is none yet.
///
/// # Errors
/// In words, if a frame claims to be longer than any.
pub fn next(bytes: &mut Vec<u8>) -> Result<Option<Vec<u8>>, &'static str> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 || length > MOST {
        return Err("it sent what is no frame of hither's");
    }
    if rest.len() < length {
        return Ok(None);
    }
    let frame = rest[..length].to_vec();
    bytes.drain(..4 + length);
    Ok(Some(frame))
}

/// Drops all up to the preamble; false if that has not come yet.
///
/// # Errors
/// In words, if so much has come without one that none will.
pub fn skip_preamble(bytes: &mut Vec<u8>) -> Result<bool, &'static str> {
    match bytes.windows(PREAMBLE.len()).position(|window| window == PREAMBLE) {
        Some(at) => {
            bytes.drain(..at + PREAMBLE.len());
            Ok(true)
        }
        None if bytes.len() > MOST_BEFORE => Err("what runs there is no agent of hither's"),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order() -> Order {
        Order {
            node: 1,
            ranks: 3,
            blocks: vec![Block { node: 0, nodes: 1, each: 3 }],
            program: b"a b".to_vec(),
            args: vec![b"'\"\n".to_vec(), vec![], vec![0xff]],
            env: vec![b"K".to_vec(), b"V".to_vec()],
            directory: b"/".to_vec(),
            heap: 1 << 40,
            bind: 2,
            address: "eth0".into(),
            candidates: vec!["::1".into()],
            silence: 7,
        }
    }

    #[test]
    fn frames_survive_the_trip_in_pieces() {
        let downs = [
            Down::Prepare(Box::new(order())),
            Down::Go,
            Down::Wiring { rank: 3, with_memory: true, message: Message::Fence },
            Down::Signal { rank: 1, signal: 9 },
            Down::Ending,
            Down::Credit { rank: 1, stream: 0, bytes: 5 },
            Down::Close { rank: 1, stream: 1 },
            Down::Alive,
        ];
        let ups = [
            Up::Hello { version: 1 },
            Up::Ready { address: "::1".into() },
            Up::Started { pids: vec![1, 2] },
            Up::Failed { why: "ü".into() },
            Up::Wiring { rank: 1, message: Message::WhoIsMissing },
            Up::Output { rank: 1, stream: 1, bytes: vec![0, 255] },
            Up::Exited { rank: 1, exit: Exit::Signal(9) },
            Up::Exited { rank: 1, exit: Exit::Code(3) },
            Up::Note { text: "x".into() },
            Up::Done,
            Up::Alive,
        ];
        let all: Vec<u8> = downs.iter().flat_map(Down::encode).collect();
        let (mut have, mut got) = (Vec::new(), Vec::new());
        for byte in all {
            have.push(byte);
            got.extend(next(&mut have).unwrap().map(|frame| Down::decode(&frame).unwrap()));
        }
        assert_eq!(got, downs);
        let mut all: Vec<u8> = b"Welcome!\n".iter().chain(PREAMBLE).copied().collect();
        all.extend(ups.iter().flat_map(Up::encode));
        assert!(skip_preamble(&mut all).unwrap());
        for up in ups {
            assert_eq!(Up::decode(&next(&mut all).unwrap().unwrap()), Some(up));
        }
        assert!(skip_preamble(&mut vec![0; MOST_BEFORE + 1]).is_err());
        assert!(next(&mut b"SSH-2.0-".to_vec()).is_err());
    }

    proptest! {
        #[test]
        fn no_frame_panics(kind in 0u8..12, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let frame = [vec![kind], bytes].concat();
            let _ = (Up::decode(&frame), Down::decode(&frame));
        }
    }
}
