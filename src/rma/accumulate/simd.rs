//! Vector loops of plain updates, for x86-64 with AVX2 (and AVX-512 for some elements of 64 bits).
//!
//! In inline assembly, since the compiler may not know of these accesses: other processes read the
//! elements meanwhile, and a Rust load or store that is no atomic access would be a data race.
//! Elements are aligned and every vector store is, so no element is split between two accesses of
//! the processor: the manuals promise that for 16 bytes (Intel SDM 3A §9.1.1, AMD APM 2 §7.3.2),
//! and processors that split a vector of 32 split it there.

use crate::layout::{Kind, Op};
use std::arch::{asm, is_x86_feature_detected};

/// Bytes that a loop takes at a time, and that the elements must be a multiple of.
pub(super) const BLOCK: usize = 128;
/// What the target's elements must be aligned to.
pub(super) const ALIGN: usize = 32;

/// Combines `bytes` bytes at `at` with those at `from`; what was there goes to `result` unless it
/// is null.
///
/// # Safety
/// `at` is a multiple of [`ALIGN`], `bytes` a multiple of [`BLOCK`] and not 0; `from` is readable
/// private memory of as many bytes, `result` writable or null, and may be `from`. Nobody else
/// updates the elements meanwhile, and the processor has what [`find`] looked for.
pub(super) type Loop = unsafe fn(at: *mut u8, from: *const u8, bytes: usize, result: *mut u8);

/// The loop for an operation on elements of a kind, if there is one that this processor can run.
pub(super) fn find(kind: Kind, op: Op) -> Option<Loop> {
    if !is_x86_feature_detected!("avx2") {
        return None;
    }
    let wide = || is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("avx512dq");
    Some(match (op, kind) {
        (Op::Replace, kind) if kind.size() <= 8 => replace,
        (Op::BitAnd, _) => and,
        (Op::BitOr, _) => or,
        (Op::BitXor, _) => xor,
        (Op::Sum, Kind::U8 | Kind::I8) => add_8,
        (Op::Sum, Kind::U16 | Kind::I16) => add_16,
        (Op::Sum, Kind::U32 | Kind::I32) => add_32,
        (Op::Sum, Kind::U64 | Kind::I64) => add_64,
        (Op::Sum, Kind::F32) => add_f32,
        (Op::Sum, Kind::F64) => add_f64,
        (Op::Product, Kind::U16 | Kind::I16) => multiply_16,
        (Op::Product, Kind::U32 | Kind::I32) => multiply_32,
        (Op::Product, Kind::F32) => multiply_f32,
        (Op::Product, Kind::F64) => multiply_f64,
        (Op::Min, Kind::U8) => min_u8,
        (Op::Min, Kind::U16) => min_u16,
        (Op::Min, Kind::U32) => min_u32,
        (Op::Min, Kind::I8) => min_i8,
        (Op::Min, Kind::I16) => min_i16,
        (Op::Min, Kind::I32) => min_i32,
        (Op::Min, Kind::F32) => min_f32,
        (Op::Min, Kind::F64) => min_f64,
        (Op::Max, Kind::U8) => max_u8,
        (Op::Max, Kind::U16) => max_u16,
        (Op::Max, Kind::U32) => max_u32,
        (Op::Max, Kind::I8) => max_i8,
        (Op::Max, Kind::I16) => max_i16,
        (Op::Max, Kind::I32) => max_i32,
        (Op::Max, Kind::F32) => max_f32,
        (Op::Max, Kind::F64) => max_f64,
        (Op::Product, Kind::U64 | Kind::I64) if wide() => multiply_64,
        (Op::Min, Kind::U64) if wide() => min_u64,
        (Op::Min, Kind::I64) if wide() => min_i64,
        (Op::Max, Kind::U64) if wide() => max_u64,
        (Op::Max, Kind::I64) if wide() => max_i64,
        _ => return None,
    })
}

