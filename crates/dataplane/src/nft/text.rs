//! Renders the rules of a Service port in `nft` syntax.
//!
//! In: a fragment. Out: text for people; it is never parsed.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::ip::Family;
use kernel::nft::{Chain, Field, Key, Name, Rule, Set, SetValue, Statement, Type, Value, Verdict};
use plan::{Plan, ServicePort};

use super::delta::kernel_family;
use super::ruleset;
use super::table_kind::TableKind;
use crate::frontends::owned;

/// The rules of a Service port.
pub(crate) fn of_port(kind: TableKind, plan: &Plan, port: &ServicePort) -> String {
    let fragment = kind.fragment(&plan.options, port, &owned(plan, port));
    let writer = Writer { family: port.key.family, table: kind.table() };
    let sets = kind.sets();
    let mut out = format!("# {} ({})\n", port.key, port.key.family.as_str());
    for ((set, key), value) in &fragment.elements {
        if let Some(shape) = sets.get(*set) {
            let _ = writeln!(out, "{}", writer.element(set, shape, key, value));
        }
    }
    for (name, set) in &fragment.sets {
        let _ = writeln!(out, "{}", writer.set(name, set));
        for (key, value) in &set.elements {
            let _ = writeln!(out, "{}", writer.element(name, set, key, value));
        }
    }
    let detector = ruleset::detector(&plan.options, port.key.family);
    for shape in &fragment.shapes {
        writer.chain(&shape.name(), &shape.chain(detector), "shared by all Services of this shape", &mut out);
    }
    for (name, chain) in &fragment.chains {
        writer.chain(name, chain, "private to this port", &mut out);
    }
    out
}

struct Writer {
    family: Family,
    table: &'static str,
}

impl Writer {
    fn at(&self) -> String {
        format!("{} {}", self.ip(), self.table)
    }

