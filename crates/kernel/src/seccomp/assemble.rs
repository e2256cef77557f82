//! Compiles a policy to classic BPF.
//!
//! ```text
//! load architecture ─▶ one section for each ─▶ load number ─▶ binary search in ranges of numbers ─▶ action, or conditions on arguments
//!                └──▶ none: ENOSYS
//! ```
//!
//! Consecutive numbers with the same action form a range, so the container profile has some 250 instructions per
//! architecture, of which a call runs about a dozen.

use std::collections::BTreeMap;

use super::{Action, Architecture, Compare, Condition, Policy, calls};

/// Maximum number of instructions.
const MOST: usize = 4096;

/// First x32 number, which counts as x86-64.
const X32: u32 = 0x4000_0000;

/// `ENOSYS`.
const UNKNOWN: Action = Action::Errno(38);

/// A policy with too many instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter has {0} instructions, and the kernel takes {MOST}: use fewer rules with arguments")]
pub struct TooLong(usize);

/// Instruction codes.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_NOT_LESS: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Offsets of call number and architecture in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

type Code = Vec<u64>;

/// An instruction; jump offsets count from the next instruction.
fn instruction(code: u16, value: u32, if_true: u8, if_false: u8) -> u64 {
    u64::from(code) | u64::from(if_true) << 16 | u64::from(if_false) << 24 | u64::from(value) << 32
}

fn plain(code: u16, value: u32) -> u64 {
    instruction(code, value, 0, 0)
}

fn give(action: Action) -> u64 {
    plain(
        RETURN,
        match action {
            Action::KillProcess => 0x8000_0000,
            Action::KillThread => 0,
            Action::Trap => 0x0003_0000,
            Action::Errno(errno) => 0x0005_0000 | u32::from(errno),
            Action::Trace(data) => 0x7ff0_0000 | u32::from(data),
            Action::Log => 0x7ffc_0000,
            Action::Allow => 0x7fff_0000,
        },
    )
}

/// `AUDIT_ARCH_…`
const fn audit(architecture: Architecture) -> u32 {
    match architecture {
        Architecture::X86_64 => 0xc000_003e,
        Architecture::X86 => 0x4000_0003,
        Architecture::Aarch64 => 0xc000_00b7,
        Architecture::Arm => 0x4000_0028,
    }
}

/// Actions of a call: the first whose conditions hold; the last has none.
type Fate<'a> = Vec<(&'a [Condition], Action)>;

pub(super) fn program(policy: &Policy) -> Result<Code, TooLong> {
    let mut code = vec![plain(LOAD, ARCHITECTURE)];
    for architecture in &policy.architectures {
        let mut section = vec![plain(LOAD, NUMBER)];
        section.extend(search(&ranges(policy, *architecture)));
        code.push(instruction(IF_EQUAL, audit(*architecture), 1, 0));
        code.push(over(&section));
        code.extend(section);
    }
    code.push(give(UNKNOWN));
    if code.len() > MOST { Err(TooLong(code.len())) } else { Ok(code) }
}

/// A jump over code.
fn over(code: &Code) -> u64 {
    plain(JUMP, u32::try_from(code.len()).unwrap_or(u32::MAX))
}

