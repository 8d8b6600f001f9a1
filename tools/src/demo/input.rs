//! Input files: mapped, or the ones that ship inside the program. Errors name the file and the
//! line.

use hither::{Error, Result};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// The bytes of an input and what it is called in results and messages.
pub struct Text {
    what: &'static str,
    name: String,
    bytes: Bytes,
}

enum Bytes {
    Shipped(&'static [u8]),
    Mapped(memmap2::Mmap),
}

impl Text {
    /// An input that ships with the program.
    pub fn shipped(what: &'static str, name: &str, bytes: &'static [u8]) -> Text {
        Text { what, name: name.to_owned(), bytes: Bytes::Shipped(bytes) }
    }

    /// Maps a file. `what` is the option that named it.
    pub fn open(what: &'static str, path: &Path) -> Result<Text> {
        let refuse = |why: String| Error::invalid(what, format!("{}: {why}", path.display()));
        let file = File::open(path).map_err(|e| refuse(e.to_string()))?;
        let meta = file.metadata().map_err(|e| refuse(e.to_string()))?;
        if !meta.is_file() {
            return Err(refuse("is not a regular file".into()));
        }
        if meta.len() == 0 {
            return Err(refuse("is empty".into()));
        }
        // SAFETY: the mapping is read only and private to this process. Should another program
        // truncate the file meanwhile, the kernel ends the process; that cannot corrupt memory.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| refuse(e.to_string()))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let text = Text { what, name, bytes: Bytes::Mapped(map) };
        if let Some(kind) = compression(text.bytes()) {
            return Err(refuse(format!("is compressed ({kind}); decompress it first")));
        }
        Ok(text)
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Shipped(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }

    /// File name without directories.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An error about the whole input.
    pub fn refuse(&self, why: impl std::fmt::Display) -> Error {
        Error::invalid(self.what, format!("{}: {why}", self.name))
    }

    /// An error about the line that contains the byte at `position`.
    pub fn refuse_at(&self, position: usize, why: impl std::fmt::Display) -> Error {
        let line = 1 + self.bytes()[..position].iter().filter(|&&b| b == b'\n').count();
        Error::invalid(self.what, format!("{}, line {line}: {why}", self.name))
    }

    /// Part `part` of `parts`, cut at line starts: every line belongs to exactly one part.
    pub fn part(&self, part: usize, parts: usize) -> Range<usize> {
        let bytes = self.bytes();
        let cut = |i: usize| {
            let at = (bytes.len() as u128 * i as u128 / parts as u128) as usize;
            if at == 0 {
                return 0;
            }
            // The line that contains byte `at - 1` ends here.
            bytes[at - 1..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
        };
        cut(part)..cut(part + 1)
    }
}

fn compression(bytes: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 5] = [
        (&[0x1f, 0x8b], "gzip"),
        (b"BZh", "bzip2"),
        (&[0xfd, b'7', b'z', b'X', b'Z'], "xz"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
        (b"PK\x03\x04", "zip"),
    ];
    MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|&(_, kind)| kind)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A text for tests.
    pub fn text(content: &str) -> Text {
        Text::shipped("--test", "test.txt", content.to_owned().leak().as_bytes())
    }

    proptest! {
        #[test]
        fn parts_are_whole_lines_and_cover_the_text(
            lines in proptest::collection::vec("[a-z]{0,12}", 0..20), end: bool, parts in 1usize..9,
        ) {
            let mut content = lines.join("\n");
            if end {
                content.push('\n');
            }
            let text = text(&content);
            let mut next = 0;
            for part in 0..parts {
                let range = text.part(part, parts);
                prop_assert_eq!(range.start, next);
                next = range.end;
                prop_assert!(next == content.len() || next == 0
                    || content.as_bytes()[next - 1] == b'\n');
            }
            prop_assert_eq!(next, content.len());
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        let text = text("a\nb\nc");
        assert!(text.refuse_at(0, "x").to_string().contains("test.txt, line 1: x"));
        assert!(text.refuse_at(1, "x").to_string().contains("line 1"));
        assert!(text.refuse_at(2, "x").to_string().contains("line 2"));
        assert!(text.refuse_at(4, "x").to_string().contains("line 3"));
    }

    #[test]
    fn compressed_and_absent_files_are_refused() {
        assert_eq!(compression(&[0x1f, 0x8b, 8, 0]), Some("gzip"));
        assert_eq!(compression(b"0 1\n"), None);
        let error = Text::open("--graph", Path::new("/nonexistent/file")).err().expect("no file");
        assert!(error.to_string().contains("/nonexistent/file"), "{error}");
        assert!(Text::open("--graph", Path::new("/")).is_err());
    }
}
