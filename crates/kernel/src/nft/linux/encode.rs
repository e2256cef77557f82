//! Encodes a batch as netlink messages: one per table, chain, rule and set, as few as possible for elements.
//!
//! The result is one byte sequence and a map from message to change, so that an error can be attributed to a change.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rustix::io::Errno;

use super::numbers::{HEADER, SUBSYSTEM, chain, element, message, rule, set, table};
use super::rules::{self, INTERFACE_NAME};
use super::sets::{self, Shape};
use crate::Family;
use crate::netlink::{Writer, flags};
use crate::nft::{Base, BaseKind, Batch, Change, Hook, Key, Name, NftError, Rule, Statement, Value};

/// Size limit of an element list, well below the maximum length of an attribute.
const ELEMENTS_BYTES: usize = 48 * 1024;
/// Maximum length of names and tags in the kernel and `nft`.
const NAME_MAX: usize = 255;
const TAG_MAX: usize = 127;

/// An encoded batch.
pub(crate) struct Encoded {
    /// The messages.
    pub bytes: Vec<u8>,
    /// The change of each message between the first and the last.
    pub changes: Vec<usize>,
    /// Sequence number of the first message.
    pub first: u32,
}

impl Encoded {
    /// The change of a message.
    pub(crate) fn change(&self, sequence: u32) -> Option<usize> {
        let index = usize::try_from(sequence.checked_sub(self.first)?.checked_sub(1)?).ok()?;
        self.changes.get(index).copied()
    }

    /// Sequence numbers of all messages except the batch end.
    pub(crate) fn numbers(&self) -> RangeInclusive<u32> {
        self.first..=self.last()
    }

    /// Sequence number of the last change, which the kernel always acknowledges.
    pub(crate) fn last(&self) -> u32 {
        self.first + u32::try_from(self.changes.len()).unwrap_or(u32::MAX)
    }
}

/// Shapes of existing sets.
pub(crate) type Shapes = BTreeMap<(Family, Name, Name), Shape>;

/// Upper bound of the number of messages of a batch.
pub(crate) fn at_most(batch: &Batch) -> u32 {
    let messages = batch.changes.iter().map(Change::weight);
    // Plus batch begin and end.
    u32::try_from(messages.sum::<usize>() + 2).unwrap_or(u32::MAX - 1)
}

/// Encodes a batch for a kernel with sets of these shapes.
pub(crate) fn batch(batch: &Batch, first: u32, shapes: &Shapes) -> Result<Encoded, NftError> {
    let (writer, made) = (Writer::default(), Shapes::new());
    let mut encoder = Encoder { writer, changes: Vec::new(), first, change: 0, last: 0, shapes, made };
    encoder.writer.message(message::BATCH_BEGIN, flags::REQUEST, first, |w| w.raw(&batch_header()));
    for (index, change) in batch.changes.iter().enumerate() {
        encoder.change = index;
        let refused = |errno| NftError { errno, change: Some(index), doing: "writing a batch" };
        check(change).and_then(|()| encoder.change(change)).map_err(refused)?;
    }
    let Encoder { mut writer, changes, last, .. } = encoder;
    let end = first.wrapping_add(u32::try_from(changes.len() + 1).unwrap_or(u32::MAX));
    if !changes.is_empty() {
        writer.add_flag(last, flags::ACK);
    }
    writer.message(message::BATCH_END, flags::REQUEST, end, |w| w.raw(&batch_header()));
    let bytes = writer.finish().map_err(|errno| NftError::new("writing a batch", errno))?;
    Ok(Encoded { bytes, changes, first })
}

fn batch_header() -> [u8; HEADER] {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    [0, 0, high, low]
}

/// Message header of a family.
pub(crate) fn header(family: Family) -> [u8; HEADER] {
    [family.number(), 0, 0, 0]
}

