//! The corpus: files, profiles as configurations, objects in a snapshot, cases as messages.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use dns::snapshot::{Update, ZoneSnapshot};
use dns::wire::{from_text, rtype};
use dns::zone::{Config, Fallthrough, Pods, Quirks, Ttl};
use serde_json::{Value, json};

/// Reads a file of the corpus.
pub(crate) fn file(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/dns").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

/// Items of a list, or a single value.
pub(crate) fn each(value: &Value) -> Vec<&Value> {
    value.as_array().map_or_else(|| vec![value], |items| items.iter().collect())
}

/// Configuration of a profile.
pub(crate) fn config(profile: &str, value: &Value, quirks: Quirks) -> Config {
    let zones = value["zones"].as_array().expect("zones").iter().map(|zone| zone.as_str().expect("a zone").to_owned());
    let mut config = Config {
        zones: zones.collect(),
        fallthrough: Fallthrough::Never,
        pods: Pods::Disabled,
        recursion: value["forward_to_stub"] == json!(true),
        quirks,
        ..Config::default()
    };
    if profile == "ns" {
        config.server_addresses = vec!["10.244.0.53".parse::<IpAddr>().expect("an address")];
    }
    for line in value["kubernetes"].as_array().expect("options") {
        let words: Vec<&str> = line.as_str().expect("an option").split(' ').collect();
        let rest = || words[1..].iter().map(|word| (*word).to_owned()).collect();
        match words[0] {
            "pods" => {
                config.pods = match words[1] {
                    "insecure" => Pods::Insecure,
                    "verified" => Pods::Verified,
                    _ => Pods::Disabled,
                }
            }
            "fallthrough" => config.fallthrough = Fallthrough::Below(rest()),
            "ttl" => config.ttl = Ttl::all(words[1].parse().expect("seconds")),
            "namespaces" => config.namespaces = rest(),
            "namespace_labels" => words[1].clone_into(&mut config.namespace_labels),
            "ignore" => config.ignore_empty_service = true,
            "endpoint_pod_names" => config.endpoint_pod_names = true,
            "noendpoints" => config.endpoints = false,
            other => panic!("option {other} is not known"),
        }
    }
    config
}

/// Update of a created object.
pub(crate) fn update(object: &Value, config: &Config) -> Option<Update> {
    let text = object.to_string();
    let read = "the object";
    match object["kind"].as_str().expect("a kind") {
        "Service" => Some(Update::Service(Box::new(serde_json::from_str(&text).expect(read)))),
        "EndpointSlice" => Some(Update::Slice(Box::new(serde_json::from_str(&text).expect(read)))),
        "Namespace" => {
            let labels = &object["metadata"]["labels"];
            let shown = config.namespace_labels.split_once('=').is_none_or(|(key, value)| labels[key] == json!(value));
            shown.then(|| Update::Namespace(object["metadata"]["name"].as_str().expect("a name").into()))
        }
        "Pod" => Some(Update::Pod(Box::new(serde_json::from_str(&text).expect(read)))),
        _ => None,
    }
}

/// Snapshot with the complete fixture.
pub(crate) fn snapshot(config: Config) -> Arc<ZoneSnapshot> {
    let snapshot = ZoneSnapshot::new(config).expect("zones");
    for object in file("objects.json")["items"].as_array().expect("items") {
        if let Some(update) = update(object, &snapshot.config) {
            snapshot.apply(update, 7);
        }
    }
    snapshot.set_ready();
    snapshot
}

fn bit(flags: &Value, name: &str, bit: u16) -> u16 {
    if flags.get(name).map_or(name == "rd", |value| value == &json!(true)) { bit } else { 0 }
}

fn number(value: &Value, otherwise: u64) -> u64 {
    value.as_u64().unwrap_or(otherwise)
}

/// Message of a case, and its question if the reply must repeat one.
pub(crate) fn message(case: &Value, id: u16) -> (Vec<u8>, Option<Vec<u8>>) {
    if let Some(raw) = case["raw"].as_str() {
        return (hex(raw), case["question"].as_str().map(hex));
    }
    let flags = &case["flags"];
    let opcode = match flags["opcode"].as_str().unwrap_or("QUERY") {
        "QUERY" => 0,
        "IQUERY" => 1,
        "STATUS" => 2,
        "NOTIFY" => 4,
        "UPDATE" => 5,
        other => panic!("opcode {other}"),
    };
    let names = [("rd", 0x0100), ("ad", 0x0020), ("cd", 0x0010), ("z", 0x0040), ("aa", 0x0400), ("tc", 0x0200)];
    let bits = names.into_iter().fold(opcode << 11, |all, (name, value)| all | bit(flags, name, value));
    let class: u16 = match case["qclass"].as_str().unwrap_or("IN") {
        "IN" => 1,
        "CH" => 3,
        "HS" => 4,
        "NONE" => 254,
        "ANY" => 255,
        other => panic!("class {other}"),
    };
    let mut question = from_text(case["qname"].as_str().expect("a name")).expect("a name");
    let qtype = rtype::parse(case["qtype"].as_str().expect("a type")).expect("a type");
    question.extend([qtype.to_be_bytes(), class.to_be_bytes()].concat());
    let edns = flags.get("edns").map(opt).unwrap_or_default();
    let mut out = [id.to_be_bytes(), bits.to_be_bytes(), [0, 1], [0, 0], [0, 0]].concat();
    out.extend([0, u8::from(!edns.is_empty())]);
    out.extend(&question);
    out.extend(edns);
    (out, Some(question))
}

fn opt(edns: &Value) -> Vec<u8> {
    let mut options = Vec::new();
    for option in edns["options"].as_array().into_iter().flatten() {
        let data = hex(option["hex"].as_str().expect("hex"));
        let code = u16::try_from(number(&option["code"], 0)).expect("a code");
        options.extend([code.to_be_bytes(), u16::try_from(data.len()).expect("short").to_be_bytes()].concat());
        options.extend(data);
    }
    let dnssec = if edns["do"] == json!(true) { 0x8000 } else { 0 };
    let ttl = u32::try_from(number(&edns["version"], 0) << 16 | dnssec | number(&edns["z"], 0)).expect("32 bits");
    let size = u16::try_from(number(&edns["bufsize"], 1232)).expect("a size");
    let mut out = vec![0, 0, 41];
    out.extend(size.to_be_bytes());
    out.extend(ttl.to_be_bytes());
    out.extend(u16::try_from(options.len()).expect("short").to_be_bytes());
    out.extend(options);
    out
}

/// Maximum UDP reply size of a case.
pub(crate) fn size_limit(case: &Value) -> usize {
    if case.get("raw").is_some() {
        return 65535;
    }
    let edns = case["flags"].get("edns");
    edns.map_or(512, |edns| usize::try_from(number(&edns["bufsize"], 1232)).expect("a size").max(512))
}

/// Bytes of hexadecimal digits.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().map(|digit| u8::try_from(digit.to_digit(16).expect("a digit")).expect("small")).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
