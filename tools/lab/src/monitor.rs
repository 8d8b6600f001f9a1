//! The emulator's monitor (QMP): one JSON object a line in both directions.

use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Monitor {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Monitor {
    /// Greets whoever is at the other end of `stream`.
    pub fn new(stream: UnixStream) -> Result<Monitor> {
        let system = |e| Error::system("the emulator's monitor", e);
        stream.set_read_timeout(Some(PATIENCE)).map_err(system)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(system)?;
        let from = BufReader::new(stream.try_clone().map_err(system)?);
        Ok(Monitor { to: stream, from })
    }

    /// Carries out `command` and returns what it answers.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let failed = |why: &dyn std::fmt::Display| {
            Error::Failed(format!("the emulator does not carry out {command}: {why}"))
        };
        let request = json!({"execute": command, "arguments": arguments});
        writeln!(self.to, "{request}").map_err(|e| failed(&e))?;
        // Events and the greeting come in between.
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line).map_err(|e| failed(&e))? == 0 {
                return Err(failed(&"it is gone"));
            }
            let answer: Value = serde_json::from_str(&line).map_err(|e| failed(&e))?;
            if let Some(error) = answer.get("error") {
                return Err(failed(error));
            }
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
        }
    }
}
