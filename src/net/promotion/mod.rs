//! Which peers get a queue pair of their own, and who loses one for them (paper 003). Pure: it is
//! told what is sent, and says what to ask for.
//!
//! ```text
//!                   enough messages, and room             the connection is there
//!   Datagrams ------------------------------> Asked ------------------------------> Pair
//!      ^   ^           (in the kernel region)   |                                     |
//!      |   +-------- refused: not again --------+     least used, and another one     |
//!      |                                              is used twice as much           v
//!      +---------------------------------------------------------------------- Leaving
//! ```
//! Queue pairs cost memory at both ends, datagrams cost time. The paper lets the program say which
//! part of it has to be fast (the kernel region, [`crate::base::hints`]); only what is sent there
//! counts, so that an all-to-all before it makes no connection. There are no more connections than
//! the limit says, those counted that are being made or given up. At the limit the one used least
//! goes, if another peer is used twice as much: neither changes places with the other to and fro.
//! Use is counted in messages, of which half are forgotten in each age; what was not used for many
//! ages is given up without a successor.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

/// When peers get queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Never: all goes by datagrams.
    Never,
    /// By messages that are sent in the kernel region.
    Kernel,
    /// By all messages, as without the paper's hint; in the kernel region by the first one.
    Traffic,
}

/// What can be set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which messages count.
    pub when: When,
    /// Connections at once.
    pub limit: usize,
    /// Messages to a peer after which it gets one.
    pub after: u32,
    /// Nanoseconds after which half of what was counted is forgotten.
    pub age: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { when: When::Kernel, limit: 128, after: 1, age: 1_000_000_000 }
    }
}

/// What to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// A queue pair for this peer. Then [`Promotion::made`] or [`Promotion::refused`].
    Make(u32),
    /// This peer is to go back to datagrams. Then [`Promotion::gone`], or [`Promotion::made`] if it
    /// cannot.
    GiveUp(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Datagrams,
    Asked,
    Pair,
    Leaving,
    Refused,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    state: State,
    /// Messages, halved with each age; and the age in which it was last reckoned.
    used: u32,
    reckoned: u64,
}

impl Known {
    fn reckon(&mut self, age: u64) -> u32 {
        let passed = age.saturating_sub(self.reckoned).min(31);
        self.used >>= passed;
        self.reckoned = self.reckoned.max(age);
        self.used
    }
}

/// See the module. Times are nanoseconds since any one time.
#[derive(Debug)]
pub struct Promotion {
    settings: Settings,
    /// Peers with connections, and others that were sent to lately.
    known: HashMap<u32, Known>,
    connections: usize,
    /// Those that are being given up.
    leaving: usize,
    /// Peers that refused one.
    refused: usize,
}

impl Promotion {
    /// Nobody is known.
    pub fn new(settings: Settings) -> Promotion {
        let settings = Settings { age: settings.age.max(1), ..settings };
        Promotion { settings, known: HashMap::new(), connections: 0, leaving: 0, refused: 0 }
    }

    /// Connections that there are, are being made, or are being given up.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Peers that are remembered without one, at most.
    fn most_others(&self) -> usize {
        4 * self.settings.limit + 64
    }

    /// A message is sent to `peer`. What to ask for now, if anything. Constant time, but for each
    /// doubling of what is sent to a peer that has to wait for another one's place.
    #[inline]
    pub fn note_send(&mut self, peer: u32, in_kernel: bool, now: u64) -> Option<Advice> {
        let counts = match self.settings.when {
            When::Never => false,
            When::Kernel => in_kernel,
            When::Traffic => true,
        };
        if !counts || self.settings.limit == 0 {
            return None;
        }
        let age = now / self.settings.age;
        if !self.known.contains_key(&peer) && !self.make_room(age) {
            return None;
        }
        let fresh = Known { state: State::Datagrams, used: 0, reckoned: age };
        let known = self.known.entry(peer).or_insert(fresh);
        known.reckon(age);
        known.used = known.used.saturating_add(1);
        let used = known.used;
        let hinted = in_kernel && self.settings.when == When::Traffic;
        let enough = if hinted { 1 } else { self.settings.after.max(1) };
        if known.state != State::Datagrams || used < enough {
            return None;
        }
        if self.connections < self.settings.limit {
            known.state = State::Asked;
            self.connections += 1;
            return Some(Advice::Make(peer));
        }
        // Another one's place is looked for now and then; one at a time is enough.
        if !used.is_power_of_two() || self.leaving > 0 {
            return None;
        }
        let (victim, least) = self.least_used(age)?;
        (least <= used / 2).then(|| self.give_up(victim))
    }

