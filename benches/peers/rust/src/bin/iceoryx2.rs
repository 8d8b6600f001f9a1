//! iceoryx2 between two processes: a message is written into memory that is lent, and read where it lies.
//!
//! ```text
//! this process    ping: lends, writes, sends   --->   the one it starts    reads
//!                 reads                        <---   pong: lends, writes, sends
//! ```
//! `latency`: back and forth. `rate`: as many as possible one way, of which the last is answered: the first
//! word counts down. A message with a byte too many ends it.

use hither_peers::{Alone, Args, Measured, Unit, Workload, cores, settle};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use std::process::{Child, Command};

type Failure = Box<dyn std::error::Error>;
type Sender = Publisher<ipc::Service, [u8], ()>;
type Receiver = Subscriber<ipc::Service, [u8], ()>;

/// Messages under way.
const DEPTH: usize = 256;

/// One end of both ways.
struct End {
    sender: Sender,
    receiver: Receiver,
    bytes: usize,
    // What the ports belong to.
    _node: Node<ipc::Service>,
}

impl End {
    /// `out` and `into` are names of ways; returns when the other end is there.
    fn new(job: &str, out: &str, into: &str, bytes: usize) -> Result<End, Failure> {
        let node = NodeBuilder::new().create::<ipc::Service>()?;
        let way = |name: &str| -> Result<_, Failure> {
            let name = format!("hither-peers/{job}/{name}");
            Ok(node
                .service_builder(&name.as_str().try_into()?)
                .publish_subscribe::<[u8]>()
                .enable_safe_overflow(false)
                .subscriber_max_buffer_size(DEPTH)
                .max_publishers(1)
                .max_subscribers(1)
                .open_or_create()?)
        };
        let (out, into) = (way(out)?, way(into)?);
        let sender = out
            .publisher_builder()
            .initial_max_slice_len(bytes + 1)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()?;
        let receiver = into.subscriber_builder().buffer_size(DEPTH).create()?;
        let there = || {
            out.dynamic_config().number_of_subscribers() == 1
                && into.dynamic_config().number_of_publishers() == 1
        };
        while !there() {
            std::thread::yield_now();
        }
        Ok(End { sender, receiver, bytes, _node: node })
    }

    fn send(&self, message: &[u8]) -> Result<(), Failure> {
        let lent = self.sender.loan_slice_uninit(message.len())?;
        lent.write_from_slice(message).send()?;
        Ok(())
    }

    /// The first word and the length of the next message, once it is there.
    fn receive(&self) -> Result<(u64, usize), Failure> {
        loop {
            if let Some(sample) = self.receiver.receive()? {
                let first =
                    sample.payload().first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
                return Ok((first, sample.payload().len()));
            }
        }
    }
}

/// The process that answers.
fn answer(job: &str, rate: bool, bytes: usize) -> Result<(), Failure> {
    let end = End::new(job, "pong", "ping", bytes)?;
    let message = vec![1u8; bytes];
    loop {
        let (left, length) = end.receive()?;
        if length > bytes {
            return Ok(());
        }
        if !rate || left == 0 {
            end.send(&message)?;
        }
    }
}

/// The other process's, which ends with this.
struct Pair {
    end: End,
    message: Vec<u8>,
    other: Child,
}

impl Pair {
    fn new(name: &str, bytes: usize, number: usize, core: usize) -> Result<Pair, Failure> {
        let job = format!("{}-{number}", std::process::id());
        let program = std::env::current_exe()?;
        let [bytes_text, core] = [bytes, core].map(|number| number.to_string());
        let other =
            Command::new(program).args(["answer", &job, name, &bytes_text, &core]).spawn()?;
        let end = End::new(&job, "ping", "pong", bytes)?;
        Ok(Pair { end, message: vec![1; bytes], other })
    }

    fn latency(&mut self, count: u64) -> Result<(), Failure> {
        for i in 0..count {
            self.mark(i);
            self.end.send(&self.message)?;
            self.end.receive()?;
        }
        Ok(())
    }

    fn rate(&mut self, count: u64) -> Result<(), Failure> {
        for i in 0..count {
            self.mark(count - 1 - i);
            self.end.send(&self.message)?;
        }
        self.end.receive().map(drop)
    }

    fn mark(&mut self, word: u64) {
        if let Some(first) = self.message.first_chunk_mut() {
            *first = word.to_ne_bytes();
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let last = vec![1; self.end.bytes + 1];
        // Should it be gone already, there is nothing to end.
        let _ = self.end.send(&last);
        let _ = self.other.wait();
    }
}

/// A failure in the middle of a workload ends the program: whoever started it sees which one that was.
fn must(result: Result<(), Failure>) {
    if let Err(failure) = result {
        eprintln!("iceoryx2: {failure:?}");
        std::process::exit(1);
    }
}

fn main() -> Result<(), Failure> {
    set_log_level(LogLevel::Error);
    let words: Vec<String> = std::env::args().collect();
    if let [_, role, job, name, bytes, core] = &words[..]
        && role == "answer"
    {
        settle(&[core.parse()?]);
        return answer(job, name == "rate", bytes.parse()?);
    }
    let args = Args::of_program().ok_or("wants BATCH BATCHES NAME:BYTES ...")?;
    // Bound itself, it would start others that may use its core alone.
    let cores = cores();
    let other = cores.get(1 % cores.len().max(1)).copied().unwrap_or(0);
    settle(cores.get(..1).unwrap_or_default());
    let mut number = 0;
    args.measure(&Alone, |name, bytes| {
        let rate = match name {
            "latency" => false,
            "rate" | "rate-pairs" => true,
            _ => return None,
        };
        number += 1;
        let kind = if rate { "rate" } else { "latency" };
        let mut pair = match Pair::new(kind, bytes, number, other) {
            Ok(pair) => pair,
            Err(failure) => {
                must(Err(failure));
                return None;
            }
        };
        Some(Measured::Batches(if rate {
            let run = Box::new(move |count| must(pair.rate(count)));
            Workload { run, steps: 1.0, unit: Unit::MillionPerSecond }
        } else {
            let run = Box::new(move |count| must(pair.latency(count)));
            Workload { run, steps: 2.0, unit: Unit::Nanoseconds }
        }))
    });
    Ok(())
}
