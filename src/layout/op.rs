//! The predefined operations of accumulates and reductions.

/// A predefined operation `target = target OP origin`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Op {
    /// `target + origin` (wrapping for integers).
    Sum,
    /// `target * origin` (wrapping for integers).
    Product,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// Bitwise and; integers only.
    BitAnd,
    /// Bitwise or; integers only.
    BitOr,
    /// Bitwise exclusive or; integers only.
    BitXor,
    /// `origin`.
    Replace,
    /// `target`: with fetch_and_op, an atomic read.
    NoOp,
}