/// Detects what cannot be encoded.
fn check(change: &Change) -> Result<(), Errno> {
    let name = |name: &Name| match name.len() {
        1..=NAME_MAX if !name.contains('\0') => Ok(()),
        _ => Err(Errno::INVAL),
    };
    name(change.table().1)?;
    match change {
        Change::AddTable(_, _, tag) if tag.len() > TAG_MAX || tag.contains('\0') => Err(Errno::INVAL),
        Change::AddTable(..) | Change::DeleteTable(..) => Ok(()),
        Change::AddChain(_, _, chain, _) | Change::DeleteChain(_, _, chain) | Change::FlushChain(_, _, chain) => {
            name(chain)
        }
        Change::AddSet(_, _, set, _) | Change::DeleteSet(_, _, set) | Change::DeleteElements(_, _, set, _) => name(set),
        Change::AddElements(_, _, set, elements) => {
            let mut targets = elements.iter().filter_map(|(_, value)| match value {
                Value::Verdict(verdict) => verdict.target(),
                Value::Nothing | Value::Data(_) => None,
            });
            name(set).and_then(|()| targets.try_for_each(name))
        }
        Change::AddRules(_, _, chain, rules) => {
            let statements = || rules.iter().flatten();
            name(chain)?;
            statements().filter_map(Statement::lookup).try_for_each(|(set, _)| name(set))?;
            statements().try_for_each(|statement| match statement {
                Statement::Interface { name, .. } if !(1..INTERFACE_NAME).contains(&name.len()) => Err(Errno::INVAL),
                Statement::Go(verdict) => verdict.target().map_or(Ok(()), name),
                _ => Ok(()),
            })
        }
    }
}

struct Encoder<'a> {
    writer: Writer,
    changes: Vec<usize>,
    first: u32,
    change: usize,
    /// Offset of the last message.
    last: usize,
    shapes: &'a Shapes,
    /// Sets created by the batch.
    made: Shapes,
}

