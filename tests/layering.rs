//! Holds the source against the rules of `ARCHITECTURE.md`: which room may use which, and what
//! must never be written where.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const MOST_LINES: usize = 600;

/// A source file: its path from the root, its text, and its words without comments and strings.
struct Source {
    path: String,
    text: String,
    words: Vec<String>,
}

impl Source {
    /// `shm` for `src/shm/ring/cell.rs`; nothing for files directly under `src` or outside it.
    fn room(&self) -> Option<&str> {
        let (room, _) = self.path.strip_prefix("src/")?.split_once('/')?;
        Some(room)
    }

    /// Names of the modules that lead to this file, from the crate's root.
    fn module(&self) -> Vec<&str> {
        let inner = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        inner.split('/').filter(|name| *name != "mod").collect()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
}

fn sources(dirs: &[&str]) -> Vec<Source> {
    let mut files = Vec::new();
    for dir in dirs {
        collect(&root().join(dir), &mut files);
    }
    assert!(!files.is_empty());
    files.sort();
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        let path = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let words = words(&text);
        Source { path, text, words }
    };
    files.into_iter().map(read).collect()
}

/// Splits Rust into identifiers, `::`, and single other characters; drops comments and literals.
fn words(text: &str) -> Vec<String> {
    let bytes: Vec<char> = text.chars().collect();
    let at = |i: usize| bytes.get(i).copied().unwrap_or('\0');
    let ends = |i: usize, end: &str| end.chars().enumerate().all(|(k, c)| at(i + k) == c);
    let (mut words, mut i) = (Vec::new(), 0);
    while i < bytes.len() {
        let c = at(i);
        if ends(i, "//") {
            while i < bytes.len() && at(i) != '\n' {
                i += 1;
            }
        } else if ends(i, "/*") {
            let mut depth = 0;
            while i < bytes.len() {
                depth += i32::from(ends(i, "/*")) - i32::from(ends(i, "*/"));
                i += if ends(i, "/*") || ends(i, "*/") { 2 } else { 1 };
                if depth == 0 {
                    break;
                }
            }
        } else if c == 'r' && (at(i + 1) == '"' || ends(i + 1, "#\"") || ends(i + 1, "##\"")) {
            let hashes = (1..).take_while(|&k| at(i + k) == '#').count();
            let end = format!("\"{}", "#".repeat(hashes));
            i += hashes + 2;
            while i < bytes.len() && !ends(i, &end) {
                i += 1;
            }
            i += end.len();
        } else if c == '"' {
            i += 1;
            while i < bytes.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if c == '\'' && at(i + 1) == '\\' {
            i += 3;
            while i < bytes.len() && at(i) != '\'' {
                i += 1;
            }
            i += 1;
        } else if c == '\'' && at(i + 2) == '\'' {
            i += 3;
        } else if c.is_alphanumeric() || c == '_' {
            let start = i;
            while at(i).is_alphanumeric() || at(i) == '_' {
                i += 1;
            }
            words.push(bytes[start..i].iter().collect());
        } else if ends(i, "::") {
            words.push("::".into());
            i += 2;
        } else {
            if !c.is_whitespace() {
                words.push(c.to_string());
            }
            i += 1;
        }
    }
    words
}

/// The crate-level modules that a file names by `crate::x`, `crate::{x, y::z}`, or enough
/// `super::`s to leave its room.
fn edges(source: &Source) -> BTreeSet<String> {
    let words: Vec<&str> = source.words.iter().map(String::as_str).collect();
    let mut found = BTreeSet::new();
    for (i, &word) in words.iter().enumerate() {
        let rest = &words[i + 1..];
        if word == "crate" && rest.first() == Some(&"::") {
            found.extend(heads(&rest[1..]));
        }
        if word == "super" && (i < 2 || words[i - 2] != "super") {
            let supers = words[i..].chunks(2).take_while(|pair| *pair == ["super", "::"]).count();
            if supers >= source.module().len() {
                found.extend(heads(&words[i + 2 * supers..]));
            }
        }
    }
    found
}

/// First names of a path, or of each path of a group in braces.
fn heads(words: &[&str]) -> Vec<String> {
    if words.first() != Some(&"{") {
        return words.first().map(|w| w.to_string()).into_iter().collect();
    }
    let (mut heads, mut depth, mut fresh) = (Vec::new(), 0, false);
    for &word in words {
        match word {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," => {}
            _ if depth == 1 && fresh => heads.push(word.to_string()),
            _ => {}
        }
        if depth == 0 {
            break;
        }
        fresh = depth == 1 && matches!(word, "{" | ",");
    }
    heads
}

/// The table of rooms in `ARCHITECTURE.md`.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| room | may use |")).skip(2);
    let mut table = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let uses = cells[2].split(',').map(str::trim).filter(|name| !name.is_empty());
        let room = cells[1].trim_matches('`').to_string();
        table.insert(room, uses.map(str::to_string).collect());
    }
    table
}

