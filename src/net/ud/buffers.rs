//! Memory for datagrams, of one size each, up to a limit.

/// Buffers made at once.
const CHUNK: u32 = 32;

/// One of [`Buffers`]; who has it owns what is in it.
#[derive(PartialEq, Eq, Debug)]
pub struct Buffer(u32);

/// Made as they are needed, in chunks that stay where they are.
#[derive(Debug)]
pub struct Buffers {
    size: usize,
    limit: u32,
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
    made: u32,
}

impl Buffers {
    /// None yet; `limit` of `size` bytes at most.
    pub fn new(size: usize, limit: u32) -> Buffers {
        Buffers { size, limit, chunks: Vec::new(), free: Vec::new(), made: 0 }
    }

    /// Takes one; none if as many are in use as may be. Allocates only if more are in use than ever
    /// before.
    #[inline]
    pub fn take(&mut self) -> Option<Buffer> {
        if self.used() < self.limit { self.take_beyond() } else { None }
    }

    /// Takes one whatever the limit says: for what others wait for.
    #[inline]
    pub fn take_beyond(&mut self) -> Option<Buffer> {
        if self.free.is_empty() {
            self.grow();
        }
        self.free.pop().map(Buffer)
    }

    #[cold]
    fn grow(&mut self) {
        let Some(made) = self.made.checked_add(CHUNK) else { return };
        self.chunks.push(vec![0; self.size * CHUNK as usize].into_boxed_slice());
        self.free.reserve(made as usize);
        self.free.extend((self.made..made).rev());
        self.made = made;
    }

    /// Gives one back.
    #[inline]
    pub fn give(&mut self, buffer: Buffer) {
        self.free.push(buffer.0);
    }

    fn place(&self, buffer: &Buffer) -> (usize, usize) {
        ((buffer.0 / CHUNK) as usize, (buffer.0 % CHUNK) as usize * self.size)
    }

    /// Its bytes.
    #[inline]
    pub fn get(&self, buffer: &Buffer) -> &[u8] {
        let (chunk, at) = self.place(buffer);
        &self.chunks[chunk][at..at + self.size]
    }

    /// Its bytes, to be written.
    #[inline]
    pub fn get_mut(&mut self, buffer: &Buffer) -> &mut [u8] {
        let (chunk, at) = self.place(buffer);
        &mut self.chunks[chunk][at..at + self.size]
    }

    /// How many are in use.
    pub fn used(&self) -> u32 {
        self.made - self.free.len() as u32
    }

    /// Bytes that they have in memory.
    pub fn bytes(&self) -> usize {
        self.made as usize * self.size + self.free.capacity() * 4
    }

    /// Their memory, chunk by chunk; a device that needs it registered looks here for new ones.
    pub fn chunks(&self) -> &[Box<[u8]>] {
        &self.chunks
    }
}