impl Encoder<'_> {
    fn change(&mut self, change: &Change) -> Result<(), Errno> {
        match change {
            Change::AddTable(family, table, tag) => self.message(message::NEW_TABLE, flags::CREATE, *family, |w| {
                w.text(table::NAME, table);
                w.bytes(table::USER_DATA, &tag_record(tag));
            }),
            Change::DeleteTable(family, table) => {
                self.message(message::DELETE_TABLE, 0, *family, |w| w.text(table::NAME, table))
            }
            Change::AddChain(family, table, chain, base) => {
                self.message(message::NEW_CHAIN, flags::CREATE, *family, |w| {
                    w.text(chain::TABLE, table);
                    w.text(chain::NAME, chain);
                    if let Some(base) = base {
                        hook(w, *base);
                    }
                })
            }
            Change::DeleteChain(family, table, chain) => self.message(message::DELETE_CHAIN, 0, *family, |w| {
                w.text(chain::TABLE, table);
                w.text(chain::NAME, chain);
            }),
            Change::FlushChain(family, table, chain) => self.message(message::DELETE_RULE, 0, *family, |w| {
                w.text(rule::TABLE, table);
                w.text(rule::CHAIN, chain);
            }),
            Change::AddRules(family, table, chain, rules) => {
                rules.iter().try_for_each(|rule| self.rule(*family, table, chain, rule))
            }
            Change::AddSet(family, table, set, content) => {
                self.made.insert((*family, table.clone(), set.clone()), Shape::of(content));
                // Set ID within the batch; our rules refer to sets by name, but an ID is required.
                let id = u32::try_from(self.changes.len()).unwrap_or(u32::MAX);
                self.message(message::NEW_SET, flags::CREATE, *family, |w| {
                    w.text(set::TABLE, table);
                    w.text(set::NAME, set);
                    w.be32(set::ID, id);
                    sets::describe(w, *family, content);
                })
            }
            Change::DeleteSet(family, table, set) => self.message(message::DELETE_SET, 0, *family, |w| {
                w.text(set::TABLE, table);
                w.text(set::NAME, set);
            }),
            Change::AddElements(family, table, set, elements) => {
                let elements = elements.iter().map(|(key, value)| (key, Some(value)));
                self.elements(message::NEW_ELEMENT, flags::CREATE, (*family, table, set), elements)
            }
            Change::DeleteElements(family, table, set, keys) => {
                let elements = keys.iter().map(|key| (key, None));
                self.elements(message::DELETE_ELEMENT, 0, (*family, table, set), elements)
            }
        }
    }

    fn rule(&mut self, family: Family, table: &str, chain: &str, rule: &Rule) -> Result<(), Errno> {
        self.message(message::NEW_RULE, flags::CREATE | flags::APPEND, family, |w| {
            w.text(rule::TABLE, table);
            w.text(rule::CHAIN, chain);
            w.nest(rule::EXPRESSIONS, |w| rule.iter().for_each(|one| rules::statement(w, family, one)));
        })
    }

    /// Writes elements into as many messages as needed.
    fn elements<'a>(
        &mut self,
        kind: u16,
        extra: u16,
        (family, table, set): (Family, &Name, &Name),
        elements: impl Iterator<Item = (&'a Key, Option<&'a Value>)>,
    ) -> Result<(), Errno> {
        let name = (family, table.clone(), set.clone());
        let shape = self.made.get(&name).or_else(|| self.shapes.get(&name)).copied();
        // The kernel reports missing sets.
        let plain = shape.is_some_and(|shape| !shape.interval);
        let shape = shape.unwrap_or_default();
        let mut refused = Ok(());
        let mut elements = elements.peekable();
        while elements.peek().is_some() {
            self.message(kind, extra, family, |w| {
                w.text(element::TABLE, table);
                w.text(element::SET, set);
                let nest = w.open_nest(element::ELEMENTS);
                let end = w.len() + ELEMENTS_BYTES;
                while w.len() < end
                    && let Some((key, value)) = elements.next()
                {
                    // The kernel would take the start of the range as a value.
                    if key.end.is_some() && plain {
                        refused = Err(Errno::INVAL);
                    }
                    sets::element(w, &shape, key, value);
                }
                w.close_nest(&nest);
            })?;
        }
        refused
    }

    fn message(&mut self, kind: u16, extra: u16, family: Family, body: impl FnOnce(&mut Writer)) -> Result<(), Errno> {
        self.changes.push(self.change);
        let count = u32::try_from(self.changes.len()).map_err(|_| Errno::TOOBIG)?;
        let sequence = self.first.checked_add(count).ok_or(Errno::TOOBIG)?;
        self.last = self.writer.len();
        self.writer.message(SUBSYSTEM << 8 | kind, flags::REQUEST | extra, sequence, |w| {
            w.raw(&header(family));
            body(w);
        });
        Ok(())
    }
}

/// A tag as user data of a table.
fn tag_record(tag: &str) -> Vec<u8> {
    let mut out = vec![0, u8::try_from(tag.len() + 1).unwrap_or(u8::MAX)];
    out.extend_from_slice(tag.as_bytes());
    out.push(0);
    out
}

/// Hooks by number, in both families.
pub(crate) const HOOKS: [Hook; 5] = [Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting];

/// Names of chain types.
pub(crate) const KINDS: [(BaseKind, &str); 2] = [(BaseKind::Filter, "filter"), (BaseKind::Nat, "nat")];

fn hook(w: &mut Writer, base: Base) {
    let number = (0..).zip(HOOKS).find_map(|(number, hook)| (hook == base.hook).then_some(number));
    w.nest(chain::HOOK, |w| {
        w.be32(chain::HOOK_NUMBER, number.unwrap_or_default());
        w.be32(chain::HOOK_PRIORITY, base.priority.cast_unsigned());
    });
    let name = KINDS.iter().find_map(|(kind, name)| (*kind == base.kind).then_some(*name));
    w.text(chain::TYPE, name.unwrap_or_default());
}
