//! What a member takes part in, in one word: members compare it where they synchronise, in words
//! that they read anyway, so that calls that do not match are an error and not garbage.

use super::select::Algorithm;
use crate::layout::{Kind, Op};

/// A collective call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum What {
    /// Everybody waits for everybody.
    Barrier = 1,
    /// One member's data go to all.
    Broadcast,
    /// Everybody's data go to one.
    Gather,
    /// The same with a length for each member.
    Gatherv,
    /// One member's data are dealt out.
    Scatter,
    /// The same with a length for each member.
    Scatterv,
    /// Everybody's data go to all.
    Allgather,
    /// The same with a length for each member.
    Allgatherv,
    /// Everybody has something for everybody.
    Alltoall,
    /// The same with a length for each pair.
    Alltoallv,
    /// Everybody's data combined, for one.
    Reduce,
    /// Everybody's data combined, for all.
    Allreduce,
    /// Everybody's data combined and dealt out, with a length for each member.
    ReduceScatter,
    /// The same with one length.
    ReduceScatterBlock,
    /// The data of all up to oneself combined.
    Scan,
    /// The data of all before oneself combined.
    Exscan,
    /// Whether anybody failed: part of calls that make things.
    Agree,
    /// The end of the job.
    Finish,
}

impl What {
    /// All of them.
    pub const ALL: [What; 18] = [
        What::Barrier,
        What::Broadcast,
        What::Gather,
        What::Gatherv,
        What::Scatter,
        What::Scatterv,
        What::Allgather,
        What::Allgatherv,
        What::Alltoall,
        What::Alltoallv,
        What::Reduce,
        What::Allreduce,
        What::ReduceScatter,
        What::ReduceScatterBlock,
        What::Scan,
        What::Exscan,
        What::Agree,
        What::Finish,
    ];

    /// What it is called in settings and tables.
    pub const fn name(self) -> &'static str {
        match self {
            What::Barrier => "barrier",
            What::Broadcast => "broadcast",
            What::Gather => "gather",
            What::Gatherv => "gatherv",
            What::Scatter => "scatter",
            What::Scatterv => "scatterv",
            What::Allgather => "allgather",
            What::Allgatherv => "allgatherv",
            What::Alltoall => "alltoall",
            What::Alltoallv => "alltoallv",
            What::Reduce => "reduce",
            What::Allreduce => "allreduce",
            What::ReduceScatter => "reduce_scatter",
            What::ReduceScatterBlock => "reduce_scatter_block",
            What::Scan => "scan",
            What::Exscan => "exscan",
            What::Agree => "agree",
            What::Finish => "finish",
        }
    }

    /// What it is called in errors.
    pub const fn during(self) -> &'static str {
        match self {
            What::Barrier => "a barrier",
            What::Broadcast => "a broadcast",
            What::Gather => "a gather",
            What::Gatherv => "a gatherv",
            What::Scatter => "a scatter",
            What::Scatterv => "a scatterv",
            What::Allgather => "an allgather",
            What::Allgatherv => "an allgatherv",
            What::Alltoall => "an alltoall",
            What::Alltoallv => "an alltoallv",
            What::Reduce => "a reduce",
            What::Allreduce => "an allreduce",
            What::ReduceScatter => "a reduce_scatter",
            What::ReduceScatterBlock => "a reduce_scatter_block",
            What::Scan => "a scan",
            What::Exscan => "an exscan",
            What::Agree => "an agreement",
            What::Finish => "the end of the job",
        }
    }

    /// Whether algorithms can be chosen for it: not for what the library does for itself.
    pub const fn is_chosen(self) -> bool {
        !matches!(self, What::Agree | What::Finish)
    }

    fn from_raw(raw: u8) -> Option<What> {
        What::ALL.into_iter().find(|what| *what as u8 == raw)
    }

    const fn has_root(self) -> bool {
        matches!(
            self,
            What::Broadcast
                | What::Gather
                | What::Gatherv
                | What::Scatter
                | What::Scatterv
                | What::Reduce
        )
    }
}

