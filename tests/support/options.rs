//! Command lines of tests: options `--name value`, flags, and a word that selects.
//!
//! What the test runner adds (`--nocapture` and the like) is passed over.

/// A command line.
pub struct Options {
    args: Vec<String>,
    /// Names of options that have a value.
    valued: &'static [&'static str],
}

impl Options {
    /// That of this process, whose options with values are `valued`.
    pub fn read(valued: &'static [&'static str]) -> Options {
        Options { args: std::env::args().skip(1).collect(), valued }
    }

    /// What stands behind `role`, if that is the first argument.
    pub fn behind(&self, role: &str) -> Option<&[String]> {
        self.args.split_first().filter(|(first, _)| *first == role).map(|(_, rest)| rest)
    }

    /// Whether a flag is there.
    pub fn has(&self, flag: &str) -> bool {
        self.args.iter().any(|arg| arg == flag)
    }

    /// The value of an option.
    pub fn value(&self, name: &str) -> Option<&str> {
        assert!(self.valued.contains(&name), "{name} is no option with a value");
        let at = self.args.iter().position(|arg| arg == name)?;
        let value = self.args.get(at + 1).unwrap_or_else(|| refuse(name, "nothing"));
        Some(value)
    }

    /// The value of an option that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        let text = self.value(name)?;
        Some(text.parse().unwrap_or_else(|_| refuse(name, text)))
    }

    /// Whether an option leaves `value` in: it is not there, or has this value.
    pub fn allows(&self, name: &str, value: impl ToString) -> bool {
        self.value(name).is_none_or(|given| given == value.to_string())
    }

    /// The first argument that is neither an option nor the value of one.
    pub fn word(&self) -> Option<&str> {
        let is_value = |at: usize| at > 0 && self.valued.contains(&self.args[at - 1].as_str());
        let word =
            (0..self.args.len()).find(|&at| !self.args[at].starts_with('-') && !is_value(at));
        word.map(|at| self.args[at].as_str())
    }
}

fn refuse(name: &str, value: &str) -> ! {
    eprintln!("{name} has {value} where its value should be");
    std::process::exit(2)
}
