//! Private networks among guests, of sockets without names: two guests have one between them, more
//! have a switch in this process.

use crate::error::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

/// For which a port that takes nothing holds the others up before its frame is dropped.
const PATIENCE: Duration = Duration::from_millis(50);
/// More than the longest frame.
const FRAME: usize = 1 << 16;

/// One network, as long as this lives.
pub(crate) struct Network {
    /// Each guest's end, until its emulator has it.
    ends: Vec<Option<OwnedFd>>,
    /// The switch's ends.
    ports: Arc<Vec<UnixDatagram>>,
}

impl Network {
    /// For so many guests; one alone has none.
    pub fn new(guests: usize) -> Result<Network> {
        let pair = || UnixDatagram::pair().map_err(|e| Error::system("a network's socket", e));
        let (mut ends, mut ports) = (Vec::new(), Vec::new());
        match guests {
            0 | 1 => {}
            2 => {
                let (one, other) = pair()?;
                ends = vec![Some(one.into()), Some(other.into())];
            }
            _ => {
                for _ in 0..guests {
                    let (end, port) = pair()?;
                    port.set_write_timeout(Some(PATIENCE))
                        .map_err(|e| Error::system("a network's socket", e))?;
                    ends.push(Some(end.into()));
                    ports.push(port);
                }
            }
        }
        let ports = Arc::new(ports);
        for from in 0..ports.len() {
            let ports = ports.clone();
            std::thread::spawn(move || forward(from, &ports));
        }
        Ok(Network { ends, ports })
    }

    /// The descriptor of a guest's end.
    pub fn end(&self, guest: usize) -> Option<RawFd> {
        Some(self.ends.get(guest)?.as_ref()?.as_raw_fd())
    }

    /// The emulator has it now; if that ends, the other end is to notice.
    pub fn taken(&mut self, guest: usize) {
        if let Some(end) = self.ends.get_mut(guest) {
            *end = None;
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for port in self.ports.iter() {
            // Ends the thread that reads from it.
            let _ = port.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Passes on what comes from one port: to the guest whose number is the last byte of the address, or
/// to all others.
fn forward(from: usize, ports: &[UnixDatagram]) {
    let mut frame = vec![0; FRAME];
    loop {
        let length = match ports[from].recv(&mut frame) {
            Ok(0) => return,
            Ok(length) => length,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let all = frame[0] & 1 == 1;
        for (to, port) in ports.iter().enumerate() {
            if to != from && (all || usize::from(frame[5]) == to) {
                // A network may lose frames, and a guest that is off takes none.
                let _ = port.send(&frame[..length]);
            }
        }
    }
}
