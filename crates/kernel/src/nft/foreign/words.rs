//! Renders a foreign rule in `nft` syntax, for common rules.

use super::{Comparison, ForeignRule, Header, Step, TableFamily};
use crate::address_from;
use crate::nft::Verdict;

/// The rule as text, abbreviated.
#[must_use]
pub fn words(rule: &ForeignRule, sort: TableFamily) -> String {
    let mut said: Vec<String> = Vec::new();
    let (mut what, mut range) = (String::new(), String::new());
    for step in &rule.steps {
        match step {
            Step::Load(_, header, offset, length) => {
                what = field(*header, *offset, *length, sort);
                range.clear();
            }
            Step::Meta(_, key) => what = meta(*key),
            Step::Connection(_, 0) => "ct state".clone_into(&mut what),
            Step::Connection(..) => "ct".clone_into(&mut what),
            Step::Compare(_, comparison, bytes) if what != "meta nfproto" => {
                let range = std::mem::take(&mut range);
                said.push(format!("{what}{} {}{range}", sign(*comparison), value(&what, bytes)));
            }
            Step::Mask(_, _, mask, _) if what.ends_with("addr") => range = prefix(mask),
            Step::Between(_, negate, low, high) => {
                let not = if *negate { " !=" } else { "" };
                said.push(format!("{what}{not} {}-{}", value(&what, low), value(&what, high)));
            }
            Step::Lookup { set, negate, .. } => said.push(format!("{what}{} @{set}", if *negate { " !=" } else { "" })),
            Step::Ports { destination: (first, last, negate), .. } => {
                let ports = if first == last { first.to_string() } else { format!("{first}-{last}") };
                said.push(format!("dport{} {ports}", if *negate { " !=" } else { "" }));
            }
            Step::State(..) => said.push("ct state".to_owned()),
            Step::Go(verdict) => said.push(verb(verdict)),
            Step::Reject => said.push("reject".to_owned()),
            Step::Unclear(name) => said.push(format!("({name})")),
            Step::Mask(..) | Step::Constant(..) | Step::Compare(..) | Step::Nothing => {}
        }
    }
    said.join(" ")
}

/// Prefix length of an address, if shorter than the address.
fn prefix(mask: &[u8]) -> String {
    let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    if mask.iter().all(|byte| *byte == u8::MAX) { String::new() } else { format!("/{ones}") }
}

fn field(header: Header, offset: usize, length: usize, sort: TableFamily) -> String {
    let v6 = sort == TableFamily::Ip6 || (sort == TableFamily::Inet && length == 16);
    let ip = if v6 { "ip6" } else { "ip" };
    match (header, offset, length) {
        (Header::Network, 12, 4) | (Header::Network, 8, 16) => format!("{ip} saddr"),
        (Header::Network, 16, 4) | (Header::Network, 24, 16) => format!("{ip} daddr"),
        (Header::Transport, 0, 2) => "sport".to_owned(),
        (Header::Transport, 2, 2) => "dport".to_owned(),
        _ => "header".to_owned(),
    }
}

fn meta(key: u32) -> String {
    match key {
        3 => "meta mark",
        4 | 6 => "iifname",
        5 | 7 => "oifname",
        15 => "meta nfproto",
        16 => "meta l4proto",
        _ => "meta",
    }
    .to_owned()
}

const fn sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "",
        Comparison::Unequal => " !=",
        Comparison::Less => " <",
        Comparison::AtMost => " <=",
        Comparison::More => " >",
        Comparison::AtLeast => " >=",
    }
}

fn value(what: &str, bytes: &[u8]) -> String {
    let address = what.ends_with("addr").then(|| address_from(bytes)).flatten();
    match (what, bytes) {
        _ if address.is_some() => address.map(|ip| ip.to_string()).unwrap_or_default(),
        ("iifname" | "oifname", _) => String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned(),
        ("meta l4proto", [6]) => "tcp".to_owned(),
        ("meta l4proto", [17]) => "udp".to_owned(),
        (_, [one]) => one.to_string(),
        (_, [high, low]) => u16::from_be_bytes([*high, *low]).to_string(),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn verb(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accept => "accept".to_owned(),
        Verdict::Drop => "drop".to_owned(),
        Verdict::Continue => "continue".to_owned(),
        Verdict::Return => "return".to_owned(),
        Verdict::Jump(to) => format!("jump {to}"),
        Verdict::Goto(to) => format!("goto {to}"),
    }
}
