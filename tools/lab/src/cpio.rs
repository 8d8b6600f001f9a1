//! Archives that the kernel unpacks as its first file system: cpio, the form "newc".

/// An archive that is being written.
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

impl Archive {
    pub fn new() -> Archive {
        Archive { bytes: Vec::new(), entries: 0 }
    }

    pub fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, (0, 0), &[]);
    }

    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, (0, 0), content);
    }

    /// A character device.
    pub fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, DEVICE, (major, minor), &[]);
    }

    /// The archive as it is to be stored.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let fields = [
            self.entries, // inode
            mode,
            0, // user
            0, // group
            1, // links
            0, // time
            content.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0, // no check sum
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Headers and contents begin at multiples of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
