//! The launcher's side of the control sockets: greetings, the key–value store, fences. A state
//! machine without input or output: [`Server::handle`] takes a message and returns the answers.

use super::wire::{self, Message};
use crate::topo::{Block, Places};
use std::collections::HashMap;

/// Most bytes of keys and values that one rank can put.
pub const MAX_BYTES: usize = 1 << 20;

/// An answer, to whom, and whether the memory of its node goes with it.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The rank it goes to.
    pub to: u32,
    /// What it says.
    pub message: Message,
    /// Whether the descriptor of the node's memory goes along.
    pub with_memory: bool,
}

#[derive(Clone, Debug, Default)]
struct Client {
    pid: Option<u32>,
    in_fence: bool,
    bytes: usize,
    fresh: Vec<(String, Vec<u8>)>,
    ended: bool,
}

/// What the launcher knows of its ranks' wiring.
#[derive(Debug)]
pub struct Server {
    job: u64,
    blocks: Vec<Block>,
    clients: Vec<Client>,
    store: HashMap<(u32, String), Vec<u8>>,
    /// The first rank that ended: the cause of all that follows.
    first_ended: Option<Message>,
}

impl Server {
    /// For a job whose ranks are on nodes like this.
    pub fn new(job: u64, places: &Places) -> Server {
        let clients = vec![Client::default(); places.ranks() as usize];
        let blocks = places.blocks();
        Server { job, blocks, clients, store: HashMap::new(), first_ended: None }
    }

    /// Acts on a message from `rank`'s socket.
    pub fn handle(&mut self, rank: u32, message: Message) -> Vec<Answer> {
        let size = self.clients.len() as u32;
        let client = &mut self.clients[rank as usize];
        if client.pid.is_none() && !matches!(message, Message::Hello { .. }) {
            return vec![refused(rank, "the first message must be a greeting".into())];
        }
        match message {
            Message::Hello { version, pid, size: wanted } => {
                if version != wire::VERSION {
                    return vec![refused(
                        rank,
                        format!(
                            "the launcher speaks version {} of the wiring protocol, this program \
                             version {version}; build both with the same hither",
                            wire::VERSION
                        ),
                    )];
                }
                if let Some(first) = client.pid {
                    return vec![refused(
                        rank,
                        format!(
                            "process {first} has joined as rank {rank} already; \
                             one process of a rank can take part"
                        ),
                    )];
                }
                if wanted != 0 && wanted != size {
                    return vec![refused(rank, format!("the job has {size} ranks, not {wanted}"))];
                }
                client.pid = Some(pid);
                let blocks = self.blocks.clone();
                let message = Message::Welcome { rank, size, job: self.job, blocks };
                vec![Answer { to: rank, message, with_memory: true }]
            }
            Message::Put { key, value } => {
                client.bytes += key.len() + value.len();
                if client.bytes > MAX_BYTES {
                    let why = format!("rank {rank} has put more than {MAX_BYTES} bytes");
                    return vec![refused(rank, why)];
                }
                client.fresh.push((key, value));
                Vec::new()
            }
            Message::Fence => {
                client.in_fence = true;
                match self.first_ended.clone() {
                    Some(died) => vec![answer(rank, died)],
                    None => self.complete_fence(),
                }
            }
            Message::Get { rank: of, key } => {
                let value = self.store.get(&(of, key)).cloned();
                vec![answer(rank, Message::Value { value })]
            }
            Message::WhoIsMissing => {
                let missing = self.clients.iter().enumerate().filter(|(_, c)| !c.in_fence);
                let ranks = missing.map(|(r, _)| r as u32).take(wire::MAX_MISSING).collect();
                // Whoever asks has given up on this fence.
                self.clients[rank as usize].in_fence = false;
                vec![answer(rank, Message::Missing { ranks })]
            }
            other => vec![refused(rank, format!("a rank does not send {other:?}"))],
        }
    }

    /// Notes that `rank`'s process has ended; whoever waits for it learns of it.
    pub fn ended(&mut self, rank: u32, cause: String) -> Vec<Answer> {
        self.clients[rank as usize].ended = true;
        let died = self.first_ended.get_or_insert(Message::Died { rank, cause });
        let mut answers = Vec::new();
        for (to, client) in self.clients.iter_mut().enumerate() {
            if client.in_fence && !client.ended {
                client.in_fence = false;
                answers.push(answer(to as u32, died.clone()));
            }
        }
        answers
    }

