//! Why the laboratory could not do what it was asked.

use std::path::Path;

/// Result of everything in the laboratory that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine cannot have guests: no packages are to be had, or no emulation. Nothing is
    /// wrong with what was to be tried in them.
    #[error("no laboratory here: {0}")]
    Unavailable(String),
    /// Something did not work that should have.
    #[error("{0}")]
    Failed(String),
    /// The laboratory's time is up; all guests are gone.
    #[error("the laboratory's time is up: {0}")]
    TimeUp(String),
    /// The guest is gone: powered off, or it crashed.
    #[error("guest g{guest} is gone{}", said(.last))]
    Gone {
        /// Its number.
        guest: usize,
        /// The end of what its console and its emulator said.
        last: String,
    },
}

fn said(last: &str) -> String {
    if last.is_empty() { String::new() } else { format!("; its last words:\n{last}") }
}

impl Error {
    /// `what` failed for a reason that the system gave.
    pub(crate) fn system(what: impl std::fmt::Display, e: impl std::fmt::Display) -> Error {
        Error::Failed(format!("{what}: {e}"))
    }

    /// The same of a file.
    pub(crate) fn file(path: &Path, e: impl std::fmt::Display) -> Error {
        Error::system(path.display(), e)
    }
}
