//! Patience in the units of RDMA devices. No input or output.
//!
//! A request without an answer is sent again after 4.096 us times a power of two, [`RETRIES`] times;
//! then the queue pair fails. A peer without a receive says after how long to ask again, by a code of
//! five bits; it is asked up to [`RETRIES`] times, or for ever.

use std::time::Duration;

/// Times a request is sent again. Seven is more than it looks: Soft-RoCE then never gives up.
pub(super) const RETRIES: u8 = 6;

/// The count that means for ever, for peers without a receive.
pub(super) const FOR_EVER: u8 = 7;

/// Microseconds of the codes 1 to 31 for peers without a receive.
const RECEIVER_WAITS: [u32; 31] = [
    10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680,
    10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680,
    491_520,
];

/// The code of the time after which a request is sent again, so that the last retry ends after
/// `patience` at the earliest.
pub(super) fn timeout_code(patience: Duration) -> u8 {
    let total = |code: &u8| (4096u128 * u128::from(RETRIES)) << code;
    (1..31).find(|code| total(code) >= patience.as_nanos()).unwrap_or(31)
}

/// The code that a receiver answers with where the peer is to wait for `patience` altogether. Where
/// devices cannot count so long, one of a millisecond: the peer asks for ever.
pub(super) fn receiver_code(patience: Duration) -> u8 {
    let long = |wait: &u32| u128::from(*wait * u32::from(RETRIES)) >= patience.as_micros();
    RECEIVER_WAITS.iter().position(long).map_or(14, |at| at as u8 + 1)
}

/// How often to ask a peer whose receiver answers with `code`, to wait for `patience` altogether.
pub(super) fn receiver_retries(patience: Duration, code: u8) -> u8 {
    let wait = match code {
        0 => 655_360,
        code => RECEIVER_WAITS[usize::from(code.min(31)) - 1],
    };
    let times = patience.as_micros().div_ceil(wait.into());
    u8::try_from(times).ok().filter(|times| *times <= RETRIES).unwrap_or(FOR_EVER).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn patience_is_never_shorter_than_asked_for(micros in 1..200_000_000u64) {
            let patience = Duration::from_micros(micros);
            let code = timeout_code(patience);
            let total = |code: u8| 4.096 * f64::from(RETRIES) * 2f64.powi(code.into());
            prop_assert!(total(code) >= micros as f64);
            prop_assert!(code == 1 || total(code - 1) < micros as f64, "as short as it can be");
            let code = receiver_code(patience);
            let times = receiver_retries(patience, code);
            if times == FOR_EVER {
                prop_assert!(micros > 6 * 491_520);
            } else {
                prop_assert!((1..=RETRIES).contains(&times));
                let wait = u64::from(RECEIVER_WAITS[usize::from(code) - 1]);
                prop_assert!(wait * u64::from(times) >= micros);
            }
        }
    }
}
