//! Carries the steps of a script out for real.

use super::build::Built;
use super::dimension::Shape;
use super::script::{Do, Step};
use super::signals;
use super::value::Value;
use hither::rma::Request;
use hither::{Epoch, Rank, Result};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Carries a step out; returns what it gave back.
pub fn issue<T: Value>(
    built: &Built<T>,
    epoch: &Epoch<'_, T>,
    words: Option<&Epoch<'_, u64>>,
    target: Rank,
    step: &Step<T>,
) -> Result<Vec<T>> {
    if !matches!(step.shape, Shape::Contiguous | Shape::Long) {
        return shaped(built, epoch, target, step);
    }
    let start = built.start(target, step.start + step.places[0]);
    let values = &step.values;
    let nothing = |()| Vec::new();
    // How a request is completed varies with where it goes.
    let way = step.start / step.shape.span();
    match step.what {
        Do::Put => epoch.put(target, start, values).map(nothing),
        Do::Get => {
            let mut back = values.clone();
            epoch.get(target, start, &mut back).map(|()| back)
        }
        Do::Accumulate(op) => epoch.accumulate(target, start, op, values).map(nothing),
        Do::GetAccumulate(op) => {
            let mut back = values.clone();
            epoch.get_accumulate(target, start, op, values, &mut back).map(|()| back)
        }
        Do::PutSignal(op, number) => {
            let words = words.expect("the words of a case with signals");
            let (index, value) = (built.window.team().rank().index(), signals::value(op, number));
            epoch.put_signal(target, start, values, words, index, op, value).map(nothing)
        }
        Do::PutRequest => finish(epoch.put_request(target, start, values)?, way).map(nothing),
        Do::GetRequest => finish(epoch.get_request(target, start, values.len())?, way),
        Do::AccumulateRequest(op) => {
            finish(epoch.accumulate_request(target, start, op, values)?, way).map(nothing)
        }
        Do::GetAccumulateRequest(op) => {
            finish(epoch.get_accumulate_request(target, start, op, values)?, way)
        }
        Do::FetchAndOp(op) => Ok(vec![epoch.fetch_and_op(target, start, op, values[0])?]),
        Do::CompareAndSwap { expected } => {
            Ok(vec![epoch.compare_and_swap(target, start, expected, values[0])?])
        }
    }
}

/// Waits for a request, tests it until it is done, or polls it as a future.
fn finish<R: Unpin>(mut request: Request<R>, way: usize) -> Result<R> {
    match way % 3 {
        0 => request.wait(),
        1 => {
            while !request.test()? {
                std::thread::yield_now();
            }
            request.wait()
        }
        _ => {
            let mut request = pin!(request);
            let mut context = Context::from_waker(Waker::noop());
            loop {
                match request.as_mut().poll(&mut context) {
                    Poll::Ready(result) => return result,
                    Poll::Pending => std::thread::yield_now(),
                }
            }
        }
    }
}

/// A step with a layout at one side or both.
fn shaped<T: Value>(
    built: &Built<T>,
    epoch: &Epoch<'_, T>,
    target: Rank,
    step: &Step<T>,
) -> Result<Vec<T>> {
    let start = built.start(target, step.start);
    let Some((there, count)) = step.shape.at_target::<T>()? else {
        unreachable!("{:?} is contiguous", step.shape)
    };
    let (here, many, at) = step.shape.at_origin::<T>()?;
    let (there, here) = (there.times(count), here.times(many));
    // The origin's buffer, with gaps that nobody may touch.
    let gap = T::of(99);
    let buffer = |values: &[T]| {
        let mut buffer = vec![gap; at.iter().max().map_or(0, |last| last + 1)];
        at.iter().zip(values).for_each(|(&at, &value)| buffer[at] = value);
        buffer
    };
    let from = buffer(&step.values);
    let mut into = vec![gap; from.len()];
    match step.what {
        Do::Put => {
            epoch.put_layout(target, start, there, &from, here)?;
            return Ok(Vec::new());
        }
        Do::Accumulate(op) => {
            epoch.accumulate_layout(target, start, there, op, &from, here)?;
            return Ok(Vec::new());
        }
        Do::Get => epoch.get_layout(target, start, there, &mut into, here)?,
        Do::GetAccumulate(op) => {
            epoch.get_accumulate_layout(target, start, there, op, &from, here, &mut into, here)?;
        }
        other => unreachable!("{other:?} has no layouts"),
    }
    let back: Vec<T> = at.iter().map(|&at| into[at]).collect();
    assert_eq!(into, buffer(&back), "something was written between the elements");
    Ok(back)
}
