//! What the kernel refuses, with its error numbers.
//!
//! The fake is stricter in two cases that the kernel may accept and mishandle later: keys whose types are not those of
//! the set, which it would compare as bytes; and overlapping ranges, of which it detects some and may delete the wrong
//! one of others.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;

use super::Held;
use crate::Family;
use crate::nft::key::packed_len;
use crate::nft::{Base, BaseKind, Hook, Key, Name, Set, SetValue, Statement, Type, Value, Verdict};

/// Maximum depth of jumps.
const DEPTH: usize = 16;
/// Maximum length of a key or data.
const KEY_MAX: usize = 64;

fn ensure(fine: bool, errno: Errno) -> Result<(), Errno> {
    if fine { Ok(()) } else { Err(errno) }
}

/// Checks a base chain.
pub(super) fn base(base: Option<Base>) -> Result<(), Errno> {
    let impossible = base.is_some_and(|base| base.kind == BaseKind::Nat && base.hook == Hook::Forward);
    ensure(!impossible, Errno::OPNOTSUPP)
}

/// Checks a set.
pub(super) fn set(set: &Set, family: Family) -> Result<(), Errno> {
    let fits = |types: &[Type]| (1..=KEY_MAX).contains(&packed_len(types, family));
    ensure(fits(&set.key), Errno::INVAL)?;
    if let SetValue::Data(types) = &set.value {
        ensure(fits(types), Errno::INVAL)?;
    }
    // Dynamic sets must have plain keys.
    ensure(!(set.interval && set.timeout.is_some()), Errno::OPNOTSUPP)
}

/// Checks an element.
pub(super) fn element(held: &Held, set: &Set, family: Family, key: &Key, value: &Value) -> Result<(), Errno> {
    let long_enough = |bytes: &[u8], types: &[Type]| bytes.len() == packed_len(types, family);
    ensure(long_enough(&key.start, &set.key) && long_enough(key.last(), &set.key), Errno::INVAL)?;
    ensure(key.end.is_none() || (set.interval && key.start[..] <= *key.last()), Errno::INVAL)?;
    match (&set.value, value) {
        (SetValue::Nothing, Value::Nothing) => Ok(()),
        (SetValue::Verdict, Value::Verdict(verdict)) => target(held, verdict),
        (SetValue::Data(types), Value::Data(bytes)) => ensure(long_enough(bytes, types), Errno::INVAL),
        _ => Err(Errno::INVAL),
    }
}

/// Checks that a verdict refers to a regular chain.
fn target(held: &Held, verdict: &Verdict) -> Result<(), Errno> {
    let Some(name) = verdict.target() else { return Ok(()) };
    let chain = held.chains.get(name).ok_or(Errno::NOENT)?;
    ensure(chain.base.is_none(), Errno::OPNOTSUPP)
}

/// Checks a statement.
pub(super) fn statement(held: &Held, statement: &Statement) -> Result<(), Errno> {
    if let Some((name, key)) = statement.lookup() {
        let set = held.sets.get(name).ok_or(Errno::NOENT)?;
        let types = key.iter().map(|field| field.kind());
        ensure(types.eq(set.key.iter().copied()), Errno::INVAL)?;
        ensure(key.iter().all(|field| field.bound() != Some(0)), Errno::RANGE)?;
        let address_and_port = [Type::Address, Type::Port];
        let fits = match (statement, &set.value) {
            (Statement::In { .. } | Statement::Remember { .. }, SetValue::Nothing) => true,
            (Statement::Dispatch { .. }, SetValue::Verdict) => true,
            (Statement::Translate { .. }, SetValue::Data(types)) => types[..] == address_and_port,
            (Statement::Redirect { .. }, SetValue::Data(types)) => types[..] == [Type::Port],
            _ => false,
        };
        ensure(fits, Errno::INVAL)?;
        // Interval sets cannot be dynamic.
        let fillable = !set.interval || !matches!(statement, Statement::Remember { .. });
        return ensure(fillable, Errno::OPNOTSUPP);
    }
    match statement {
        Statement::Interface { name, .. } => ensure((1..16).contains(&name.len()), Errno::INVAL),
        Statement::Go(verdict) => target(held, verdict),
        _ => Ok(()),
    }
}

/// Whether any rule or element refers to a chain.
pub(super) fn leads_to(held: &Held, name: &Name) -> bool {
    let by_rule =
        held.chains.values().flat_map(|chain| chain.rules.iter().flatten()).any(|statement| match statement {
            Statement::Go(verdict) => verdict.target() == Some(name),
            _ => false,
        });
    by_rule || held.sets.values().any(|set| targets(set).any(|target| target == name))
}

/// Chains that the elements of a set refer to.
fn targets(set: &Set) -> impl Iterator<Item = &Name> {
    let is_map = set.value == SetValue::Verdict;
    let values = set.elements.values().filter(move |_| is_map);
    values.filter_map(|value| if let Value::Verdict(verdict) = value { verdict.target() } else { None })
}

/// Checks jump depth, and that chains contain only statements that are valid at the hooks they are reached from.
pub(super) fn walkable(held: &Held) -> Result<(), Errno> {
    let maps = held.sets.iter().map(|(name, set)| (name, targets(set).collect::<BTreeSet<_>>()));
    let maps: BTreeMap<_, _> = maps.filter(|(_, targets)| !targets.is_empty()).collect();
    for (name, chain) in &held.chains {
        if let Some(base) = chain.base {
            let mut seen = BTreeSet::new();
            descend(held, &maps, base, name, 0, &mut seen)?;
        }
    }
    Ok(())
}

fn descend<'a>(
    held: &'a Held,
    maps: &BTreeMap<&'a Name, BTreeSet<&'a Name>>,
    base: Base,
    name: &'a Name,
    depth: usize,
    seen: &mut BTreeSet<(usize, &'a Name)>,
) -> Result<(), Errno> {
    ensure(depth < DEPTH, Errno::MLINK)?;
    if !seen.insert((depth, name)) {
        return Ok(());
    }
    let Some(chain) = held.chains.get(name) else { return Ok(()) };
    for statement in chain.rules.iter().flatten() {
        possible(statement, base)?;
        let next: Vec<&Name> = match statement {
            Statement::Go(verdict) => verdict.target().into_iter().collect(),
            Statement::Dispatch { map, .. } => maps.get(map).into_iter().flatten().copied().collect(),
            _ => continue,
        };
        for target in next {
            descend(held, maps, base, target, depth + 1, seen)?;
        }
    }
    Ok(())
}

/// Checks that a statement is valid below a base chain.
fn possible(statement: &Statement, base: Base) -> Result<(), Errno> {
    let fine = match statement {
        Statement::Translate { .. } | Statement::Redirect { .. } => {
            base.kind == BaseKind::Nat && matches!(base.hook, Hook::Prerouting | Hook::Output)
        }
        Statement::Masquerade => base.kind == BaseKind::Nat && base.hook == Hook::Postrouting,
        Statement::Reject | Statement::Reset => base.hook != Hook::Postrouting,
        _ => true,
    };
    ensure(fine, Errno::OPNOTSUPP)
}
