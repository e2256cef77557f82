//! What the kernel tells of tables, back into our words.
//!
//! Tables are also touched by others: whatever is not of a shape that we write is told as something that equals nothing of
//! ours, so that a comparison finds the difference.

use std::collections::{BTreeMap, HashSet};

use super::encode::{HOOKS, KINDS};
use super::numbers::{HEADER, LIST_ELEMENT, chain, counter, data, element, rule, set, table, verdict};
use super::sets::{TYPE_BITS, predecessor, type_number};
use crate::Family;
use crate::netlink::{Attributes, Message};
use crate::nft::{Base, Counter, Key, Name, Set, SetValue, Type, Value, Verdict};

/// The family that a message is about.
pub(crate) fn family(message: &Message<'_>) -> Option<Family> {
    Family::from_number(*message.body.first()?)
}

/// Attributes of a message, if it is about this family, and about this table, which `attribute` names.
pub(crate) fn about<'a>(message: &Message<'a>, of: Family, attribute: u16, table: &str) -> Option<Attributes<'a>> {
    let attributes = message.attributes(HEADER);
    (family(message)? == of && attributes.text(attribute)? == table).then_some(attributes)
}

/// The tag of a table: its comment. A table without one has the empty tag.
pub(crate) fn tag(attributes: &Attributes<'_>) -> String {
    let comment = attributes.find(table::USER_DATA).and_then(|records| {
        let (kind, rest) = records.split_first()?;
        let (length, rest) = rest.split_first()?;
        let text = rest.get(..usize::from(*length)).filter(|_| *kind == 0)?;
        std::str::from_utf8(text.strip_suffix(&[0]).unwrap_or(text)).ok()
    });
    comment.unwrap_or_default().to_owned()
}

/// A chain. Those of a kind that we never make are told as chains that packets do not enter.
pub(crate) fn chain(attributes: &Attributes<'_>) -> Option<(Name, Option<Base>)> {
    Some((attributes.text(chain::NAME)?.into(), base(attributes)))
}

fn base(attributes: &Attributes<'_>) -> Option<Base> {
    let hook = attributes.nest(chain::HOOK)?;
    let number = usize::try_from(hook.be32(chain::HOOK_NUMBER)?).ok()?;
    let kind = attributes.text(chain::TYPE)?;
    Some(Base {
        kind: KINDS.iter().find_map(|(one, text)| (*text == kind).then_some(*one))?,
        hook: *HOOKS.get(number)?,
        priority: hook.be32(chain::HOOK_PRIORITY)?.cast_signed(),
    })
}

/// A set, without its elements.
pub(crate) fn set(attributes: &Attributes<'_>, family: Family) -> Option<(Name, Set)> {
    let name = attributes.text(set::NAME)?.into();
    let flags = attributes.be32(set::FLAGS).unwrap_or_default();
    let milliseconds = attributes.be64(set::TIMEOUT).unwrap_or_default();
    let seconds = u32::try_from(milliseconds / 1000).unwrap_or(u32::MAX);
    let value = match attributes.be32(set::DATA_TYPE) {
        _ if flags & set::MAP == 0 => SetValue::Nothing,
        Some(set::VERDICTS) => SetValue::Verdict,
        number => SetValue::Data(types(number.unwrap_or_default(), family)),
    };
    let counters = attributes.find(set::EXPRESSION).or_else(|| attributes.find(set::EXPRESSIONS));
    let told = Set {
        key: types(attributes.be32(set::KEY_TYPE).unwrap_or_default(), family),
        value,
        interval: flags & set::INTERVAL != 0,
        timeout: (flags & set::TIMEOUTS != 0).then_some(seconds),
        counters: counters.is_some(),
        elements: BTreeMap::new(),
    };
    Some((name, told))
}

/// The types that a number stands for; none if one of them is unknown to us.
fn types(mut number: u32, family: Family) -> Vec<Type> {
    const ALL: [Type; 4] = [Type::Address, Type::Protocol, Type::Port, Type::Random];
    let mut out = Vec::new();
    while number != 0 {
        let last = number & ((1 << TYPE_BITS) - 1);
        let Some(one) = ALL.into_iter().find(|one| type_number(*one, family) == last) else { return Vec::new() };
        out.push(one);
        number >>= TYPE_BITS;
    }
    out.reverse();
    out
}

/// An element as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Element {
    /// Its key, or where its range begins.
    pub start: Box<[u8]>,
    /// Where its range ends, in sets of ranges of several parts.
    pub end: Option<Box<[u8]>>,
    /// Whether it is only the border behind a range, in sets of ranges of one part.
    pub border: bool,
    /// What it leads to.
    pub value: Value,
    /// Packets and bytes.
    pub count: (u64, u64),
}

