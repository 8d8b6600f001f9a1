//! Updates of elements in windows: one atomic domain for all origins and the target itself.

pub mod element;

pub use element::Element;