fn assert_none(broken: Vec<String>, rule: &str) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn the_table_and_the_source_have_the_same_rooms() {
    let on_disk: BTreeSet<String> = std::fs::read_dir(root().join("src"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(table().into_keys().collect::<BTreeSet<_>>(), on_disk);
}

#[test]
fn the_table_has_no_rings() {
    let table = table();
    for (room, uses) in &table {
        assert!(!uses.contains(room), "{room} lists itself");
        for used in uses {
            let below = table.get(used).unwrap_or_else(|| panic!("{room} may use {used}: what?"));
            assert!(!below.contains(room), "{room} and {used} may use each other");
            assert!(below.is_subset(uses), "{room} may use {used}, but not all it rests on");
        }
    }
}

#[test]
fn rooms_use_only_what_the_table_allows() {
    let table = table();
    let mut broken = Vec::new();
    let mut seen = 0;
    for source in sources(&["src"]) {
        let Some(room) = source.room() else { continue };
        for used in edges(&source).iter().filter(|used| table.contains_key(*used)) {
            seen += 1;
            if used != room && !table[room].contains(used) {
                broken.push(format!("{} uses {used}", source.path));
            }
        }
    }
    assert!(seen > 20, "only {seen} edges seen: the test is blind");
    assert_none(broken, "a room may use only the rooms that ARCHITECTURE.md's table names");
}

#[test]
fn edges_are_seen_however_they_are_written() {
    let text = "use crate::{base::{Error, sync}, shm};\n// crate::am\nfn f() { crate::coll::x(); }\
                \nconst S: &str = \"crate::rma\"; use super::super::link::Vc; use super::ring;\
                \nconst Q: char = '\"'; /* crate::boot */ use crate::topo as t;";
    let source = Source { path: "src/shm/map.rs".into(), text: String::new(), words: words(text) };
    let want: Vec<String> = ["base", "coll", "link", "shm", "topo"].map(String::from).into();
    assert_eq!(edges(&source).into_iter().collect::<Vec<_>>(), want);
}

/// Fails where `words` stand one after the other in a file that `where_not` selects.
fn never(words: &[&str], where_not: impl Fn(&Source) -> bool, rule: &str) {
    let broken = sources(&["src"])
        .iter()
        .filter(|source| where_not(source))
        .filter(|source| source.words.windows(words.len()).any(|window| window == words))
        .map(|source| source.path.clone())
        .collect();
    assert_none(broken, rule);
}

#[test]
fn atomics_come_from_one_place() {
    for krate in ["std", "core"] {
        let elsewhere = |source: &Source| source.path != "src/base/sync.rs";
        never(&[krate, "::", "sync", "::", "atomic"], elsewhere, "atomics come from base::sync");
    }
}

#[test]
fn the_environment_is_read_in_one_place() {
    for name in ["var", "var_os", "vars", "vars_os"] {
        let elsewhere = |source: &Source| source.path != "src/base/settings.rs";
        never(&["env", "::", name], elsewhere, "the environment is read in base::settings");
    }
}

#[test]
fn memory_is_mapped_in_one_place() {
    for name in ["mmap", "mmap_anonymous", "munmap", "mremap", "madvise", "shm_open"] {
        let elsewhere = |source: &Source| source.path != "src/shm/map.rs";
        never(&[name, "("], elsewhere, "memory is mapped in shm::map");
    }
}

#[test]
fn what_peers_wrote_is_checked_in_release_builds_too() {
    for name in ["debug_assert", "debug_assert_eq", "debug_assert_ne"] {
        let reads_peers =
            |s: &Source| matches!(s.room(), Some("boot" | "shm" | "net" | "link" | "p2p" | "coll"));
        never(&[name, "!"], reads_peers, "checks of shared data hold in release builds");
    }
}

#[test]
fn shared_memory_and_links_know_nothing_of_windows_and_teams() {
    let mut broken = Vec::new();
    for source in sources(&["src/shm", "src/link", "src/p2p"]) {
        for word in &source.words {
            let parts: Vec<String> = split_identifier(word);
            let known = ["window", "windows", "team", "teams"];
            // The slices' method is not about windows of memory.
            if word != "windows" && parts.iter().any(|part| known.contains(&part.as_str())) {
                broken.push(format!("{}: {word}", source.path));
            }
        }
    }
    assert_none(broken, "shm, link and p2p do not name what is built on them");
}

/// `team_size` and `TeamSize` are team and size.
fn split_identifier(word: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut lower = false;
    for c in word.chars() {
        if c == '_' || (c.is_uppercase() && lower) {
            parts.push(String::new());
        }
        lower = c.is_lowercase();
        if c != '_' {
            parts.last_mut().unwrap().extend(c.to_lowercase());
        }
    }
    parts
}

#[test]
fn nothing_is_left_undone() {
    let notes = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat()];
    let mut broken = Vec::new();
    for source in sources(&["src", "tools", "tests", "benches"]) {
        for note in &notes {
            if words_of_text(&source.text).any(|word| word == note) {
                broken.push(format!("{}: {note}", source.path));
            }
        }
        let has = |find: &[&str]| source.words.windows(find.len()).any(|words| words == find);
        if has(&["todo", "!"]) || has(&["unimplemented", "!"]) || has(&["#", "[", "ignore"]) {
            broken.push(format!("{}: a stub or a test that is not run", source.path));
        }
        let lines = source.text.lines().count();
        if lines > MOST_LINES {
            broken.push(format!("{}: {lines} lines, more than {MOST_LINES}", source.path));
        }
    }
    assert_none(broken, "files are finished and of a size to read");
}

fn words_of_text(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}
