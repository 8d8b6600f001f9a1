//! One axis of a diagram: which values it covers, whether it is logarithmic, where its marks are.

/// How values become places on the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equal distances.
    Linear,
    /// Equal ratios are equal distances; marks at powers of ten.
    Decades,
    /// The same; marks at powers of two.
    Doublings,
}

/// An axis from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    pub scale: Scale,
    pub low: f64,
    pub high: f64,
}

/// What measurements say instead of 0, so that they have ratios.
const NOTHING: f64 = 1e-3;

/// Fewer marks than this look better than more.
const MARKS: f64 = 9.0;

impl Axis {
    /// For the horizontal values of a sweep.
    pub fn sweep(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let (low, high) = ends(values.clone());
        // A sweep in doublings, whatever lies between.
        if low > 0.0 && high / low >= 8.0 {
            return Axis { scale: Scale::Doublings, low, high };
        }
        let room = if high > low { 0.0 } else { 0.5 };
        Axis { scale: Scale::Linear, low: low - room, high: high + room }
    }

    /// For measured values: logarithmic if those that are something differ by more than a factor of
    /// 20. Nothing lies at the low end then.
    pub fn measured(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let (low, high) = ends(values.filter(|value| *value > NOTHING));
        if low > 0.0 && high / low > 20.0 {
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            return Axis { scale: Scale::Decades, low: 10f64.powf(low), high: 10f64.powf(high) };
        }
        let high = if high > 0.0 { high } else { 1.0 };
        let step = step(high);
        Axis { scale: Scale::Linear, low: 0.0, high: (high / step).ceil() * step }
    }

    /// For shares of a whole, in percent: from nothing to the whole.
    pub fn percent(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let (_, high) = ends(values);
        let high = (high.max(100.0) / 20.0).ceil() * 20.0;
        Axis { scale: Scale::Linear, low: 0.0, high }
    }

    /// Place of a value, 0 at the low end and 1 at the high one.
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            _ => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Values that are marked, with their names.
    pub fn marks(&self, bytes: bool) -> Vec<(f64, String)> {
        let between = |v: &f64| *v >= self.low * 0.999_999 && *v <= self.high * 1.000_001;
        match self.scale {
            Scale::Linear => {
                let step = step(self.high - self.low);
                let first = (self.low / step).ceil() as i64;
                (first..first + 20)
                    .map(|i| i as f64 * step)
                    .take_while(|v| *v <= self.high + step * 1e-6)
                    .map(|v| (v, number(v)))
                    .collect()
            }
            Scale::Decades => {
                let first = self.low.log10().round() as i32;
                let powers = (first..first + 30).map(|p| 10f64.powi(p));
                powers.take_while(between).map(|v| (v, number(v))).collect()
            }
            Scale::Doublings => {
                let first = self.low.log2().ceil() as i32;
                let doublings = (self.high / self.low).log2();
                let every = (doublings / MARKS).ceil().max(1.0) as usize;
                let powers = (first..first + 64).step_by(every).map(|p| 2f64.powi(p));
                let name = |v: f64| if bytes { size(v) } else { number(v) };
                powers.take_while(between).map(|v| (v, name(v))).collect()
            }
        }
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if ends.0 <= ends.1 { ends } else { (0.0, 1.0) }
}

/// 1, 2 or 5 times a power of ten that divides `span` into 4 to 10 parts.
fn step(span: f64) -> f64 {
    let rough = (span / 5.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let lead = rough / power;
    power
        * if lead < 1.5 {
            1.0
        } else if lead < 3.5 {
            2.0
        } else if lead < 7.5 {
            5.0
        } else {
            10.0
        }
}

/// A number without more digits than it needs.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{:.0}G", value / 1e9),
        v if v >= 1e6 => format!("{:.0}M", value / 1e6),
        v if v >= 1e5 || v >= 1e4 && v % 1e3 == 0.0 => format!("{:.0}k", value / 1e3),
        v if v == 0.0 || v >= 1.0 && value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.0e}"),
    }
}

fn size(value: f64) -> String {
    match value {
        v if v >= 1_048_576.0 => format!("{:.0} MiB", v / 1_048_576.0),
        v if v >= 1024.0 => format!("{:.0} KiB", v / 1024.0),
        v => format!("{v:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_double_and_measurements_may_span_decades() {
        let axis = Axis::sweep([8.0, 64.0, 4194304.0].into_iter());
        assert_eq!(axis.scale, Scale::Doublings);
        assert_eq!((axis.place(8.0), axis.place(4194304.0)), (0.0, 1.0));
        let marks = axis.marks(true);
        assert!(marks.len() <= 11 && marks[0].1 == "8 B", "{marks:?}");
        let axis = Axis::measured([3.0, 700.0].into_iter());
        assert_eq!((axis.scale, axis.low, axis.high), (Scale::Decades, 1.0, 1000.0));
        assert_eq!(axis.marks(false).len(), 4);
        let axis = Axis::measured([NOTHING, 3.0, 700.0].into_iter());
        assert_eq!((axis.low, axis.place(NOTHING)), (1.0, 0.0));
        let axis = Axis::measured([NOTHING, 1.0, 2.0].into_iter());
        assert_eq!((axis.scale, axis.low, axis.high), (Scale::Linear, 0.0, 2.0));
        let axis = Axis::measured([3.0, 7.3].into_iter());
        assert_eq!((axis.scale, axis.low, axis.high), (Scale::Linear, 0.0, 8.0));
    }

    #[test]
    fn numbers_are_short() {
        let shown = [9000.0, 1e4, 12_345.0, 1e5, 2e6, 0.25].map(number);
        assert_eq!(shown, ["9000", "10k", "12345", "100k", "2M", "0.25"]);
    }

    #[test]
    fn one_value_or_none_still_make_an_axis() {
        for values in [vec![], vec![0.0], vec![5.0], vec![f64::NAN]] {
            for axis in
                [Axis::sweep(values.iter().copied()), Axis::measured(values.iter().copied())]
            {
                assert!(axis.low < axis.high, "{axis:?}");
                assert!((0.0..=1.0).contains(&axis.place(5.0)));
                assert!(!axis.marks(false).is_empty());
            }
        }
    }
}
