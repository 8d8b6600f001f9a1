//! Edge lists as SNAP publishes them: one edge a line, two vertex numbers separated by blanks,
//! tabs or a comma; further columns (weights, times) are not read; `#` and `%` begin comment
//! lines; line ends may be CRLF.
//!
//! Every rank reads its own part of the file. Some files begin with a line "N M" that is no edge;
//! [`looks_like_header`] tells it from one.

use super::super::input::Text;
use hither::Result;

/// An edge as the file names it.
pub type RawEdge = [u64; 2];

/// Reads the lines of part `part` of `parts`.
pub fn parse(text: &Text, part: usize, parts: usize) -> Result<Vec<RawEdge>> {
    let range = text.part(part, parts);
    let mut edges = Vec::with_capacity(range.len() / 12);
    let mut start = range.start;
    let bytes = &text.bytes()[range];
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        match parse_line(line) {
            Ok(Some(edge)) => edges.push(edge),
            Ok(None) => {}
            Err(why) => return Err(text.refuse_at(start, why)),
        }
        start += line.len();
    }
    Ok(edges)
}

fn parse_line(line: &[u8]) -> Result<Option<RawEdge>, String> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") || line.starts_with(b"%") {
        return Ok(None);
    }
    if let Some(&odd) = line.iter().find(|b| b.is_ascii_control() && **b != b'\t') {
        return Err(format!("holds the byte {odd:#04x}; an edge list is text"));
    }
    let mut fields = line
        .split(|b| matches!(b, b' ' | b'\t' | b','))
        .filter(|field| !field.is_empty())
        .map(vertex);
    let (Some(from), Some(to)) = (fields.next(), fields.next()) else {
        return Err("holds one column; an edge is two vertex numbers".into());
    };
    Ok(Some([from?, to?]))
}

fn vertex(field: &[u8]) -> Result<u64, String> {
    let shown = || String::from_utf8_lossy(&field[..field.len().min(40)]).into_owned();
    if field.iter().all(u8::is_ascii_digit) {
        return field
            .iter()
            .try_fold(0u64, |number, &digit| {
                number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
            })
            .ok_or_else(|| format!("vertex number {} does not fit 64 bits", shown()));
    }
    match field.split_first() {
        Some((b'-', rest)) if !rest.is_empty() && rest.iter().all(u8::is_ascii_digit) => {
            Err(format!("vertex number {} is negative", shown()))
        }
        _ => Err(format!("\"{}\" is not a vertex number", shown().escape_debug())),
    }
}

/// What is known of the data lines after the first one.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// Number of data lines.
    pub lines: u64,
    /// Number of different vertices in them.
    pub distinct: u64,
    /// Largest vertex number in them.
    pub largest: u64,
}

/// Whether the first data line is a header "vertices edges" and no edge: its second number is the
/// number of lines that follow, and its first agrees with the vertices in them. (An edge could do
/// so only by naming two vertices with exactly these numbers.)
pub fn looks_like_header(first: RawEdge, rest: Rest) -> bool {
    let vertices = first[0] == rest.distinct
        || Some(first[0]) == rest.largest.checked_add(1)
        || first[0] == rest.largest && rest.distinct <= first[0];
    rest.lines > 0 && first[1] == rest.lines && vertices
}

#[cfg(test)]
mod tests {
    use super::super::super::input::tests::text;
    use super::*;
    use proptest::prelude::*;

    fn refusal(content: &str) -> String {
        parse(&text(content), 0, 1).expect_err("must be refused").to_string()
    }

    #[test]
    fn comments_blank_lines_crlf_commas_and_further_columns_are_accepted() {
        let content = "# a\r\n\r\n0\t1\r\n% x\n 2   3 0.5 x\n4,5\n6 7";
        let edges = parse(&text(content), 0, 1).expect("a good list");
        assert_eq!(edges, [[0, 1], [2, 3], [4, 5], [6, 7]]);
    }

    #[test]
    fn bad_lines_are_named() {
        assert!(refusal("0 1\n2\n").contains("line 2: holds one column"));
        assert!(refusal("0 1\n\n2 x\n").contains("line 3: \"x\" is not"));
        assert!(refusal("0 -1\n").contains("line 1: vertex number -1 is negative"));
        assert!(refusal("# c\n0 18446744073709551616").contains("line 2: vertex number 184467"));
        assert!(refusal("0 1.5").contains("\"1.5\" is not"));
        assert!(refusal("- 1").contains("\"-\" is not"));
        assert!(refusal("0 1\n\0\0\u{1}ELF 2\n").contains("line 2: holds the byte 0x00"));
        assert!(parse(&text("18446744073709551615 0"), 0, 1).is_ok());
    }

    #[test]
    fn the_shipped_list_has_the_published_counts() {
        let text = Text::shipped("--graph", "g", super::super::GNUTELLA);
        let edges = parse(&text, 0, 1).expect("a good list");
        assert_eq!(edges.len(), 65_369);
        let mut names: Vec<u64> = edges.iter().flatten().copied().collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 26_518);
    }

    #[test]
    fn headers_are_told_from_edges() {
        // The counts of two published files that begin with such a line.
        let enron = Rest { lines: 367_662, distinct: 36_692, largest: 36_691 };
        assert!(looks_like_header([36_692, 367_662], enron));
        assert!(!looks_like_header([0, 1], enron));
        let ones = Rest { lines: 3, distinct: 3, largest: 3 };
        assert!(looks_like_header([3, 3], ones));
        // A path 0-1-2: its first edge says "0 1".
        assert!(!looks_like_header([0, 1], Rest { lines: 1, distinct: 2, largest: 2 }));
        assert!(!looks_like_header([5, 0], Rest { lines: 0, distinct: 0, largest: 0 }));
    }

    proptest! {
        #[test]
        fn reading_in_parts_is_reading_the_whole(
            edges in proptest::collection::vec((0u64..5_000_000, 0u64..100), 0..60),
            parts in 1usize..9,
        ) {
            let content: String = edges.iter().map(|(u, v)| format!("{u}\t{v}\r\n")).collect();
            let text = text(&content);
            let mut read = Vec::new();
            for part in 0..parts {
                read.extend(parse(&text, part, parts).expect("a good list"));
            }
            let want: Vec<RawEdge> = edges.iter().map(|&(u, v)| [u, v]).collect();
            prop_assert_eq!(read, want);
        }

        #[test]
        fn no_input_panics(content in "[0-9 ,\\-#\\n\\r\\tx\\x00\u{e9}]{0,80}", parts in 1usize..5) {
            let text = text(&content);
            for part in 0..parts {
                let _ = parse(&text, part, parts);
            }
        }
    }
}