    const fn ip(&self) -> &'static str {
        match self.family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        }
    }

    fn element(&self, set: &str, shape: &Set, key: &Key, value: &Value) -> String {
        let leads = match value {
            Value::Nothing => String::new(),
            Value::Verdict(verdict) => format!(" : {}", verdict_text(verdict)),
            Value::Data(bytes) => match &shape.value {
                SetValue::Data(types) => format!(" : {}", self.parts(types, bytes, bytes)),
                SetValue::Nothing | SetValue::Verdict => String::new(),
            },
        };
        format!("element {} {set} {{ {}{leads} }}", self.at(), self.parts(&shape.key, &key.start, key.last()))
    }

    fn set(&self, name: &Name, set: &Set) -> String {
        let kinds: Vec<&str> = set.key.iter().map(|kind| self.kind(*kind)).collect();
        let timeout = set.timeout.map(|seconds| format!(" timeout {seconds}s;")).unwrap_or_default();
        let what = if set.value == SetValue::Nothing { "set" } else { "map" };
        format!("{what} {} {name} {{ type {};{timeout} }}", self.at(), kinds.join(" . "))
    }

    const fn kind(&self, kind: Type) -> &'static str {
        match (kind, self.family) {
            (Type::Address, Family::V4) => "ipv4_addr",
            (Type::Address, Family::V6) => "ipv6_addr",
            (Type::Protocol, _) => "inet_proto",
            (Type::Port, _) => "inet_service",
            (Type::Random, _) => "integer",
        }
    }

    /// Key or data, part by part; a range shows both ends.
    fn parts(&self, types: &[Type], start: &[u8], last: &[u8]) -> String {
        let (mut at, mut texts) = (0, Vec::new());
        for kind in types {
            let length = kind.len(kernel_family(self.family));
            let ends = [start, last].map(|bytes| bytes.get(at..at + length).map(|part| part_text(*kind, part)));
            at = (at + length).next_multiple_of(4);
            texts.push(match ends {
                [Some(one), Some(other)] if one == other => one,
                [Some(one), Some(other)] => format!("{one}-{other}"),
                _ => "?".to_owned(),
            });
        }
        texts.join(" . ")
    }

    fn chain(&self, name: &Name, chain: &Chain, what: &str, out: &mut String) {
        let _ = writeln!(out, "chain {} {name} {{ # {what}", self.at());
        for rule in &chain.rules {
            let _ = writeln!(out, "    {}", self.rule(rule));
        }
        out.push_str("}\n");
    }

    fn rule(&self, rule: &Rule) -> String {
        rule.iter().map(|statement| self.statement(statement)).collect::<Vec<_>>().join(" ")
    }

    fn key(&self, key: &[Field]) -> String {
        let field = |field: &Field| match field {
            Field::Source => format!("{} saddr", self.ip()),
            Field::Destination => format!("{} daddr", self.ip()),
            Field::Protocol => "meta l4proto".to_owned(),
            Field::DestinationPort => "th dport".to_owned(),
            Field::Random(below) => format!("numgen random mod {below}"),
            Field::Incremental(below) => format!("numgen inc mod {below}"),
            Field::SourceHash { below, seed } => format!("jhash {} saddr mod {below} seed {seed:#x}", self.ip()),
        };
        key.iter().map(field).collect::<Vec<_>>().join(" . ")
    }

    fn statement(&self, statement: &Statement) -> String {
        let not = |negate: &bool| if *negate { "!= " } else { "" };
        match statement {
            Statement::NewConnection => "ct state new".to_owned(),
            Statement::Translated => "ct status dnat".to_owned(),
            Statement::Marked(bits) => format!("meta mark & {bits:#x} != 0"),
            Statement::In { key, set, negate } => format!("{} {}@{set}", self.key(key), not(negate)),
            Statement::LocalSource => "fib saddr type local".to_owned(),
            Statement::LocalDestination => "fib daddr type local".to_owned(),
            Statement::Interface { name, prefix, negate } => {
                format!("iifname {}\"{name}{}\"", not(negate), if *prefix { "*" } else { "" })
            }
            Statement::Mark(bits) => format!("meta mark set meta mark | {bits:#x}"),
            Statement::Unmark(bits) => format!("meta mark set meta mark & {:#x}", !bits),
            Statement::Dispatch { key, map } => format!("{} vmap @{map}", self.key(key)),
            Statement::Translate { key, map } => format!("dnat {} to {} map @{map}", self.ip(), self.key(key)),
            Statement::Redirect { protocol, key, map } => {
                format!("meta l4proto {protocol} redirect to :{} map @{map}", self.key(key))
            }
            Statement::Remember { set, key } => format!("update @{set} {{ {} }}", self.key(key)),
            Statement::Masquerade => "masquerade fully-random".to_owned(),
            Statement::Reject => "reject".to_owned(),
            Statement::Reset => "meta l4proto tcp reject with tcp reset".to_owned(),
            Statement::Go(verdict) => verdict_text(verdict),
        }
    }
}

fn verdict_text(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accept => "accept".to_owned(),
        Verdict::Drop => "drop".to_owned(),
        Verdict::Continue => "continue".to_owned(),
        Verdict::Return => "return".to_owned(),
        Verdict::Jump(chain) => format!("jump {chain}"),
        Verdict::Goto(chain) => format!("goto {chain}"),
    }
}

fn part_text(kind: Type, bytes: &[u8]) -> String {
    match (kind, bytes) {
        (Type::Address, [one, two, three, four]) => Ipv4Addr::new(*one, *two, *three, *four).to_string(),
        (Type::Address, bytes) => match <[u8; 16]>::try_from(bytes) {
            Ok(octets) => IpAddr::V6(Ipv6Addr::from(octets)).to_string(),
            Err(_) => "?".to_owned(),
        },
        (Type::Protocol, [6]) => "tcp".to_owned(),
        (Type::Protocol, [17]) => "udp".to_owned(),
        (Type::Protocol, [132]) => "sctp".to_owned(),
        (Type::Port, [high, low]) => u16::from_be_bytes([*high, *low]).to_string(),
        (Type::Random, bytes) => {
            <[u8; 4]>::try_from(bytes).map_or_else(|_| "?".to_owned(), |n| u32::from_ne_bytes(n).to_string())
        }
        (Type::Protocol | Type::Port, _) => "?".to_owned(),
    }
}
