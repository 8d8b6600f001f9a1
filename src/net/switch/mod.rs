//! How two processes move from one connection to another while messages are under way: from
//! datagrams to a queue pair, to one with a larger eager threshold, and back to datagrams (paper 000
//! §4.2, on real queue pairs). Pure: packets come in, what to do goes out.
//!
//! ```text
//!   connection 0      datagrams, as [`crate::net::ud`] makes them reliable: there from the start
//!   connection 1      a queue pair, its receives from the queue of a class; made when wanted
//!   connection 2 ...  each replaces the one before, in both directions
//!
//!      old  ----- m1 -- m2 -- CONN_EST |                        closed by each side when nothing
//!      new                             |-- m3 -- m4 ------->    goes by it any more, and what it
//!                 held back until CONN_EST has come by the old one   sent by it has completed
//! ```
//! Who asks, who answers and what is agreed is [`crate::base::adapt::Handshake`]'s, with both ways
//! moving ([`Ways::Paired`]); here is what queue pairs add: they are made and connected before
//! anybody says that they are ready, packets go by one connection or the other, what overtakes is
//! held back, what is old is drained and then given back. Messages never wait: at any time there is
//! one connection to send by.
//!
//! Where the paper waits for the completion of all sends before `CONN_EST`, this does not: a queue
//! pair keeps the order. Completions are waited for before the old one is destroyed.

#[cfg(test)]
mod tests;

use crate::base::adapt::{self, Class, Handshake, Packet, Violation, Ways};
use crate::net::wire::Control;

/// What carries a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// The reliable datagrams between the two.
    Datagrams,
    /// The queue pair of the connection with this number.
    Pair(u32),
}

/// What the host has to do, in the order given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Make a queue pair that receives from the queue of this class, and say how that went with
    /// [`Switch::opened`], before anything else.
    Open {
        /// Its connection.
        number: u32,
        /// The class whose queue its receives come from.
        class: Class,
    },
    /// Connect it to the peer's queue pair, whose address this packet has, ready to receive and to
    /// send.
    Connect {
        /// Its connection.
        number: u32,
        /// Has the address.
        peer: Control,
    },
    /// Send this packet, behind all that was sent this way.
    Send {
        /// The way.
        by: Way,
        /// The packet.
        control: Control,
    },
    /// Send everything this way from now on; messages of up to this class's threshold eagerly.
    Use {
        /// The way.
        by: Way,
        /// Nothing for datagrams.
        class: Option<Class>,
    },
    /// What was held back because it came too early is to be handed on now, in order, before what
    /// comes after.
    Release,
    /// Nothing travels by this queue pair and nothing is going to: destroy it, and leave the queue
    /// of its class.
    Close {
        /// Its connection.
        number: u32,
        /// The class that it was joined to.
        class: Class,
    },
    /// A change that this side asked for at that time is complete.
    Switched {
        /// When it was asked for.
        since: u64,
    },
    /// A change that this side asked for is refused, for ever.
    Refused,
}

/// What to do with a message that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Hand it on.
    Deliver,
    /// Keep it until [`Action::Release`].
    Hold,
    /// There is no such connection: drop it.
    Unknown,
}

/// A packet that has no place where it came. The connection is to be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// The handshake has no place for it.
    Packet(Violation),
    /// It is about another connection than the one that is being made, or came by another one than
    /// it has to.
    Connection {
        /// The number in it.
        number: u32,
    },
    /// The two sides disagree about what the new connection is.
    Medium,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Connection {
    number: u32,
    /// Nothing: datagrams.
    class: Option<Class>,
    /// Sends that have not completed.
    under_way: u32,
    /// Nothing is sent or comes by it any more.
    old: bool,
}

impl Connection {
    fn way(&self) -> Way {
        self.class.map_or(Way::Datagrams, |_| Way::Pair(self.number))
    }
}

/// One side. See the module. Times are nanoseconds since any one time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Switch {
    handshake: Handshake,
    /// The last connection that both sides have; what they make is the next one.
    number: u32,
    /// By which this side sends, and from which the peer's messages are handed on.
    sends: u32,
    receives: u32,
    /// Those that are there, the old ones first.
    connections: Vec<Connection>,
    /// What is being made, if it was asked for or agreed to: datagrams or a queue pair.
    datagrams: bool,
    /// This side's queue pair's address, and the peer's, while they are needed.
    mine: Option<Control>,
    theirs: Option<Control>,
}

