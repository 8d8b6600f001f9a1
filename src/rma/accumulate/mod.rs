//! Updates of elements in windows: one atomic domain for all origins and the target itself.

mod balance;
mod bounded;
mod devices;
pub(crate) mod domain;
pub mod element;
mod kernel;
mod pairs;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod simd;
#[cfg(all(test, not(miri)))]
mod tests;
mod updates;

pub(crate) use domain::Domain;
pub use element::Element;
pub(crate) use kernel::combine;
pub(crate) use updates::{Near, Updates};
