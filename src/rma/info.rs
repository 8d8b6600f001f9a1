//! What a program tells about how it will use a window (MPI-3.1 §11.2.1 and §11.7.2).
//!
//! Hints are promises: an implementation may use them and need not, and a program that breaks one
//! gets wrong results. They must be the same in all members that create a window.

use crate::base::{Error, Result};

/// Which operations will be used on the same element at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccumulateOps {
    /// Only one and the same, and `NoOp` (MPI's default).
    #[default]
    SameOpNoOp,
    /// Only one and the same.
    SameOp,
}

/// Through what the parts are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// Directly where the memory is mapped, by packets where it is not.
    #[default]
    Auto,
    /// By packets everywhere, executed at the target.
    Packets,
}

/// Hints for a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Which pairs of accumulates by one origin on one element stay in order: read after read,
    /// read after write, write after read, write after write. All of them by default.
    pub ordering: Ordering,
    /// `accumulate_ops`.
    pub accumulate_ops: AccumulateOps,
    /// All parts have the same size.
    pub same_size: bool,
    /// All members use the same displacement unit.
    pub same_disp_unit: bool,
    /// The window will never be locked, by `lock` or `lock_all`.
    pub no_locks: bool,
    /// The parts of a shared window need not follow each other without gaps.
    pub alloc_shared_noncontig: bool,
    /// `hither_medium`: `auto` or `packets`.
    pub medium: Medium,
}

/// See [`Info::ordering`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordering {
    /// Read after read.
    pub rar: bool,
    /// Read after write.
    pub raw: bool,
    /// Write after read.
    pub war: bool,
    /// Write after write.
    pub waw: bool,
}

impl Default for Info {
    fn default() -> Self {
        Info {
            ordering: Ordering { rar: true, raw: true, war: true, waw: true },
            accumulate_ops: AccumulateOps::default(),
            same_size: false,
            same_disp_unit: false,
            no_locks: false,
            alloc_shared_noncontig: false,
            medium: Medium::default(),
        }
    }
}

impl Info {
    /// Sets a hint by its name; false if it is none that this version knows, which is no error.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a value that the hint cannot have.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool> {
        let truth = || match value {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(bad(key, value, "true or false")),
        };
        match key {
            "accumulate_ordering" => self.ordering = ordering(value)?,
            "accumulate_ops" => {
                self.accumulate_ops = match value {
                    "same_op" => AccumulateOps::SameOp,
                    "same_op_no_op" => AccumulateOps::SameOpNoOp,
                    _ => return Err(bad(key, value, "same_op or same_op_no_op")),
                }
            }
            "same_size" => self.same_size = truth()?,
            "same_disp_unit" => self.same_disp_unit = truth()?,
            "no_locks" => self.no_locks = truth()?,
            "alloc_shared_noncontig" => self.alloc_shared_noncontig = truth()?,
            "hither_medium" => {
                self.medium = match value {
                    "auto" => Medium::Auto,
                    "packets" => Medium::Packets,
                    _ => return Err(bad(key, value, "auto or packets")),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn ordering(value: &str) -> Result<Ordering> {
    let mut found = Ordering { rar: false, raw: false, war: false, waw: false };
    if value == "none" {
        return Ok(found);
    }
    for word in value.split(',').map(str::trim) {
        match word {
            "rar" => found.rar = true,
            "raw" => found.raw = true,
            "war" => found.war = true,
            "waw" => found.waw = true,
            _ => {
                let want = "none, or some of rar,raw,war,waw";
                return Err(bad("accumulate_ordering", value, want));
            }
        }
    }
    Ok(found)
}

fn bad(key: &str, value: &str, want: &str) -> Error {
    Error::invalid("a window's hint", format!("{key} = \"{value}\": want {want}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_and_unknown_ones_let_pass() {
        let mut info = Info::default();
        assert!(info.set("accumulate_ordering", "raw, waw").unwrap());
        assert_eq!(info.ordering, Ordering { rar: false, raw: true, war: false, waw: true });
        assert!(info.set("accumulate_ordering", "none").unwrap());
        assert!(!info.ordering.raw);
        assert!(info.set("no_locks", "true").unwrap() && info.no_locks);
        assert!(info.set("hither_medium", "packets").unwrap());
        assert_eq!(info.medium, Medium::Packets);
        assert!(!info.set("io_preallocate", "yes").unwrap());
        assert!(info.set("no_locks", "maybe").is_err());
        assert!(info.set("accumulate_ordering", "raw,wow").is_err());
        assert!(info.set("accumulate_ops", "any").is_err());
    }
}
