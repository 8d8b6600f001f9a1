//! HMAC with SHA-256 (RFC 2104, FIPS 180-4): to show that one knows a secret without saying it.
//!
//! For the few bytes of a greeting; nothing here is fast, or hides how long it takes.

const ROUNDS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

const START: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// Bytes that are worked on at a time.
const BLOCK: usize = 64;

/// The digest of these bytes.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((bytes.len() + 9).next_multiple_of(BLOCK) - 8, 0);
    padded.extend_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    let state = padded.chunks_exact(BLOCK).fold(START, compress);
    let mut out = [0; 32];
    for (four, word) in out.chunks_exact_mut(4).zip(state) {
        four.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// What nobody can say of these bytes who does not know the key.
pub fn authenticate(key: &[u8], bytes: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = digest(&[&block.map(|byte| byte ^ 0x36), bytes].concat());
    digest(&[&block.map(|byte| byte ^ 0x5c)[..], &inner].concat())
}

fn compress(state: [u32; 8], block: &[u8]) -> [u32; 8] {
    let mut words = [0u32; 64];
    for (word, four) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = four.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..64 {
        let (a, b) = (words[at - 15], words[at - 2]);
        let small = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
        let large = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
        let sum = words[at - 16].wrapping_add(small).wrapping_add(words[at - 7]);
        words[at] = sum.wrapping_add(large);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
    for (word, constant) in words.iter().zip(ROUNDS) {
        let mixed = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = (e & f) ^ (!e & g);
        let first = h.wrapping_add(mixed).wrapping_add(chosen);
        let first = first.wrapping_add(constant).wrapping_add(*word);
        let mixed = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = mixed.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    let mut out = state;
    for (sum, word) in out.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: [u8; 32]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Of FIPS 180-4's examples, and around the ends of blocks.
    #[test]
    fn digests_are_those_of_the_standard() {
        let known = [
            (&b""[..], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ];
        for (bytes, digested) in known {
            assert_eq!(hex(digest(bytes)), digested);
        }
        let million = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
        assert_eq!(hex(digest(&vec![b'a'; 1_000_000])), million);
        let all: std::collections::HashSet<_> = (0..200).map(|n| digest(&vec![0; n])).collect();
        assert_eq!(all.len(), 200);
    }

    /// Of RFC 4231: a short key, a text as a key, and one longer than a block.
    #[test]
    fn keyed_ones_are_those_of_the_standard() {
        let known = [
            (
                vec![0x0b; 20],
                &b"Hi There"[..],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, bytes, expected) in known {
            assert_eq!(hex(authenticate(&key, bytes)), expected);
        }
    }
}
