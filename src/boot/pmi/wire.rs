//! The lines of PMI-1, as MPICH's Hydra and Slurm speak it over an inherited socket.
//!
//! ```text
//! cmd=put kvsname=kvs_17_0 key=a value=b\n      -->
//!                                               <--   cmd=put_result rc=0 msg=success\n
//! ```
//! One line asks, one answers. Values have no blanks and a most length that the launcher says, so
//! bytes go as hexadecimal digits, in pieces.
//!
//! A question has at most [`LINE`] characters: Slurm reads so many at once and takes them for a whole
//! one, although it says of values that they may be as long by themselves. What is left over it takes for
//! another question, which it does not answer.

use super::super::socket;
use crate::base::{Deadline, Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Most characters of a line that asks, without its end.
pub const LINE: usize = 1023;

/// Longest line that makes sense: a value of any launcher, and what is around it.
const LONGEST: usize = 64 << 10;

/// A line that came: words of the form `key=value`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line(String);

impl Line {
    /// The value of a word; the first one, if there are several.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.split_ascii_whitespace().find_map(|word| {
            let (name, value) = word.split_once('=')?;
            (name == key).then_some(value)
        })
    }

    /// Whether it reports success: without a word of that, too.
    pub fn succeeded(&self) -> bool {
        self.get("rc").is_none_or(|rc| rc == "0")
    }
}

/// The conversation with the launcher.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    /// What came behind the last line.
    rest: Vec<u8>,
    /// An answer may still come: what comes next is not what is asked for next.
    broken: bool,
}

impl Connection {
    /// Over a connected socket.
    pub fn new(socket: OwnedFd) -> Connection {
        Connection { socket, rest: Vec::new(), broken: false }
    }

    /// Sends a line and waits for the answer, which is to be of the kind `answer`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], after which nothing more can be asked; [`Error::Boot`] if the launcher
    /// is gone, or says something else.
    pub fn ask(
        &mut self,
        line: &str,
        answer: &str,
        deadline: Deadline,
        during: &'static str,
    ) -> Result<Line> {
        if self.broken {
            let why = "the launcher's process manager (PMI) has not answered an earlier question";
            return Err(Error::boot(why));
        }
        if line.len() > LINE {
            let why = "the launcher (PMI) cannot read a question as long as the name of its store makes it";
            return Err(Error::boot(why));
        }
        self.broken = true;
        self.send(format!("{line}\n").as_bytes())?;
        let come = self.receive(deadline, during)?;
        if come.get("cmd") != Some(answer) {
            let said: String = come.0.chars().take(200).collect();
            return Err(Error::boot(format!(
                "the launcher's process manager said \"{said}\" where PMI-1 has \"cmd={answer}\""
            )));
        }
        self.broken = false;
        Ok(come)
    }

    fn send(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent.min(bytes.len())..],
                Err(Errno::INTR) => {}
                // Others may have made it so; questions are short, and there is one at a time.
                Err(Errno::AGAIN) => std::thread::yield_now(),
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(gone()),
                Err(e) => return Err(Error::os("sending to the launcher (PMI)", e)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, deadline: Deadline, during: &'static str) -> Result<Line> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let behind = self.rest.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.rest, behind);
                line.pop();
                let text = String::from_utf8(line);
                return text.map(Line).map_err(|_| Error::boot("the launcher sent no text (PMI)"));
            }
            if self.rest.len() > LONGEST {
                return Err(Error::boot("the launcher sent a line without an end (PMI)"));
            }
            if !socket::readable(self.socket.as_fd(), deadline)? {
                let (waited, missing) = (deadline.waited(), Vec::new());
                return Err(Error::TimedOut { during, waited, missing });
            }
            let mut more = [0; 4096];
            match rustix::io::read(&self.socket, &mut more) {
                Ok(0) | Err(Errno::CONNRESET) => return Err(gone()),
                Ok(count) => self.rest.extend_from_slice(&more[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(e) => return Err(Error::os("reading from the launcher (PMI)", e)),
            }
        }
    }
}

fn gone() -> Error {
    Error::boot("the launcher that started this process (PMI) has ended")
}

/// Bytes as the pieces of values of at most `most` characters: their number in front, then two
/// digits for each. One piece at least.
pub fn pieces(bytes: &[u8], most: usize) -> Vec<String> {
    let mut text = format!("{:08x}", bytes.len());
    bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
    let most = most.max(HEAD);
    text.as_bytes()
        .chunks(most)
        .map(|piece| piece.iter().map(|&digit| char::from(digit)).collect())
        .collect()
}

/// Digits of the length.
const HEAD: usize = 8;

/// Puts pieces together again.
#[derive(Debug, Default)]
pub struct Assembly(Vec<u8>);

