//! A remote shell among guests, as launchers want one: runs a command line in another guest, with
//! this process's standard input, output and error.

use crate::agent::PORT;
use crate::error::{Error, Result};
use crate::wire::{Frame, Start};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(10);

/// Runs `line` by a shell on `host` (a guest's name, with or without a user); its exit code.
pub fn run(host: &str, line: &str) -> Result<i32> {
    let name = host.rsplit('@').next().unwrap_or(host);
    let unreached = |e: std::io::Error| Error::system(format!("{name} is not reached"), e);
    let address = (name, PORT).to_socket_addrs().map_err(unreached)?.next();
    let address = address.ok_or_else(|| Error::Failed(format!("{name} has no address")))?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT).map_err(unreached)?;
    stream.set_nodelay(true).map_err(unreached)?;
    let words = ["sh", "-c", line].map(|word| word.as_bytes().to_vec()).to_vec();
    let start = Start { words, environment: Vec::new(), directory: b"/".to_vec() };
    Frame::Start(start).send(0, &mut stream).map_err(unreached)?;
    let input = stream.try_clone().map_err(unreached)?;
    // Ends with the process: nobody can be woken from a read of the standard input.
    std::thread::spawn(move || forward_input(input));
    loop {
        let frame = Frame::receive(&mut stream).map(|(_, frame)| frame);
        match frame.map_err(|e| Error::system(format!("{name} is lost"), e))? {
            Frame::Out(bytes) => pass(&mut std::io::stdout(), &bytes, &stream)?,
            Frame::Err(bytes) => pass(&mut std::io::stderr(), &bytes, &stream)?,
            Frame::Exit(code) => return Ok(code),
            Frame::Failed(why) => return Err(Error::Failed(format!("{name}: {why}"))),
            _ => {}
        }
    }
}

/// Whoever does not read any more what the program says is to be noticed by it.
fn pass(to: &mut impl Write, bytes: &[u8], stream: &TcpStream) -> Result<()> {
    to.write_all(bytes).and_then(|()| to.flush()).map_err(|e| {
        let _ = stream.shutdown(Shutdown::Both);
        Error::system("output", e)
    })
}

fn forward_input(mut stream: TcpStream) {
    let mut buffer = vec![0; 32 << 10];
    loop {
        let length = match std::io::stdin().lock().read(&mut buffer) {
            Ok(length) => length,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let sent = Frame::Input(buffer[..length].to_vec()).send(0, &mut stream);
        if length == 0 || sent.is_err() {
            return;
        }
    }
}
