//! Processes, known by a variable in their environment; waiting for what others do.

use std::time::{Duration, Instant};

/// Other processes in whose environment `variable` is `mark`, with their names.
pub fn marked(variable: &str, mark: &str) -> Vec<(i32, String)> {
    let wanted = format!("{variable}={mark}").into_bytes();
    let own = std::process::id() as i32;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("the list of processes").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if pid != own && environ.split(|byte| *byte == 0).any(|variable| variable == wanted) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((pid, name.trim().to_owned()));
        }
    }
    found
}

/// Waits until something has come true; fails saying `what` if it never does.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}
