//! The program that a guest runs: it starts what it is told to over the virtual serial port (by the
//! laboratory) and over connections (by `hither-lab rsh` in other guests).

use crate::error::{Error, Result};
use crate::wire::{Frame, Start};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Where agents listen for others.
pub const PORT: u16 = 7077;
/// The serial port's name.
pub const CHANNEL: &str = "hither-lab";

/// Portions of input that a program may have before it reads them.
const INPUTS: usize = 64;

type Shared<W> = Arc<Mutex<W>>;

/// Serves until the laboratory is gone.
pub fn serve() -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).map_err(|e| Error::system("port", e))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // Small packets in both directions, each awaited.
                let _ = stream.set_nodelay(true);
                let Ok(write) = stream.try_clone() else { return };
                serve_stream(stream, write);
            });
        }
    });
    let port = channel()?;
    let open = || File::options().read(true).write(true).open(&port);
    let read = open().map_err(|e| Error::file(&port, e))?;
    let write = read.try_clone().map_err(|e| Error::file(&port, e))?;
    serve_stream(read, write);
    Ok(())
}

/// The device of the port with the right name.
fn channel() -> Result<PathBuf> {
    let class = PathBuf::from("/sys/class/virtio-ports");
    let ports = std::fs::read_dir(&class).map_err(|e| Error::file(&class, e))?;
    let named = ports.flatten().find(|port| {
        std::fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim() == CHANNEL)
    });
    let port = named.ok_or_else(|| Error::Failed("the laboratory's port is not there".into()))?;
    Ok(PathBuf::from("/dev").join(port.file_name()))
}

/// A program that runs.
struct Run {
    input: Option<SyncSender<Vec<u8>>>,
    group: rustix::process::Pid,
    ended: Shared<bool>,
}

/// Does what `from` says, until it ends. Programs that were started live on, without input then.
fn serve_stream(mut from: impl Read, to: impl Write + Send + 'static) {
    let to = Arc::new(Mutex::new(to));
    let mut runs: HashMap<u32, Run> = HashMap::new();
    if !send(&to, 0, &Frame::Hello) {
        return;
    }
    while let Ok((number, frame)) = Frame::receive(&mut from) {
        runs.retain(|_, run| !*run.ended.lock().unwrap_or_else(PoisonError::into_inner));
        match (frame, runs.get_mut(&number)) {
            (Frame::Start(what), None) => match start(number, &what, &to) {
                Ok(run) => drop(runs.insert(number, run)),
                Err(e) => drop(send(&to, number, &Frame::Failed(e.to_string()))),
            },
            (Frame::Input(bytes), Some(run)) if bytes.is_empty() => run.input = None,
            // Who has closed its input misses what comes for it.
            (Frame::Input(bytes), Some(run)) => {
                drop(run.input.as_ref().map(|input| input.send(bytes)));
            }
            (Frame::Kill, Some(run)) => {
                let ended = run.ended.lock().unwrap_or_else(PoisonError::into_inner);
                if !*ended {
                    let _ = rustix::process::kill_process_group(
                        run.group,
                        rustix::process::Signal::KILL,
                    );
                }
            }
            _ => {}
        }
    }
}

fn send<W: Write>(to: &Shared<W>, run: u32, frame: &Frame) -> bool {
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    frame.send(run, &mut *to).is_ok()
}

fn start<W: Write + Send + 'static>(
    number: u32,
    what: &Start,
    to: &Shared<W>,
) -> std::io::Result<Run> {
    let words: Vec<&OsStr> = what.words.iter().map(|word| OsStr::from_bytes(word)).collect();
    let (program, arguments) = words.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    if let Ok(own) = std::env::current_exe() {
        command.env("HITHER_RSH", format!("{} rsh", own.display()));
    }
    for (name, value) in &what.environment {
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
    }
    if !what.directory.is_empty() {
        command.current_dir(OsStr::from_bytes(&what.directory));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let group = rustix::process::Pid::from_child(&child);
    let ended = Arc::new(Mutex::new(false));
    let (input, inputs) = sync_channel(INPUTS);
    if let Some(stdin) = child.stdin.take() {
        std::thread::spawn(move || feed(stdin, &inputs));
    }
    let readers = [
        child.stdout.take().map(|pipe| forward(pipe, number, to, Frame::Out)),
        child.stderr.take().map(|pipe| forward(pipe, number, to, Frame::Err)),
    ];
    let (to, over) = (to.clone(), ended.clone());
    std::thread::spawn(move || {
        let code = reap(&mut child, &over);
        for reader in readers.into_iter().flatten() {
            // A reader that panicked has nothing more to say.
            let _ = reader.join();
        }
        send(&to, number, &Frame::Exit(code));
    });
    Ok(Run { input: Some(input), group, ended })
}

/// Waits for `child`. Nobody signals its group after `ended` says that its number is free.
fn reap(child: &mut Child, ended: &Shared<bool>) -> i32 {
    let pid = rustix::process::Pid::from_child(child);
    let exited = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    // Leaves it a zombie, if it works; the wait below is what counts.
    let _ = rustix::io::retry_on_intr(|| {
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), exited)
    });
    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
    let status = child.wait();
    *ended = true;
    match status {
        Ok(status) => status.code().unwrap_or(128 + status.signal().unwrap_or(0)),
        Err(_) => 125,
    }
}

fn feed(mut stdin: impl Write, inputs: &Receiver<Vec<u8>>) {
    while let Ok(bytes) = inputs.recv() {
        if stdin.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Sends what comes out of `pipe`. Where nobody takes it any more the pipe is closed.
fn forward<W: Write + Send + 'static>(
    mut pipe: impl Read + Send + 'static,
    run: u32,
    to: &Shared<W>,
    frame: fn(Vec<u8>) -> Frame,
) -> std::thread::JoinHandle<()> {
    let to = to.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        loop {
            let length = match pipe.read(&mut buffer) {
                Ok(length) => length,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            if !send(&to, run, &frame(buffer[..length].to_vec())) || length == 0 {
                return;
            }
        }
    })
}

/// Kills every process of this guest whose command line has `pattern` in it, but this one, the agent
/// that started it, and the first; their number.
pub fn kill(pattern: &str) -> Result<usize> {
    let number = |pid: rustix::process::Pid| pid.as_raw_nonzero().get();
    let agent = rustix::process::getppid().map_or(1, number);
    let spared = [1, agent, number(rustix::process::getpid())];
    let processes = std::fs::read_dir("/proc").map_err(|e| Error::system("/proc", e))?;
    let mut killed = 0;
    for entry in processes.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(number) = number.filter(|number| !spared.contains(number)) else { continue };
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&words).replace('\0', " ");
        if line.contains(pattern)
            && let Some(pid) = rustix::process::Pid::from_raw(number)
            && rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
        {
            killed += 1;
        }
    }
    Ok(killed)
}
