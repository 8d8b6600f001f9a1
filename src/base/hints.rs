//! Hints: what a program knows of itself and may say, as keys with values (paper 003). A hint
//! changes how fast things go, never what they mean. One that is not known is reported and does
//! nothing, so that a program can be linked with other versions of the library.

use super::sync::{AtomicU32, Ordering};
use std::sync::Arc;

/// One row of the table of hints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    /// What it is called.
    pub key: &'static str,
    /// What else it is called.
    pub alias: &'static str,
    /// Values that it takes.
    pub values: &'static str,
    /// What it says.
    pub doc: &'static str,
}

/// The program is in the part of it that has to be fast.
pub const IN_KERNEL: Hint = Hint {
    key: "in_kernel",
    alias: "IN_KERNEL",
    values: "0 or 1",
    doc: "The program is in its kernel region, the part that has to be fast: connections that cost \
          memory are made for what is sent there, and there only.",
};

/// Every hint.
pub const TABLE: &[Hint] = &[IN_KERNEL];

/// What became of a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "says whether the hint is known"]
pub enum Hinted {
    /// It holds from now on.
    Applied,
    /// There is no such hint (−1 in the paper).
    Unknown,
    /// It has no such value; the row says which it has.
    BadValue(Hint),
}

impl Hinted {
    /// Whether it holds.
    pub fn is_applied(self) -> bool {
        self == Hinted::Applied
    }
}

/// The hints that hold in a process, for all of its threads.
#[derive(Debug)]
pub struct Hints {
    /// As it was last said.
    said: AtomicU32,
    /// Regions that are open.
    regions: AtomicU32,
}

impl Default for Hints {
    fn default() -> Hints {
        Hints::new()
    }
}

impl Hints {
    /// None holds.
    pub fn new() -> Hints {
        Hints { said: AtomicU32::new(0), regions: AtomicU32::new(0) }
    }

    /// Says a hint: `hint("in_kernel", "1")`. What was said holds until the contrary is.
    pub fn hint(&self, key: &str, value: &str) -> Hinted {
        let Some(row) = TABLE.iter().find(|row| row.key == key || row.alias == key) else {
            return Hinted::Unknown;
        };
        let said = match value.trim() {
            "1" | "true" | "on" | "yes" => 1,
            "0" | "false" | "off" | "no" => 0,
            _ => return Hinted::BadValue(*row),
        };
        // There is one row. Hints order nothing.
        self.said.store(said, Ordering::Relaxed);
        Hinted::Applied
    }

    /// The program is in its kernel region as long as what is returned lives, whatever is said
    /// meanwhile. Regions may lie in each other, and in several threads.
    pub fn kernel_region(self: &Arc<Hints>) -> KernelRegion {
        self.regions.fetch_add(1, Ordering::Relaxed);
        KernelRegion { hints: self.clone() }
    }

    /// Whether the program is in its kernel region. Two loads of lines that hardly ever change.
    #[inline]
    pub fn in_kernel(&self) -> bool {
        self.said.load(Ordering::Relaxed) != 0 || self.regions.load(Ordering::Relaxed) != 0
    }
}

/// See [`Hints::kernel_region`].
#[derive(Debug)]
#[must_use = "the region ends when this is dropped"]
pub struct KernelRegion {
    hints: Arc<Hints>,
}

impl Drop for KernelRegion {
    fn drop(&mut self) {
        self.hints.regions.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_holds_until_the_contrary_is() {
        let hints = Hints::new();
        for (key, value, holds) in [
            ("in_kernel", "1", true),
            ("IN_KERNEL", "0", false),
            ("IN_KERNEL", "1", true),
            ("in_kernel", " off ", false),
        ] {
            assert_eq!((hints.hint(key, value), hints.in_kernel()), (Hinted::Applied, holds));
        }
    }

    #[test]
    fn what_is_not_known_is_reported_and_does_nothing() {
        let hints = Hints::new();
        assert_eq!(hints.hint("in_kernel", "1"), Hinted::Applied);
        assert_eq!(hints.hint("In_Kernel", "0"), Hinted::Unknown);
        assert_eq!(hints.hint("", ""), Hinted::Unknown);
        let bad = hints.hint("in_kernel", "maybe");
        assert!(matches!(bad, Hinted::BadValue(row) if row.values == "0 or 1"), "{bad:?}");
        assert!(!bad.is_applied() && hints.in_kernel());
    }

    #[test]
    fn regions_lie_in_each_other_and_beside_what_is_said() {
        let hints = Arc::new(Hints::new());
        let outer = hints.kernel_region();
        {
            let _inner = hints.kernel_region();
            assert!(hints.hint("in_kernel", "0").is_applied() && hints.in_kernel());
        }
        assert!(hints.in_kernel());
        drop(outer);
        assert!(!hints.in_kernel());
    }
}