    /// The connection that is used least.
    fn least_used(&mut self, age: u64) -> Option<(u32, u32)> {
        let pairs = self.known.iter_mut().filter(|(_, known)| known.state == State::Pair);
        pairs.map(|(peer, known)| (known.reckon(age), *peer)).min().map(|(used, peer)| (peer, used))
    }

    fn give_up(&mut self, victim: u32) -> Advice {
        if let Some(known) = self.known.get_mut(&victim) {
            known.state = State::Leaving;
            self.leaving += 1;
        }
        Advice::GiveUp(victim)
    }

    /// Forgets peers that are sent to least, if too many are known. Whether there is room.
    fn make_room(&mut self, age: u64) -> bool {
        let most = self.most_others() + self.connections + self.refused;
        if self.known.len() >= most {
            self.known.retain(|_, known| {
                known.state != State::Datagrams || {
                    known.reckon(age);
                    known.used /= 2;
                    known.used > 0
                }
            });
        }
        self.known.len() < most
    }

    /// The peer asks for a connection. Whether it may have one; then it counts from now on, and
    /// [`made`](Self::made), [`refused`](Self::refused) or [`gone`](Self::gone) say how it went.
    pub fn asked(&mut self, peer: u32, now: u64) -> bool {
        let age = now / self.settings.age;
        let fresh = Known { state: State::Datagrams, used: 0, reckoned: age };
        let state = self.known.get(&peer).map_or(State::Datagrams, |known| known.state);
        match state {
            State::Asked | State::Pair | State::Leaving => true,
            // That it refused does not mean that it may not ask.
            State::Datagrams | State::Refused => {
                let may =
                    self.settings.when != When::Never && self.connections < self.settings.limit;
                if may {
                    self.refused -= usize::from(state == State::Refused);
                    self.connections += 1;
                    self.known.entry(peer).or_insert(fresh).state = State::Asked;
                }
                may
            }
        }
    }

    /// The connection to `peer` is there, or could not be given up.
    pub fn made(&mut self, peer: u32) {
        self.turn(peer, State::Pair);
    }

    /// The peer refused a connection: it is not asked again.
    pub fn refused(&mut self, peer: u32) {
        self.turn(peer, State::Refused);
    }

    /// The connection to `peer` was given up, by either side, or has failed.
    pub fn gone(&mut self, peer: u32) {
        self.turn(peer, State::Datagrams);
    }

    fn turn(&mut self, peer: u32, state: State) {
        let Some(known) = self.known.get_mut(&peer) else { return };
        let before = std::mem::replace(&mut known.state, state);
        let counts = |state| matches!(state, State::Asked | State::Pair | State::Leaving);
        if !counts(before) {
            // It has none.
            known.state = before;
            return;
        }
        self.leaving -= usize::from(before == State::Leaving);
        self.refused += usize::from(state == State::Refused);
        if !counts(state) {
            self.connections -= 1;
            // Its successor is to have the place.
            known.used = 0;
        }
    }

    /// The peer is dead: nothing is remembered of it.
    pub fn forget(&mut self, peer: u32) {
        self.gone(peer);
        let known = self.known.remove(&peer);
        self.refused -= usize::from(known.is_some_and(|known| known.state == State::Refused));
    }

    /// A connection that was not used for many ages, to be given up. To be asked once in an age;
    /// costs as much as there are connections.
    pub fn unused(&mut self, now: u64) -> Option<Advice> {
        let age = now / self.settings.age;
        let (peer, used) = self.least_used(age)?;
        let known = self.known.get(&peer)?;
        (used == 0 && known.state == State::Pair).then(|| self.give_up(peer))
    }
}
