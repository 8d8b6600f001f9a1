//! Generated cases: memory x operation x elements x synchronisation x layout x promises x way. See
//! `plan` for which of them there are, `script` for what a case does, `signals` for how puts with
//! a signal are looked at.

mod absurd;
mod access;
mod build;
mod dimension;
mod issue;
mod misuse;
mod plan;
mod script;
mod shape;
mod signals;
mod value;

use build::Built;
use dimension::{Case, Elements};
use hither::{Job, Located, Result};
use script::Plan;
use value::Value;

/// The cases, with their names.
pub fn cases() -> Vec<super::Case> {
    let planned = plan::cases()
        .into_iter()
        .map(|case| super::Case { name: case.name(), run: Box::new(move |job| run(&case, job)) });
    planned.chain(misuse::cases()).chain(absurd::cases()).collect()
}

fn run(case: &Case, job: &Job) -> Result<()> {
    match case.elements {
        Elements::U8 => run_as::<u8>(case, job),
        Elements::U16 => run_as::<u16>(case, job),
        Elements::U32 => run_as::<u32>(case, job),
        Elements::U64 => run_as::<u64>(case, job),
        Elements::I8 => run_as::<i8>(case, job),
        Elements::I16 => run_as::<i16>(case, job),
        Elements::I32 => run_as::<i32>(case, job),
        Elements::I64 => run_as::<i64>(case, job),
        Elements::F32 => run_as::<f32>(case, job),
        Elements::F64 => run_as::<f64>(case, job),
        Elements::F32Located => run_as::<Located<f32, i32>>(case, job),
        Elements::I32Located => run_as::<Located<i32, i32>>(case, job),
        Elements::U32Located => run_as::<Located<u32, i32>>(case, job),
    }
}

fn run_as<T: Value>(case: &Case, job: &Job) -> Result<()> {
    let (me, ranks) = (job.rank().0, job.size());
    let plan = Plan::new::<T>(case, ranks);
    let built = Built::<T>::new(case, job, plan.len)?;
    let before = |target: u32| (0..plan.len).map(move |i| script::initial::<T>(target, i));
    built.write(&before(me).collect::<Vec<_>>())?;
    let words = case.operation.signal().map(|_| signals::words(case, job)).transpose()?;
    job.team().barrier()?;

    let signalling = words.as_ref().map(|words| words.lock_all()).transpose()?;
    let signal = signalling.as_deref();
    access::access(case, job, &built.window, &mut |epoch, target| {
        let mut model: Vec<T> = before(target.0).collect();
        for step in script::own::<T>(case, ranks, me, target.0) {
            let want = script::model(&mut model, &step);
            let got = issue::issue(&built, epoch, signal, target, &step)?;
            assert_eq!(got, want, "{}: what {step:?} on {target} gave back", case.name());
        }
        for step in script::common::<T>(case, ranks, me) {
            issue::issue(&built, epoch, signal, target, &step)?;
        }
        Ok(())
    })?;
    if let Some(words) = &words {
        // Nothing but the signals tells of the data.
        for origin in job.team().ranks() {
            signals::wait(words, origin, script::SIGNALS)?;
            let region = plan.region * origin.index()..plan.region * (origin.index() + 1);
            let mut want: Vec<T> = before(me).collect();
            for step in script::own::<T>(case, ranks, origin.0, me) {
                script::model(&mut want, &step);
            }
            let got = built.read(plan.len)?;
            assert!(got[region.clone()] == want[region], "{}: rank {origin}'s data", case.name());
        }
    }
    if let Some(signalling) = signalling {
        signalling.unlock_all()?;
    }
    job.team().barrier()?;

    let mut want: Vec<T> = before(me).collect();
    for origin in 0..ranks {
        let own = script::own::<T>(case, ranks, origin, me);
        for step in own.iter().chain(&script::common::<T>(case, ranks, origin)) {
            script::model(&mut want, step);
        }
    }
    let got = built.read(plan.len)?;
    if let Some(at) = (0..plan.len).find(|&i| got[i] != want[i]) {
        let (origin, within) = (at / plan.region, at % plan.region);
        panic!(
            "{}: element {at} of rank {me} (region {origin}, element {within}, {:?}) is {:?}, \
             should be {:?}",
            case.name(),
            plan,
            got[at],
            want[at]
        );
    }
    // Nobody frees the window while others still compare.
    job.team().barrier()
}
