//! How two processes move what one may send to the other eagerly from one threshold to another,
//! while messages are under way and without holding back any (paper 000 §3.2, §4.2, §4.3).
//!
//! ```text
//!   A wants                                                    B
//!     HANDSHAKE_REQ (A's class) ------------------->  can it have a pool?  does it want, too?
//!              <----------------  HANDSHAKE_REP (the larger class, who moves | refused)
//!   [pool for B's messages, if B moves too]
//!     NEW_CONN_REQ (who moves) -------------------->  pool for A's messages
//!              <----------------  NEW_CONN_REP (it is there | refused)
//!     CONN_EST: the last of A's by the old -------->  nothing of A's comes by the old any more
//!   A sends by the new                                [if B moves: CONN_EST, B sends by the new]
//!              <----------------  CONN_EST, if B moves
//!     CONN_EST_ACK, if B moves -------------------->  nothing goes by the old in either direction
//!              <----------------  CONN_EST_ACK: the same for A
//! ```
//! A *connection* of a class is the right of one process to send messages of up to that threshold
//! eagerly: in a node, into buffers of the other's pool of that class; over a network, by a queue
//! pair that is joined to the receive queue of that pool. Who sends by the new connection has seen
//! that it is ready at the other end; who closes the old one has seen the last message that comes
//! by it. Nothing waits in between: before `CONN_EST` messages go by the old connection, after it
//! by the new one.
//!
//! All packets, and all messages of one node, travel in order. Over queue pairs it is enough that
//! `CONN_EST` goes by the old one (each is in order), and that what comes by the new one before it
//! is held back until [`Handshake::peer_has_moved`].
//!
//! **Where this differs from the paper.** Its queue pairs serve both directions, so both always
//! move, though §4.3 has thresholds by direction. In a node there are no queue pairs: a pool in the
//! receiver's memory serves one direction, and the other one moves only if its sender wants that,
//! too; then both take the larger of the two classes, as §3.2 says ([`Ways::Each`]). Over queue
//! pairs both move ([`Ways::Paired`]). The value that the peer puts beside the one asked for is
//! what it *wants* (§3.1 holds for it), not what its messages would be: or else large messages
//! that block would raise the memory for small ones that overlap.
//!
//! The paper does not say what happens if both begin at the same time: the side that is `first`
//! goes on, the other one's request becomes its own wish in the answer. A refusal (−1) is kept for
//! ever, as in §3.2. The end-point data of `NEW_CONN_REQ` and `NEW_CONN_REP` is the host's to
//! add.

mod packet;
#[cfg(test)]
mod tests;

pub use packet::{Packet, Violation};

use super::class::Class;

/// What moves in a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ways {
    /// Each direction when its sender wants: a node's shared memory.
    Each,
    /// Always both: queue pairs.
    Paired,
}

/// What the host has to do, in the order given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send this to the peer, behind all messages sent so far and before all later ones.
    Send(Packet),
    /// The peer is going to send into the pool of this class: make it if it is not there, count
    /// the peer as its user, and say how that went with [`Handshake::pool`].
    JoinPool(Class),
    /// The peer sends into the pool of this class no more; buffers may still be full. Of several
    /// joins for one class, one is taken back.
    LeavePool(Class),
    /// What is sent to the peer from now on may go by its pool of this class.
    Use(Class),
    /// Nothing travels by the old connection, in either direction: it can be closed. Meaningless
    /// in a node.
    CloseOld,
    /// A switch has ended that this side asked for at that time.
    Switched {
        /// The new class.
        class: Class,
        /// When it was asked for.
        since: u64,
    },
    /// A switch that this side asked for is refused, for ever.
    Refused,
}

/// Where a switch stands, seen from this side. `both`: both directions move.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Idle,
    /// Sent `HANDSHAKE_REQ`.
    Asked {
        class: Class,
    },
    /// Asked for the pool that is to receive the peer's messages.
    Joining {
        class: Class,
    },
    /// Sent `NEW_CONN_REQ`; has a pool for the peer if both move.
    Connecting {
        class: Class,
        both: bool,
    },
    /// Sent `CONN_EST`. Next is the peer's if both move, else its acknowledgement.
    Moved {
        class: Class,
        both: bool,
    },
    /// Sent `CONN_EST_ACK` to the peer's `CONN_EST`.
    Closing {
        class: Class,
    },
    /// Sent `HANDSHAKE_REP`.
    Promised {
        class: Class,
        both: bool,
    },
    /// Asked for the pool that is to receive the peer's messages, for it asked.
    Preparing {
        class: Class,
        both: bool,
    },
    /// Sent `NEW_CONN_REP`.
    Prepared {
        class: Class,
        both: bool,
    },
    /// Sent `CONN_EST` behind the peer's.
    Following {
        class: Class,
    },
}