/// One call as this member makes it. Two members that make the same call have the same word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    pub what: What,
    /// What is compared.
    pub word: u32,
    /// Kind, algorithm, code and root.
    packed: u64,
    bytes: u64,
}

/// What [`Sign`] says of a predefined operation.
pub(super) const fn code_of(kind: Kind, op: Op) -> u16 {
    (kind as u16) << 8 | op as u16
}

/// What [`Sign`] says of a user's operation on units of so many bytes.
pub(super) const fn code_of_user(unit: usize) -> u16 {
    0x8000 | (unit as u16 & 0x7fff)
}

impl Sign {
    /// A call on `bytes` bytes per member. A few instructions; nothing where all is constant.
    #[inline]
    pub const fn new(what: What, how: Algorithm, root: u32, bytes: u64, code: u16) -> Sign {
        let packed = what as u64 | (how as u64) << 8 | (code as u64) << 16 | (root as u64) << 32;
        let mixed = packed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ bytes.wrapping_mul(0xc2b2_ae3d_27d4_eb4f).rotate_left(31);
        let word = (mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as u32;
        Sign { what, word, packed, bytes }
    }

    /// A word of it without the algorithm, which may be another on each node.
    pub const fn far_word(&self) -> u32 {
        let packed = self.packed & !0xff00;
        let mixed = packed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ self.bytes.wrapping_mul(0xc2b2_ae3d_27d4_eb4f).rotate_left(31);
        (mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as u32
    }

    /// What it writes down beside its word, for messages.
    pub const fn words(&self) -> [u64; 2] {
        [self.packed, self.bytes]
    }
}

/// A member's call in words, as it wrote it down.
pub(super) fn describe(words: [u64; 2]) -> String {
    let [packed, bytes] = words;
    let Some(what) = What::from_raw(packed as u8) else {
        return "no collective call that is known".into();
    };
    let mut text = what.during().to_owned();
    if matches!(what, What::Barrier | What::Agree | What::Finish) {
        return text;
    }
    let lists = matches!(what, What::Gatherv | What::Scatterv | What::Alltoallv);
    if !lists {
        text.push_str(&format!(" of {bytes} bytes"));
    }
    if what.has_root() {
        text.push_str(&format!(" with root {}", packed >> 32));
    }
    let code = (packed >> 16) as u16;
    if code & 0x8000 != 0 {
        text.push_str(&format!(" with a user's operation on units of {} bytes", code & 0x7fff));
    } else if code != 0
        && let (Ok(kind), Ok(op)) = (Kind::from_raw((code >> 8) as u8), Op::from_raw(code as u8))
    {
        text.push_str(&format!(" with {op:?} of {kind:?}"));
    }
    if let Some(how) = Algorithm::from_raw((packed >> 8) as u8) {
        text.push_str(&format!(" by {}", how.name()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn calls_that_differ_have_different_words() {
        let mut seen = HashSet::new();
        let mut count = 0;
        for what in What::ALL {
            for how in Algorithm::ALL {
                for root in [0, 1, 2, 17] {
                    for bytes in [0, 1, 8, 9, 16, 56, 16384, 1 << 20, 1 << 40] {
                        for code in [0, code_of(Kind::F64, Op::Sum), code_of(Kind::F64, Op::Min)] {
                            seen.insert(Sign::new(what, how, root, bytes, code).word);
                            count += 1;
                        }
                    }
                }
            }
        }
        // 32 bits: a pair among these few thousand may meet, more than that would be a pattern.
        assert!(seen.len() + 2 >= count, "{} words for {count} calls", seen.len());
    }

    #[test]
    fn calls_are_described_in_full() {
        let sign =
            Sign::new(What::Reduce, Algorithm::Shares, 3, 80, code_of(Kind::I32, Op::BitXor));
        let text = describe(sign.words());
        assert_eq!(text, "a reduce of 80 bytes with root 3 with BitXor of I32 by shares");
        let barrier = Sign::new(What::Barrier, Algorithm::Boards, 0, 0, 0);
        assert_eq!(describe(barrier.words()), "a barrier");
        assert_eq!(describe([0xff, 0]), "no collective call that is known");
    }
}
