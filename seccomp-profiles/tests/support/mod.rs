//! What the kernel does with a stack of filters, written down a second time.

// Each test file uses a part of this.
#![allow(dead_code)]

use sandglass_seccomp::{Arch, SockFilter};

/// `struct seccomp_data`.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub nr: u32,
    pub arch: u32,
    pub args: [u64; 6],
}

impl Call {
    pub fn new(arch: Arch, nr: u32, args: [u64; 6]) -> Self {
        Self {
            nr,
            arch: arch.audit_value(),
            args,
        }
    }

    /// A 32-bit word at a byte offset, as a little-endian kernel lays it out.
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.nr,
            4 => self.arch,
            8 | 12 => 0xdead_beef, // The instruction pointer: no filter of ours may depend on it.
            16..=60 if offset.is_multiple_of(4) => {
                let arg = self.args[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) {
                    arg as u32
                } else {
                    (arg >> 32) as u32
                }
            }
            _ => panic!("the kernel refuses a load at offset {offset}"),
        }
    }
}

/// How one filter ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Run {
    pub value: u32,
    pub instructions: usize,
    /// Whether more was looked at than number and architecture. The kernel keeps the answers of filters that allow a
    /// number without doing so, and runs no filter for them.
    pub looked_at_arguments: bool,
}

/// Runs one program.
pub fn run(program: &[SockFilter], call: &Call) -> Run {
    let (mut a, mut pc, mut instructions, mut looked_at_arguments) = (0u32, 0usize, 0usize, false);
    loop {
        let i = &program[pc];
        instructions += 1;
        pc += 1;
        let mut jump = |taken: bool| pc += usize::from(if taken { i.jt } else { i.jf });
        match i.code {
            0x20 => {
                looked_at_arguments |= i.k > 4;
                a = call.word(i.k);
            }
            0x05 => pc += i.k as usize,
            0x15 => jump(a == i.k),
            0x25 => jump(a > i.k),
            0x35 => jump(a >= i.k),
            0x45 => jump(a & i.k != 0),
            0x54 => a &= i.k,
            0x06 => {
                return Run {
                    value: i.k,
                    instructions,
                    looked_at_arguments,
                };
            }
            code => panic!("instruction {code:#x} is in no filter of ours"),
        }
    }
}

/// Runs a stack, given in the order of installation: the newest first, and of equal actions the first seen stays.
pub fn run_stack(stack: &[&[SockFilter]], call: &Call) -> Run {
    let precedence = |value: u32| (value & 0xffff_0000).cast_signed();
    stack
        .iter()
        .rev()
        .map(|program| run(program, call))
        .reduce(|kept, next| Run {
            value: if precedence(next.value) < precedence(kept.value) {
                next.value
            } else {
                kept.value
            },
            instructions: kept.instructions + next.instructions,
            looked_at_arguments: kept.looked_at_arguments || next.looked_at_arguments,
        })
        .expect("an empty stack")
}

/// What the kernel checks before it takes a program: length, jumps within it, a return at the end.
pub fn assert_loadable(program: &[SockFilter]) {
    assert!(
        !program.is_empty() && program.len() <= 4096,
        "{} instructions",
        program.len()
    );
    for (pc, i) in program.iter().enumerate() {
        let furthest = match i.code {
            0x05 => i.k as usize,
            0x15 | 0x25 | 0x35 | 0x45 => usize::from(i.jt.max(i.jf)),
            0x06 => continue,
            _ => 0,
        };
        assert!(
            pc + 1 + furthest < program.len(),
            "instruction {pc} leads out of the program"
        );
    }
}

pub const ALLOW: u32 = 0x7fff_0000;
pub const KILL_PROCESS: u32 = 0x8000_0000;
pub const fn errno(number: u32) -> u32 {
    0x0005_0000 | number
}