    fn complete_fence(&mut self) -> Vec<Answer> {
        if self.clients.iter().any(|c| !c.in_fence) {
            return Vec::new();
        }
        let mut answers = Vec::new();
        for (rank, client) in self.clients.iter_mut().enumerate() {
            let rank = rank as u32;
            client.in_fence = false;
            for (key, value) in client.fresh.drain(..) {
                self.store.insert((rank, key), value);
            }
            answers.push(answer(rank, Message::Fence));
        }
        answers
    }
}

fn answer(to: u32, message: Message) -> Answer {
    Answer { to, message, with_memory: false }
}

fn refused(to: u32, why: String) -> Answer {
    answer(to, Message::Refused { why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeted(size: u32) -> Server {
        let places = Places::equal(size, 1).unwrap();
        let mut server = Server::new(7, &places);
        for rank in 0..size {
            let hello = Message::Hello { version: wire::VERSION, pid: 100 + rank, size: 0 };
            let answers = server.handle(rank, hello);
            assert!(answers[0].with_memory);
            assert_eq!(
                answers[0].message,
                Message::Welcome { rank, size, job: 7, blocks: places.blocks() }
            );
        }
        server
    }

    fn text(answers: &[Answer]) -> String {
        match &answers[0].message {
            Message::Refused { why } => why.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_fence_ends_when_all_have_come_and_publishes() {
        let mut server = greeted(2);
        let put = Message::Put { key: "k".into(), value: vec![1] };
        assert!(server.handle(0, put).is_empty());
        let get = Message::Get { rank: 0, key: "k".into() };
        assert_eq!(server.handle(1, get.clone())[0].message, Message::Value { value: None });
        assert!(server.handle(1, Message::Fence).is_empty());
        let answers = server.handle(0, Message::Fence);
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(|a| a.message == Message::Fence && !a.with_memory));
        let value = Some(vec![1]);
        assert_eq!(server.handle(1, get)[0].message, Message::Value { value });
    }

    #[test]
    fn the_missing_and_the_dead_are_named() {
        let mut server = greeted(3);
        server.handle(1, Message::Fence);
        let answers = server.handle(1, Message::WhoIsMissing);
        assert_eq!(answers[0].message, Message::Missing { ranks: vec![0, 2] });
        server.handle(0, Message::Fence);
        let answers = server.ended(2, "signal 9".into());
        let died = Message::Died { rank: 2, cause: "signal 9".into() };
        assert_eq!(answers, [answer(0, died.clone())]);
        assert_eq!(server.handle(1, Message::Fence), [answer(1, died)]);
    }

    #[test]
    fn strangers_and_second_comers_are_refused() {
        let mut server = Server::new(7, &Places::equal(2, 1).unwrap());
        assert!(text(&server.handle(0, Message::Fence)).contains("greeting"));
        let hello = |version, size| Message::Hello { version, pid: 5, size };
        assert!(text(&server.handle(0, hello(wire::VERSION + 1, 0))).contains("version"));
        assert!(text(&server.handle(0, hello(wire::VERSION, 3))).contains("2 ranks"));
        server.handle(0, hello(wire::VERSION, 2));
        assert!(text(&server.handle(0, hello(wire::VERSION, 0))).contains("process 5 has joined"));
        assert!(text(&server.handle(0, Message::Memory)).contains("does not send"));
    }

    #[test]
    fn the_store_is_bounded() {
        let mut server = greeted(1);
        let put = || Message::Put { key: "k".into(), value: vec![0; wire::MAX_VALUE] };
        let refusals = (0..40).filter(|_| !server.handle(0, put()).is_empty()).count();
        assert!(refusals > 0);
    }

    proptest! {
        #[test]
        fn every_rank_gets_exactly_one_answer_per_fence(order in Just((0..8u32).collect::<Vec<_>>()).prop_shuffle()) {
            let mut server = greeted(8);
            for round in 0..3 {
                let answers: Vec<Answer> =
                    order.iter().flat_map(|&r| server.handle(r, Message::Fence)).collect();
                let mut to: Vec<u32> = answers.iter().map(|a| a.to).collect();
                to.sort_unstable();
                prop_assert_eq!(&to, &(0..8).collect::<Vec<u32>>(), "round {}", round);
            }
        }
    }
}
