//! What queue pairs with larger eager thresholds receive into and send from: a shared receive queue
//! for each size class (paper 000 §3.3), of as many buffers as [`Queues`] says.
//!
//! ```text
//!   queue pairs of class 64 KiB --> shared receive queue --> buffer --> inbox --> taken: posted again,
//!                                         ^                    |                  or freed
//!                                         '---- copied out ----'   small, or few are left
//! ```
//! A large message stays in the buffer that it came in until the program has taken it, so it is
//! copied once. A small one is copied out at once, and so is any when no other buffer waits for the
//! next message and there may be no more: a peer whose program does not look must not keep others'
//! messages from coming. What one queue pair may have sent that nobody took is limited ([`room`]).

use super::head::HEAD;
use super::places::{Places, Spot};
use crate::base::adapt::{Class, Limits};
use crate::base::{Error, Result};
use crate::link::MAX_MESSAGE;
use crate::net::pools::{Fate, Queues, Settings};
use crate::net::provider::{Access, Device, Region, SharedReceiveQueue};
use std::sync::{Arc, Mutex, PoisonError};

/// The class with this exponent, which there is.
const fn class(exponent: u8) -> Class {
    match Class::new(exponent) {
        Some(class) => class,
        None => panic!("there is no such class"),
    }
}

/// The class of queue pairs that carry messages of the usual size, and of no stock.
pub(super) const USUAL: Class = class(13);

/// The smallest one of a stock.
pub(super) const SMALLEST: Class = class(14);

/// The largest class between nodes: longer messages go piece by piece, or are read.
pub(super) const LARGEST: Class = class(20);

const _: () = assert!(MAX_MESSAGE + HEAD <= USUAL.threshold() as usize);

/// Messages that a peer may have sent by a queue pair of a class and that nobody has taken: both
/// sides know it.
pub(super) fn room(class: Class) -> u32 {
    const BYTES: u64 = 4 << 20;
    (BYTES / class.threshold()).clamp(4, super::pairs::ROOM.into()) as u32
}

/// Bytes of a message that goes at once by a queue pair of a class.
pub(super) fn longest(class: Option<Class>) -> usize {
    let large = class.filter(|class| *class > USUAL);
    large.map_or(MAX_MESSAGE, |class| class.threshold() as usize - HEAD)
}

/// Buffers that were taken out of use by whoever had a message in them.
type Back = Arc<Mutex<Vec<(Spot, u32)>>>;

/// A message in the buffer that it came in.
pub(crate) struct Held {
    region: Arc<Region>,
    length: usize,
    spot: Spot,
    generation: u32,
    back: Back,
}

impl Held {
    /// Its head, as it came.
    pub fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        // It lies inside: the buffer has room for more.
        let _ = self.region.memory().read(0, &mut head);
        head
    }

    /// What is behind its head.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: it is registered for nobody's remote access, so a device writes into it only while it
        // is posted; its message's completion has come, and it is posted again only when this was
        // dropped. Nothing else writes to places of receives. Made of zeros, it is initialised.
        let bytes = unsafe { self.region.memory().slice(HEAD as u64, self.length) };
        bytes.unwrap_or_default()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        back.push((self.spot, self.generation));
    }
}

/// Of one class.
struct Stock {
    class: Class,
    /// Of the stocks that this class has had.
    generation: u32,
    queue: Arc<dyn SharedReceiveQueue>,
    receives: Places,
    sends: Places,
    free: Vec<u32>,
}

impl Stock {
    /// Makes and posts up to `count` buffers; how many.
    fn post_more(&mut self, device: &dyn Device, count: u32) -> u32 {
        for made in 0..count {
            let Ok(places) = self.receives.grow(device) else { return made };
            if self.receives.post(&*self.queue, places.start).is_err() {
                self.receives.free(places.start);
                return made;
            }
        }
        count
    }
}

/// See the [module](self).
pub(super) struct Stocks {
    limits: Limits,
    queues: Queues,
    stocks: Vec<Stock>,
    made: u32,
    back: Back,
    /// The most bytes that buffers had.
    peak: u64,
}

/// A message of a stock's queue that has come.
pub(super) enum Came {
    /// Its memory, which is the receiver's again once it is [`Stocks::done`].
    Short(Arc<Region>),
    /// It stays there.
    Long(Held),
}

impl Stocks {
    /// None yet.
    pub fn new(limits: Limits) -> Stocks {
        let queues = Queues::new(Settings { limits, ..Settings::default() });
        Stocks { limits, queues, stocks: Vec::new(), made: 0, back: Back::default(), peak: 0 }
    }

    /// Bytes of all buffers that messages can come in, now and at most.
    pub fn bytes(&self) -> (u64, u64) {
        (self.queues.bytes(), self.peak)
    }

    /// Whether a queue pair of a class could be made now.
    pub fn can_join(&self, class: Class) -> bool {
        class <= LARGEST && self.queues.can_join(class)
    }

    fn find(&mut self, exponent: u8) -> Option<&mut Stock> {
        self.stocks.iter_mut().find(|stock| stock.class.exponent() == exponent)
    }

    fn note_made(&mut self, class: Class, made: u32) {
        self.queues.made(class, made);
        self.peak = self.peak.max(self.queues.bytes());
    }

