//! Stub forwarder with the fixed data of the corpus.

use std::collections::HashMap;
use std::time::Instant;

use dns::forward::{BoxFuture, ClientAddr, Forwarder, Lookup, Request, Transport};
use dns::wire::{Query, Record, Reply, flag, from_text, rcode, rtype, to_text, write_error};
use serde_json::Value;

pub(crate) struct Stub {
    records: HashMap<(String, u16), Vec<Record>>,
    codes: HashMap<String, u16>,
    soa: Vec<u8>,
}

impl Stub {
    pub(crate) fn new(data: &Value) -> Self {
        let mut records: HashMap<_, Vec<Record>> = HashMap::new();
        for line in data["records"].as_array().expect("records") {
            let words: Vec<&str> = line.as_str().expect("a record").splitn(5, ' ').collect();
            let rtype = rtype::parse(words[3]).expect("a type");
            let owner = from_text(words[0]).expect("a name");
            let ttl = words[1].parse().expect("seconds");
            let record = Record { owner, rtype, class: 1, ttl, data: data_of(rtype, words[4]) };
            records.entry((words[0].to_lowercase(), rtype)).or_default().push(record);
        }
        let codes =
            data["rcodes"].as_object().expect("codes").keys().map(|name| (name.clone(), rcode::SERVFAIL)).collect();
        Self { records, codes, soa: data_of(rtype::SOA, data["soa"].as_str().expect("a record")) }
    }

    /// Data of a name: RCODE, records including CNAMEs, and whether the last name has no record of the type.
    fn find(&self, name: &str, qtype: u16) -> (u16, Vec<Record>, bool) {
        let mut name = name.to_lowercase();
        if let Some(code) = self.codes.get(&name) {
            return (*code, Vec::new(), false);
        }
        let mut out = Vec::new();
        loop {
            if let Some(found) = self.records.get(&(name.clone(), qtype)) {
                out.extend(found.iter().cloned());
                return (rcode::NOERROR, out, false);
            }
            let Some(alias) = self.records.get(&(name.clone(), rtype::CNAME)) else { break };
            out.extend(alias.iter().cloned());
            name = to_text(&alias[0].data).to_lowercase();
        }
        let exists = self.records.keys().any(|(owner, _)| *owner == name);
        (if exists { rcode::NOERROR } else { rcode::NXDOMAIN }, out, true)
    }

    fn reply(&self, question: &Request<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let query = match Query::parse(question.message) {
            Ok(query) => query,
            Err(error) => {
                write_error(question.message, error, &mut out);
                return out;
            }
        };
        let limit = if question.transport == Transport::Udp { query.udp_limit() } else { 65535 };
        let mut reply = Reply::begin(&mut out, &query, limit);
        if query.qclass != 1 {
            reply.finish(rcode::REFUSED, flag::RA);
            return out;
        }
        let (code, records, nothing) = self.find(&to_text(query.name.wire()), query.qtype);
        for record in &records {
            let data = |out: &mut Vec<u8>| out.extend_from_slice(&record.data);
            if record.owner.eq_ignore_ascii_case(query.name.wire()) {
                reply.answer(record.rtype, record.ttl, data);
            } else {
                reply.answer_named(&record.owner, record.rtype, record.ttl, data);
            }
        }
        if nothing {
            reply.authority(|out| out.push(0), rtype::SOA, 60, |out| out.extend_from_slice(&self.soa));
        }
        reply.finish(code, flag::RA);
        out
    }
}

impl Forwarder for Stub {
    fn cached(&self, _request: &Request<'_>, _now: Instant, _out: &mut Vec<u8>) -> bool {
        false
    }

    fn resolve<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Vec<u8>> {
        Box::pin(std::future::ready(self.reply(&request)))
    }

    fn lookup<'a>(&'a self, name: &'a [u8], qtype: u16, _from: ClientAddr) -> BoxFuture<'a, Lookup> {
        let (rcode, records, _) = self.find(&to_text(name), qtype);
        Box::pin(std::future::ready(Lookup { rcode, truncated: false, records }))
    }
}

fn data_of(rtype: u16, text: &str) -> Vec<u8> {
    let words: Vec<&str> = text.split(' ').collect();
    let name = |text: &str| from_text(text).expect("a name");
    let numbers = |words: &[&str]| -> Vec<u8> {
        words.iter().flat_map(|word| word.parse::<u16>().expect("a number").to_be_bytes()).collect()
    };
    let string = |text: &str| {
        let text = text.trim_matches('"');
        [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat()
    };
    match rtype {
        rtype::A => text.parse::<std::net::Ipv4Addr>().expect("an address").octets().to_vec(),
        rtype::AAAA => text.parse::<std::net::Ipv6Addr>().expect("an address").octets().to_vec(),
        rtype::CNAME | rtype::PTR => name(text),
        rtype::MX => [numbers(&words[..1]), name(words[1])].concat(),
        rtype::SRV => [numbers(&words[..3]), name(words[3])].concat(),
        rtype::TXT => string(text),
        rtype::HINFO => [string(words[0]), string(words[1])].concat(),
        rtype::SOA => {
            let numbers = words[2..].iter().flat_map(|word| word.parse::<u32>().expect("a number").to_be_bytes());
            [name(words[0]), name(words[1]), numbers.collect()].concat()
        }
        65 => [&[0, 1, 0, 0, 1, 0, 6][..], b"\x02h2\x02h3"].concat(),
        other => panic!("type {other}"),
    }
}
