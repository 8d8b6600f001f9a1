//! The kinds of windows (MPI-3.1 §11.2): how they come about, and where the parts of each lie.
//!
//! | kind | memory of a part | where it lies |
//! |---|---|---|
//! | allocate | reserved by its owner | one offset in every member's symmetric memory |
//! | allocate-shared | reserved by its owner | one part after the other in one block, or apart |
//! | create | [`Memory`](super::Memory) that the owner has | anywhere; private memory too |
//! | dynamic | what the owner has attached at the moment | anywhere; private memory too |
//!
//! `builder` asks, `create` makes the window with all members, `life` says when its memory goes,
//! `place` finds the elements of an operation, `dynamic` keeps the table of what is attached.

mod builder;
mod create;
mod dynamic;
mod life;
mod place;

pub use builder::WindowBuilder;
pub(in crate::rma) use builder::{check_element, too_large};
pub use dynamic::Attached;
pub(crate) use dynamic::Attachments;
pub(crate) use life::attend_locks;
pub(crate) use place::{Parts, Place, Span, damaged};

/// How a window came about (`MPI_WIN_CREATE_FLAVOR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flavour {
    /// [`WindowBuilder::allocate`].
    Allocate = 1,
    /// [`WindowBuilder::allocate_shared`].
    Shared = 2,
    /// [`WindowBuilder::create`].
    Create = 3,
    /// [`WindowBuilder::dynamic`].
    Dynamic = 4,
}

/// Which copies of a window there are (`MPI_WIN_MODEL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// One: what is written to a part through the window is what its owner reads there. Nothing
    /// has to be copied between a public and a private one; only order is needed, which epochs and
    /// [`Window::sync`](super::Window::sync) give.
    Unified,
}

/// What can be asked of a window (`MPI_WIN_GET_ATTR`). All of it concerns this rank's own part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// How the window came about.
    pub flavour: Flavour,
    /// The memory model: always unified.
    pub model: Model,
    /// Address of the part's first byte; 0 for a dynamic window.
    pub base: usize,
    /// Bytes of the part; 0 for a dynamic window.
    pub size: usize,
    /// Bytes per displacement.
    pub unit: usize,
}
