//! Compares a reply with the forms the corpus accepts.

use std::collections::{BTreeMap, BTreeSet};

use dns::wire::{Message, Record, rtype, to_text};
use serde_json::{Value, json};

/// Query and transport.
pub(crate) struct Sent<'a> {
    pub(crate) message: &'a [u8],
    pub(crate) question: Option<&'a [u8]>,
    pub(crate) udp_limit: Option<usize>,
}

/// Parsed reply.
struct Reply {
    flags: u16,
    questions: u16,
    rcode: u16,
    sections: [Vec<Record>; 3],
    opt: Option<Record>,
}

fn decode(wire: &[u8]) -> Result<Reply, String> {
    let message = Message::read(wire).map_err(|error| error.to_string())?;
    let counts = [6, 8, 10].map(|at| usize::from(u16::from_be_bytes([wire[at], wire[at + 1]])));
    let mut sections = [Vec::new(), Vec::new(), Vec::new()];
    let mut opt = None;
    let mut rcode = message.flags() & 15;
    for (number, record) in message.records().enumerate() {
        let record = record.map_err(|error| error.to_string())?;
        let section = if number < counts[0] { 0 } else { 1 + usize::from(number >= counts[0] + counts[1]) };
        if record.rtype == rtype::OPT {
            if section != 2 || opt.is_some() || record.owner != [0] {
                return Err("misplaced OPT".to_owned());
            }
            rcode |= u16::try_from(record.ttl >> 24 << 4).expect("12 bits");
            opt = Some(record);
        } else {
            sections[section].push(record);
        }
    }
    match message.end() {
        Ok(end) if end == wire.len() => {
            Ok(Reply { flags: message.flags(), questions: message.questions(), rcode, sections, opt })
        }
        _ => Err("bytes after the message".to_owned()),
    }
}

