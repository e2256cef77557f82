//! `log`: query log in CoreDNS's common format.
//!
//! In: a query, its reply and duration. Out: a log line, if the first `log` rule that covers the name selects the
//! result class. Lines have their own tracing target (`dns::log`), so that they can be filtered.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use domain::base::iana::{Class, OptRcode, Rtype};

use super::Resolver;
use crate::config::{Log, LogClass};
use crate::forward::{Request, Transport};
use crate::wire::{HEADER, Message, Query, Section, flag, rcode, rtype, to_text};

/// Header flags in output order.
const FLAGS: [(u16, &str); 8] = [
    (flag::QR, "qr"),
    (flag::AA, "aa"),
    (flag::TC, "tc"),
    (flag::RD, "rd"),
    (flag::RA, "ra"),
    (0x0040, "z"),
    (flag::AD, "ad"),
    (flag::CD, "cd"),
];
/// Placeholder for an empty field.
const NOTHING: &str = "-";

impl Resolver {
    /// Logs a query if a rule selects it.
    pub(super) fn log_question(&self, request: &Request<'_>, reply: &[u8], record_latency: Duration) {
        let Ok(query) = Query::parse(request.message) else { return };
        let lower = query.name.wire();
        let Some(index) = self.server_block(lower, request.from) else { return };
        let summary = ReplySummary::read(reply);
        if is_selected(&self.server_blocks[index].block.log, lower, query.qtype, summary.as_ref()) {
            tracing::info!(target: "dns::log", "{}", Line { query: &query, request, summary: summary.as_ref(), record_latency });
        }
    }
}

/// Whether the first rule for a name selects the result class.
fn is_selected(rules: &[Log], lower: &[u8], qtype: u16, summary: Option<&ReplySummary>) -> bool {
    let rule = rules.iter().find(|rule| rule.names.iter().any(|name| name.covers(lower)));
    rule.is_some_and(|rule| rule.classes.contains(&LogClass::All) || rule.classes.contains(&class_of(qtype, summary)))
}

/// Result class as in CoreDNS.
fn class_of(qtype: u16, summary: Option<&ReplySummary>) -> LogClass {
    match summary {
        None => LogClass::Error,
        Some(_) if matches!(qtype, rtype::AXFR | rtype::IXFR) => LogClass::Error,
        Some(summary) => match (summary.rcode, summary.answers > 0, summary.soa) {
            (rcode::NOERROR, false, true) | (rcode::NXDOMAIN, _, true) => LogClass::Denial,
            (rcode::NOERROR, ..) => LogClass::Success,
            _ => LogClass::Error,
        },
    }
}

/// Summary of a reply.
struct ReplySummary {
    rcode: u16,
    flags: u16,
    answers: u16,
    /// Whether the authority section has an SOA record.
    soa: bool,
    /// Size with names uncompressed and without OPT record.
    size: usize,
}

impl ReplySummary {
    /// Parses a reply; `None` if there is none.
    fn read(reply: &[u8]) -> Option<Self> {
        let message = Message::read(reply).ok()?;
        let flags = message.flags();
        let mut summary = Self {
            rcode: flags & 15,
            flags,
            answers: message.count(Section::Answer),
            soa: false,
            size: message.start().max(HEADER),
        };
        for (place, record) in message.records().flatten().enumerate() {
            if record.rtype == rtype::OPT {
                summary.rcode |= u16::try_from(record.ttl >> 24).unwrap_or(0) << 4;
                continue;
            }
            let place = u16::try_from(place).unwrap_or(u16::MAX);
            let authority = summary.answers..summary.answers.saturating_add(message.count(Section::Authority));
            summary.soa |= record.rtype == rtype::SOA && authority.contains(&place);
            summary.size += record.owner.len() + 10 + record.data.len();
        }
        Some(summary)
    }
}

/// Log line.
struct Line<'a> {
    query: &'a Query<'a>,
    request: &'a Request<'a>,
    summary: Option<&'a ReplySummary>,
    record_latency: Duration,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { query, request, summary, record_latency } = self;
        let client = SocketAddr::new(request.from.ip, request.from.port);
        let (kind, class) = (Rtype::from_int(query.qtype), Class::from_int(query.qclass));
        let (proto, room) = match request.transport {
            Transport::Udp => ("udp", query.udp_limit()),
            Transport::Tcp => ("tcp", usize::from(u16::MAX)),
        };
        let (name, size) = (to_text(query.name.wire()), request.message.len());
        let dnssec = query.edns.is_some_and(|edns| edns.dnssec);
        write!(f, "{client} - {} \"{kind} {class} {name} {proto} {size} {dnssec} {room}\" ", query.id())?;
        match summary {
            Some(summary) => write!(f, "{} {} {}", code(summary.rcode), flags(summary.flags), summary.size)?,
            None => write!(f, "{NOTHING} {NOTHING} 0")?,
        }
        write!(f, " {}s", record_latency.as_secs_f64())
    }
}

