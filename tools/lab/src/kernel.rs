//! The kernel as guests boot it: unpacked, because emulated processors unpack slowly.

use crate::error::{Error, Result};
use crate::tree::Tree;
use std::path::Path;

/// Where the boot protocol keeps things (Documentation/arch/x86/boot.rst).
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const SECTOR: usize = 512;

/// Programs that unpack what begins with these bytes.
const FORMS: [(&[u8], &str); 3] = [
    (b"\x28\xb5\x2f\xfd", "usr/bin/zstd"),
    (b"\xfd7zXZ", "usr/bin/xz"),
    (b"\x1f\x8b", "usr/bin/gzip"),
];

/// Writes the kernel in `image` to `to`: unpacked if that can be done, as it is otherwise.
pub fn unpack(image: &Path, tree: &Tree, to: &Path) -> Result<()> {
    let bytes = std::fs::read(image).map_err(|e| Error::file(image, e))?;
    let kernel = payload(&bytes).and_then(|payload| inflate(payload, tree, to)).unwrap_or(bytes);
    std::fs::write(to, kernel).map_err(|e| Error::file(to, e))
}

/// The compressed kernel in an image.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| {
        let bytes: [u8; 4] = image.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    };
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let sectors = usize::from(*image.get(SETUP_SECTORS)?);
    let setup = (if sectors == 0 { 4 } else { sectors } + 1) * SECTOR;
    let begin = setup.checked_add(word(PAYLOAD_OFFSET)?)?;
    // The last four bytes are the unpacked size and no part of the stream.
    image.get(begin..begin.checked_add(word(PAYLOAD_LENGTH)?)?.checked_sub(4)?)
}

fn inflate(payload: &[u8], tree: &Tree, to: &Path) -> Option<Vec<u8>> {
    let (_, program) = FORMS.iter().find(|(begin, _)| payload.starts_with(begin))?;
    let packed = to.with_extension("packed");
    std::fs::write(&packed, payload).ok()?;
    let kernel = tree.filter(program, &packed);
    let _ = std::fs::remove_file(&packed);
    kernel.ok().filter(|kernel| kernel.starts_with(b"\x7fELF"))
}
