//! Reads the rules of all programs: kernel expressions become [`Step`]s; those without effect on verdicts are skipped.
//!
//! In: kernel messages. Out: a [`Ruleset`]. Our tables may be large; the caller names those whose sets are skipped.

use rustix::io::Errno;

use super::super::foreign::{
    Comparison, Elements, Entry, ForeignChain, ForeignRule, ForeignSet, Header, Ruleset, Step, TableFamily, TableName,
};
use super::Linux;
use super::decode::{self, Element};
use super::encode::HOOKS;
use super::numbers::{HEADER, LIST_ELEMENT, chain, data, element, message, rule, set, table};
use crate::netlink::{Attributes, Message, Writer};
use crate::nft::{Name, NftError, Value, Verdict};

/// Attributes that only foreign tables need.
const POLICY: u16 = 5;
const HANDLE: u16 = 3;
/// How often rules that change meanwhile are read again.
const ATTEMPTS: usize = 10;

impl Linux {
    /// The rules of all programs; of skipped tables only the chains.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn ruleset(&mut self, pass_over: impl Fn(&TableName) -> bool) -> Result<Ruleset, NftError> {
        for _ in 0..ATTEMPTS {
            match self.everything(&pass_over) {
                Err(Errno::NOENT) => {}
                read => return read.map_err(|errno| NftError::new("reading the ruleset", errno)),
            }
        }
        Err(NftError::new("reading the ruleset", Errno::INTR))
    }

    fn everything(&mut self, pass_over: &impl Fn(&TableName) -> bool) -> Result<Ruleset, Errno> {
        let any = |w: &mut Writer| w.raw(&[0; HEADER]);
        let tables = self.list(message::GET_TABLE, any, |message, out| out.extend(of(message, table::NAME)))?;
        let mut rules = Ruleset { tables, ..Ruleset::default() };
        let chains = self.list(message::GET_CHAIN, any, |message, out| {
            let attributes = message.attributes(HEADER);
            let name = of(message, chain::TABLE).zip(attributes.text(chain::NAME));
            out.extend(name.map(|(of, name)| ((of, Name::from(name)), entry(&attributes))));
        })?;
        for (name, entry) in chains {
            rules.chains.insert(name, ForeignChain { entry, rules: Vec::new() });
        }
        let all = self.list(message::GET_RULE, any, |message, out| {
            let attributes = message.attributes(HEADER);
            let name = of(message, rule::TABLE).filter(|of| !pass_over(of)).zip(attributes.text(rule::CHAIN));
            out.extend(name.map(|(of, name)| ((of, Name::from(name)), foreign_rule(&attributes))));
        })?;
        for (name, rule) in all {
            rules.chains.entry(name).or_default().rules.push(rule);
        }
        let sets = self.list(message::GET_SET, any, |message, out| {
            let attributes = message.attributes(HEADER);
            let name = of(message, set::TABLE).filter(|of| !pass_over(of)).zip(attributes.text(set::NAME));
            out.extend(name.map(|(of, name)| ((of, Name::from(name)), foreign_set(&attributes))));
        })?;
        for ((of, name), mut set) in sets {
            if !set.opaque {
                set.elements = self.foreign_elements(&of, &name)?;
            }
            rules.sets.insert((of, name), set);
        }
        Ok(rules)
    }

    fn foreign_elements(&mut self, of: &TableName, name: &str) -> Result<Elements, Errno> {
        let body = |w: &mut Writer| {
            w.raw(&[of.0.number(), 0, 0, 0]);
            w.text(element::TABLE, &of.1);
            w.text(element::SET, name);
        };
        let elements: Vec<Element> = self.list(message::GET_ELEMENT, body, |message, out| {
            out.extend(decode::elements(&message.attributes(HEADER)));
        })?;
        let leads = |element: Element| match (element.border, element.value) {
            (true, _) => None,
            (false, Value::Verdict(verdict)) => Some(Some(verdict)),
            (false, _) => Some(None),
        };
        Ok(elements.into_iter().map(|element| (element.start.clone(), leads(element))).collect())
    }
}

/// The table of a message.
fn of(message: &Message<'_>, attribute: u16) -> Option<TableName> {
    let family = TableFamily::from_number(*message.body.first()?)?;
    Some((family, message.attributes(HEADER).text(attribute)?.into()))
}

fn entry(attributes: &Attributes<'_>) -> Option<Entry> {
    let hook = attributes.nest(chain::HOOK)?;
    let number = usize::try_from(hook.be32(chain::HOOK_NUMBER)?).ok()?;
    Some(Entry {
        hook: *HOOKS.get(number)?,
        priority: hook.be32(chain::HOOK_PRIORITY)?.cast_signed(),
        translates: attributes.text(chain::TYPE) == Some("nat"),
        drops: attributes.be32(POLICY) == Some(0),
    })
}

fn foreign_set(attributes: &Attributes<'_>) -> ForeignSet {
    let flags = attributes.be32(set::FLAGS).unwrap_or_default();
    let length = attributes.be32(set::KEY_LENGTH).and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
    let interval = flags & set::INTERVAL != 0;
    // Concatenated ranges and dynamic sets.
    let opaque = (interval && flags & set::CONCAT != 0) || flags & set::DYNAMIC != 0;
    ForeignSet { length, elements: Vec::new(), interval, opaque }
}

