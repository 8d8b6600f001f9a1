//! Reading the setting.

use super::{ALL, ANY, Algorithm, BOARD, Row, What, size_text};
use crate::base::settings::{COLL, parse_bytes};
use crate::base::{Error, Result};

/// The rows of a setting, in its order.
pub(super) fn rows(setting: &str) -> Result<Vec<Row>> {
    setting.split(',').map(str::trim).filter(|text| !text.is_empty()).map(row).collect()
}

fn bad(row: &str, why: impl std::fmt::Display) -> Error {
    Error::invalid(COLL.name, format!("\"{row}\": {why}; a row looks like allreduce:0-56=boards"))
}

fn row(text: &str) -> Result<Row> {
    let (which, how) = text.split_once('=').ok_or_else(|| bad(text, "there is no ="))?;
    let (name, ranges) = which.split_once(':').unwrap_or((which, "*"));
    let what = match name.trim() {
        "*" => None,
        name => Some(operation(name).ok_or_else(|| bad(text, unknown(name)))?),
    };
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == how.trim());
    let algorithm = algorithm.ok_or_else(|| {
        let names: Vec<_> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
        bad(text, format!("the algorithms are {}", names.join(", ")))
    })?;
    let (bytes, members) = ranges.split_once('@').unwrap_or((ranges, "*"));
    let bytes = range(bytes, 0, ALL).map_err(|why| bad(text, why))?;
    let members = range(members, 1, ANY.1.into()).map_err(|why| bad(text, why))?;
    if let Some(what) = what
        && !algorithm.serves(what)
    {
        let served = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.serves(what));
        let served: Vec<_> = served.map(Algorithm::name).collect();
        return Err(bad(text, format!("{} has {}", what.name(), served.join(", "))));
    }
    if algorithm == Algorithm::Boards && bytes.1 > BOARD as u64 && bytes.1 != ALL {
        return Err(bad(text, format!("boards hold {BOARD} bytes, not {}", size_text(bytes.1))));
    }
    let members = (members.0 as u32, members.1 as u32);
    Ok(Row { what, bytes, members, cores: None, algorithm, set: true })
}

/// The operation of that name, if its algorithm can be chosen.
fn operation(name: &str) -> Option<What> {
    What::ALL.into_iter().find(|what| what.name() == name && what.is_chosen())
}

fn unknown(name: &str) -> String {
    let names: Vec<_> =
        What::ALL.into_iter().filter(|what| what.is_chosen()).map(What::name).collect();
    format!("\"{name}\" is none of {}", names.join(", "))
}

fn range(text: &str, least: u64, most: u64) -> std::result::Result<(u64, u64), String> {
    let number = |text: &str| {
        parse_bytes(text.trim()).ok_or_else(|| format!("\"{text}\" is no number such as 8 or 64K"))
    };
    let text = text.trim();
    let (low, high) = match text.split_once('-') {
        _ if text == "*" => (least, most),
        Some((low, "")) => (number(low)?, most),
        Some((low, high)) => (number(low)?, number(high)?),
        None => (number(text)?, number(text)?),
    };
    if low > high {
        return Err(format!("the range {text} is empty"));
    }
    if low < least || high > most {
        return Err(format!("the range {text} is not within {least} to {most}"));
    }
    Ok((low, high))
}
