//! GASNet-EX, where a build of it is pointed to: the programs of `benches/peers/gasnet`, compiled with
//! what its makefile fragment for clients says. Its smp conduit needs no launcher: the first process
//! forks the others, and they share memory.

use super::{Order, Peer, Setting, on_path, typed};
use crate::bench::compare::lines::Outcome;
use crate::bench::compare::workload::{Cast, Group, Task};
use hither::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Its name.
pub const NAME: &str = "GASNet-EX";
/// What points to a build.
const OPTION: &str = "--gasnet";
/// Why it is not there where nothing does.
pub const UNKNOWN: &str = "no build of it is pointed to; --gasnet DIR does that (/usr where Debian's libgasnet-dev is installed)";
/// What it calls its clients of one thread, which ours are, over shared memory. For others it takes locks.
const FRAGMENT: &str = "smp-conduit/smp-seq.mak";

/// The sources of the programs, and how its fragment compiles them.
const FILES: [(&str, &str); 10] = [
    ("common.h", include_str!("../../../../../benches/peers/common.h")),
    ("library.h", include_str!("../../../../../benches/peers/library.h")),
    ("private.h", include_str!("../../../../../benches/peers/private.h")),
    ("signals.h", include_str!("../../../../../benches/peers/signals.h")),
    ("gasnet_job.h", include_str!("../../../../../benches/peers/gasnet/gasnet_job.h")),
    ("messages.c", include_str!("../../../../../benches/peers/gasnet/messages.c")),
    ("onesided.c", include_str!("../../../../../benches/peers/gasnet/onesided.c")),
    ("collectives.c", include_str!("../../../../../benches/peers/gasnet/collectives.c")),
    ("start.c", include_str!("../../../../../benches/peers/gasnet/start.c")),
    (MAKEFILE, RULES),
];
const MAKEFILE: &str = "programs.mak";
// A package may have been built by a compiler that is not here, and its fragment may not know where the
// package has put the headers.
const RULES: &str = "include $(FRAGMENT)
PROGRAMS = messages onesided collectives start
COMPILER := $(if $(shell command -v $(firstword $(GASNET_CC))),$(GASNET_CC),cc)
programs: $(PROGRAMS)
$(PROGRAMS): %: %.c
\t$(COMPILER) $(GASNET_CPPFLAGS) -I$(HEADERS) -I$(HEADERS)/smp-conduit $(GASNET_CFLAGS) \
\t\t-D_GNU_SOURCE=1 -O3 -ffp-contract=off -c $<
\t$(GASNET_LD) $(GASNET_LDFLAGS) -o $@ $@.o $(GASNET_LIBS)
";

/// What its configuration must not say, and why not.
const UNFAIR: [(&str, &str); 5] = [
    ("GASNET_DEBUG", "a debug build (--enable-debug): its figures would not be fair"),
    ("GASNET_TRACE", "a build that traces (--enable-trace): its figures would not be fair"),
    ("GASNET_STATS", "a build that counts (--enable-stats): its figures would not be fair"),
    (
        "GASNET_DEBUGMALLOC",
        "a build that checks memory (--enable-debug-malloc): its figures would not be fair",
    ),
    ("GASNETI_UNI_BUILD", "a build for machines with one processor (--disable-smp-safe)"),
];

/// See the module.
pub struct Gasnet {
    version: String,
    /// Its headers.
    include: PathBuf,
    place: PathBuf,
}

fn wrong(dir: &Path, why: &str) -> Error {
    Error::invalid(OPTION, format!("{}: {why}", dir.display()))
}

/// What a configuration defines a name as.
fn defined<'c>(config: &'c str, name: &str) -> Option<&'c str> {
    config.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix("#define")?.trim_start().strip_prefix(name)?;
        (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim())
    })
}