fn foreign_rule(attributes: &Attributes<'_>) -> ForeignRule {
    let list = attributes.nest(rule::EXPRESSIONS).unwrap_or_else(|| Attributes::new(&[]));
    let steps = list.filter(|(kind, _)| *kind == LIST_ELEMENT).map(|(_, bytes)| {
        let expression = Attributes::new(bytes);
        let name = expression.text(rule::EXPRESSION_NAME).unwrap_or_default();
        let content = expression.nest(rule::EXPRESSION_DATA).unwrap_or_else(|| Attributes::new(&[]));
        step(name, &content).unwrap_or_else(|| Step::Unclear(name.to_owned()))
    });
    ForeignRule { handle: attributes.be64(HANDLE).unwrap_or_default(), steps: steps.collect() }
}

/// The step of an expression; none if unknown.
fn step(name: &str, content: &Attributes<'_>) -> Option<Step> {
    let number = |attribute| content.be32(attribute).and_then(|number| usize::try_from(number).ok());
    let register = |attribute| place(content.be32(attribute)?);
    let value = |attribute| Some(content.nest(attribute)?.find(data::VALUE)?.to_vec());
    // Without a destination register it changes the packet or its metadata.
    if ["payload", "meta", "ct"].contains(&name) && content.find(1).is_none() {
        return Some(Step::Nothing);
    }
    Some(match name {
        "payload" => {
            let header = match content.be32(2)? {
                1 => Header::Network,
                2 => Header::Transport,
                _ => return None,
            };
            Step::Load(register(1)?, header, number(3)?, number(4)?)
        }
        "meta" => Step::Meta(register(1)?, content.be32(2)?),
        "ct" => Step::Connection(register(1)?, content.be32(2)?),
        "cmp" => Step::Compare(register(1)?, comparison(content.be32(2)?)?, value(3)?),
        "range" => Step::Between(register(1)?, content.be32(2)? == 1, value(3)?, value(4)?),
        "bitwise" if content.be32(6).unwrap_or_default() == 0 => {
            Step::Mask(register(1)?, register(2)?, value(4)?, value(5)?)
        }
        "immediate" => match content.be32(1)? {
            0 => Step::Go(verdict(&content.nest(2)?.nest(data::VERDICT)?)?),
            to => Step::Constant(place(to)?, value(2)?),
        },
        "lookup" => Step::Lookup {
            from: register(2)?,
            set: content.text(1)?.into(),
            negate: content.be32(5).unwrap_or_default() & 1 != 0,
            verdict: content.be32(3) == Some(0),
        },
        "reject" => Step::Reject,
        "counter" | "log" | "objref" | "notrack" | "flow_offload" | "last" => Step::Nothing,
        "match" => by_iptables(content.text(1)?, content.find(3)?)?,
        "target" => match content.text(1)? {
            "REJECT" => Step::Reject,
            "LOG" | "NFLOG" | "CHECKSUM" | "TCPMSS" | "CLASSIFY" | "TRACE" => Step::Nothing,
            _ => return None,
        },
        _ => return None,
    })
}

/// Offset of a register.
fn place(number: u32) -> Option<usize> {
    let number = usize::try_from(number).ok()?;
    match number {
        1..=4 => Some((number - 1) * 16),
        8..=23 => Some((number - 8) * 4),
        _ => None,
    }
}

const fn comparison(number: u32) -> Option<Comparison> {
    Some(match number {
        0 => Comparison::Equal,
        1 => Comparison::Unequal,
        2 => Comparison::Less,
        3 => Comparison::AtMost,
        4 => Comparison::More,
        5 => Comparison::AtLeast,
        _ => return None,
    })
}

fn verdict(attributes: &Attributes<'_>) -> Option<Verdict> {
    use super::numbers::verdict as code;
    let target = || attributes.text(data::VERDICT_CHAIN).map(Name::from);
    Some(match attributes.be32(data::VERDICT_CODE)?.cast_signed() {
        code::ACCEPT => Verdict::Accept,
        code::DROP => Verdict::Drop,
        code::CONTINUE => Verdict::Continue,
        code::RETURN => Verdict::Return,
        code::JUMP => Verdict::Jump(target()?),
        code::GOTO => Verdict::Goto(target()?),
        _ => return None,
    })
}

/// Matches of iptables in their binary format.
fn by_iptables(name: &str, info: &[u8]) -> Option<Step> {
    let word = |place: usize| Some(u16::from_ne_bytes(info.get(place..place + 2)?.try_into().ok()?));
    match name {
        "comment" => Some(Step::Nothing),
        "tcp" | "udp" => {
            let (protocol, inverted) = if name == "tcp" { (6, *info.get(11)?) } else { (17, *info.get(8)?) };
            // Rules that match TCP flags or options match more than ports.
            let plain = name == "udp" || info.get(8..11)? == [0, 0, 0];
            let source = (word(0)?, word(2)?, inverted & 1 != 0);
            let destination = (word(4)?, word(6)?, inverted & 2 != 0);
            plain.then_some(Step::Ports { protocol, source, destination })
        }
        // Only the state is matched: bit 0 of the match flags.
        "conntrack" if word(146)? == 1 => Some(Step::State(word(150)?, word(148)? & 1 != 0)),
        _ => None,
    }
}

/// Parses bytes as any ruleset message.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(message: &Message<'_>) {
    let attributes = message.attributes(HEADER);
    of(message, table::NAME);
    entry(&attributes);
    foreign_rule(&attributes);
    foreign_set(&attributes);
}
