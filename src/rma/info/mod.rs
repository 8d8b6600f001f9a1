//! What a program tells about how it will use a window (MPI-3.1 §11.2.1 and §11.7.2, MPI-4.1 §12.2.1).
//!
//! Hints are promises: an implementation may use them and need not, and a program that breaks one
//! gets wrong results. They must be the same in all members that create a window.
//!
//! | hint | what it does here |
//! |---|---|
//! | `accumulate_ordering` | nothing: updates by one origin of one element always stay in order |
//! | `accumulate_ops` | `same_op`: `Replace` takes no part in keeping updates apart |
//! | `mpi_accumulate_granularity` | 1 to 16: elements are updated one by one, see [`Info::accumulate_granularity`] |
//! | `same_size`, `same_disp_unit` | checked: [`crate::Error::Mismatch`] if it is not so |
//! | `no_locks` | checked: `lock` and `lock_all` are [`crate::Error::Misuse`] |
//! | `alloc_shared_noncontig` | the parts of a shared window lie apart, each near its owner |
//! | `am_ordering` | which active messages of one origin stay in order, see [`AmOrdering`] |
//! | `am_buf_interleave_am_detach` | `false`: while a rank holds an exclusive lock, nobody detaches buffers there, so a flush need not ask for them again |
//! | `am_user_buf_<rank>` | so many bytes of attached buffers at that rank are kept for each origin |
//! | `hither_locks_cover_owner` | an exclusive lock keeps everybody away, see [`Info::locks_cover_owner`] |
//! | `hither_medium` | through what parts are reached, see [`Medium`] |

mod active;

pub use active::{AmOrdering, UserBuffers};