impl Assembly {
    /// Takes the next piece; the bytes, once all are there.
    ///
    /// # Errors
    /// It is no piece of bytes of at most `most`.
    pub fn add(&mut self, piece: &str, most: usize) -> Option<Step> {
        if piece.is_empty() || !piece.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        self.0.extend_from_slice(piece.as_bytes());
        let head = self.0.get(..HEAD)?;
        let length = usize::from_str_radix(std::str::from_utf8(head).ok()?, 16).ok()?;
        let digits = self.0.get(HEAD..)?;
        if length > most || digits.len() > 2 * length {
            return None;
        }
        if digits.len() < 2 * length {
            return Some(Step::More);
        }
        let value = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.chunks(2).map(value).collect::<Option<Vec<u8>>>().map(Step::Whole)
    }
}

/// What has come of the pieces so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Others belong to it.
    More,
    /// All.
    Whole(Vec<u8>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn words_of_a_line() {
        let line = Line("cmd=get_result rc=-1 msg=key not found value=a=b".into());
        assert_eq!(line.get("cmd"), Some("get_result"));
        assert_eq!(line.get("value"), Some("a=b"));
        assert_eq!(line.get("msg"), Some("key"));
        assert_eq!(line.get("found"), None);
        assert!(!line.succeeded());
        assert!(Line("cmd=barrier_out".into()).succeeded());
    }

    fn answered(bytes: &[u8]) -> (Result<Line>, Connection) {
        let (ours, theirs) = socket::stream_pair().unwrap();
        rustix::io::write(&theirs, bytes).unwrap();
        let mut connection = Connection::new(ours);
        let soon = Deadline::after(Duration::from_millis(20));
        let come = connection.ask("cmd=a", "b", soon, "a test");
        let mut asked = [0; 16];
        assert_eq!(rustix::io::read(&theirs, &mut asked).unwrap(), 6);
        assert_eq!(&asked[..6], b"cmd=a\n");
        if bytes.last() == Some(&b'!') {
            drop(theirs);
            return (connection.ask("cmd=a", "b", soon, "a test"), connection);
        }
        std::mem::forget(theirs);
        (come, connection)
    }

    #[test]
    fn only_the_answer_is_an_answer() {
        let (come, connection) = answered(b"cmd=b value=1\ncmd=more");
        assert_eq!(come.unwrap().get("value"), Some("1"));
        assert_eq!(connection.rest, b"cmd=more");
        let (late, mut connection) = answered(b"cmd=b value=1");
        assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
        let again = connection.ask("cmd=a", "b", Deadline::NEVER, "a test").unwrap_err();
        assert!(again.to_string().contains("earlier"), "{again}");
        let long = "x".repeat(LINE + 1);
        let mut connection = answered(b"cmd=b\n").1;
        let refused = connection.ask(&long, "b", Deadline::NEVER, "a test").unwrap_err();
        assert!(refused.to_string().contains("cannot read"), "{refused}");
        let (other, _) = answered(b"cmd=c\n");
        assert!(other.unwrap_err().to_string().contains("cmd=b"));
        let (no_text, _) = answered(b"cmd=\xff\n");
        assert!(no_text.is_err());
        let endless = vec![b'x'; LONGEST + 5000];
        let (endless, _) = answered(&endless);
        assert!(endless.unwrap_err().to_string().contains("without an end"));
    }

    #[test]
    fn the_end_of_the_launcher_is_an_error_and_no_signal() {
        let (ours, theirs) = socket::stream_pair().unwrap();
        drop(theirs);
        let mut connection = Connection::new(ours);
        let gone = connection.ask("cmd=a", "b", Deadline::NEVER, "a test").unwrap_err();
        assert!(gone.to_string().contains("has ended"), "{gone}");
    }

    proptest! {
        #[test]
        fn bytes_survive_in_pieces(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), most in 8usize..100,
        ) {
            let all = pieces(&bytes, most);
            prop_assert!(all.iter().all(|piece| piece.len() <= most && !piece.is_empty()));
            let mut assembly = Assembly::default();
            let last = all.len() - 1;
            for (at, piece) in all.iter().enumerate() {
                let step = assembly.add(piece, bytes.len()).unwrap();
                prop_assert_eq!(step, if at == last { Step::Whole(bytes.clone()) } else { Step::More });
            }
        }

        #[test]
        fn what_is_no_piece_is_refused(piece in ".{0,40}", most in 0usize..20) {
            if let Some(Step::Whole(bytes)) = Assembly::default().add(&piece, most) {
                prop_assert!(bytes.len() <= most);
                prop_assert_eq!(pieces(&bytes, 1000), vec![piece.to_lowercase()]);
            }
        }
    }
}