    /// The queue that a queue pair of a class is to be joined to.
    ///
    /// # Errors
    /// The limits; no memory.
    pub fn join(
        &mut self,
        device: &dyn Device,
        class: Class,
        now: u64,
    ) -> Result<Arc<dyn SharedReceiveQueue>> {
        let refused = || Error::boot("no more memory may be used for messages of that size");
        let wanted = if class <= LARGEST { self.queues.join(class, now).ok() } else { None };
        let wanted = wanted.ok_or_else(refused)?;
        if self.find(class.exponent()).is_none() {
            let depth = device.capabilities().shared_receive_depth.min(self.limits.buffers.max(1));
            match device.shared_receive_queue(depth.max(1), 1) {
                Ok(queue) => {
                    self.made = self.made.wrapping_add(1);
                    let (exponent, bytes) = (class.exponent(), class.threshold());
                    let places = |access| Places::new(exponent, bytes, 1, access);
                    self.stocks.push(Stock {
                        class,
                        generation: self.made,
                        queue,
                        receives: places(Access::LOCAL_WRITE),
                        sends: places(Access::LOCAL_READ),
                        free: Vec::new(),
                    });
                }
                Err(error) => {
                    self.leave(class, now);
                    return Err(error);
                }
            }
        }
        let Some(stock) = self.find(class.exponent()) else { return Err(refused()) };
        let (made, queue) = (stock.post_more(device, wanted), stock.queue.clone());
        self.note_made(class, made);
        if self.queues.get(class).is_none_or(|queue| queue.posted == 0) {
            // Nobody could send.
            self.leave(class, now);
            return Err(refused());
        }
        Ok(queue)
    }

    /// A queue pair that was joined is no more.
    pub fn leave(&mut self, class: Class, now: u64) {
        if self.queues.leave(class, now) {
            self.stocks.retain(|stock| stock.class != class);
        }
    }

    /// A message has come in a buffer.
    pub fn came(
        &mut self,
        device: &dyn Device,
        spot: Spot,
        length: usize,
        now: u64,
    ) -> Option<Came> {
        self.take_back(device, now);
        let stock = self.find(spot.exponent)?;
        let (class, generation) = (stock.class, stock.generation);
        let (region, _) = stock.receives.at(spot.place)?;
        let more = self.queues.came(class, now);
        if more > 0
            && let Some(stock) = self.find(spot.exponent)
        {
            let made = stock.post_more(device, more);
            self.note_made(class, made);
        }
        let few = self.queues.get(class).is_none_or(|queue| queue.posted < 2);
        if few || length <= MAX_MESSAGE + HEAD {
            return Some(Came::Short(region));
        }
        let (length, back) = (length - HEAD, self.back.clone());
        Some(Came::Long(Held { region, length, spot, generation, back }))
    }

    /// A message that was copied out of its buffer at once.
    pub fn done(&mut self, device: &dyn Device, spot: Spot, now: u64) {
        let generation = self.find(spot.exponent).map_or(0, |stock| stock.generation);
        self.reuse(device, spot, generation, now);
    }

    /// Buffers whose messages were taken are posted again, or freed.
    fn take_back(&mut self, device: &dyn Device, now: u64) {
        let back = std::mem::take(&mut *self.back.lock().unwrap_or_else(PoisonError::into_inner));
        back.into_iter().for_each(|(spot, generation)| self.reuse(device, spot, generation, now));
    }

    fn reuse(&mut self, device: &dyn Device, spot: Spot, generation: u32, now: u64) {
        let Some(class) = Class::new(spot.exponent) else { return };
        let fate = self.queues.done(class, now);
        let Some(stock) = self.find(spot.exponent) else { return };
        // One of a queue that is no more is nobody's here, and has its like made in its place.
        let own = stock.generation == generation;
        let posted = fate == Fate::Post
            && match own {
                true => stock.receives.post(&*stock.queue, spot.place).is_ok(),
                false => stock.post_more(device, 1) == 1,
            };
        if own && !posted {
            stock.receives.free(spot.place);
        }
        if fate == Fate::Post && !posted {
            self.queues.lost(class, now);
        }
    }

    /// A place to send a message of a class from.
    pub fn sends(&mut self, device: &dyn Device, class: Class) -> Option<(Spot, Arc<Region>)> {
        let most = (self.limits.bytes / class.threshold()).clamp(4, 2 * u64::from(room(class)));
        let stock = self.find(class.exponent())?;
        if stock.free.is_empty() && u64::from(stock.sends.live()) < most {
            // Without memory it is as if all were under way.
            let fresh = stock.sends.grow(device).ok()?;
            stock.free.extend(fresh);
        }
        let place = stock.free.pop()?;
        let (region, _) = stock.sends.at(place)?;
        Some((Spot { exponent: class.exponent(), place }, region))
    }

    /// The memory of a place that was sent from.
    pub fn sent(&mut self, spot: Spot) -> Option<Arc<Region>> {
        self.find(spot.exponent)?.sends.at(spot.place).map(|(region, _)| region)
    }

    /// What was sent from a place is with the peer.
    pub fn free(&mut self, spot: Spot) {
        if let Some(stock) = self.find(spot.exponent) {
            stock.free.push(spot.place);
        }
    }
}
