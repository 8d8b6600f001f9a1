//! Plans as text: `drop=20,duplicate=5,delay=10,delay-for=3,reorder=20,cut=1,seed=7`, all of 1000 but
//! for the longest delay, in milliseconds, and the seed. What is not named does not happen.

use super::Plan;
use crate::base::{Error, Result, settings};
use std::time::Duration;

/// The longest delay where none is given.
const DELAY: Duration = Duration::from_millis(5);

impl Plan {
    /// What the settings want to happen, if anything; the seed differs from rank to rank.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for what is no plan.
    pub fn from_settings(rank: u32) -> Result<Option<Plan>> {
        let text = settings::NET_FAULTS.text();
        if text.is_empty() {
            return Ok(None);
        }
        let plan = Plan::parse(&text)?;
        Ok(Some(Plan { seed: plan.seed.wrapping_add(u64::from(rank) << 32), ..plan }))
    }

    /// The plan that a text describes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], which says what is wrong with it.
    pub fn parse(text: &str) -> Result<Plan> {
        let refused = |why: String| Error::invalid(settings::NET_FAULTS.name, why);
        let mut plan = Plan { delay_for: DELAY, ..Plan::default() };
        for item in text.split(',').map(str::trim) {
            let number = |most: u64| {
                let value = item.split_once('=').and_then(|(_, value)| value.trim().parse().ok());
                value.filter(|value| *value <= most).ok_or_else(|| {
                    refused(format!("\"{item}\" wants a whole number up to {most} behind its ="))
                })
            };
            let of_1000 = || number(1000).map(|value| value as u32);
            match item.split('=').next().unwrap_or_default().trim() {
                "drop" => plan.drop = of_1000()?,
                "duplicate" => plan.duplicate = of_1000()?,
                "delay" => plan.delay = of_1000()?,
                "delay-for" => plan.delay_for = Duration::from_millis(number(60_000)?),
                "reorder" => plan.reorder = of_1000()?,
                "cut" => plan.cut = of_1000()?,
                "seed" => plan.seed = number(u64::MAX)?,
                other => {
                    let known = "drop, duplicate, delay, delay-for, reorder, cut and seed";
                    return Err(refused(format!("\"{other}\" is none of {known}")));
                }
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plans_are_what_their_text_says(
            of_1000 in prop::array::uniform5(0u32..=1000),
            ms in 0u64..=60_000,
            seed: u64,
        ) {
            let [drop, duplicate, delay, reorder, cut] = of_1000;
            let text = format!(
                "seed={seed}, drop={drop},duplicate = {duplicate},delay={delay},\
                 delay-for={ms},reorder={reorder}, cut={cut}"
            );
            let delay_for = Duration::from_millis(ms);
            let plan = Plan { seed, drop, duplicate, delay, delay_for, reorder, cut };
            prop_assert_eq!(Plan::parse(&text).unwrap(), plan);
        }

        #[test]
        fn nothing_that_is_written_brings_it_down(text in "[a-z0-9=, -]{0,40}") {
            let _ = Plan::parse(&text);
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, part) in [
            ("drop=1001", "up to 1000"),
            ("drop", "whole number"),
            ("drop=-1", "whole number"),
            ("lose=3", "\"lose\" is none of drop"),
            ("drop=1,,seed=2", "\"\" is none of"),
            ("delay-for=1s", "whole number"),
        ] {
            let why = Plan::parse(text).unwrap_err().to_string();
            assert!(why.contains(part) && why.contains("HITHER_NET_FAULTS"), "{why}");
        }
        assert_eq!(Plan::parse("drop=7").unwrap().delay_for, DELAY);
    }
}
