//! From the rules of one call to instructions.

use super::condition::Test;
use super::rules::{Answer, Rule};
use crate::SockFilter;
use crate::bpf::{AND, ARGUMENTS, Body, JEQ, JGE, JGT, LOAD, RETURN, plain};

/// Tries the rules one by one. Rules with different answers exclude each other, so their order does not matter.
pub(super) fn body(rules: &[Rule], default: Answer) -> Body {
    if let Some(rule) = rules.iter().find(|rule| rule.tests.is_empty()) {
        return vec![plain(RETURN, rule.answer)];
    }
    let mut body: Body = rules.iter().flat_map(instructions).collect();
    body.push(plain(RETURN, default));
    body
}

/// Where an instruction leads.
#[derive(Clone, Copy)]
enum To {
    Next,
    /// To the first instruction of the next test.
    Held,
    /// Out of the rule.
    Failed,
}

/// A condition of at most six instructions per test, so that a rule of six tests fits the reach of a jump.
fn instructions(rule: &Rule) -> Vec<SockFilter> {
    let mut steps: Vec<(SockFilter, To, To)> = Vec::new();
    let mut ends = Vec::new();
    for (argument, test) in &rule.tests {
        let start = steps.len();
        push(&mut steps, *argument, *test);
        ends.extend(std::iter::repeat_n(steps.len(), steps.len() - start));
    }
    // The return follows the steps; whoever fails goes behind it.
    let length = steps.len();
    let distance = |from: usize, to, held: usize| match to {
        To::Next => 0,
        To::Held => held - from - 1,
        To::Failed => length - from,
    };
    let jumping = steps.into_iter().enumerate().map(|(at, (i, yes, no))| {
        let (jt, jf) = (
            distance(at, yes, ends[at]) as u8,
            distance(at, no, ends[at]) as u8,
        );
        SockFilter { jt, jf, ..i }
    });
    jumping.chain([plain(RETURN, rule.answer)]).collect()
}

/// Compares 64 bits in two halves, the high one first.
fn push(steps: &mut Vec<(SockFilter, To, To)>, argument: usize, test: Test) {
    use To::{Failed, Held, Next};
    let low = ARGUMENTS + 8 * argument as u32;
    let halves = |value: u64| ((value >> 32) as u32, value as u32);
    let load = |offset| (plain(LOAD, offset), Next, Next);
    let jump = |code, value, yes, no| (plain(code, value), yes, no);
    match test {
        Test::Equal(value) => {
            let (h, l) = halves(value);
            steps.extend([
                load(low + 4),
                jump(JEQ, h, Next, Failed),
                load(low),
                jump(JEQ, l, Next, Failed),
            ]);
        }
        Test::NotEqual(value) => {
            let (h, l) = halves(value);
            steps.extend([
                load(low + 4),
                jump(JEQ, h, Next, Held),
                load(low),
                jump(JEQ, l, Failed, Next),
            ]);
        }
        Test::AtLeast(value) | Test::Above(value) => {
            let (h, l) = halves(value);
            let code = if matches!(test, Test::Above(_)) { JGT } else { JGE };
            steps.extend([
                load(low + 4),
                jump(JGT, h, Held, Next),
                jump(JEQ, h, Next, Failed),
            ]);
            steps.extend([load(low), jump(code, l, Next, Failed)]);
        }
        Test::AtMost(value) | Test::Below(value) => {
            let (h, l) = halves(value);
            let code = if matches!(test, Test::AtMost(_)) { JGT } else { JGE };
            steps.extend([
                load(low + 4),
                jump(JGT, h, Failed, Next),
                jump(JEQ, h, Next, Held),
            ]);
            steps.extend([load(low), jump(code, l, Failed, Next)]);
        }
        Test::Masked(mask, value) => {
            for (offset, mask, value) in [
                (low + 4, halves(mask).0, halves(value).0),
                (low, halves(mask).1, halves(value).1),
            ] {
                steps.extend([
                    load(offset),
                    (plain(AND, mask), Next, Next),
                    jump(JEQ, value, Next, Failed),
                ]);
            }
        }
    }
}