/// The conduits of a build.
fn conduits(include: &Path) -> String {
    let entries = std::fs::read_dir(include).into_iter().flatten().flatten();
    let conduit = |entry: std::fs::DirEntry| {
        Some(entry.file_name().to_str()?.strip_suffix("-conduit")?.to_owned())
    };
    let mut names: Vec<String> = entries.filter_map(conduit).collect();
    names.sort();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Where a build has its headers: Debian's package keeps them apart for each architecture.
fn headers(dir: &Path) -> PathBuf {
    let include = dir.join("include");
    let has = |dir: &PathBuf| dir.join("gasnetex.h").is_file();
    if has(&include) {
        return include;
    }
    let entries = std::fs::read_dir(&include).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(has).min().unwrap_or(include)
}

impl Gasnet {
    /// Looks at the build in `dir`, where it was installed. Who points to it wants it compared: what keeps
    /// it from that is an error.
    pub fn find(dir: &Path) -> Result<Gasnet> {
        let dir = &dir.canonicalize().map_err(|e| wrong(dir, &e.to_string()))?;
        let include = headers(dir);
        if !include.join("gasnetex.h").is_file() {
            let why = if dir.join("gasnetex.h").is_file() {
                "its sources; it is to be built, installed, and pointed to where that is"
            } else if include.join("gasnet.h").is_file() {
                "a GASNet before GASNet-EX: there is no include/gasnetex.h"
            } else {
                "no GASNet-EX was installed here: there is no include/gasnetex.h"
            };
            return Err(wrong(dir, why));
        }
        if !include.join("smp-conduit").is_dir() {
            let why = format!("a build without the smp conduit; it has: {}", conduits(&include));
            return Err(wrong(dir, &why));
        }
        if !include.join(FRAGMENT).is_file() {
            return Err(wrong(dir, &format!("a build without {FRAGMENT} (--enable-seq)")));
        }
        // Its rules are text for make.
        if include.to_str().is_none_or(|path| path.contains(|c: char| " \t\n$#%:\\'\"".contains(c)))
        {
            return Err(wrong(dir, "make takes no such path"));
        }
        let config = std::fs::read_to_string(include.join("gasnet_config.h"))
            .map_err(|e| wrong(dir, &format!("include/gasnet_config.h: {e}")))?;
        let Some(version) = defined(&config, "GASNETI_RELEASE_VERSION") else {
            return Err(wrong(dir, "include/gasnet_config.h tells no version"));
        };
        if defined(&config, "GASNETI_PSHM_ENABLED").is_none() {
            let why = "a build without shared memory between processes (--enable-pshm)";
            return Err(wrong(dir, why));
        }
        let unfair = UNFAIR.iter().find(|(name, _)| defined(&config, name).is_some());
        if let Some((_, why)) = unfair {
            return Err(wrong(dir, why));
        }
        Ok(Gasnet { version: version.to_owned(), include, place: PathBuf::new() })
    }

    /// Compiles its programs, in a folder of their own in `place`.
    pub fn compiled(mut self, place: &Path) -> Result<Gasnet> {
        let os = |what: &'static str| move |e: std::io::Error| Error::os(what, e);
        let why = || Error::invalid(OPTION, "its programs are compiled by make, which is not here");
        let make = on_path("make").ok_or_else(why)?;
        self.place = place.join("gasnet");
        std::fs::create_dir_all(&self.place).map_err(os("making a folder for peers' programs"))?;
        for (name, text) in FILES {
            let file = self.place.join(name);
            std::fs::write(file, text).map_err(os("writing a peer's source"))?;
        }
        let mut command = Command::new(make);
        command.args(["-f", MAKEFILE, "programs"]).current_dir(&self.place).stdin(Stdio::null());
        command.arg(format!("FRAGMENT={}", self.include.join(FRAGMENT).display()));
        command.arg(format!("HEADERS={}", self.include.display()));
        // Not those of a make that has started this.
        for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
            command.env_remove(name);
        }
        let output = command.output().map_err(os("starting make"))?;
        if output.status.success() {
            return Ok(self);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let tells = |line: &&str| {
            ["error:", "undefined reference", "cannot find"].iter().any(|what| line.contains(what))
        };
        let line = said.lines().find(tells).or(said.lines().next());
        let why = format!("{}: {}", output.status, line.unwrap_or("without a word"));
        Err(Error::Misuse { what: "compiling the programs for GASNet-EX", why })
    }

    fn made(&self, order: &Order<'_>, left: &[Task]) -> Command {
        let group = left.first().map_or(Group::Messages, |task| task.workload().group);
        let mut command = Command::new(self.place.join(group.program()));
        command.args(order.effort()).args(left.iter().map(|task| task.item()));
        command.env("GASNET_PSHM_NODES", order.ranks().to_string());
        for (name, value) in &order.setting.env {
            command.env(name, value);
        }
        command
    }
}

/// Active messages that may be under way; it takes 32 by itself.
const MESSAGES: [&str; 2] = ["GASNET_PSHM_NETWORK_DEPTH=8", "GASNET_PSHM_NETWORK_DEPTH=256"];
/// Barriers that are not the one by a flat tree.
const COLLECTIVES: [&str; 2] = ["GASNET_BARRIER=DISSEM", "GASNET_PSHM_BARRIER_RADIX=2"];

impl Peer for Gasnet {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn measured_by(&self) -> &'static str {
        "programs of our own (benches/peers/gasnet) over its smp conduit, -O3; active messages of the kind \
         that is fastest for the size; a wait for flush"
    }

    fn settings(&self, group: Group, _: bool) -> Vec<Setting> {
        let mut settings = vec![Setting::usual()];
        match group {
            Group::Messages | Group::Pairs | Group::Bandwidth => {
                settings.extend(MESSAGES.map(Setting::with_env));
            }
            Group::Collectives => settings.extend(COLLECTIVES.map(Setting::with_env)),
            _ => {}
        }
        settings
    }

    fn can(&self, group: Group, _: Cast) -> std::result::Result<(), &'static str> {
        match group {
            Group::Messages
            | Group::Pairs
            | Group::Bandwidth
            | Group::OneSided
            | Group::Collectives
            | Group::Start => Ok(()),
            _ => Err("our programs for it have no such workloads"),
        }
    }

    fn run(&self, order: &Order<'_>) -> Result<Vec<(Task, Outcome)>> {
        super::timed(order, |left| Ok(self.made(order, left)))
    }

    fn command(&self, order: &Order<'_>) -> String {
        typed(&self.made(order, order.tasks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::compare::workload;

    const GOOD: &str = "\
#define GASNETI_RELEASE_VERSION 2023.9.0
#define GASNETI_PSHM_ENABLED 1
/* #undef GASNET_DEBUG */
#define GASNET_DEBUG_VERBOSE_NOT 1
#define GASNET_NDEBUG 1
";

    #[test]
    fn configurations_say_what_they_define() {
        assert_eq!(defined(GOOD, "GASNETI_RELEASE_VERSION"), Some("2023.9.0"));
        assert_eq!(defined(GOOD, "GASNET_DEBUG"), None);
        assert_eq!(defined("# define X\n  #define  Y\n", "Y"), Some(""));
    }

    fn build(dir: &Path, config: &str) {
        let conduit = dir.join("include/smp-conduit");
        std::fs::create_dir_all(&conduit).unwrap();
        std::fs::write(dir.join("include/gasnetex.h"), "").unwrap();
        std::fs::write(dir.join("include/gasnet_config.h"), config).unwrap();
        std::fs::write(conduit.join("smp-seq.mak"), "").unwrap();
    }

    fn why(dir: &Path) -> String {
        Gasnet::find(dir).err().unwrap().to_string()
    }

    #[test]
    fn what_is_no_build_is_told_from_one() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        assert!(why(&dir.join("nowhere")).contains("No such file"));
        assert!(why(dir).contains("no GASNet-EX was installed here"));
        std::fs::create_dir(dir.join("include")).unwrap();
        std::fs::write(dir.join("include/gasnet.h"), "").unwrap();
        assert!(why(dir).contains("before GASNet-EX"));
        std::fs::write(dir.join("gasnetex.h"), "").unwrap();
        assert!(why(dir).contains("its sources"));
        std::fs::write(dir.join("include/gasnetex.h"), "").unwrap();
        assert!(why(dir).contains("it has: none"));
        for conduit in ["udp-conduit", "mpi-conduit"] {
            std::fs::create_dir(dir.join("include").join(conduit)).unwrap();
        }
        assert!(why(dir).contains("it has: mpi, udp"));
        std::fs::create_dir(dir.join("include/smp-conduit")).unwrap();
        assert!(why(dir).contains("smp-seq.mak"));
        std::fs::write(dir.join("include").join(FRAGMENT), "").unwrap();
        assert!(why(dir).contains("gasnet_config.h: "));
        std::fs::write(dir.join("include/gasnet_config.h"), "").unwrap();
        assert!(why(dir).contains("tells no version"));
        build(dir, GOOD);
        assert_eq!(Gasnet::find(dir).unwrap().version(), "2023.9.0");
        // As Debian has it.
        let multiarch = dir.join("multiarch");
        std::fs::create_dir_all(multiarch.join("include/x86_64-linux-gnu")).unwrap();
        assert!(why(&multiarch).contains("no GASNet-EX was installed here"));
        build(&multiarch, GOOD);
        std::fs::rename(multiarch.join("include"), dir.join("moved")).unwrap();
        std::fs::create_dir(multiarch.join("include")).unwrap();
        std::fs::remove_dir(dir.join("moved/x86_64-linux-gnu")).unwrap();
        std::fs::rename(dir.join("moved"), multiarch.join("include/x86_64-linux-gnu")).unwrap();
        assert_eq!(Gasnet::find(&multiarch).unwrap().version(), "2023.9.0");
        let spaced = dir.join("a b");
        build(&spaced, GOOD);
        assert!(why(&spaced).contains("make takes no such path"));
    }

    #[test]
    fn builds_that_would_not_be_fair_are_refused() {
        let home = tempfile::tempdir().unwrap();
        build(home.path(), "#define GASNETI_RELEASE_VERSION 2023.9.0\n");
        assert!(why(home.path()).contains("--enable-pshm"));
        for (name, reason) in UNFAIR {
            build(home.path(), &format!("{GOOD}#define {name} 1\n"));
            assert!(why(home.path()).contains(reason), "{name}");
        }
    }

    /// Workloads of the groups it can do that its programs have not: it has neither locks nor epochs, no
    /// collective of all with all, and of what get_accumulate does only fetch_and_op. Those with buffers
    /// left alone are for UCX's own loops.
    const LACKING: [&str; 10] = [
        "latency-still",
        "bandwidth-still",
        "get-accumulate",
        "get-accumulate-rate",
        "lock-shared",
        "lock-exclusive",
        "lock-contended",
        "fence",
        "pscw",
        "alltoall",
    ];

    fn some() -> Gasnet {
        Gasnet { version: "1".into(), include: PathBuf::new(), place: "/x/gasnet".into() }
    }

    #[test]
    fn workloads_have_the_same_names_everywhere() {
        let cast = Cast { ranks: 2, cores: 2 };
        for workload in workload::ALL {
            let can = some().can(workload.group, cast).is_ok();
            let source = format!("{}.c", workload.group.program());
            let source = FILES.iter().find(|(name, _)| can && *name == source);
            let named = source.is_some_and(|(_, text)| {
                let printed = format!("= {}:0 ", workload.name);
                text.contains(&format!("\"{}\"", workload.name)) || text.contains(&printed)
            });
            let wanted = can && !LACKING.contains(&workload.name);
            assert_eq!(named, wanted, "{}", workload.name);
        }
    }

    #[test]
    fn the_first_process_is_told_how_many_there_are() {
        let tasks = workload::tasks(Group::OneSided, Cast { ranks: 4, cores: 4 }, true);
        let setting = Setting::with_env("GASNET_PSHM_NETWORK_DEPTH=8");
        let patience = std::time::Duration::from_secs(1);
        let order = Order {
            tasks: &tasks[..1],
            setting: &setting,
            batch: 1e4,
            batches: 2,
            patience,
            crowded: false,
        };
        assert_eq!(
            some().command(&order),
            "GASNET_PSHM_NETWORK_DEPTH=8 GASNET_PSHM_NODES=4 onesided 10000 2 put:8"
        );
    }
}