/// One side of a connection to a peer. See the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Handshake {
    ways: Ways,
    /// This side goes on if both have asked.
    first: bool,
    /// The peer has refused: it is not asked again.
    refused: bool,
    state: State,
    /// When this side asked.
    since: u64,
    /// What this side may send eagerly.
    sends: Option<Class>,
    /// The pool that the peer sends into.
    receives: Option<Class>,
}

impl Handshake {
    /// A connection without any class. Of the two sides exactly one is `first`: say, the one with
    /// the lower slot.
    pub fn new(ways: Ways, first: bool) -> Handshake {
        Handshake {
            ways,
            first,
            refused: false,
            state: State::Idle,
            since: 0,
            sends: None,
            receives: None,
        }
    }

    /// The class of what may be sent to the peer now.
    #[inline]
    pub fn sends(&self) -> Option<Class> {
        self.sends
    }

    /// The class of what the peer may send.
    #[inline]
    pub fn receives(&self) -> Option<Class> {
        self.receives
    }

    /// Whether a switch can be asked for: none is under way, and the peer has refused none.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.state == State::Idle && !self.refused
    }

    /// Whether the peer has refused a switch.
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether nothing comes by the old connection any more. Over queue pairs: messages that come
    /// by the new one are to be held back as long as this is false.
    #[inline]
    pub fn peer_has_moved(&self) -> bool {
        !matches!(
            self.state,
            State::Connecting { both: true, .. }
                | State::Moved { both: true, .. }
                | State::Prepared { .. }
        )
    }

    /// This side wants to send messages of `class` eagerly. Whether it asks for that: not if a
    /// switch is under way or was ever refused. `now`: nanoseconds since any one time.
    pub fn want(&mut self, class: Class, now: u64, out: &mut Vec<Action>) -> bool {
        let asks = self.is_free();
        if asks {
            self.ask(class, now, out);
        }
        asks
    }

    /// Whether no switch is under way.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// As [`want`](Self::want), whatever was refused: for what cannot be, such as to go back. Only while
    /// it [`is_idle`](Self::is_idle).
    pub fn ask(&mut self, class: Class, now: u64, out: &mut Vec<Action>) {
        debug_assert!(self.is_idle(), "{}", self.state_name());
        self.since = now;
        self.state = State::Asked { class };
        out.push(Action::Send(Packet::HandshakeReq { class }));
    }

    /// A packet has come. `wish` is the class that this side wants for its own messages, if it
    /// wants any (`p2p::adapt::Estimator::wants`), and `can_join` says of a class
    /// whether the peer could have a pool of it here ([`Pools::can_join`](super::Pools::can_join)).
    /// A packet that has no place here is an error, and changes nothing.
    pub fn receive(
        &mut self,
        packet: Packet,
        wish: Option<Class>,
        can_join: impl FnOnce(Class) -> bool,
        out: &mut Vec<Action>,
    ) -> Result<(), Violation> {
        match (packet, self.state) {
            (Packet::HandshakeReq { class }, State::Idle) => {
                self.answer(class, wish, can_join, out);
            }
            // Both have asked. The first one goes on: its request is on the way to the other, ...
            (Packet::HandshakeReq { .. }, State::Asked { .. }) if self.first => {}
            // ... who gives its own up for it.
            (Packet::HandshakeReq { class }, State::Asked { class: wish }) => {
                self.answer(class, Some(wish), can_join, out);
            }
            (Packet::HandshakeRep { agreed: None }, State::Asked { .. }) => self.refuse(out),
            (
                Packet::HandshakeRep { agreed: Some((class, both)) },
                State::Asked { class: asked },
            ) if class >= asked && (both || self.ways == Ways::Each) => {
                if both {
                    self.state = State::Joining { class };
                    out.push(Action::JoinPool(class));
                } else {
                    self.connect(class, false, out);
                }
            }
            (Packet::ConnReq { moves: None }, State::Promised { .. }) => self.state = State::Idle,
            (Packet::ConnReq { moves: Some(both) }, State::Promised { class, both: promised })
                if (promised || !both) && (both || self.ways == Ways::Each) =>
            {
                self.state = State::Preparing { class, both };
                out.push(Action::JoinPool(class));
            }
            (Packet::ConnRep { ready: false }, State::Connecting { class, both }) => {
                if both {
                    out.push(Action::LeavePool(class));
                }
                self.refuse(out);
            }
            (Packet::ConnRep { ready: true }, State::Connecting { class, both }) => {
                self.establish(class, out);
                self.state = State::Moved { class, both };
            }
            (Packet::ConnEst, State::Prepared { class, both }) => {
                self.peer_moved(class, out);
                if both {
                    self.establish(class, out);
                    self.state = State::Following { class };
                } else {
                    out.push(Action::CloseOld);
                    out.push(Action::Send(Packet::ConnEstAck));
                    self.state = State::Idle;
                }
            }
            (Packet::ConnEst, State::Moved { class, both: true }) => {
                self.peer_moved(class, out);
                out.push(Action::Send(Packet::ConnEstAck));
                self.state = State::Closing { class };
            }
            (Packet::ConnEstAck, State::Following { .. }) => {
                out.push(Action::CloseOld);
                out.push(Action::Send(Packet::ConnEstAck));
                self.state = State::Idle;
            }
            (
                Packet::ConnEstAck,
                State::Moved { class, both: false } | State::Closing { class },
            ) => {
                out.push(Action::CloseOld);
                out.push(Action::Switched { class, since: self.since });
                self.state = State::Idle;
            }
            _ => return Err(Violation { packet, state: self.state_name() }),
        }
        Ok(())
    }

    /// How the latest [`Action::JoinPool`] went; to be told before the next packet, which it is
    /// easiest to do at once. Does nothing if there was none.
    pub fn pool(&mut self, joined: bool, out: &mut Vec<Action>) {
        match self.state {
            State::Joining { class } if joined => self.connect(class, true, out),
            // No memory for the peer's messages; this side's own can still move.
            State::Joining { class } if self.ways == Ways::Each => self.connect(class, false, out),
            State::Joining { .. } => {
                out.push(Action::Send(Packet::ConnReq { moves: None }));
                self.refuse(out);
            }
            State::Preparing { class, both } => {
                out.push(Action::Send(Packet::ConnRep { ready: joined }));
                self.state = if joined { State::Prepared { class, both } } else { State::Idle };
            }
            _ => {}
        }
    }

    /// The peer is dead: gives back every pool that was joined for it.
    pub fn abandon(&mut self, out: &mut Vec<Action>) {
        // A new pool is joined, and not yet in the place of the old one.
        if let State::Connecting { class, both: true }
        | State::Moved { class, both: true }
        | State::Prepared { class, .. } = self.state
        {
            out.push(Action::LeavePool(class));
        }
        out.extend(self.receives.take().map(Action::LeavePool));
        self.sends = None;
        self.refused = true;
        self.state = State::Idle;
    }

    fn answer(
        &mut self,
        asked: Class,
        wish: Option<Class>,
        can_join: impl FnOnce(Class) -> bool,
        out: &mut Vec<Action>,
    ) {
        let class = wish.map_or(asked, |wish| wish.max(asked));
        let both = wish.is_some() || self.ways == Ways::Paired;
        let agreed = can_join(class).then_some((class, both));
        self.state = match agreed {
            Some((class, both)) => State::Promised { class, both },
            None => State::Idle,
        };
        out.push(Action::Send(Packet::HandshakeRep { agreed }));
    }

    fn connect(&mut self, class: Class, both: bool, out: &mut Vec<Action>) {
        self.state = State::Connecting { class, both };
        out.push(Action::Send(Packet::ConnReq { moves: Some(both) }));
    }

    /// From here on this side sends by the new connection.
    fn establish(&mut self, class: Class, out: &mut Vec<Action>) {
        out.push(Action::Send(Packet::ConnEst));
        out.push(Action::Use(class));
        self.sends = Some(class);
    }

    /// From here on the peer does.
    fn peer_moved(&mut self, class: Class, out: &mut Vec<Action>) {
        out.extend(self.receives.replace(class).map(Action::LeavePool));
    }

    fn refuse(&mut self, out: &mut Vec<Action>) {
        self.refused = true;
        self.state = State::Idle;
        out.push(Action::Refused);
    }

    fn state_name(&self) -> &'static str {
        match self.state {
            State::Idle => "no switch is under way",
            State::Asked { .. } => "a switch was asked for",
            State::Joining { .. } | State::Preparing { .. } => "a pool is being made",
            State::Connecting { .. } => "the peer makes a pool",
            State::Moved { .. } | State::Following { .. } => "the switch is made",
            State::Closing { .. } => "the old connection is being closed",
            State::Promised { .. } => "a switch was agreed to",
            State::Prepared { .. } => "a pool is ready for the peer",
        }
    }
}
