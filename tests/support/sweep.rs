//! Random rounds in every form, by every way, in jobs of several sizes.

use super::options::Options;
use std::time::Instant;

/// What the rounds of a program are drawn from.
pub struct Sweep<'o> {
    options: &'o Options,
    /// Of the first round; each round has the next one.
    pub seed: u64,
    /// In each form, way and size.
    pub rounds: u64,
}

impl<'o> Sweep<'o> {
    /// Options whose values the command line of a sweep takes.
    pub const OPTIONS: &'static [&'static str] =
        &["--rounds", "--seed", "--ranks", "--form", "--way"];

    /// As the command line says, else another seed in each process, and `rounds`.
    pub fn read(options: &'o Options, rounds: u64) -> Sweep<'o> {
        let seed = options.number("--seed").unwrap_or_else(|| u64::from(std::process::id()) << 20);
        let rounds = options.number("--rounds").unwrap_or(rounds);
        println!("seed {seed}, {rounds} rounds in each form");
        Sweep { options, seed, rounds }
    }

    /// Calls `play(form, way, ranks)` for all that the command line leaves in, and ends the process
    /// with code 1 if one says that it failed, or something had `failed` before.
    pub fn run(
        &self,
        ways: &[&'static str],
        sizes: &[u32],
        failed: bool,
        play: impl Fn(&str, &'static str, u32) -> bool,
    ) {
        let options = self.options;
        let mut failed = u32::from(failed);
        for way in ways.iter().filter(|way| options.allows("--way", way)) {
            for form in ["threads", "processes"].iter().filter(|f| options.allows("--form", f)) {
                for &ranks in sizes.iter().filter(|n| options.allows("--ranks", n)) {
                    let began = Instant::now();
                    let ok = play(form, way, ranks);
                    failed += u32::from(!ok);
                    let verdict = if ok { "ok" } else { "FAILED" };
                    println!("test {form} {ranks} {way} ... {verdict} ({:.1?})", began.elapsed());
                }
            }
        }
        if failed > 0 {
            println!("{failed} failed; the seed was {}", self.seed);
            std::process::exit(1);
        }
    }
}