use crate::base::{Error, Result, settings};

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
    /// Which operations meet on an element.
    pub accumulate_ops: AccumulateOps,
    /// Bytes that an update had best keep others out of at a time; 0, as by default, leaves it to the
    /// library, which finds out what the window is used for. Up to 16 (one element of any type) every
    /// element is updated by itself, by one atomic instruction and nothing beside it. That suits
    /// windows of counters, flags and queues; long accumulates take some ten times as long as they
    /// would. What is asked for beyond 16 bytes is what the library does anyway. A preference: what
    /// the window does stays the same.
    pub accumulate_granularity: u32,
    /// All parts have the same size.
    pub same_size: bool,
    /// All members use the same displacement unit.
    pub same_disp_unit: bool,
    /// The window will never be locked, by `lock` or `lock_all`.
    pub no_locks: bool,
    /// The parts of a shared window need not follow each other without gaps.
    pub alloc_shared_noncontig: bool,
    /// Which active messages stay in order.
    pub am_ordering: AmOrdering,
    /// Buffers for active messages may be detached from a window while another rank holds an
    /// exclusive lock there and has issued messages, as long as it has flushed them. True unless
    /// promised otherwise.
    pub am_buf_interleave_am_detach: bool,
    /// Bytes of attached buffers that are kept for each origin at some targets.
    pub am_user_buffers: UserBuffers,
    /// While a rank holds the exclusive lock of a part, nobody else accesses that part: the part's
    /// owner locks it, too, before it uses its [`View`](crate::rma::View) of it, and so does whoever
    /// waits for an element there (MPI asks for that where the memory model is a separate one). Then long
    /// accumulates under such a lock need not be carried out by the target's processor; see
    /// `docs/nodes.md`.
    pub locks_cover_owner: bool,
    /// Through what the parts are reached. Unless it says packets, the setting
    /// `HITHER_RMA_MEDIUM` decides.
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
            accumulate_granularity: 0,
            same_size: false,
            same_disp_unit: false,
            no_locks: false,
            alloc_shared_noncontig: false,
            am_ordering: AmOrdering::default(),
            am_buf_interleave_am_detach: true,
            am_user_buffers: UserBuffers::default(),
            locks_cover_owner: false,
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
            "mpi_accumulate_granularity" => {
                self.accumulate_granularity =
                    value.parse().map_err(|_| bad(key, value, "a number of bytes, 0 for any"))?;
            }
            "same_size" => self.same_size = truth()?,
            "same_disp_unit" => self.same_disp_unit = truth()?,
            "no_locks" => self.no_locks = truth()?,
            "alloc_shared_noncontig" => self.alloc_shared_noncontig = truth()?,
            "am_ordering" => self.am_ordering = AmOrdering::parse(value)?,
            "am_buf_interleave_am_detach" => self.am_buf_interleave_am_detach = truth()?,
            "hither_locks_cover_owner" => self.locks_cover_owner = truth()?,
            "hither_medium" => {
                self.medium =
                    Medium::parse(value).ok_or_else(|| bad(key, value, "auto or packets"))?;
            }
            _ => {
                let Some(target) = UserBuffers::target(key) else { return Ok(false) };
                let bytes = value.parse().map_err(|_| bad(key, value, "a number of bytes"))?;
                self.am_user_buffers.set(target, bytes);
            }
        }
        Ok(true)
    }

    /// All hints as text, as [`Info::set`] reads them.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let order = self.ordering;
        let names =
            [(order.rar, "rar"), (order.raw, "raw"), (order.war, "war"), (order.waw, "waw")];
        let kept: Vec<&str> = names.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        let ordering = if kept.is_empty() { "none".into() } else { kept.join(",") };
        let ops = match self.accumulate_ops {
            AccumulateOps::SameOpNoOp => "same_op_no_op",
            AccumulateOps::SameOp => "same_op",
        };
        let medium = match self.medium {
            Medium::Auto => "auto",
            Medium::Packets => "packets",
        };
        let pairs: [(&str, String); 11] = [
            ("accumulate_ordering", ordering),
            ("accumulate_ops", ops.into()),
            ("mpi_accumulate_granularity", self.accumulate_granularity.to_string()),
            ("same_size", self.same_size.to_string()),
            ("same_disp_unit", self.same_disp_unit.to_string()),
            ("no_locks", self.no_locks.to_string()),
            ("alloc_shared_noncontig", self.alloc_shared_noncontig.to_string()),
            ("am_ordering", self.am_ordering.to_string()),
            ("am_buf_interleave_am_detach", self.am_buf_interleave_am_detach.to_string()),
            ("hither_locks_cover_owner", self.locks_cover_owner.to_string()),
            ("hither_medium", medium.into()),
        ];
        let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value));
        pairs.chain(self.am_user_buffers.pairs()).collect()
    }

    /// All hints but for promises about buffers as one number, to be compared between members.
    pub(super) fn bits(&self) -> u64 {
        let order = self.ordering;
        let flags = [
            order.rar,
            order.raw,
            order.war,
            order.waw,
            self.accumulate_ops == AccumulateOps::SameOp,
            self.same_size,
            self.same_disp_unit,
            self.no_locks,
            self.alloc_shared_noncontig,
            self.medium == Medium::Packets,
            self.am_ordering.same_op,
            self.am_ordering.diff_op,
            self.am_ordering.same_am,
            self.am_buf_interleave_am_detach,
            self.locks_cover_owner,
        ];
        let flags: u64 = flags.iter().enumerate().map(|(i, on)| u64::from(*on) << i).sum();
        flags | u64::from(self.accumulate_granularity) << 32
    }

    /// The hints that [`Info::bits`] made a number of.
    pub(super) fn from_bits(bits: u64) -> Info {
        let on = |i: u32| bits >> i & 1 != 0;
        Info {
            ordering: Ordering { rar: on(0), raw: on(1), war: on(2), waw: on(3) },
            accumulate_ops: if on(4) { AccumulateOps::SameOp } else { AccumulateOps::SameOpNoOp },
            accumulate_granularity: (bits >> 32) as u32,
            same_size: on(5),
            same_disp_unit: on(6),
            no_locks: on(7),
            alloc_shared_noncontig: on(8),
            medium: if on(9) { Medium::Packets } else { Medium::Auto },
            am_ordering: AmOrdering { same_op: on(10), diff_op: on(11), same_am: on(12) },
            am_buf_interleave_am_detach: on(13),
            locks_cover_owner: on(14),
            am_user_buffers: UserBuffers::default(),
        }
    }
}

