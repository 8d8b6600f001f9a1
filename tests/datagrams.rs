//! Reliable delivery over datagrams allocates nothing once it runs: counted by an allocator.

use hither::net::ud::{Config, Event, Peer, Sent, Shared, Upper, Verdict};
use hither::net::wire::Header;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is the system's allocator's; counting touches a thread's own cell, which needs
// no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const COOKIE: u64 = 3;

#[derive(Default)]
struct Program {
    came: u64,
}

impl Upper for Program {
    fn message(&mut self, _peer: u32, channel: u8, bytes: &[u8]) -> Verdict {
        assert_eq!((channel, bytes), (7, &self.came.to_le_bytes()[..]));
        self.came += 1;
        Verdict::Taken
    }

    fn event(&mut self, _peer: u32, event: Event) {
        assert_eq!(event, Event::Opened);
    }
}

struct Process {
    shared: Shared,
    peer: Peer,
    program: Program,
    /// What it sent, each datagram in a place of its own.
    out: Vec<[u8; 128]>,
    lengths: Vec<usize>,
}

impl Process {
    fn new(me: u32) -> Process {
        let config = Config { datagram: 128, ..Config::new(COOKIE, me, 2, 1) };
        let peer = Peer::new(1 - me, &config, 0);
        let shared = Shared::new(config).unwrap();
        let (out, lengths) = (Vec::with_capacity(256), Vec::with_capacity(256));
        Process { shared, peer, program: Program::default(), out, lengths }
    }

    fn transmit(&mut self, now: u64) {
        let Process { shared, peer, out, lengths, .. } = self;
        peer.transmit(shared, now, &mut |bytes| {
            let mut copy = [0; 128];
            copy[..bytes.len()].copy_from_slice(bytes);
            out.push(copy);
            lengths.push(bytes.len());
            true
        });
    }

    /// Takes what the other one sent, but for each `skip`-th datagram, and the rest in reverse.
    fn take(&mut self, from: &mut Process, now: u64, skip: usize) {
        let datagrams = from.out.iter().zip(&from.lengths).enumerate().rev();
        for (_, (bytes, length)) in datagrams.filter(|(i, _)| skip == 0 || i % skip != skip - 1) {
            let (header, body) = Header::decode(&bytes[..*length], COOKIE).unwrap();
            self.peer.receive(&mut self.shared, &header, body, now, &mut self.program);
        }
        from.out.clear();
        from.lengths.clear();
        self.peer.tick(&mut self.shared, now, &mut self.program);
    }
}

#[test]
fn messages_in_order_or_not_allocate_nothing_once_both_sides_run() {
    let (mut a, mut b) = (Process::new(0), Process::new(1));
    let (mut now, mut sent) = (0, 0u64);
    let mut run = |rounds: u64, burst: u64, skip: usize| {
        let before = COUNT.with(Cell::get);
        for _ in 0..rounds {
            for process in [&mut a, &mut b] {
                for i in 0..burst {
                    let number = (sent + i).to_le_bytes();
                    let taken = process.peer.send(&mut process.shared, 7, &[&number], now);
                    assert_eq!(taken, Ok(Sent::Whole(sent + i)));
                }
            }
            sent += burst;
            let mut skip = skip;
            while a.peer.confirmed() < sent || b.peer.confirmed() < sent {
                a.transmit(now);
                b.transmit(now);
                b.take(&mut a, now, skip);
                a.take(&mut b, now, skip);
                now += 3_000_000;
                // What is sent again arrives.
                skip = 0;
            }
        }
        assert_eq!((a.program.came, b.program.came), (sent, sent));
        COUNT.with(Cell::get) - before
    };
    assert!(run(3, 20, 7) > 0, "the counter is blind");
    assert_eq!(run(300, 1, 0), 0);
    assert_eq!(run(300, 16, 0), 0);
    assert_eq!(run(300, 16, 7), 0);
}
