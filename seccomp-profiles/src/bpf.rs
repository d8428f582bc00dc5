//! Classic BPF, as far as filters of system calls need it, and the shape of every program of this crate.
//!
//! A program checks the architecture, then finds its way to the body for a number through a binary tree, so that it
//! runs about ten instructions for any number. (The kernel answers most calls from a cache of its own without
//! running anything; see README.md.)

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use seccompiler::sock_filter as SockFilter;

/// Load the 32-bit word of `struct seccomp_data` at offset `k`.
pub const LOAD: u16 = 0x20;
/// Keep the bits of `k`.
pub const AND: u16 = 0x54;
/// Jump by `k`.
pub const JUMP: u16 = 0x05;
/// Jump if equal.
pub const JEQ: u16 = 0x15;
/// Jump if greater, unsigned.
pub const JGT: u16 = 0x25;
/// Jump if greater or equal, unsigned.
pub const JGE: u16 = 0x35;
/// End with the answer `k`.
pub const RETURN: u16 = 0x06;

/// Offset of the number in `struct seccomp_data`.
pub const NUMBER: u32 = 0;
/// Offset of the architecture.
pub const ARCHITECTURE: u32 = 4;
/// Offset of the first argument; each takes eight bytes, the low half first.
pub const ARGUMENTS: u32 = 16;

/// End the process.
pub const KILL_PROCESS: u32 = 0x8000_0000;

/// What the kernel takes at most (`BPF_MAXINSNS`).
pub const LONGEST: usize = 4096;

/// Instructions that end in a return on every path and jump only among themselves.
pub type Body = Vec<SockFilter>;

/// An instruction that does not jump by a condition.
pub const fn plain(code: u16, k: u32) -> SockFilter {
    SockFilter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

/// A body for every number.
pub struct Bodies {
    /// Each body is for the numbers from its key up to the next key.
    from: BTreeMap<u32, Body>,
}

impl Bodies {
    /// The same body for all.
    pub fn new(body: Body) -> Self {
        Self {
            from: BTreeMap::from([(0, body)]),
        }
    }

    /// Sets the body for a range of numbers.
    pub fn set(&mut self, numbers: RangeInclusive<u32>, body: Body) {
        let (first, last) = (*numbers.start(), *numbers.end());
        let behind = last.checked_add(1).map(|next| (next, self.of(next)));
        self.from.retain(|number, _| !numbers.contains(number));
        self.from.insert(first, body);
        self.from.extend(behind);
    }

    fn of(&self, number: u32) -> Body {
        self.from
            .range(..=number)
            .next_back()
            .map_or_else(Vec::new, |(_, body)| body.clone())
    }

    /// The program that runs the body for a number. A call of any other architecture ends the process.
    pub fn program(&self, architecture: u32) -> Vec<SockFilter> {
        let mut program = vec![
            plain(LOAD, ARCHITECTURE),
            SockFilter {
                code: JEQ,
                jt: 1,
                jf: 0,
                k: architecture,
            },
            plain(RETURN, KILL_PROCESS),
            plain(LOAD, NUMBER),
        ];
        let mut spans: Vec<Span<'_>> = self.from.iter().map(|(first, body)| (*first, body)).collect();
        spans.dedup_by(|next, kept| next.1 == kept.1);
        program.extend(tree(&spans));
        program
    }
}

/// A body and the first number that it is for; the next one's first number ends it.
type Span<'a> = (u32, &'a Body);

fn tree(spans: &[Span<'_>]) -> Body {
    if let [(_, body)] = spans {
        return (*body).clone();
    }
    let (low, high) = spans.split_at(spans.len() / 2);
    let (first, low, high) = (high[0].0, tree(low), tree(high));
    let mut body = match u8::try_from(low.len()) {
        Ok(over_low) => vec![SockFilter {
            code: JGE,
            jt: over_low,
            jf: 0,
            k: first,
        }],
        // Conditional jumps reach 255 instructions, others any number.
        Err(_) => vec![
            SockFilter {
                code: JGE,
                jt: 0,
                jf: 1,
                k: first,
            },
            plain(JUMP, low.len() as u32),
        ],
    };
    body.extend(low);
    body.extend(high);
    body
}
