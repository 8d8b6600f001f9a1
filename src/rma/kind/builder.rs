//! How a program asks for a window.

use super::Flavour;
use super::create::{Source, Wish};
use crate::base::{Error, Result};
use crate::coll::Team;
use crate::layout::Datum;
use crate::rma::Window;
use crate::rma::info::Info;
use crate::rma::memory::Memory;
use crate::shm::map::PAGE;
use std::marker::PhantomData;

/// A window to be made: see [`Window::builder`].
///
/// All methods that make one are collective over the team, and all members must call the same one
/// with the same element type, hints and [`different_sizes`](Self::different_sizes). They cost a
/// handful of synchronising steps; errors are the same for all of them:
///
/// # Errors
/// [`Error::Mismatch`] if members disagree about what must be the same; [`Error::OutOfMemory`] with
/// numbers in the ranks that cannot reserve their part; [`Error::InvalidArgument`] for a
/// displacement unit that cannot be used, or elements without bytes or aligned to more than a page;
/// [`Error::PeerFailed`] in the others: either all members
/// have the window or none has.
#[derive(Clone, Debug)]
#[must_use = "it makes no window before one of allocate, allocate_shared, create or dynamic"]
pub struct WindowBuilder<'t, T> {
    team: &'t Team,
    info: Info,
    unit: Option<usize>,
    different_sizes: bool,
    _elements: PhantomData<T>,
}

impl<'t, T: Datum> WindowBuilder<'t, T> {
    pub(in crate::rma) fn new(team: &'t Team) -> WindowBuilder<'t, T> {
        WindowBuilder {
            team,
            info: Info::default(),
            unit: None,
            different_sizes: false,
            _elements: PhantomData,
        }
    }

    /// Hints; the same in all members.
    pub fn info(mut self, info: Info) -> Self {
        self.info = info;
        self
    }

    /// Bytes per displacement of this rank's part: what the starts of operations on it count. May
    /// differ between members unless they promised `same_disp_unit`. The size of an element unless
    /// given; a multiple of the element's alignment.
    pub fn unit(mut self, bytes: usize) -> Self {
        self.unit = Some(bytes);
        self
    }

    /// Lets the members ask for parts of different sizes, zero included; memory that is brought
    /// along may differ in any case.
    pub fn different_sizes(mut self) -> Self {
        self.different_sizes = true;
        self
    }

    /// Allocates `len` elements, all zero bits, at the same offset of every member's symmetric
    /// memory. Each member reserves the physical memory of its own part now, close to itself.
    pub fn allocate(self, len: usize) -> Result<Window<T>> {
        self.make("Window::allocate", Flavour::Allocate, Source::Apart, bytes::<T>(len))
    }

    /// Allocates `len` elements, all zero bits, in one block: each rank's part begins where that
    /// of the rank before it ends, so that programs may index across parts, through the addresses
    /// that [`Window::query`] gives or [`Window::query_all`]. With the hint
    /// `alloc_shared_noncontig` the parts lie apart instead, each near its owner.
    pub fn allocate_shared(self, len: usize) -> Result<Window<T>> {
        let apart = self.info.alloc_shared_noncontig;
        let source = if apart { Source::Apart } else { Source::Joined };
        self.make("Window::allocate_shared", Flavour::Shared, source, bytes::<T>(len))
    }

    /// Makes a window of memory that each member brings along, of any size. The window keeps the
    /// memory as long as any member has the window. Parts that only their owners have mapped are
    /// reached by packets.
    pub fn create(mut self, memory: Memory<T>) -> Result<Window<T>> {
        self.different_sizes = true;
        let region = memory.region().clone();
        let bytes = region.bytes as u64;
        self.make("WindowBuilder::create", Flavour::Create, Source::Brought(region), bytes)
    }

    /// Makes a window without memory: members [attach](Window::attach) some while they use it.
    /// The displacements of operations are addresses, whatever [`unit`](Self::unit) says.
    pub fn dynamic(mut self) -> Result<Window<T>> {
        self.unit = Some(align_of::<T>());
        self.make("WindowBuilder::dynamic", Flavour::Dynamic, Source::Nothing, 0)
    }

    fn make(
        self,
        during: &'static str,
        flavour: Flavour,
        source: Source,
        bytes: u64,
    ) -> Result<Window<T>> {
        let node = self.team.node();
        let stride = node.areas().stride;
        let fits = match &source {
            Source::Brought(region) => region.offset_in(node).map(drop),
            _ if bytes > stride => Err(too_large("a window", bytes, stride)),
            _ => Ok(()),
        };
        let (unit, valid) = match check_element::<T>().and_then(|()| self.checked_unit()) {
            Ok(unit) => (if flavour == Flavour::Dynamic { 1 } else { unit }, fits),
            Err(error) => (0, Err(error)),
        };
        let wish = Wish {
            team: self.team,
            during,
            fingerprint: T::fingerprint(),
            flavour,
            source,
            info: self.info,
            different_sizes: self.different_sizes,
            bytes,
            unit,
            element: size_of::<T>() as u64,
        };
        wish.make(valid).map(Window::new)
    }

    /// The displacement unit, or why it cannot be one.
    fn checked_unit(&self) -> Result<u32> {
        const WHAT: &str = "the displacement unit of a window";
        let unit = self.unit.unwrap_or(size_of::<T>());
        if unit == 0 || !unit.is_multiple_of(align_of::<T>()) {
            let align = align_of::<T>();
            let why = format!("{unit} bytes; use a multiple of the element's alignment, {align}");
            return Err(Error::invalid(WHAT, why));
        }
        u32::try_from(unit)
            .map_err(|_| Error::invalid(WHAT, format!("{unit} bytes; use less than 2^32")))
    }
}

/// An error unless elements of this type can lie in a window: there must be something of them to
/// name by displacements, and memory comes in pages.
pub(in crate::rma) fn check_element<T>() -> Result<()> {
    let (name, bytes, align) = (std::any::type_name::<T>(), size_of::<T>(), align_of::<T>());
    if bytes == 0 {
        let why = format!("{name} has no bytes; use a type that has");
        return Err(Error::invalid("the element type of a window", why));
    }
    if align as u64 > PAGE {
        let why = format!("{name} is aligned to {align} bytes; use one of at most {PAGE}");
        return Err(Error::invalid("the element type of a window", why));
    }
    Ok(())
}

fn bytes<T>(len: usize) -> u64 {
    (len as u64).saturating_mul(size_of::<T>() as u64)
}

#[cold]
pub(crate) fn too_large(what: &str, wanted: u64, stride: u64) -> Error {
    Error::OutOfMemory {
        what: what.into(),
        wanted,
        available: stride,
        limit: "HITHER_HEAP_SIZE".into(),
        advice: "raise HITHER_HEAP_SIZE or use fewer ranks",
    }
}
