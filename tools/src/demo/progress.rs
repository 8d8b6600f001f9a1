//! Progress bars: one at a time, on standard error, and only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::time::Duration;

/// Whether and where this rank shows progress.
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Progress of a rank; only one rank of a job should show it.
    pub fn new(shown: bool) -> Progress {
        Progress { shown }
    }

    /// A remark on standard error.
    pub fn note(&self, text: &str) {
        if self.shown {
            say(text);
        }
    }

    /// A bar of `steps` steps; it vanishes when dropped.
    pub fn bar(&self, title: &str, steps: u64) -> Bar {
        let target = if self.shown {
            // Drawing nothing unless standard error is a terminal is what this target does.
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        let style = ProgressStyle::with_template("{msg:40} [{bar:30}] {pos}/{len} {eta}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(title.to_owned());
        if self.shown && !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Bar(bar)
    }
}

/// One line on standard error, written at once: other ranks write there too.
pub fn say(text: &str) {
    // Nobody to tell is no reason to fail.
    let _ = std::io::stderr().write_all(format!("hither: {text}\n").as_bytes());
}

/// One bar.
pub struct Bar(ProgressBar);

impl Bar {
    /// One step done.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
