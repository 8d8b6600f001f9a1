//! Genomes in FASTA: a line `>name`, then lines of bases, any number of records.
//!
//! Letters may be upper or lower case. U counts as T. The other letters of IUPAC's nucleotide
//! code (N, R, Y, ...) stand for an unknown base, and so does the gap `-`: they are kept, so that
//! positions are right, but match nothing.

use super::super::input::Text;
use hither::Result;

/// What an unknown base is stored as.
pub const UNKNOWN: u8 = b'N';

/// The bases of all records in one sequence, with one unknown base between records so that no
/// match can run from one into the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genome {
    /// `A`, `C`, `G`, `T` or [`UNKNOWN`].
    pub bases: Vec<u8>,
    /// Number of records.
    pub records: usize,
}

/// Reads a whole file.
pub fn parse(text: &Text) -> Result<Genome> {
    let bytes = text.bytes();
    let mut bases = Vec::with_capacity(bytes.len());
    let mut records = 0usize;
    let mut start = 0;
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        let trimmed = line.trim_ascii();
        if trimmed.starts_with(b">") {
            if records > 0 {
                bases.push(UNKNOWN);
            }
            records += 1;
        } else if !trimmed.is_empty() && records == 0 {
            let why = "holds no FASTA header: a line \">name\" must come before the bases";
            return Err(text.refuse_at(start, why));
        } else {
            for &letter in trimmed {
                let Some(base) = base(letter) else {
                    let shown = char::from(letter);
                    let why = if letter.is_ascii_graphic() {
                        format!("'{shown}' is not a letter of the nucleotide code")
                    } else {
                        format!("the byte {letter:#04x} is not a letter of the nucleotide code")
                    };
                    return Err(text.refuse_at(start, why));
                };
                bases.push(base);
            }
        }
        start += line.len();
    }
    // Records without bases add separators only.
    if bases.len() < records || records == 0 {
        return Err(text.refuse("holds no bases"));
    }
    Ok(Genome { bases, records })
}

fn base(letter: u8) -> Option<u8> {
    match letter.to_ascii_uppercase() {
        known @ (b'A' | b'C' | b'G' | b'T') => Some(known),
        b'U' => Some(b'T'),
        b'R' | b'Y' | b'S' | b'W' | b'K' | b'M' | b'B' | b'D' | b'H' | b'V' | b'N' | b'-' => {
            Some(UNKNOWN)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::input::tests::text;
    use super::*;

    fn refusal(content: &str) -> String {
        parse(&text(content)).expect_err("must be refused").to_string()
    }

    #[test]
    fn records_case_line_ends_and_iupac_letters() {
        let genome = parse(&text(">a b c\r\nacGT\r\n\r\nRu-\r\n>second\nTT\n")).expect("good");
        assert_eq!(genome.bases, b"ACGTNTNNTT");
        assert_eq!(genome.records, 2);
    }

    #[test]
    fn bad_files_are_named_by_line() {
        assert!(refusal("ACGT\n").contains("line 1: holds no FASTA header"));
        assert!(refusal("\n\nACGT\n>x\n").contains("line 3: holds no FASTA header"));
        assert!(refusal(">x\nACGT\nACXT\n").contains("line 3: 'X' is not"));
        assert!(refusal(">x\nAC GT\n").contains("line 2: the byte 0x20"));
        assert!(refusal(">x\nA\u{0}C\n").contains("line 2: the byte 0x00"));
        assert!(refusal(">x\n>y\n").contains("holds no bases"));
        assert!(refusal("\n").contains("holds no bases"));
    }

    #[test]
    fn the_shipped_genome_has_the_published_length() {
        let text = Text::shipped("--genome", "lambda", super::super::LAMBDA);
        let genome = parse(&text).expect("a good genome");
        assert_eq!((genome.bases.len(), genome.records), (48_502, 1));
        // The cohesive end of phage lambda.
        assert!(genome.bases.starts_with(b"GGGCGGCGACCT"));
    }
}
