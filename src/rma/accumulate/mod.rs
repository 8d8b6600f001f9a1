//! Updates of elements in windows: one atomic domain for all origins and the target itself.

pub(crate) mod domain;
pub mod element;

pub(crate) use domain::Domain;
pub use element::Element;