/// A loop: four vectors of the origin's operands go to ymm0 to ymm3; `$first` and `$rest`, with a
/// register's name between each two of them, combine each with the old elements in ymm4.
macro_rules! vector_loop {
    ($name:ident, $features:literal, $first:literal $(, $rest:literal)+) => {
        #[target_feature(enable = $features)]
        unsafe fn $name(at: *mut u8, from: *const u8, bytes: usize, result: *mut u8) {
            macro_rules! combine {
                ($v:literal) => { concat!($first $(, $v, $rest)+) };
            }
            macro_rules! run {
                ($old:literal, $result:expr) => {
                    asm!(
                        "2:",
                        "vmovdqu ymm0, ymmword ptr [{from}]",
                        "vmovdqu ymm1, ymmword ptr [{from} + 32]",
                        "vmovdqu ymm2, ymmword ptr [{from} + 64]",
                        "vmovdqu ymm3, ymmword ptr [{from} + 96]",
                        "vmovdqa ymm4, ymmword ptr [{at}]",
                        concat!($old, "ymmword ptr [{result}], ymm4"),
                        combine!("ymm0"),
                        "vmovdqa ymmword ptr [{at}], ymm0",
                        "vmovdqa ymm4, ymmword ptr [{at} + 32]",
                        concat!($old, "ymmword ptr [{result} + 32], ymm4"),
                        combine!("ymm1"),
                        "vmovdqa ymmword ptr [{at} + 32], ymm1",
                        "vmovdqa ymm4, ymmword ptr [{at} + 64]",
                        concat!($old, "ymmword ptr [{result} + 64], ymm4"),
                        combine!("ymm2"),
                        "vmovdqa ymmword ptr [{at} + 64], ymm2",
                        "vmovdqa ymm4, ymmword ptr [{at} + 96]",
                        concat!($old, "ymmword ptr [{result} + 96], ymm4"),
                        combine!("ymm3"),
                        "vmovdqa ymmword ptr [{at} + 96], ymm3",
                        "add {from}, 128",
                        "add {at}, 128",
                        "add {result}, 128",
                        "sub {left}, 128",
                        "jnz 2b",
                        "vzeroupper",
                        from = inout(reg) from => _,
                        at = inout(reg) at => _,
                        result = inout(reg) $result => _,
                        left = inout(reg) bytes => _,
                        out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                        out("ymm4") _, out("ymm5") _, out("ymm6") _,
                        options(nostack),
                    )
                };
            }
            // SAFETY: the caller's. A block's operands are read before its results are written.
            unsafe {
                if result.is_null() {
                    // Assembled as a comment.
                    run!("# ", result);
                } else {
                    run!("vmovdqu ", result);
                }
            }
        }
    };
}

macro_rules! vector_loops {
    ($features:literal: $($name:ident $instruction:literal;)+) => { $(
        vector_loop!($name, $features, $instruction, ", ", ", ymm4");
    )+ };
}

vector_loops! { "avx2":
    and " vpand "; or " vpor "; xor " vpxor ";
    add_8 " vpaddb "; add_16 " vpaddw "; add_32 " vpaddd "; add_64 " vpaddq ";
    add_f32 " vaddps "; add_f64 " vaddpd ";
    multiply_16 " vpmullw "; multiply_32 " vpmulld ";
    multiply_f32 " vmulps "; multiply_f64 " vmulpd ";
    min_u8 " vpminub "; min_u16 " vpminuw "; min_u32 " vpminud ";
    min_i8 " vpminsb "; min_i16 " vpminsw "; min_i32 " vpminsd ";
    max_u8 " vpmaxub "; max_u16 " vpmaxuw "; max_u32 " vpmaxud ";
    max_i8 " vpmaxsb "; max_i16 " vpmaxsw "; max_i32 " vpmaxsd ";
}
vector_loops! { "avx2,avx512vl,avx512dq":
    multiply_64 " vpmullq ";
    min_u64 " vpminuq "; min_i64 " vpminsq "; max_u64 " vpmaxuq "; max_i64 " vpmaxsq ";
}
vector_loop!(replace, "avx2", "# ", " ");

/// Smaller and larger floats. The instruction gives its last operand, the old element, if one is
/// no number; so the new one is taken where the old one is none.
macro_rules! float_loops {
    ($($name:ident $instruction:literal $unordered:literal $blend:literal;)+) => { $(
        vector_loop!($name, "avx2", $instruction, $unordered, $blend, ", ymm6");
    )+ };
}
float_loops! {
    min_f32 "vminps ymm5, " ", ymm4\nvcmpunordps ymm6, ymm4, ymm4\nvblendvps " ", ymm5, ";
    max_f32 "vmaxps ymm5, " ", ymm4\nvcmpunordps ymm6, ymm4, ymm4\nvblendvps " ", ymm5, ";
    min_f64 "vminpd ymm5, " ", ymm4\nvcmpunordpd ymm6, ymm4, ymm4\nvblendvpd " ", ymm5, ";
    max_f64 "vmaxpd ymm5, " ", ymm4\nvcmpunordpd ymm6, ymm4, ymm4\nvblendvpd " ", ymm5, ";
}