impl Switch {
    /// Connection 0, datagrams. Of the two sides exactly one is `first`: say, the one with the lower
    /// number.
    pub fn new(first: bool) -> Switch {
        let datagrams = Connection { number: 0, class: None, under_way: 0, old: false };
        Switch {
            handshake: Handshake::new(Ways::Paired, first),
            number: 0,
            sends: 0,
            receives: 0,
            connections: vec![datagrams],
            datagrams: false,
            mine: None,
            theirs: None,
        }
    }

    fn find(&mut self, number: u32) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.number == number)
    }

    fn way(&self, number: u32) -> Way {
        let found = self.connections.iter().find(|connection| connection.number == number);
        found.map_or(Way::Datagrams, Connection::way)
    }

    /// How messages are sent now.
    #[inline]
    pub fn sends_by(&self) -> Way {
        self.way(self.sends)
    }

    /// The class of what may be sent eagerly; nothing by datagrams.
    pub fn class(&self) -> Option<Class> {
        let found = self.connections.iter().find(|connection| connection.number == self.sends);
        found.and_then(|connection| connection.class)
    }

    /// Whether a change can be asked for: none is under way, and the peer has refused none.
    pub fn is_free(&self) -> bool {
        self.handshake.is_free()
    }

    /// Whether the peer has refused a change: none is asked for any more.
    pub fn is_refused(&self) -> bool {
        self.handshake.is_refused()
    }

    /// Asks for another connection: a queue pair with this class, or datagrams. Whether it asks:
    /// not if a change is under way, if one to a queue pair was ever refused and it is about another
    /// one, or to go from datagrams to datagrams.
    pub fn want(&mut self, class: Option<Class>, now: u64, out: &mut Vec<Action>) -> bool {
        let may = match class {
            Some(_) => self.is_free(),
            // Who has refused a queue pair has not refused to have none.
            None => self.handshake.is_idle() && self.sends_by() != Way::Datagrams,
        };
        if !may {
            return false;
        }
        self.datagrams = class.is_none();
        let mut actions = Vec::new();
        self.handshake.ask(class.unwrap_or(Class::SMALLEST), now, &mut actions);
        self.carry_out(actions, out);
        true
    }

    /// A packet has come. `wish` and `can_join` as for [`Handshake::receive`].
    pub fn receive(
        &mut self,
        control: &Control,
        by: Way,
        wish: Option<Class>,
        can_join: impl FnOnce(Class) -> bool,
        out: &mut Vec<Action>,
    ) -> Result<(), Wrong> {
        let Control { packet, connection, .. } = *control;
        // The last acknowledgement goes by the new connection when the change is complete here.
        let wrong = Wrong::Connection { number: connection };
        let new = packet == Packet::ConnEstAck;
        let comes_by = if new { self.way(connection) } else { self.way(self.number) };
        if connection != self.number + 1 || comes_by != by {
            return Err(wrong);
        }
        let begins = matches!(packet, Packet::ConnReq { moves: Some(_) });
        let begun = packet == Packet::ConnRep { ready: true };
        if begun && control.end_point().is_empty() != self.datagrams {
            return Err(Wrong::Medium);
        }
        let mut actions = Vec::new();
        // Going back to datagrams asks for the smallest class and joins none; whoever asks for a
        // queue pair with it is refused, if need be, when that cannot be made.
        let can_join = |class| class == Class::SMALLEST || can_join(class);
        self.handshake.receive(packet, wish, can_join, &mut actions).map_err(Wrong::Packet)?;
        if begins {
            self.datagrams = control.end_point().is_empty();
            self.theirs = Some(*control);
        }
        if begun && !self.datagrams {
            out.push(Action::Connect { number: connection, peer: *control });
        }
        if packet == Packet::ConnEst {
            self.receives = connection;
            out.push(Action::Release);
        }
        if packet == (Packet::ConnRep { ready: false }) {
            self.discard(out);
        }
        self.carry_out(actions, out);
        Ok(())
    }

    /// How [`Action::Open`] went: the address of the new queue pair, or that there is none.
    pub fn opened(&mut self, end_point: Option<&[u8]>, out: &mut Vec<Action>) {
        let number = self.number + 1;
        let probe = Packet::ConnRep { ready: true };
        self.mine = end_point
            .filter(|end_point| !end_point.is_empty())
            .and_then(|end_point| Control::new(probe, number, end_point));
        let opened = self.mine.is_some();
        if !opened {
            self.connections.retain(|connection| connection.number != number);
        }
        let mut actions = Vec::new();
        self.handshake.pool(opened, &mut actions);
        self.carry_out(actions, out);
    }

    /// A message, or a packet, was handed to the device to be sent as [`sends_by`](Self::sends_by)
    /// or [`Action::Send`] say.
    #[inline]
    pub fn sent(&mut self, by: Way) {
        if let Some(connection) = self.connections.iter_mut().find(|c| c.way() == by) {
            connection.under_way += 1;
        }
    }

    /// One of those has completed.
    #[inline]
    pub fn completed(&mut self, by: Way, out: &mut Vec<Action>) {
        let Some(connection) = self.connections.iter_mut().find(|c| c.way() == by) else { return };
        connection.under_way = connection.under_way.saturating_sub(1);
        if connection.old && connection.under_way == 0 {
            self.close_old(out);
        }
    }

    /// What to do with a message that came this way. Packets are never held back.
    #[inline]
    pub fn arrived(&self, by: Way) -> Arrival {
        let coming = self.number + 1;
        if self.way(self.receives) == by {
            Arrival::Deliver
        } else if self.connections.iter().any(|c| c.number == coming && c.way() == by) {
            Arrival::Hold
        } else {
            Arrival::Unknown
        }
    }

    /// The peer is dead or the connection is given up: every queue pair is to be closed, whatever is
    /// under way.
    pub fn abandon(&mut self, out: &mut Vec<Action>) {
        self.handshake.abandon(&mut Vec::new());
        for connection in self.connections.drain(..) {
            out.extend(
                connection.class.map(|class| Action::Close { number: connection.number, class }),
            );
        }
    }

    /// Gives up the connection that was being made.
    fn discard(&mut self, out: &mut Vec<Action>) {
        let number = self.number + 1;
        if let Some(class) = self.find(number).and_then(|connection| connection.class) {
            out.push(Action::Close { number, class });
        }
        self.connections.retain(|connection| connection.number != number);
    }

    fn close_old(&mut self, out: &mut Vec<Action>) {
        self.connections.retain(|connection| {
            // Datagrams are given up by nobody: they are there for the next time.
            let gone = connection.old && (connection.under_way == 0 || connection.class.is_none());
            if let (true, Some(class)) = (gone, connection.class) {
                out.push(Action::Close { number: connection.number, class });
            }
            !gone
        });
    }

    fn carry_out(&mut self, actions: Vec<adapt::Action>, out: &mut Vec<Action>) {
        let number = self.number + 1;
        for action in actions {
            match action {
                adapt::Action::JoinPool(class) => {
                    let class = (!self.datagrams).then_some(class);
                    self.connections.push(Connection { number, class, under_way: 0, old: false });
                    match class {
                        Some(class) => out.push(Action::Open { number, class }),
                        None => {
                            let mut actions = Vec::new();
                            self.handshake.pool(true, &mut actions);
                            self.carry_out(actions, out);
                        }
                    }
                }
                adapt::Action::Send(packet) => self.send(packet, number, out),
                adapt::Action::Use(_) => {
                    self.sends = number;
                    out.push(Action::Use { by: self.sends_by(), class: self.class() });
                }
                adapt::Action::CloseOld => {
                    let old = std::mem::replace(&mut self.number, number);
                    if let Some(connection) = self.find(old) {
                        connection.old = true;
                    }
                    self.close_old(out);
                }
                adapt::Action::Switched { since, .. } => out.push(Action::Switched { since }),
                adapt::Action::Refused => out.push(Action::Refused),
                // A queue is left when its queue pair is closed.
                adapt::Action::LeavePool(_) => {}
            }
        }
    }

    fn send(&mut self, packet: Packet, number: u32, out: &mut Vec<Action>) {
        let mine = match packet {
            Packet::ConnReq { moves: Some(_) } | Packet::ConnRep { ready: true } => {
                if let (Packet::ConnRep { .. }, Some(peer), false) =
                    (packet, self.theirs.take(), self.datagrams)
                {
                    out.push(Action::Connect { number, peer });
                }
                self.mine.take()
            }
            _ => None,
        };
        let end_point = mine.as_ref().map_or(&[][..], Control::end_point);
        if let Some(control) = Control::new(packet, number, end_point) {
            out.push(Action::Send { by: self.sends_by(), control });
        }
    }
}
