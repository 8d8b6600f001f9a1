//! What a process knows of its messages, behind one lock that is held for one match at a time:
//! posted receives, unexpected messages, announced sends, streams, adverts.
//!
//! | | made when | goes when |
//! |---|---|---|
//! | posted receive | posted | matched, cancelled, its source is buried |
//! | unexpected message | it comes | received |
//! | sending | announced (RTS, EAGER_SYNC) | FIN, or all of it was pushed, or the peer is buried |
//! | stream | matched, and the data must be asked for | all has come, or the peer is buried |

use super::eager::Pooled;
use super::fetch::Exposed;
use super::matching::{Envelope, Key, Matching, Pattern};
use super::record::{Arrived, Record, RecordRef};
use super::wire::Rts;
use crate::base::Slot;
use crate::base::filling::{self, Filling, Stores};
use crate::base::keys::ByNumber;
use crate::base::slab::Slab;

/// What is kept for a posted receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub record: RecordRef,
    /// The word of its advert, if it was advertised.
    pub advert: Option<u32>,
    /// It is large, and no receive posted before it could take what it takes.
    pub sole: bool,
}

/// Data that are kept without an allocation.
const SHORT: usize = 40;

/// Bytes that an unexpected message takes beside its data: itself, and its place in lists.
const ENTRY: usize = size_of::<Unexpected>() + 128;

/// The data of an unexpected message.
#[derive(Debug)]
pub(super) enum Data {
    Short([u8; SHORT], u8),
    Long(Box<[u8]>),
}

impl Data {
    pub fn new(bytes: &[u8]) -> Data {
        if bytes.len() > SHORT {
            return Data::Long(bytes.into());
        }
        let mut short = [0; SHORT];
        short[..bytes.len()].copy_from_slice(bytes);
        Data::Short(short, bytes.len() as u8)
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Data::Short(bytes, len) => &bytes[..usize::from(*len).min(SHORT)],
            Data::Long(bytes) => bytes,
        }
    }

    /// Bytes of memory that keeping it takes.
    pub fn cost(&self) -> usize {
        match self {
            Data::Short(..) => ENTRY,
            Data::Long(bytes) => ENTRY + bytes.len(),
        }
    }
}

/// A message that nobody has asked for yet.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub rank: u32,
    pub element: u8,
    pub body: Body,
}

/// What has come of it.
#[derive(Debug)]
pub(super) enum Body {
    /// All. Its sender waits to be told, under this number.
    Whole(Data, Option<u64>),
    /// Its announcement.
    Announced(Rts),
    /// All, in a buffer of a pool.
    Pooled(Pooled),
}

impl Unexpected {
    /// Bytes of the message.
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Whole(data, _) => data.bytes().len(),
            Body::Announced(rts) => rts.length as usize,
            Body::Pooled(pooled) => pooled.len,
        }
    }
}

/// A send that has been announced.
#[derive(Debug)]
pub(super) struct Sending {
    pub record: RecordRef,
    pub to: Slot,
    pub claim: Option<u32>,
    /// While its receiver, on another node, may read the data.
    pub exposed: Option<Exposed>,
    /// Bytes for which room was granted so far.
    pub granted: usize,
    /// Bytes that were pushed.
    pub pushed: usize,
    /// Pushes under way: the record may not end.
    pub busy: u32,
}

impl Sending {
    /// A send of which nothing has happened.
    pub fn new(record: RecordRef, to: Slot) -> Sending {
        Sending { record, to, claim: None, exposed: None, granted: 0, pushed: 0, busy: 0 }
    }

    /// The record, to be ended: its receiver has the data, or wants no more of them.
    pub fn conclude(self) -> RecordRef {
        self.exposed.into_iter().for_each(Exposed::give_back);
        self.record
    }

    /// The record, to be ended: nobody reads the data any more.
    pub fn withdraw(self) -> RecordRef {
        drop(self.exposed);
        self.record
    }
}

