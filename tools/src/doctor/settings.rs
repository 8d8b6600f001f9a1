//! Every setting with its present value, and whether that can be used.

use super::Finding;
use hither::base::settings::{self, Setting, TABLE};
use hither::coll::select::Table;
use hither::topo::Topology;
use serde::Serialize;

/// One setting.
#[derive(Serialize)]
pub struct Row {
    pub name: &'static str,
    pub value: String,
    pub default: &'static str,
    pub unit: &'static str,
    /// Whether the environment sets it.
    pub set: bool,
    pub doc: &'static str,
}

/// All rows, and a finding for each value that cannot be used and each unknown name.
pub fn check() -> (Vec<Row>, Vec<Finding>) {
    let row = |setting: &Setting| Row {
        name: setting.name,
        value: setting.text(),
        default: setting.default,
        unit: setting.unit,
        set: setting.is_set(),
        doc: setting.doc.trim(),
    };
    let rows = TABLE.iter().map(row).collect();
    let mut findings: Vec<Finding> = TABLE
        .iter()
        .filter_map(usable)
        .map(|error| {
            Finding::problem("settings", error.to_string(), "correct it, or unset the variable")
        })
        .collect();
    findings.extend(settings::unknown().into_iter().map(|name| {
        let advice = "it has no effect; the names are listed below";
        Finding::note("settings", format!("{name} is not a setting"), advice)
    }));
    (rows, findings)
}

/// What is wrong with a setting's value, if anything.
fn usable(setting: &Setting) -> Option<hither::Error> {
    let text = setting.text();
    match setting.unit {
        "seconds" => setting.seconds().err(),
        "bytes" => setting.bytes().err(),
        "0 or 1" => setting.switch().err(),
        "operation:bytes@members=algorithm" => Table::of_settings().err(),
        "PxNxLxCxT" if !text.is_empty() => Topology::synthetic(&text).err(),
        // Settings that need not have a value are words or numbers.
        "messages" | "iterations" | "descriptor" if text != setting.default => {
            setting.number().err()
        }
        _ => None,
    }
}
