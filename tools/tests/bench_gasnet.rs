//! GASNet-EX as a peer of `hither bench compare`, over the stand-in for it in `tests/gasnet`: whether our
//! programs for it work and keep its rules, and what is said where a build is pointed to that is none.
//! No figure means anything here, and a real build may have other opinions. It takes `cc`, `ar` and `make`.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gasnet");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/peers");

fn succeed(command: &mut Command) {
    let output = command.output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// The stand-in, installed as GASNet is.
fn installed(dir: &Path) -> PathBuf {
    let prefix = dir.join("installed");
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    std::fs::create_dir_all(include.join("smp-conduit")).expect("a folder");
    std::fs::create_dir_all(&lib).expect("a folder");
    let copy = |name: &str, into: &Path| {
        std::fs::copy(Path::new(SOURCES).join(name), into.join(name)).expect("a copy");
    };
    for name in ["gasnetex.h", "gasnet_coll.h", "gasnet_ratomic.h", "gasnet_config.h"] {
        copy(name, &include);
    }
    copy("smp-seq.mak", &include.join("smp-conduit"));
    let mut archive = Command::new("ar");
    archive.arg("rc").arg(lib.join("libgasnet-smp-seq.a"));
    for name in ["job", "communication"] {
        let object = dir.join(format!("{name}.o"));
        let source = Path::new(SOURCES).join(format!("{name}.c"));
        let mut compiler = Command::new("cc");
        compiler.args([
            "-D_GNU_SOURCE=1",
            "-DGASNET_SEQ",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-c",
        ]);
        succeed(compiler.arg("-o").arg(&object).arg(source));
        archive.arg(object);
    }
    succeed(&mut archive);
    prefix
}

fn bench(args: &[&str], gasnet: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
    command.arg("bench").args(args).arg("--gasnet").arg(gasnet);
    command.output().expect("the command starts")
}

fn report(args: &[&str], gasnet: &Path, out: &Path) -> Vec<Value> {
    // No other peers, but a compiler.
    let tools = out.with_extension("tools");
    std::fs::create_dir_all(&tools).expect("a folder");
    for name in ["cc", "make", "as", "ld", "sh"] {
        let find = Command::new("/bin/sh").args(["-c", &format!("command -v {name}")]).output();
        let path = String::from_utf8(find.expect("a shell").stdout).expect("a path");
        std::os::unix::fs::symlink(path.trim(), tools.join(name)).expect("a link");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_hither"));
    command.args(["bench", "compare", "--least", "--gasnet"]).arg(gasnet);
    command.arg("--out").arg(out).args(args).env("PATH", &tools).env("XDG_CACHE_HOME", &tools);
    let output = command.output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    assert!(said.contains("GASNet-EX 2000.1.0-stand-in: "), "{said}");
    let text = std::fs::read_to_string(out.join("report.json")).expect("raw values");
    let lines = serde_json::from_str::<Value>(&text).expect("JSON");
    lines.as_array().expect("lines").clone()
}

/// What it has nothing for.
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

fn judge(lines: &[Value]) {
    for line in lines {
        let entries = line["entries"].as_array().expect("entries");
        let entry = entries.iter().find(|e| e["contestant"] == "GASNet-EX").expect("an entry");
        let name = line["workload"].as_str().expect("a name");
        if LACKING.contains(&name) {
            let why = entry["failed"].as_str().expect("a reason");
            assert!(why.contains("no such workload"), "{name}: {why}");
        } else {
            assert!(entry["value"].as_f64().is_some_and(|x| x > 0.0), "{line}");
        }
    }
}

#[test]
fn every_workload_that_it_has_something_for_has_figures() {
    let dir = tempfile::tempdir().expect("a directory");
    let gasnet = installed(dir.path());
    let groups = ["messages", "pairs", "bandwidth", "onesided", "collectives", "start"];
    let mut args = groups.to_vec();
    args.extend(["--crowd", "0", "--most", "4"]);
    let lines = report(&args, &gasnet, &dir.path().join("two"));
    assert!(lines.len() > 40, "{}", lines.len());
    judge(&lines);
    // All ranks act, and wait politely where there are few cores.
    let args = ["messages", "pairs", "onesided", "collectives", "--crowd", "4"];
    judge(&report(&args, &gasnet, &dir.path().join("four")));
    // What it has no programs for.
    let lines = report(&["graph", "--crowd", "0"], &gasnet, &dir.path().join("graph"));
    let text = lines[0].to_string();
    assert!(text.contains("our programs for it have no such workloads"), "{text}");
}

#[test]
fn the_programs_compile_without_a_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["messages", "onesided", "collectives", "start"] {
        let mut compiler = Command::new("cc");
        compiler.args([
            "-D_GNU_SOURCE=1",
            "-DGASNET_SEQ",
            "-O3",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-c",
        ]);
        for dir in [SOURCES.into(), PathBuf::from(PROGRAMS), Path::new(PROGRAMS).join("gasnet")] {
            compiler.arg("-I").arg(dir);
        }
        compiler.arg("-o").arg(dir.path().join(name));
        succeed(compiler.arg(Path::new(PROGRAMS).join("gasnet").join(format!("{name}.c"))));
    }
}

#[test]
fn who_points_to_no_build_is_told_so_and_nothing_is_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    for what in ["compare", "peers"] {
        let output = bench(&[what], dir.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("no GASNet-EX was installed here"),
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_build_that_is_not_fair_or_does_not_compile_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let gasnet = installed(dir.path());
    let listed = bench(&["peers"], &gasnet);
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.status.success() && text.contains("GASNet-EX  2000.1.0-stand-in"), "{text}");
    let config = gasnet.join("include/gasnet_config.h");
    let good = std::fs::read_to_string(&config).expect("a configuration");
    let refused = |why: &str| {
        let output = bench(&["compare", "collectives"], &gasnet);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{why}: {said}");
        assert!(output.stdout.is_empty());
    };
    let change =
        |from: &str, to: &str| std::fs::write(&config, good.replace(from, to)).expect("it");
    change("/* #undef GASNET_DEBUG */", "#define GASNET_DEBUG 1");
    refused("--enable-debug");
    change("#define GASNETI_PSHM_ENABLED 1", "/* #undef GASNETI_PSHM_ENABLED */");
    refused("--enable-pshm");
    std::fs::write(&config, &good).expect("it");
    std::fs::remove_file(gasnet.join("lib/libgasnet-smp-seq.a")).expect("its library");
    refused("cannot find -lgasnet-smp-seq");
    std::fs::write(gasnet.join("include/gasnet_coll.h"), "#error of another version\n")
        .expect("it");
    refused("error: #error of another version");
    std::fs::remove_dir_all(gasnet.join("include/smp-conduit")).expect("its conduit");
    std::fs::create_dir(gasnet.join("include/udp-conduit")).expect("another");
    refused("without the smp conduit; it has: udp");
}