/// A receive whose data come piece by piece.
#[derive(Debug)]
pub(super) struct Stream {
    /// Where they go; nowhere if the receive was given up.
    pub record: Option<RecordRef>,
    pub from: Slot,
    /// The sender's number.
    pub number: u64,
    pub arrived: Arrived,
    /// When they were asked for.
    pub began: u64,
    /// Whether that was a choice of [`Copiers`](super::copiers::Copiers).
    pub chosen: bool,
    /// Of those for messages that cross.
    pub crossing: bool,
    /// Bytes of a piece, at most; where only this node's buffers are used.
    pub piece: usize,
    /// Bytes for which room was granted, and that have come.
    pub granted: usize,
    pub come: usize,
    /// Buffers that the sender has.
    pub buffers: Vec<u64>,
    /// Copies under way: the record may not end.
    pub busy: u32,
    /// Where each side copies a half.
    pub half: Option<Half>,
}

/// What the sender of a message copies itself (see [`halves`](super::halves)), until it has said that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    /// By what it claims the receive's memory; none once that was taken back.
    pub word: Option<u32>,
    pub bytes: usize,
}

/// A receive of which its source was told.
#[derive(Debug)]
pub(super) enum Advertised {
    /// It is posted.
    Posted(Key),
    /// The source has claimed it while a message that was not to have it came: it is posted no more.
    Claimed(RecordRef, Slot),
}

/// What is known of one peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Numbered messages taken.
    pub taken: u64,
}

/// See the [module](self).
pub(super) struct Engine {
    pub matching: Matching<Posted, Unexpected>,
    pub peers: Peers,
    pub sendings: Slab<Sending>,
    pub streams: Slab<Stream>,
    /// How buffers of others' streams are filled.
    pub filling: Filling,
    /// Advertised receives by the words of their adverts.
    pub adverts: ByNumber<u32, Advertised>,
    /// Memory that unexpected messages take.
    pub held: usize,
}

/// Peers by slot.
#[derive(Default)]
pub(super) struct Peers {
    all: Vec<Peer>,
    places: ByNumber<Slot, usize>,
    /// The latest one: most messages come from it.
    latest: Option<(Slot, usize)>,
}

impl Peers {
    /// What is known of `slot`.
    #[inline]
    pub fn get(&mut self, slot: Slot) -> &mut Peer {
        let at = match self.latest {
            Some((latest, at)) if latest == slot => at,
            _ => {
                let all = &mut self.all;
                let at = *self.places.entry(slot).or_insert_with(|| {
                    all.push(Peer::default());
                    all.len() - 1
                });
                self.latest = Some((slot, at));
                at
            }
        };
        &mut self.all[at]
    }
}

impl Engine {
    pub fn new(stores: Stores) -> Engine {
        Engine {
            matching: Matching::new(),
            peers: Peers::default(),
            sendings: Slab::default(),
            streams: Slab::default(),
            filling: Filling::new(stores, filling::IN_TURN),
            adverts: ByNumber::default(),
            held: 0,
        }
    }

    /// Keeps a message that nobody has asked for.
    pub fn keep(&mut self, envelope: Envelope, message: Unexpected) {
        self.held += message.cost();
        self.matching.insert(envelope, message);
    }

    /// The message that a pattern takes, taken out.
    pub fn take(&mut self, pattern: &Pattern) -> Option<(Envelope, Unexpected)> {
        let taken = self.matching.take(pattern)?;
        self.held = self.held.saturating_sub(taken.1.cost());
        Some(taken)
    }

    /// Posted receives from `slot`, taken out.
    pub fn posted_from(&mut self, slot: Slot) -> Vec<Posted> {
        let named = |(key, pattern, _): (Key, &Pattern, &Posted)| {
            (pattern.source == Some(slot)).then_some(key)
        };
        let keys: Vec<Key> = self.matching.posted().filter_map(named).collect();
        keys.into_iter().filter_map(|key| self.matching.cancel(key)).collect()
    }

    /// The stream into a record.
    pub fn stream_of(&self, record: &Record) -> Option<u64> {
        let of = |(number, stream): (u64, &Stream)| {
            stream.record.is_some_and(|it| it.is(record)).then_some(number)
        };
        self.streams.iter().find_map(of)
    }

    /// The announced send of a record.
    pub fn sending_of(&self, record: &Record) -> Option<u64> {
        let of = |(number, sending): (u64, &Sending)| sending.record.is(record).then_some(number);
        self.sendings.iter().find_map(of)
    }
}

impl Unexpected {
    /// Bytes of memory that keeping it takes.
    pub fn cost(&self) -> usize {
        match &self.body {
            Body::Whole(data, _) => data.cost(),
            Body::Announced(_) | Body::Pooled(_) => ENTRY,
        }
    }
}
