//! Medians and quartiles of interleaved rounds.

/// The quantile `q` in 0..=1 of `values`, by linear interpolation; 0 for no values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// What the rounds of one comparison say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Median of the measured side.
    pub value: f64,
    /// Median of the limit.
    pub floor: f64,
    /// Half the distance between the quartiles of the rounds' ratios, as a share of their
    /// median: how far to trust `value / floor`.
    pub spread: f64,
    /// Number of rounds.
    pub rounds: usize,
}

/// Summarises rounds of (value, floor) that were measured next to each other.
pub fn summarise(rounds: &[(f64, f64)]) -> Summary {
    let values: Vec<f64> = rounds.iter().map(|r| r.0).collect();
    let floors: Vec<f64> = rounds.iter().map(|r| r.1).collect();
    let ratios: Vec<f64> = rounds.iter().filter(|r| r.1 > 0.0).map(|r| r.0 / r.1).collect();
    let middle = median(&ratios);
    let half = (quantile(&ratios, 0.75) - quantile(&ratios, 0.25)) / 2.0;
    Summary {
        value: median(&values),
        floor: median(&floors),
        spread: if middle > 0.0 { half / middle } else { 0.0 },
        rounds: rounds.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_and_ignore_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.75), 7.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn noise_common_to_both_sides_does_not_widen_the_spread() {
        let s = summarise(&[(2.0, 1.0), (4.0, 2.0), (20.0, 10.0)]);
        assert_eq!((s.value, s.floor, s.spread, s.rounds), (4.0, 2.0, 0.0, 3));
        let s = summarise(&[(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]);
        assert_eq!((s.value, s.spread), (2.0, 0.25));
    }
}