/// Actions of all numbers: ranges by their first number, starting with 0. Neighbours differ.
fn ranges(policy: &Policy, architecture: Architecture) -> Vec<(u32, Fate<'_>)> {
    let default = vec![(&[][..], policy.default)];
    let unknown = vec![(&[][..], UNKNOWN)];
    let newer = if matches!(policy.default, Action::Errno(_)) { unknown.clone() } else { default.clone() };
    let mut fates: BTreeMap<u32, Fate<'_>> = BTreeMap::new();
    for rule in &policy.rules {
        if let Some(number) = calls::number(architecture, &rule.call) {
            fates.entry(number).or_default().push((&rule.conditions, rule.action));
        }
    }
    let newest = calls::newest(architecture);
    let mut starts = BTreeMap::from([(0, default.clone()), (newest + 1, newer.clone())]);
    for (number, mut fate) in fates {
        match fate.iter().position(|(conditions, _)| conditions.is_empty()) {
            Some(place) => fate = fate.split_off(place).into_iter().take(1).collect(),
            None => fate.push((&[], policy.default)),
        }
        starts.insert(number, fate);
        // Unless the next number has its own action.
        starts.entry(number + 1).or_insert_with(|| if number < newest { default.clone() } else { newer.clone() });
    }
    if architecture == Architecture::X86_64 {
        starts.insert(X32, unknown);
    }
    let mut out: Vec<(u32, Fate<'_>)> = starts.into_iter().collect();
    out.dedup_by(|(_, fate), (_, before)| fate == before);
    out
}

/// Binary search of the loaded number.
fn search(ranges: &[(u32, Fate<'_>)]) -> Code {
    match ranges {
        [] => Vec::new(),
        [(_, fate)] => decide(fate),
        _ => {
            let (lower, upper) = ranges.split_at(ranges.len() / 2);
            let first = upper.first().map_or(0, |(first, _)| *first);
            let (lower, upper) = (search(lower), search(upper));
            let mut code = match u8::try_from(lower.len()) {
                Ok(distance) => vec![instruction(IF_NOT_LESS, first, distance, 0)],
                Err(_) => vec![instruction(IF_NOT_LESS, first, 0, 1), over(&lower)],
            };
            code.extend(lower);
            code.extend(upper);
            code
        }
    }
}

fn decide(fate: &Fate<'_>) -> Code {
    fate.iter().flat_map(|(conditions, action)| rule(conditions, *action)).collect()
}

/// Conditions and an action; falls through when they do not hold.
fn rule(conditions: &[Condition], action: Action) -> Code {
    let mut code = vec![give(action)];
    for condition in conditions.iter().rev() {
        let mut before = check(condition, code.len());
        before.extend(code);
        code = before;
    }
    code
}

/// Falls through when a condition holds, else jumps this many instructions further: at most 6 arguments with 6
/// instructions.
fn check(condition: &Condition, further: usize) -> Code {
    let further = u8::try_from(further).unwrap_or(u8::MAX);
    let low = ARGUMENTS + 8 * u32::from(condition.argument.min(5));
    let (low, high) = (plain(LOAD, low), plain(LOAD, low + 4));
    let halves = |value: u64| ((value & u64::from(u32::MAX)) as u32, (value >> 32) as u32);
    match condition.compare {
        Compare::Equal(value) => {
            let (l, h) = halves(value);
            vec![high, instruction(IF_EQUAL, h, 0, further + 2), low, instruction(IF_EQUAL, l, 0, further)]
        }
        Compare::NotEqual(value) => {
            let (l, h) = halves(value);
            vec![high, instruction(IF_EQUAL, h, 0, 2), low, instruction(IF_EQUAL, l, further, 0)]
        }
        Compare::Masked { mask, value } => {
            let ((ml, mh), (l, h)) = (halves(mask), halves(value));
            let upper = [high, plain(AND, mh), instruction(IF_EQUAL, h, 0, further + 3)];
            [&upper[..], &[low, plain(AND, ml), instruction(IF_EQUAL, l, 0, further)]].concat()
        }
        Compare::Greater(value) | Compare::GreaterOrEqual(value) => {
            let (l, h) = halves(value);
            let code = if condition.compare == Compare::Greater(value) { IF_GREATER } else { IF_NOT_LESS };
            let upper = [high, instruction(IF_GREATER, h, 3, 0), instruction(IF_EQUAL, h, 0, further + 2)];
            [&upper[..], &[low, instruction(code, l, 0, further)]].concat()
        }
        Compare::Less(value) | Compare::LessOrEqual(value) => {
            let (l, h) = halves(value);
            let code = if condition.compare == Compare::Less(value) { IF_NOT_LESS } else { IF_GREATER };
            let upper = [high, instruction(IF_GREATER, h, further + 3, 0), instruction(IF_EQUAL, h, 0, 2)];
            [&upper[..], &[low, instruction(code, l, further, 0)]].concat()
        }
    }
}

#[cfg(test)]
mod tests;
