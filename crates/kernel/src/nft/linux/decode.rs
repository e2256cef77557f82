//! Parses nftables messages of the kernel.
//!
//! Other programs may change our tables: objects in forms that we never write are decoded to something that equals none
//! of ours, so that a comparison finds the difference.

use std::collections::{BTreeMap, HashSet};

use super::encode::{HOOKS, KINDS};
use super::numbers::{HEADER, LIST_ELEMENT, chain, counter, data, element, rule, set, table, verdict};
use super::sets::{TYPE_BITS, predecessor, type_number};
use crate::Family;
use crate::netlink::{Attributes, Message};
use crate::nft::{Base, Counter, Key, Name, Set, SetValue, Type, Value, Verdict};

/// Family of a message.
pub(crate) fn family(message: &Message<'_>) -> Option<Family> {
    Family::from_number(*message.body.first()?)
}

/// Attributes of a message of this family and table, which `attribute` names.
pub(crate) fn about<'a>(message: &Message<'a>, of: Family, attribute: u16, table: &str) -> Option<Attributes<'a>> {
    let attributes = message.attributes(HEADER);
    (family(message)? == of && attributes.text(attribute)? == table).then_some(attributes)
}

/// Tag of a table: its comment, or empty.
pub(crate) fn tag(attributes: &Attributes<'_>) -> String {
    let comment = attributes.find(table::USER_DATA).and_then(|records| {
        let (kind, rest) = records.split_first()?;
        let (length, rest) = rest.split_first()?;
        let text = rest.get(..usize::from(*length)).filter(|_| *kind == 0)?;
        std::str::from_utf8(text.strip_suffix(&[0]).unwrap_or(text)).ok()
    });
    comment.unwrap_or_default().to_owned()
}

/// A chain. Base chains of unknown types are decoded as regular chains.
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

/// A set without elements.
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
    let set = Set {
        key: types(attributes.be32(set::KEY_TYPE).unwrap_or_default(), family),
        value,
        interval: flags & set::INTERVAL != 0,
        timeout: (flags & set::TIMEOUTS != 0).then_some(seconds),
        counters: counters.is_some(),
        elements: BTreeMap::new(),
    };
    Some((name, set))
}

/// Types of a type number; empty if one is unknown.
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

/// An element in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Element {
    /// Key, or start of the range.
    pub start: Box<[u8]>,
    /// End of the range, in interval sets with concatenations.
    pub end: Option<Box<[u8]>>,
    /// Whether it is the exclusive end of a range, in interval sets of one part.
    pub border: bool,
    /// What it leads to.
    pub value: Value,
    /// Packets and bytes.
    pub count: (u64, u64),
}

/// Elements of a message.
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
    let verdict = content.nest(data::VERDICT)?;
    let target = || verdict.text(data::VERDICT_CHAIN).map(Name::from);
    Some(Value::Verdict(match verdict.be32(data::VERDICT_CODE)?.cast_signed() {
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

/// Whether an element occurs twice.
pub(crate) fn repeats(elements: &[Element]) -> bool {
    let mut seen = HashSet::with_capacity(elements.len());
    elements.iter().any(|element| !seen.insert((&element.start, &element.end, element.border)))
}

/// Elements of a set; in interval sets of one part, a start and its exclusive end form one element.
pub(crate) fn assemble(set: &Set, mut elements: Vec<Element>) -> Vec<(Counter, Value)> {
    let whole = |element: &Element, key| {
        let (packets, bytes) = element.count;
        (Counter { key, packets, bytes }, element.value.clone())
    };
    if !set.interval || set.key.len() != 1 {
        let key = |element: &Element| {
            let end = element.end.clone().unwrap_or_else(|| element.start.clone());
            Key::between(element.start.clone(), end)
        };
        return elements.iter().map(|element| whole(element, key(element))).collect();
    }
    // Where one range ends and the next starts there are two elements with one key; the end comes first.
    elements.sort_by(|a, b| a.start.cmp(&b.start).then(b.border.cmp(&a.border)));
    let range = |(index, element): (usize, &Element)| {
        let next = elements.get(index + 1).and_then(|next| predecessor(&next.start));
        let last = next.unwrap_or_else(|| vec![255; element.start.len()].into());
        whole(element, Key::between(element.start.clone(), last))
    };
    elements.iter().enumerate().filter(|(_, element)| !element.border).map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(start: u8, border: bool) -> Element {
        Element { start: [start].into(), end: None, border, value: Value::Nothing, count: (0, 0) }
    }

    #[test]
    fn starts_and_ends_form_ranges() {
        let set = Set { key: vec![Type::Protocol], interval: true, ..Set::default() };
        let elements = [(0, true), (200, false), (16, true), (16, false), (8, false), (17, true)];
        let elements: Vec<_> = elements.into_iter().map(|(start, border)| element(start, border)).collect();
        assert!(!repeats(&elements), "a border and a beginning may be at one place");
        let found: Vec<_> = assemble(&set, elements).into_iter().map(|(counter, _)| counter.key).collect();
        let range = |from: u8, to: u8| Key::between([from].into(), [to].into());
        assert_eq!(found, [range(8, 15), range(16, 16), range(200, 255)]);
    }

    #[test]
    fn duplicate_elements_are_detected() {
        assert!(repeats(&[element(1, false), element(2, false), element(1, false)]));
    }
}
