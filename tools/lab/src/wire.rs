//! What a guest's agent and whoever has it run something tell each other, over any stream of bytes
//! (a virtual serial port, a connection between guests), many runs at a time:
//!
//! ```text
//! kind u8 | run u32 | length u32 | payload        little-endian
//! ```

use std::io::{Error, ErrorKind, Read, Result, Write};

/// The longest payload.
pub const LONGEST: usize = 1 << 20;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// The agent is there.
    Hello,
    /// Start a program; its run has the number from now on.
    Start(Start),
    /// For its standard input; nothing at all ends the input.
    Input(Vec<u8>),
    /// Kill it and its children.
    Kill,
    /// It wrote this to its standard output; nothing at all: no more will come.
    Out(Vec<u8>),
    /// The same of its standard error.
    Err(Vec<u8>),
    /// It has ended with this exit code, 128 plus the signal if one killed it, and all its output
    /// has been sent.
    Exit(i32),
    /// It could not be started, for this reason.
    Failed(String),
}

/// What to start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// The program and its arguments.
    pub words: Vec<Vec<u8>>,
    /// Names and values, besides those that the guest has.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its working directory.
    pub directory: Vec<u8>,
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Frame::Hello => 1,
            Frame::Start(_) => 2,
            Frame::Input(_) => 3,
            Frame::Kill => 4,
            Frame::Out(_) => 5,
            Frame::Err(_) => 6,
            Frame::Exit(_) => 7,
            Frame::Failed(_) => 8,
        }
    }

    /// Writes it with one call, so that several threads may write under one lock each.
    pub fn send(&self, run: u32, to: &mut impl Write) -> Result<()> {
        let payload = match self {
            Frame::Hello | Frame::Kill => Vec::new(),
            Frame::Start(start) => start.encode(),
            Frame::Input(bytes) | Frame::Out(bytes) | Frame::Err(bytes) => bytes.clone(),
            Frame::Exit(code) => code.to_le_bytes().to_vec(),
            Frame::Failed(why) => why.as_bytes().to_vec(),
        };
        if payload.len() > LONGEST {
            return Err(Error::new(ErrorKind::InvalidInput, "too long for one message"));
        }
        let mut bytes = vec![self.kind()];
        bytes.extend_from_slice(&run.to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&payload);
        to.write_all(&bytes)?;
        to.flush()
    }

    /// The next one and its run; an error if there is none.
    pub fn receive(from: &mut impl Read) -> Result<(u32, Frame)> {
        let mut head = [0; 9];
        from.read_exact(&mut head)?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = word(5) as usize;
        if length > LONGEST {
            return Err(invalid());
        }
        let mut payload = vec![0; length];
        from.read_exact(&mut payload)?;
        let frame = match head[0] {
            1 => Frame::Hello,
            2 => Frame::Start(Start::decode(&payload).ok_or_else(invalid)?),
            3 => Frame::Input(payload),
            4 => Frame::Kill,
            5 => Frame::Out(payload),
            6 => Frame::Err(payload),
            7 => Frame::Exit(i32::from_le_bytes(payload.try_into().map_err(|_| invalid())?)),
            8 => Frame::Failed(String::from_utf8_lossy(&payload).into_owned()),
            _ => return Err(invalid()),
        };
        Ok((word(1), frame))
    }
}

fn invalid() -> Error {
    Error::new(ErrorKind::InvalidData, "no message of the laboratory's")
}

impl Start {
    /// Counts and lengths, as words of four bytes, before what they count.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let count =
            |bytes: &mut Vec<u8>, n: usize| bytes.extend_from_slice(&(n as u32).to_le_bytes());
        let text = |bytes: &mut Vec<u8>, text: &[u8]| {
            count(bytes, text.len());
            bytes.extend_from_slice(text);
        };
        count(&mut bytes, self.words.len());
        self.words.iter().for_each(|word| text(&mut bytes, word));
        count(&mut bytes, self.environment.len());
        for (name, value) in &self.environment {
            text(&mut bytes, name);
            text(&mut bytes, value);
        }
        text(&mut bytes, &self.directory);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Start> {
        let mut rest = bytes;
        let mut start = Start::default();
        for _ in 0..count(&mut rest)? {
            start.words.push(text(&mut rest)?);
        }
        for _ in 0..count(&mut rest)? {
            start.environment.push((text(&mut rest)?, text(&mut rest)?));
        }
        start.directory = text(&mut rest)?;
        rest.is_empty().then_some(start)
    }
}

fn count(rest: &mut &[u8]) -> Option<usize> {
    let (word, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u32::from_le_bytes(*word) as usize)
}

fn text(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = count(rest)?;
    let (text, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..40)
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let environment = prop::collection::vec((bytes(), bytes()), 0..4);
        let start = (prop::collection::vec(bytes(), 0..4), environment, bytes());
        prop_oneof![
            Just(Frame::Hello),
            start.prop_map(|(words, environment, directory)| {
                Frame::Start(Start { words, environment, directory })
            }),
            bytes().prop_map(Frame::Input),
            Just(Frame::Kill),
            bytes().prop_map(Frame::Out),
            bytes().prop_map(Frame::Err),
            any::<i32>().prop_map(Frame::Exit),
            ".*".prop_map(Frame::Failed),
        ]
    }

    proptest! {
        #[test]
        fn frames_arrive_as_they_were(frames in prop::collection::vec((any::<u32>(), frame()), 0..6)) {
            let mut stream = Vec::new();
            for (run, frame) in &frames {
                frame.send(*run, &mut stream).unwrap();
            }
            let mut stream = &stream[..];
            for sent in frames {
                prop_assert_eq!(Frame::receive(&mut stream).unwrap(), sent);
            }
            prop_assert!(Frame::receive(&mut stream).is_err());
        }

        #[test]
        fn anything_else_is_refused_or_read(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut stream = &noise[..];
            while Frame::receive(&mut stream).is_ok() {}
        }
    }
}
