//! What runs in a guest, as whoever started it sees it.

use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::wire::{Frame, LONGEST, Start};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Output that is kept of each stream; what comes later is only echoed.
const KEPT: usize = 16 << 20;

/// A program to run in a guest. It sees the host's files, and may write anywhere: only itself and
/// others in the same guest see what it wrote, except in the folder that is shared.
#[derive(Clone, Debug)]
pub struct Program {
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
}

impl Program {
    /// The program `name`, by its path or to be looked for, without arguments.
    pub fn new(name: impl AsRef<OsStr>) -> Program {
        let words = vec![name.as_ref().to_owned()];
        Program { words, environment: Vec::new(), directory: None }
    }

    /// A command line for the shell.
    pub fn shell(line: &str) -> Program {
        Program::new("sh").args(["-c", line])
    }

    /// One more argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Program {
        self.words.push(argument.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Program {
        self.words.extend(arguments.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// A variable of its environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Program {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Its working directory, the host's current one unless given.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Program {
        self.directory = Some(directory.into());
        self
    }

    pub(crate) fn start(&self) -> Start {
        let bytes = |text: &OsString| text.as_bytes().to_vec();
        let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Start {
            words: self.words.iter().map(bytes).collect(),
            environment: self.environment.iter().map(|(n, v)| (bytes(n), bytes(v))).collect(),
            directory: self.directory.clone().unwrap_or_else(here).as_os_str().as_bytes().to_vec(),
        }
    }
}

/// How a program ended, and what it said.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its exit code; 128 plus the signal if one killed it.
    pub code: i32,
    /// Its standard output, the first 16 MiB.
    pub stdout: String,
    /// Its standard error, the first 16 MiB.
    pub stderr: String,
    /// How long it ran, by the host's clock.
    pub took: Duration,
}

/// Why nothing more will come.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Exit(i32),
    Failed(String),
    /// The guest is gone.
    Gone,
}

#[derive(Default)]
struct Progress {
    streams: [Stream; 2],
    end: Option<End>,
}

#[derive(Default)]
struct Stream {
    kept: Vec<u8>,
    /// The unfinished line that is still to be echoed.
    line: Vec<u8>,
}

/// The side of a run that the channel's thread writes.
pub(crate) struct Record {
    progress: Mutex<Progress>,
    changed: Condvar,
    /// What stands before each line that is echoed; nothing is echoed without.
    label: Option<String>,
}

impl Record {
    pub(crate) fn new(label: Option<String>) -> Record {
        Record { progress: Mutex::default(), changed: Condvar::new(), label }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, frame: Frame) {
        match frame {
            Frame::Out(bytes) => self.output(0, &bytes),
            Frame::Err(bytes) => self.output(1, &bytes),
            Frame::Exit(code) => self.end(End::Exit(code)),
            Frame::Failed(why) => self.end(End::Failed(why)),
            _ => {}
        }
    }

    fn output(&self, which: usize, bytes: &[u8]) {
        let mut progress = self.lock();
        let stream = &mut progress.streams[which];
        let room = KEPT.saturating_sub(stream.kept.len()).min(bytes.len());
        stream.kept.extend_from_slice(&bytes[..room]);
        if let Some(label) = &self.label {
            stream.line.extend_from_slice(bytes);
            // No bytes at all end the stream.
            let whole = match stream.line.iter().rposition(|byte| *byte == b'\n') {
                _ if bytes.is_empty() => stream.line.len(),
                Some(last) => last + 1,
                None => 0,
            };
            let lines: Vec<u8> = stream.line.drain(..whole).collect();
            echo(which, label, &lines);
        }
        drop(progress);
        self.changed.notify_all();
    }

    pub(crate) fn end(&self, end: End) {
        self.lock().end.get_or_insert(end);
        self.changed.notify_all();
    }
}

/// One write for all lines, each behind the label.
fn echo(which: usize, label: &str, lines: &[u8]) {
    let mut text = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        text.extend_from_slice(label.as_bytes());
        text.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        text.push(b'\n');
    }
    // Who does not want to read it does not have to.
    let _ = match which {
        0 => std::io::stdout().lock().write_all(&text),
        _ => std::io::stderr().lock().write_all(&text),
    };
}

/// A program that was started in a guest. Dropping this does not end it.
pub struct Running {
    pub(crate) guest: usize,
    pub(crate) number: u32,
    pub(crate) record: Arc<Record>,
    pub(crate) channel: Arc<Channel>,
    pub(crate) since: Instant,
}

impl Running {
    /// The guest's number.
    pub fn guest(&self) -> usize {
        self.guest
    }

    /// Waits until it has ended. An error if it could not be started, or its guest is gone, or the
    /// laboratory's time is up.
    pub fn wait(&self) -> Result<Output> {
        let mut progress = self.record.lock();
        let end = loop {
            match &progress.end {
                Some(end) => break end.clone(),
                None => {
                    progress =
                        self.record.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        let text = |which: usize| String::from_utf8_lossy(&progress.streams[which].kept).into();
        let took = self.since.elapsed();
        match end {
            End::Exit(code) => Ok(Output { code, stdout: text(0), stderr: text(1), took }),
            End::Failed(why) => Err(Error::Failed(format!("guest g{}: {why}", self.guest))),
            End::Gone => Err(self.channel.why_gone()),
        }
    }

    /// Waits until it has written `text` to either stream. An error if it has ended without, or
    /// `limit` is over.
    pub fn wait_for(&self, text: &str, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        let mut progress = self.record.lock();
        loop {
            let said = |stream: &Stream| {
                stream.kept.windows(text.len().max(1)).any(|part| part == text.as_bytes())
            };
            if text.is_empty() || progress.streams.iter().any(said) {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if progress.end.is_some() || left.is_zero() {
                let how = if left.is_zero() { "in time" } else { "before it ended" };
                let why = format!("the program in g{} did not say \"{text}\" {how}", self.guest);
                return Err(Error::Failed(why));
            }
            let waited = self.record.changed.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        self.record.lock().end.is_none()
    }

    /// Gives it something to read. It should read: what it leaves unread holds up everything else
    /// that is told to the guest, beyond some megabytes.
    pub fn input(&self, bytes: &[u8]) -> Result<()> {
        // No bytes at all would end the input.
        for part in bytes.chunks(LONGEST) {
            self.channel.send(self.number, &Frame::Input(part.to_vec()))?;
        }
        Ok(())
    }

    /// Ends its standard input.
    pub fn end_input(&self) -> Result<()> {
        self.channel.send(self.number, &Frame::Input(Vec::new()))
    }

    /// Kills it and its children, unless they have groups of their own.
    pub fn kill(&self) -> Result<()> {
        self.channel.send(self.number, &Frame::Kill)
    }
}