fn code(code: u16) -> String {
    match rcode::text(code) {
        "OTHER" => OptRcode::masked_from_int(code).to_string(),
        known => known.to_owned(),
    }
}

fn flags(flags: u16) -> String {
    let set: Vec<&str> = FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, text)| *text).collect();
    set.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Name;
    use crate::forward::ClientAddr;
    use crate::wire::{Reply, from_text};

    fn query_message(name: &str, qtype: u16) -> Vec<u8> {
        let mut message = vec![0xc2, 0x0e, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(from_text(name).expect("a name"));
        message.extend([qtype.to_be_bytes(), 1_u16.to_be_bytes()].concat());
        message
    }

    /// Reply with `addresses` A records, and optionally an SOA record.
    fn reply(message: &[u8], code: u16, addresses: u8, soa: bool) -> Vec<u8> {
        let query = Query::parse(message).expect("a request");
        let mut out = Vec::new();
        let mut reply = Reply::begin(&mut out, &query, 512);
        for last in 0..addresses {
            reply.answer(rtype::A, 30, |out| out.extend([192, 0, 2, last]));
        }
        if soa {
            let data = |out: &mut Vec<u8>| out.extend([0; 22]);
            reply.authority(|out| out.push(0), rtype::SOA, 30, data);
        }
        reply.finish(code, flag::AA);
        out
    }

    fn line(client: &str, message: &[u8], reply: &[u8], transport: Transport) -> String {
        let at = "0.0.0.0:53".parse().expect("an address");
        let from = ClientAddr::new(client.parse().expect("an address"), at);
        let request = Request { message, from, transport };
        let (query, summary) = (Query::parse(message).expect("a request"), ReplySummary::read(reply));
        let record_latency = Duration::from_nanos(193_317);
        Line { query: &query, request: &request, summary: summary.as_ref(), record_latency }.to_string()
    }

    #[test]
    fn a_log_line_has_the_common_format_of_coredns() {
        let message = query_message("X.example.", rtype::A);
        let two = reply(&message, rcode::NOERROR, 2, false);
        assert_eq!(
            line("127.0.0.1:56081", &message, &two, Transport::Udp),
            "127.0.0.1:56081 - 49678 \"A IN x.example. udp 27 false 512\" NOERROR qr,aa,rd 77 0.000193317s",
            "sizes are those of names in full: 27, and twice 11 + 10 + 4"
        );
        assert_eq!(
            line("[fd00::1]:5", &message, &[], Transport::Tcp),
            "[fd00::1]:5 - 49678 \"A IN x.example. tcp 27 false 65535\" - - 0 0.000193317s"
        );
        let unusual = query_message("a b.example.", 257);
        let none = reply(&unusual, rcode::NXDOMAIN, 0, true);
        let text = line("127.0.0.1:1", &unusual, &none, Transport::Udp);
        assert!(text.contains("\"CAA IN a\\032b.example. udp 29 false 512\" NXDOMAIN qr,aa,rd 62 "), "{text}");
    }

    #[test]
    fn results_have_classes() {
        let message = query_message("x.example.", rtype::A);
        let class = |code, addresses, soa| {
            class_of(rtype::A, ReplySummary::read(&reply(&message, code, addresses, soa)).as_ref())
        };
        assert_eq!(class(rcode::NOERROR, 1, false), LogClass::Success);
        assert_eq!(class(rcode::NOERROR, 1, true), LogClass::Success);
        assert_eq!(class(rcode::NOERROR, 0, false), LogClass::Success);
        assert_eq!(class(rcode::NOERROR, 0, true), LogClass::Denial);
        assert_eq!(class(rcode::NXDOMAIN, 0, true), LogClass::Denial);
        assert_eq!(class(rcode::NXDOMAIN, 0, false), LogClass::Error);
        assert_eq!(class(rcode::SERVFAIL, 0, false), LogClass::Error);
        assert_eq!(class_of(rtype::A, None), LogClass::Error);
    }

    #[test]
    fn the_first_rule_for_a_name_decides() {
        let name = |text: &str| Name::parse(text).expect("a name");
        let rules = [
            Log { names: vec![name("a.example"), name("b.example")], classes: vec![LogClass::Denial] },
            Log { names: vec![name("example")], classes: vec![LogClass::All] },
        ];
        let wanted = |text: &str, code, soa| {
            let message = query_message(text, rtype::A);
            let summary = ReplySummary::read(&reply(&message, code, 0, soa));
            is_selected(&rules, name(text).as_wire(), rtype::A, summary.as_ref())
        };
        assert!(wanted("x.b.example", rcode::NXDOMAIN, true));
        assert!(!wanted("b.example", rcode::SERVFAIL, false), "a later rule is not query_message");
        assert!(wanted("c.example", rcode::SERVFAIL, false));
        assert!(!wanted("elsewhere", rcode::NXDOMAIN, true));
    }
}
