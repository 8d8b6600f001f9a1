//! A program whose lines are read while it runs, and that is ended with all it started when it says
//! nothing for too long.

use hither::{Error, Result};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with success.
    Well,
    /// By itself, otherwise: what it said last, or how it ended.
    Badly(String),
    /// It said nothing for this long and was ended.
    Silent(Duration),
}

/// How long programs have to end after they were asked to, and to close their output after they
/// ended.
const GRACE: Duration = Duration::from_secs(3);
/// What is kept of what a program said that went wrong.
const WORDS: usize = 300;

/// Runs `command`; calls `line` for each line of its output. It is ended when it has said nothing for
/// `patience`. Blocks until the program and all that it started are gone.
pub fn run(command: &mut Command, patience: Duration, mut line: impl FnMut(&str)) -> Result<End> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| Error::os("starting a peer's program", e))?;
    let lines = reader(&mut child);
    let errors = collector(&mut child);
    let mut silent = false;
    loop {
        match lines.recv_timeout(patience) {
            Ok(text) => line(&text),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                silent = true;
                break;
            }
        }
    }
    let status = if silent { None } else { ended(&mut child, patience)? };
    if status.is_none() {
        end(&mut child)?;
    }
    let said = errors.map(joined).unwrap_or_default();
    Ok(match status {
        None => End::Silent(patience),
        Some(status) if status.success() => End::Well,
        Some(status) => End::Badly(words(&said, status)),
    })
}

fn reader(child: &mut Child) -> Receiver<String> {
    let (to, lines) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                if to.send(text).is_err() {
                    break;
                }
            }
        });
    }
    lines
}

fn collector(child: &mut Child) -> Option<JoinHandle<Vec<u8>>> {
    let mut errors = child.stderr.take()?;
    Some(std::thread::spawn(move || {
        let mut said = Vec::new();
        // Whatever could be read before an error is worth having.
        let _ = errors.read_to_end(&mut said);
        said
    }))
}

/// What a collector has; nothing if something that has escaped keeps the output open.
fn joined(collector: JoinHandle<Vec<u8>>) -> Vec<u8> {
    let start = Instant::now();
    while !collector.is_finished() && start.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(1));
    }
    if collector.is_finished() { collector.join().unwrap_or_default() } else { Vec::new() }
}

/// The status of a program that has closed its output; `None` if it does not end.
fn ended(child: &mut Child, patience: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| Error::os("waiting for a peer", e))? {
            return Ok(Some(status));
        }
        if start.elapsed() > patience {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends a program and all it has started: launchers are asked first, as they know their processes on
/// their own.
fn end(child: &mut Child) -> Result<()> {
    let started = descendants(child.id());
    signal(child.id(), libc::SIGTERM);
    ended(child, GRACE)?;
    // SAFETY: sends a signal to the group that the program was started in.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    for (process, began) in started {
        // Only if it is still the same one.
        if began_at(process) == Some(began) {
            signal(process, libc::SIGKILL);
        }
    }
    child.wait().map(drop).map_err(|e| Error::os("waiting for a peer's end", e))
}

fn signal(process: u32, number: i32) {
    // SAFETY: sends a signal; a process that is gone is no matter.
    unsafe { libc::kill(process as i32, number) };
}

/// Parent and start time of a process, from `/proc`.
fn stat(process: u32) -> Option<(u32, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

fn began_at(process: u32) -> Option<u64> {
    stat(process).map(|(_, began)| began)
}

/// The processes that stem from `root`, and when each began.
fn descendants(root: u32) -> Vec<(u32, u64)> {
    let all: Vec<(u32, u32, u64)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|process| stat(process).map(|(parent, began)| (process, parent, began)))
        .collect();
    let (mut found, mut next) = (Vec::new(), vec![root]);
    while let Some(of) = next.pop() {
        for &(process, _, began) in all.iter().filter(|(_, parent, _)| *parent == of) {
            found.push((process, began));
            next.push(process);
        }
    }
    found
}

/// What a program that failed has to say for itself: the first lines, without decoration.
fn words(said: &[u8], status: ExitStatus) -> String {
    let text = String::from_utf8_lossy(said);
    let lines = text.lines().map(str::trim).filter(|line| line.chars().any(char::is_alphanumeric));
    let mut words = String::new();
    for line in lines {
        if words.len() + line.len() > WORDS {
            break;
        }
        words += if words.is_empty() { "" } else { "; " };
        words += line;
    }
    if words.is_empty() { status.to_string() } else { format!("{status}: {words}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> (Vec<String>, End) {
        let mut lines = Vec::new();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let end = run(&mut command, patience, |line| lines.push(line.to_owned())).unwrap();
        (lines, end)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn lines_and_ends_are_told() {
        let (lines, end) = shell("echo a; echo b", LONG);
        assert_eq!((lines, end), (vec!["a".to_owned(), "b".to_owned()], End::Well));
        let (lines, end) = shell("echo a; echo ----- >&2; echo no such thing >&2; exit 3", LONG);
        assert_eq!(lines, ["a"]);
        assert_eq!(end, End::Badly("exit status: 3: no such thing".to_owned()));
        let (_, end) = shell("kill -SEGV $$", LONG);
        assert!(matches!(&end, End::Badly(how) if how.contains("signal: 11")), "{end:?}");
        let missing = run(&mut Command::new("/nonexistent"), LONG, |_| ());
        assert!(missing.is_err());
    }

    #[test]
    fn a_silent_program_is_ended_with_all_it_started() {
        let short = Duration::from_millis(300);
        // One that ignores the request, and one in a session of its own.
        let script = "trap '' TERM; setsid sleep 1000 & echo $!; while :; do sleep 1000; done";
        let start = Instant::now();
        let (lines, end) = shell(script, short);
        assert_eq!(end, End::Silent(short));
        assert!(start.elapsed() < LONG);
        let process: u32 = lines[0].parse().unwrap();
        let gone = || {
            let state = std::fs::read_to_string(format!("/proc/{process}/stat"));
            state.is_err() || state.is_ok_and(|text| text.contains(") Z "))
        };
        while !gone() {
            assert!(start.elapsed() < LONG, "process {process} is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