fn word(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

/// RDATA in the notation of the corpus: the serial is time-dependent, and one type has its own notation.
fn data_text(record: &Record) -> String {
    let text = record.data_text();
    match record.rtype {
        rtype::SOA if text.to_lowercase().starts_with("ns.dns.") => {
            let mut words: Vec<&str> = text.split(' ').collect();
            words[2] = "SERIAL";
            words.join(" ")
        }
        65 => format!("{} . alpn=\"h2,h3\"", word(&record.data)),
        _ => text,
    }
}

/// Identity of a record, ignoring case.
type Key = (String, String, String);

fn key(record: &Record) -> Key {
    let kind = rtype::text(record.rtype).unwrap_or("?").to_owned();
    let data = data_text(record);
    let data = if kind == "TXT" { data } else { data.to_lowercase() };
    (to_text(&record.owner).to_lowercase(), kind, data)
}

fn wanted(text: &str) -> (Key, String) {
    let words: Vec<&str> = text.splitn(5, ' ').collect();
    let data = if words[3] == "TXT" { words[4].to_owned() } else { words[4].to_lowercase() };
    ((words[0].to_lowercase(), words[3].to_owned(), data), words[1].to_owned())
}

fn ttl_fits(want: &str, got: u32) -> bool {
    match want.strip_prefix("<=") {
        Some(most) => got <= most.parse().expect("a number"),
        None => want == "*" || want == got.to_string(),
    }
}

fn compare_set(name: &str, want: &Value, got: &[Record], problems: &mut Vec<String>) {
    if want == &json!("*") {
        return;
    }
    let have: Vec<(Key, u32)> = got.iter().map(|record| (key(record), record.ttl)).collect();
    let present: BTreeSet<&Key> = have.iter().map(|(key, _)| key).collect();
    if present.len() != have.len() {
        problems.push(format!("{name}: duplicate records"));
    }
    let subset = want.get("subset_of");
    let listed = subset.unwrap_or(want).as_array().map(Vec::as_slice).unwrap_or_default();
    let listed: BTreeMap<Key, String> = listed.iter().map(|text| wanted(text.as_str().expect("a record"))).collect();
    for (key, ttl) in &have {
        if !listed.get(key).is_some_and(|want| ttl_fits(want, *ttl)) {
            problems.push(format!("{name}: unexpected {key:?} {ttl}"));
        }
    }
    match subset {
        Some(_) => {
            let least = want["min"].as_u64().unwrap_or(0);
            if (have.len() as u64) < least {
                problems.push(format!("{name}: {} records, at least {least} wanted", have.len()));
            }
        }
        None => problems
            .extend(listed.keys().filter(|key| !present.contains(key)).map(|key| format!("{name}: missing {key:?}"))),
    }
}

/// Owner names in our zones have the case of the question; a CNAME precedes its target.
fn check_order(reply: &Reply, question: &[u8], local: bool, problems: &mut Vec<String>) {
    let qname = &question[..question.len() - 4];
    let mut seen = vec![qname.to_ascii_lowercase()];
    for record in &reply.sections[0] {
        let lower = record.owner.to_ascii_lowercase();
        if local && lower == seen[0] && record.owner != qname {
            problems.push("an owner name does not have the case of the question".to_owned());
        }
        if !seen.contains(&lower) {
            problems.push(format!("{} stands before the CNAME that leads to it", to_text(&record.owner)));
        }
        if record.rtype == rtype::CNAME {
            seen.push(record.data.to_ascii_lowercase());
        }
    }
}

fn compare_edns(want: &Value, got: Option<&Record>, problems: &mut Vec<String>) {
    let Some(opt) = got else {
        problems.push("OPT is missing".to_owned());
        return;
    };
    let have = [
        ("version", u64::from(opt.ttl >> 16 & 255)),
        ("udp", u64::from(opt.class)),
        ("do", u64::from(opt.ttl >> 15 & 1)),
        ("z", u64::from(opt.ttl & 0x7fff)),
    ];
    for (name, value) in have {
        let want = want.get(name).map(|want| want.as_u64().unwrap_or_else(|| u64::from(want == &json!(true))));
        if want.is_some_and(|want| want != value) {
            problems.push(format!("OPT {name} is {value}, wanted {want:?}"));
        }
    }
    let mut options = BTreeMap::new();
    let mut data = &opt.data[..];
    while data.len() >= 4 {
        let end = 4 + usize::from(word(&data[2..]));
        options.insert(word(data).to_string(), data[4..end].to_vec());
        data = &data[end..];
    }
    for (code, value) in want["options"].as_object().into_iter().flatten() {
        let value = value.as_str().expect("text");
        let have = options.get(code);
        let fits = match value {
            "*" => true,
            "absent" => have.is_none(),
            _ if value.starts_with("cookie:") => have.is_none(),
            _ => have.is_some_and(|have| *have == super::corpus::hex(value)),
        };
        if !fits {
            problems.push(format!("OPT option {code} is {have:?}, wanted {value}"));
        }
    }
}

/// Differences between one accepted form and a reply.
pub(crate) fn compare(want: &Value, wire: Option<&[u8]>, sent: &Sent<'_>) -> Vec<String> {
    if want["drop"] == json!(true) {
        return wire.map(|wire| format!("a reply came: {}", summary(wire))).into_iter().collect();
    }
    let Some(wire) = wire else { return vec!["no reply".to_owned()] };
    let reply = match decode(wire) {
        Ok(reply) => reply,
        Err(error) => return vec![format!("the reply does not parse: {error}")],
    };
    let mut problems = Vec::new();
    let mut check = |good: bool, text: String| {
        if !good {
            problems.push(text);
        }
    };
    check(wire[..2] == sent.message[..2], "another id".to_owned());
    check(reply.flags & 0x8000 != 0, "QR is not set".to_owned());
    if let Some(opcode) = want["opcode"].as_str() {
        let number = match opcode {
            "IQUERY" => 1,
            "STATUS" => 2,
            "NOTIFY" => 4,
            "UPDATE" => 5,
            _ => 0,
        };
        check(reply.flags >> 11 & 15 == number, format!("opcode is not {opcode}"));
    }
    let code = dns::wire::rcode::text(reply.rcode);
    check(want["rcode"] == json!(code), format!("{code}, wanted {}", want["rcode"]));
    let bits = [("aa", 0x400), ("tc", 0x200), ("rd", 0x100), ("ra", 0x80), ("ad", 0x20), ("cd", 0x10)];
    for (name, bit) in bits {
        let have = json!(reply.flags & bit != 0);
        check(want["flags"].get(name).is_none_or(|want| *want == have), format!("flag {name} is {have}"));
    }
    for (name, section) in ["answer", "authority", "additional"].into_iter().zip(&reply.sections) {
        compare_set(name, want.get(name).unwrap_or(&json!([])), section, &mut problems);
    }
    if let Some(question) = sent.question.filter(|_| want["question"] != json!("*")) {
        if wire.get(12..12 + question.len()) != Some(question) || reply.questions != 1 {
            problems.push("the question does not come back byte for byte".to_owned());
        }
        check_order(&reply, question, want["flags"]["aa"] == json!(true), &mut problems);
    }
    match want.get("edns") {
        None => {
            let requested = sent.message.len() >= 12 && word(&sent.message[10..]) > 0;
            if requested != reply.opt.is_some() {
                problems.push(format!("OPT {}", if requested { "is missing" } else { "was not requested" }));
            }
        }
        Some(Value::Null) if reply.opt.is_some() => problems.push("OPT is not wanted".to_owned()),
        Some(Value::Null | Value::String(_)) => {}
        Some(edns) => compare_edns(edns, reply.opt.as_ref(), &mut problems),
    }
    if let Some(limit) = sent.udp_limit.filter(|limit| sent.question.is_some() && wire.len() > *limit) {
        problems.push(format!("{} bytes over UDP, {limit} allowed", wire.len()));
    }
    problems
}

/// Reply in one line.
pub(crate) fn summary(wire: &[u8]) -> String {
    match decode(wire) {
        Ok(reply) => {
            let code = dns::wire::rcode::text(reply.rcode);
            let records: Vec<Key> = reply.sections.iter().flatten().take(4).map(key).collect();
            format!("{code} {:04x} {records:?}", reply.flags)
        }
        Err(error) => format!("{} bytes, {error}", wire.len()),
    }
}
