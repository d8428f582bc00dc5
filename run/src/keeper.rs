//! How much of an output stream is kept: the first half of the cap, and the last half.

/// Keeps the first and the last part of a stream within a cap, in memory that is bounded by the cap and only
/// taken when needed. The first part is handed back at once, so that it can be shown as it comes.
///
/// Cuts fall between UTF-8 characters (where the stream is UTF-8), and a stream that is not longer than the cap
/// is kept whole.
#[derive(Debug)]
pub struct Keeper {
    cap: u64,
    /// Bytes handed out as the first part.
    head: u64,
    head_open: bool,
    total: u64,
    /// The last bytes that were not handed out; a ring once it is full.
    ring: Vec<u8>,
    /// Where the ring's oldest byte is, once it is full.
    oldest: usize,
}

/// The last part of a stream, once it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// Bytes that were left out before it.
    pub dropped: u64,
    /// The last part.
    pub bytes: Vec<u8>,
    /// All bytes of the stream: the first part, those dropped, and the last part.
    pub total: u64,
}

/// Whether a byte continues a UTF-8 character.
fn continues(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

impl Keeper {
    /// Keeps at most `cap` bytes.
    pub fn new(cap: u64) -> Self {
        Self {
            cap,
            head: 0,
            head_open: true,
            total: 0,
            ring: Vec::new(),
            oldest: 0,
        }
    }

    /// Takes a piece of the stream and gives back the part of it that belongs to the first half.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let (first, rest) = bytes.split_at(self.head_part(bytes));
        self.keep_last(rest);
        first
    }

    /// How many of these bytes still belong to the first half. It ends at the first character that begins in
    /// its last three bytes, or when it is full: a character has at most four bytes.
    fn head_part(&mut self, bytes: &[u8]) -> usize {
        if !self.head_open {
            return 0;
        }
        let half = self.cap / 2;
        let room = usize::try_from(half - self.head).unwrap_or(usize::MAX);
        let sure = room.saturating_sub(3).min(bytes.len());
        let more = bytes
            .iter()
            .skip(sure)
            .take(room - sure)
            .take_while(|byte| continues(**byte))
            .count();
        let part = sure + more;
        self.head += part as u64;
        self.head_open = part == bytes.len() && self.head < half;
        part
    }

    /// Keeps the last bytes that fit beside the first part.
    fn keep_last(&mut self, mut bytes: &[u8]) {
        let capacity = usize::try_from(self.cap - self.head).unwrap_or(usize::MAX);
        if let Some(excess) = bytes.len().checked_sub(capacity) {
            bytes = bytes.get(excess..).unwrap_or_default();
        }
        let (fill, mut over) = bytes.split_at(bytes.len().min(capacity - self.ring.len()));
        self.ring.extend_from_slice(fill);
        // At most twice: up to the ring's end, then from its start.
        while !over.is_empty() {
            let room = self.ring.len() - self.oldest;
            let (now, later) = over.split_at(over.len().min(room));
            if let Some(place) = self.ring.get_mut(self.oldest..self.oldest + now.len()) {
                place.copy_from_slice(now);
            }
            self.oldest = (self.oldest + now.len()) % self.ring.len();
            over = later;
        }
    }

    /// The stream has ended: gives the last part.
    pub fn finish(mut self) -> Tail {
        self.ring.rotate_left(self.oldest);
        let mut bytes = self.ring;
        if self.head + (bytes.len() as u64) < self.total {
            let cut = bytes.iter().take(3).take_while(|byte| continues(**byte)).count();
            bytes.drain(..cut);
        }
        Tail {
            dropped: self.total - self.head - bytes.len() as u64,
            bytes,
            total: self.total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keep<'a>(cap: u64, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Tail) {
        let mut keeper = Keeper::new(cap);
        let mut head = Vec::new();
        for piece in pieces {
            head.extend_from_slice(keeper.push(piece));
        }
        (head, keeper.finish())
    }

    #[test]
    fn a_short_stream_is_kept_whole() {
        let (head, tail) = keep(20, [&b"0123456789"[..], b"abcdefghij"]);
        assert_eq!([head, tail.bytes].concat(), b"0123456789abcdefghij");
        assert_eq!((tail.dropped, tail.total), (0, 20));
    }

    #[test]
    fn the_first_and_the_last_half_of_a_long_stream_are_kept() {
        let stream: Vec<u8> = (0..100_000_u32)
            .flat_map(u32::to_le_bytes)
            .map(|b| b & 0x7f)
            .collect();
        let (head, tail) = keep(1_000, stream.chunks(333));
        assert!((497..=500).contains(&head.len()), "{}", head.len());
        assert_eq!(head.len() + tail.bytes.len(), 1_000);
        assert!(stream.starts_with(&head) && stream.ends_with(&tail.bytes));
        assert_eq!((tail.dropped, tail.total), (399_000, 400_000));
    }

    #[test]
    fn memory_is_taken_only_when_needed() {
        let mut keeper = Keeper::new(1 << 20);
        keeper.push(&[b'x'; 1_000]);
        assert_eq!(keeper.ring.capacity(), 0);
    }

    #[test]
    fn a_cap_of_nothing_keeps_nothing() {
        assert_eq!(
            keep(0, [&b"abc"[..]]),
            (
                vec![],
                Tail {
                    dropped: 3,
                    bytes: vec![],
                    total: 3
                }
            )
        );
    }

    fn pieces(stream: &[u8], cuts: Vec<usize>) -> Vec<Vec<u8>> {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        cuts.windows(2)
            .map(|pair| stream[pair[0]..pair[1]].to_vec())
            .collect()
    }

    proptest! {
        #[test]
        fn any_split_keeps_the_same(
            stream in prop::collection::vec(any::<u8>(), 0..300),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
            cap in 0..200_u64,
        ) {
            let whole = keep(cap, [&stream[..]]);
            let split = pieces(&stream, cuts);
            prop_assert_eq!(&keep(cap, split.iter().map(Vec::as_slice)), &whole);
            let (head, tail) = whole;
            prop_assert!((head.len() + tail.bytes.len()) as u64 <= cap);
            prop_assert!(stream.starts_with(&head) && stream.ends_with(&tail.bytes));
            prop_assert_eq!(tail.total, stream.len() as u64);
            prop_assert_eq!(tail.dropped, (stream.len() - head.len() - tail.bytes.len()) as u64);
            prop_assert_eq!(tail.dropped == 0, stream.len() as u64 <= cap);
        }

        #[test]
        fn no_character_is_split(text in "[aé顧😀]{0,80}", cap in 0..120_u64, chunk in 1..9_usize) {
            let (head, tail) = keep(cap, text.as_bytes().chunks(chunk));
            prop_assert!(std::str::from_utf8(&head).is_ok());
            prop_assert!(std::str::from_utf8(&tail.bytes).is_ok());
        }
    }
}