/// The elements in a message about elements of a set.
pub(crate) fn elements<'a>(attributes: &Attributes<'a>) -> impl Iterator<Item = Element> + use<'a> {
    let list = attributes.nest(element::ELEMENTS).unwrap_or_else(|| Attributes::new(&[]));
    list.filter(|(kind, _)| *kind == LIST_ELEMENT).filter_map(|(_, bytes)| element(&Attributes::new(bytes)))
}

fn element(attributes: &Attributes<'_>) -> Option<Element> {
    let key = |attribute| Some(Box::from(attributes.nest(attribute)?.find(data::VALUE)?));
    Some(Element {
        start: key(element::KEY)?,
        end: key(element::KEY_END),
        border: attributes.be32(element::FLAGS).unwrap_or_default() & element::INTERVAL_END != 0,
        value: attributes.nest(element::DATA).and_then(|content| value(&content)).unwrap_or(Value::Nothing),
        count: count(attributes).unwrap_or_default(),
    })
}

fn value(content: &Attributes<'_>) -> Option<Value> {
    if let Some(bytes) = content.find(data::VALUE) {
        return Some(Value::Data(bytes.into()));
    }
    let told = content.nest(data::VERDICT)?;
    let target = || told.text(data::VERDICT_CHAIN).map(Name::from);
    Some(Value::Verdict(match told.be32(data::VERDICT_CODE)?.cast_signed() {
        verdict::ACCEPT => Verdict::Accept,
        verdict::DROP => Verdict::Drop,
        verdict::CONTINUE => Verdict::Continue,
        verdict::RETURN => Verdict::Return,
        verdict::JUMP => Verdict::Jump(target()?),
        verdict::GOTO => Verdict::Goto(target()?),
        _ => return None,
    }))
}

fn count(attributes: &Attributes<'_>) -> Option<(u64, u64)> {
    let one = |expression: &Attributes<'_>| {
        let content = expression.nest(rule::EXPRESSION_DATA)?;
        (expression.text(rule::EXPRESSION_NAME)? == "counter")
            .then_some((content.be64(counter::PACKETS)?, content.be64(counter::BYTES)?))
    };
    let several = |list: Attributes<'_>| {
        list.filter(|(kind, _)| *kind == LIST_ELEMENT).find_map(|(_, bytes)| one(&Attributes::new(bytes)))
    };
    let single = attributes.nest(element::EXPRESSION).and_then(|expression| one(&expression));
    single.or_else(|| attributes.nest(element::EXPRESSIONS).and_then(several))
}

/// Whether an element is told twice.
pub(crate) fn repeats(told: &[Element]) -> bool {
    let mut seen = HashSet::with_capacity(told.len());
    told.iter().any(|element| !seen.insert((&element.start, &element.end, element.border)))
}

/// Elements as a set of ours has them: in sets of ranges of one part, a beginning and the border behind it are one element.
pub(crate) fn assemble(set: &Set, mut told: Vec<Element>) -> Vec<(Counter, Value)> {
    let whole = |element: &Element, key| {
        let (packets, bytes) = element.count;
        (Counter { key, packets, bytes }, element.value.clone())
    };
    if !set.interval || set.key.len() != 1 {
        let key = |element: &Element| {
            let end = element.end.clone().unwrap_or_else(|| element.start.clone());
            Key::between(element.start.clone(), end)
        };
        return told.iter().map(|element| whole(element, key(element))).collect();
    }
    // Where one range ends and the next begins there are two elements with one key; the border is the earlier.
    told.sort_by(|a, b| a.start.cmp(&b.start).then(b.border.cmp(&a.border)));
    let range = |(index, element): (usize, &Element)| {
        let next = told.get(index + 1).and_then(|next| predecessor(&next.start));
        let last = next.unwrap_or_else(|| vec![255; element.start.len()].into());
        whole(element, Key::between(element.start.clone(), last))
    };
    told.iter().enumerate().filter(|(_, element)| !element.border).map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(start: u8, border: bool) -> Element {
        Element { start: [start].into(), end: None, border, value: Value::Nothing, count: (0, 0) }
    }

    #[test]
    fn borders_and_beginnings_are_ranges() {
        let set = Set { key: vec![Type::Protocol], interval: true, ..Set::default() };
        let told = [(0, true), (200, false), (16, true), (16, false), (8, false), (17, true)];
        let told: Vec<_> = told.into_iter().map(|(start, border)| element(start, border)).collect();
        assert!(!repeats(&told), "a border and a beginning may be at one place");
        let found: Vec<_> = assemble(&set, told).into_iter().map(|(counter, _)| counter.key).collect();
        let range = |from: u8, to: u8| Key::between([from].into(), [to].into());
        assert_eq!(found, [range(8, 15), range(16, 16), range(200, 255)]);
    }

    #[test]
    fn an_element_that_came_twice_is_noticed() {
        assert!(repeats(&[element(1, false), element(2, false), element(1, false)]));
    }
}