impl std::fmt::Display for Info {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (key, value)) in self.pairs().iter().enumerate() {
            let gap = if i == 0 { "" } else { " " };
            write!(f, "{gap}{key}={value}")?;
        }
        Ok(())
    }
}

impl Medium {
    /// What a value says, if it says anything.
    pub(crate) fn parse(value: &str) -> Option<Medium> {
        match value {
            "auto" => Some(Medium::Auto),
            "packets" => Some(Medium::Packets),
            _ => None,
        }
    }

    /// What the setting says.
    pub(crate) fn from_settings() -> Result<Medium> {
        let text = settings::RMA_MEDIUM.text();
        let unknown = || format!("\"{text}\" is neither auto nor packets");
        Medium::parse(&text).ok_or_else(|| Error::invalid(settings::RMA_MEDIUM.name, unknown()))
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
    use crate::base::Rank;

    #[test]
    fn numbers_and_texts_of_hints_lead_back_to_them() {
        for flags in 0..1u64 << 15 {
            let bits = flags | flags.wrapping_mul(0x9E37_79B9_7F4A_7C15) << 32;
            let info = Info::from_bits(bits);
            assert_eq!(info.bits(), bits);
            let mut read = Info::default();
            for (key, value) in info.pairs() {
                assert!(read.set(&key, &value).unwrap());
            }
            assert_eq!(read, info);
        }
    }

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
        assert!(info.set("mpi_accumulate_granularity", "8").unwrap());
        assert_eq!(info.accumulate_granularity, 8);
        assert!(info.set("mpi_accumulate_granularity", "-1").is_err());
        assert!(info.set("mpi_accumulate_granularity", "4294967296").is_err());
    }

    #[test]
    fn hints_of_active_messages() {
        let mut info = Info::default();
        assert_eq!(info.am_ordering, AmOrdering::default());
        assert!(info.am_ordering.same_op && info.am_ordering.diff_op && info.am_ordering.same_am);
        assert!(info.am_buf_interleave_am_detach);
        assert!(info.set("am_ordering", "sameam, sameop").unwrap());
        assert_eq!(info.am_ordering, AmOrdering { same_op: true, diff_op: false, same_am: true });
        assert!(info.set("am_ordering", "").is_err());
        assert!(info.set("am_ordering", "none,sameop").is_err());
        assert!(info.set("am_buf_interleave_am_detach", "false").unwrap());
        assert!(!info.am_buf_interleave_am_detach);
        let none = info.am_user_buffers.fingerprint();
        for (rank, bytes) in [(7, 4096), (2, 100), (7, 200)] {
            assert!(info.set(&format!("am_user_buf_{rank}"), &bytes.to_string()).unwrap());
        }
        assert_eq!(
            (info.am_user_buffers.get(Rank(7)), info.am_user_buffers.get(Rank(2))),
            (200, 100)
        );
        assert_eq!(info.am_user_buffers.get(Rank(0)), 0);
        assert_ne!(info.am_user_buffers.fingerprint(), none);
        assert_eq!(info.am_user_buffers.to_string(), "am_user_buf_2=100 am_user_buf_7=200");
        let mut read = Info::default();
        info.pairs().iter().for_each(|(key, value)| assert!(read.set(key, value).unwrap()));
        assert_eq!(read, info);
        assert!(info.set("am_user_buf_2", "0").unwrap() && info.set("am_user_buf_7", "0").unwrap());
        assert_eq!(info.am_user_buffers.fingerprint(), none);
        assert!(!info.set("am_user_buf_", "1").unwrap(), "names no rank");
        assert!(!info.set("am_user_buf_two", "1").unwrap(), "names no rank");
        assert!(info.set("am_user_buf_1", "much").is_err());
        assert!(info.set("am_user_buf_1", "-1").is_err());
    }
}
