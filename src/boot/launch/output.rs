//! What ranks write: forwarded line by line, or captured.
//!
//! One thread reads all pipes and writes to the launcher's standard output and standard error, so
//! that a reader who stops reading (a pager, say) stops the ranks' output and nothing else: the
//! launcher goes on looking after signals and deaths.
//!
//! A line is written in one piece, and never continued by another rank's text: if a rank leaves
//! its last line unfinished, a newline is put in before anything else follows. Lines beyond
//! [`MAX_LINE`] are passed on in pieces of that size.

use super::frame::Down;
use super::stream::Outgoing;
use crate::base::sync::{AtomicBool, Ordering};
use crate::base::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Longest line that is kept back until it is complete.
pub const MAX_LINE: usize = 1 << 20;
/// Most bytes a pipe can hold: what may still be in it after its writer has ended.
const PIPE_MOST: usize = 1 << 20;
const WAKE: u64 = u64::MAX;

/// One rank's standard output (stream 0) or standard error (stream 1).
#[derive(Debug)]
pub struct Source {
    /// Whose.
    pub rank: u32,
    /// Which of the two.
    pub stream: usize,
    /// Where it comes from.
    pub from: Origin,
}

/// Where output comes from.
#[derive(Debug)]
pub enum Origin {
    /// The read end of a pipe.
    Pipe(OwnedFd),
    /// An agent, which sends more once it knows that what it sent has been written.
    Agent(Arc<Outgoing>),
}

/// What was captured: by stream, then by rank.
pub type Captured = [Vec<Vec<u8>>; 2];

#[derive(Debug, Default)]
struct Shared {
    notes: Mutex<Vec<String>>,
    /// What agents have sent: whose, which stream, what.
    fed: Mutex<Vec<(u32, usize, Vec<u8>)>>,
    ended: AtomicBool,
}

/// The thread that passes output on.
#[derive(Debug)]
pub struct Printer {
    shared: Arc<Shared>,
    wake: OwnedFd,
    done: OwnedFd,
    thread: Option<JoinHandle<Captured>>,
    quiet: bool,
}

impl Printer {
    /// Starts it. `capture` keeps everything instead of writing it, and keeps back notes too;
    /// `label` puts the rank before every line.
    pub fn start(sources: Vec<Source>, ranks: u32, capture: bool, label: bool) -> Result<Printer> {
        let event = || {
            rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| Error::os("eventfd for the output", e))
        };
        let (wake, done) = (event()?, event()?);
        let shared = Arc::new(Shared::default());
        let duplicate =
            |fd: &OwnedFd| fd.try_clone().map_err(|e| Error::os("duplicating an eventfd", e));
        let mut worker = Worker {
            sources: Vec::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(|e| Error::os("epoll for the output", e))?,
            wake: duplicate(&wake)?,
            shared: Arc::clone(&shared),
            captured: [vec![Vec::new(); ranks as usize], vec![Vec::new(); ranks as usize]],
            sinks: [Sink::default(), Sink::default()],
            capture,
            label,
        };
        worker.watch(sources)?;
        let done_too = duplicate(&done)?;
        let thread = std::thread::Builder::new()
            .name("hither-output".into())
            .spawn(move || {
                let captured = worker.run();
                let _ = rustix::io::write(&done_too, &1u64.to_ne_bytes());
                captured
            })
            .map_err(|e| Error::os("starting the output thread", e))?;
        Ok(Printer { shared, wake, done, thread: Some(thread), quiet: capture })
    }

    /// A message of the launcher's own, on standard error, on a line of its own.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            let mut notes = self.shared.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.push(format!("hither: {text}\n"));
            drop(notes);
            self.poke();
        }
    }

    /// Takes output that an agent has sent.
    pub fn feed(&self, rank: u32, stream: usize, bytes: Vec<u8>) {
        let mut fed = self.shared.fed.lock().unwrap_or_else(PoisonError::into_inner);
        fed.push((rank, stream, bytes));
        drop(fed);
        self.poke();
    }

    /// All ranks have ended: what is in the pipes now is all that counts.
    pub fn ranks_ended(&self) {
        self.shared.ended.store(true, Ordering::Release);
        self.poke();
    }

    fn poke(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Readable once everything is written.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// What was captured; to be called once `done` is readable (else it waits for that).
    pub fn collect(mut self) -> Captured {
        self.thread.take().and_then(|t| t.join().ok()).unwrap_or_default()
    }
}

