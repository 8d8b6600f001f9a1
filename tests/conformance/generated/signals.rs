//! The signals of cases whose operation is a put with one: a word for each origin in a second
//! window, which the target waits for before it looks at the data.

use super::dimension::{Case, Memory, Way};
use hither::rma::Info;
use hither::rma::info::Medium;
use hither::{Compare, Job, Rank, Result, SignalOp, Window};

/// The window of the words.
pub fn words(case: &Case, job: &Job) -> Result<Window<u64>> {
    let medium = if case.way == Way::Packets { Medium::Packets } else { Medium::Auto };
    let info = Info { medium, ..Info::default() };
    let builder = Window::<u64>::builder(job.team()).info(info);
    let count = job.size() as usize;
    let private = match case.memory {
        Memory::CreatePrivate => true,
        // On the other ranks than the data: so a mapped word follows data that are not, and the
        // other way round.
        Memory::CreateMixed => job.rank().0.is_multiple_of(2),
        _ => return builder.allocate(count),
    };
    builder.create(match private {
        true => hither::Memory::private(vec![0; count]),
        false => hither::Memory::shared(job.team(), count)?,
    })
}

/// What the `number`th signal, counted from 0, says.
pub fn value(op: SignalOp, number: usize) -> u64 {
    match op {
        SignalOp::Set => number as u64 + 1,
        SignalOp::Add => 1,
    }
}

/// Waits until `origin` has given all of its `count` signals.
pub fn wait(words: &Window<u64>, origin: Rank, count: usize) -> Result<()> {
    let last = words.wait_until(origin.index(), Compare::Ge, count as u64)?;
    assert_eq!(last, count as u64, "signals of rank {origin}");
    Ok(())
}