struct Stream {
    from: Source,
    line: Vec<u8>,
}

/// Where a stream goes to.
#[derive(Default)]
struct Sink {
    /// Who has written an unfinished line.
    open: Option<u32>,
    broken: bool,
}

struct Worker {
    sources: Vec<Option<Stream>>,
    epoll: OwnedFd,
    wake: OwnedFd,
    shared: Arc<Shared>,
    captured: Captured,
    sinks: [Sink; 2],
    capture: bool,
    label: bool,
}

impl Worker {
    fn watch(&mut self, sources: Vec<Source>) -> Result<()> {
        let watch = |fd: BorrowedFd<'_>, token| {
            let token = epoll::EventData::new_u64(token);
            epoll::add(&self.epoll, fd, token, epoll::EventFlags::IN)
                .map_err(|e| Error::os("epoll_ctl for the output", e))
        };
        watch(self.wake.as_fd(), WAKE)?;
        for source in sources {
            if let Origin::Pipe(pipe) = &source.from {
                rustix::io::ioctl_fionbio(pipe, true)
                    .map_err(|e| Error::os("making a pipe non-blocking", e))?;
                watch(pipe.as_fd(), self.sources.len() as u64)?;
            }
            self.sources.push(Some(Stream { from: source, line: Vec::new() }));
        }
        Ok(())
    }

    fn run(mut self) -> Captured {
        let mut events = Vec::with_capacity(64);
        loop {
            let ended = self.shared.ended.load(Ordering::Acquire);
            self.take_fed();
            if ended {
                (0..self.sources.len()).for_each(|i| self.drain(i));
            }
            // After the output, so that "rank 3 was killed" follows what rank 3 had to say.
            self.print_notes();
            if ended {
                return self.captured;
            }
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                // Nothing to wait with any more: at least do not spin.
                Err(_) => std::thread::yield_now(),
            }
            for event in &events {
                let token = event.data.u64();
                if token == WAKE {
                    let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
                } else {
                    self.pump(token as usize);
                }
            }
        }
    }

    /// Reads what is in a pipe, up to what can have been there when its writer ended.
    fn drain(&mut self, index: usize) {
        let mut total = 0;
        while total < PIPE_MOST {
            match self.pump(index) {
                0 => break,
                got => total += got,
            }
        }
        self.close(index);
    }

    /// Reads once; 0 when there is nothing now or will never be.
    fn pump(&mut self, index: usize) -> usize {
        let Some(Some(stream)) = self.sources.get_mut(index) else { return 0 };
        let Origin::Pipe(pipe) = &stream.from.from else { return 0 };
        let mut bytes = [0u8; 64 << 10];
        match rustix::io::read(pipe, &mut bytes) {
            Ok(0) => {
                self.close(index);
                0
            }
            Ok(got) => {
                self.take_in(index, &bytes[..got]);
                got
            }
            Err(Errno::INTR) => self.pump(index),
            Err(Errno::AGAIN) => 0,
            Err(_) => {
                self.close(index);
                0
            }
        }
    }

    /// Writes what agents have sent, and lets them send as much again.
    fn take_fed(&mut self) {
        let fed =
            std::mem::take(&mut *self.shared.fed.lock().unwrap_or_else(PoisonError::into_inner));
        for (rank, stream, bytes) in fed {
            // Agents' sources come in pairs, in the order of ranks.
            let index = 2 * rank as usize + stream;
            let Some(Some(Stream { from: Source { from: Origin::Agent(agent), .. }, .. })) =
                self.sources.get(index)
            else {
                continue;
            };
            let agent = Arc::clone(agent);
            self.take_in(index, &bytes);
            let (stream, bytes) = (stream as u32, bytes.len() as u32);
            agent.send(&Down::Credit { rank, stream, bytes }.encode());
        }
    }

    fn take_in(&mut self, index: usize, bytes: &[u8]) {
        let Some(Some(stream)) = self.sources.get_mut(index) else { return };
        let (rank, kind) = (stream.from.rank, stream.from.stream);
        if self.capture {
            self.captured[kind][rank as usize].extend_from_slice(bytes);
            return;
        }
        stream.line.extend_from_slice(bytes);
        let complete = bytes.iter().rposition(|b| *b == b'\n').map(|at| bytes.len() - at - 1);
        let ready = match complete {
            Some(rest) => stream.line.len() - rest,
            None if stream.line.len() >= MAX_LINE => stream.line.len(),
            None => return,
        };
        let rest = stream.line.split_off(ready);
        let lines = std::mem::replace(&mut stream.line, rest);
        self.emit(rank, kind, &lines);
    }

    fn close(&mut self, index: usize) {
        let taken = self.sources.get_mut(index).and_then(Option::take);
        if let Some(stream) = taken.filter(|s| !s.line.is_empty()) {
            self.emit(stream.from.rank, stream.from.stream, &stream.line);
        }
    }

    fn emit(&mut self, rank: u32, kind: usize, lines: &[u8]) {
        let sink = &mut self.sinks[kind];
        let mut text = Vec::with_capacity(lines.len() + 16);
        if sink.open.is_some_and(|other| other != rank) {
            text.push(b'\n');
            sink.open = None;
        }
        if self.label {
            for line in lines.split_inclusive(|b| *b == b'\n') {
                if sink.open.is_none() {
                    text.extend_from_slice(format!("[{rank}] ").as_bytes());
                }
                text.extend_from_slice(line);
                sink.open = (line.last() != Some(&b'\n')).then_some(rank);
            }
        } else {
            text.extend_from_slice(lines);
            sink.open = (lines.last() != Some(&b'\n')).then_some(rank);
        }
        self.write(kind, &text);
    }

    fn print_notes(&mut self) {
        let notes = {
            let mut notes = self.shared.notes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *notes)
        };
        for note in notes {
            let newline = self.sinks[1].open.take().map_or("", |_| "\n");
            self.write(1, format!("{newline}{note}").as_bytes());
        }
    }

    /// Writes to the launcher's own stream. Once nobody reads that any more, the ranks' pipes of
    /// the kind are closed, so that they learn of it as they would without a launcher.
    fn write(&mut self, kind: usize, mut bytes: &[u8]) {
        let fd = if kind == 0 { rustix::stdio::stdout() } else { rustix::stdio::stderr() };
        while !bytes.is_empty() && !self.sinks[kind].broken {
            match rustix::io::write(fd, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut polls = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                    let _ = rustix::event::poll(&mut polls, None);
                }
                Err(_) => {
                    self.sinks[kind].broken = true;
                    let of_kind = |s: &Option<Stream>| {
                        s.as_ref().is_some_and(|stream| stream.from.stream == kind)
                    };
                    for slot in self.sources.iter_mut().filter(|s| of_kind(s)) {
                        let source = slot.take().map(|stream| stream.from);
                        if let Some(Source { rank, from: Origin::Agent(agent), .. }) = source {
                            agent.send(&Down::Close { rank, stream: kind as u32 }.encode());
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_output_is_whole_and_by_rank() {
        let (zero, to_zero) = rustix::pipe::pipe().unwrap();
        let (one, to_one) = rustix::pipe::pipe().unwrap();
        let source = |rank, stream, pipe| Source { rank, stream, from: Origin::Pipe(pipe) };
        let printer =
            Printer::start(vec![source(0, 0, zero), source(1, 1, one)], 2, true, false).unwrap();
        rustix::io::write(&to_zero, b"a\nunfinished").unwrap();
        rustix::io::write(&to_one, &[0, 255, 10]).unwrap();
        // The write ends stay open, as if a stray process held them: the end does not wait.
        printer.ranks_ended();
        let [stdout, stderr] = printer.collect();
        assert_eq!(stdout, [b"a\nunfinished".to_vec(), Vec::new()]);
        assert_eq!(stderr, [Vec::new(), vec![0, 255, 10]]);
    }
}
