//! Questions in the log (`log`), one line for each, in CoreDNS's common format.
//!
//! In: a question, what was said to it, and how long that took. Out: a line, when the block that answers wants questions of this
//! name and with such a result in the log. The first `log` that has the name decides. Lines have a target of their own, so that
//! they can be told from, and filtered without, everything else that is said.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use domain::base::iana::{Class, OptRcode, Rtype};

use super::Resolver;
use crate::beyond::{Question, Transport};
use crate::config::{Log, LogClass};
use crate::wire::{HEADER, Message, Query, Section, flag, rcode, rtype, to_text};

/// Bits of the header, in the order in which they are written.
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
/// What stands for nothing.
const NOTHING: &str = "-";

impl Resolver {
    /// Logs a question, if it should be.
    pub(super) fn log_question(&self, question: &Question<'_>, reply: &[u8], took: Duration) {
        let Ok(query) = Query::parse(question.message) else { return };
        let lower = query.name.wire();
        let Some(index) = self.site(lower, question.ends) else { return };
        let said = Said::read(reply);
        if is_wanted(&self.sites[index].block.log, lower, query.qtype, said.as_ref()) {
            tracing::info!(target: "dns::log", "{}", Line { query: &query, question, said: said.as_ref(), took });
        }
    }
}

/// Whether the first rule for a name wants such a result.
fn is_wanted(rules: &[Log], lower: &[u8], qtype: u16, said: Option<&Said>) -> bool {
    let rule = rules.iter().find(|rule| rule.names.iter().any(|name| name.covers(lower)));
    rule.is_some_and(|rule| rule.classes.contains(&LogClass::All) || rule.classes.contains(&class_of(qtype, said)))
}

/// Which kind of result it is, as CoreDNS sees it.
fn class_of(qtype: u16, said: Option<&Said>) -> LogClass {
    match said {
        None => LogClass::Error,
        Some(_) if matches!(qtype, rtype::AXFR | rtype::IXFR) => LogClass::Error,
        Some(said) => match (said.rcode, said.answers > 0, said.soa) {
            (rcode::NOERROR, false, true) | (rcode::NXDOMAIN, _, true) => LogClass::Denial,
            (rcode::NOERROR, ..) => LogClass::Success,
            _ => LogClass::Error,
        },
    }
}

/// What was said.
struct Said {
    rcode: u16,
    flags: u16,
    answers: u16,
    /// Whether it says who would know.
    soa: bool,
    /// How long it is with all names in full, and without what belongs to the transport (OPT).
    size: usize,
}

impl Said {
    /// Reads a reply; nothing when there is none.
    fn read(reply: &[u8]) -> Option<Self> {
        let message = Message::read(reply).ok()?;
        let flags = message.flags();
        let mut said = Self {
            rcode: flags & 15,
            flags,
            answers: message.count(Section::Answer),
            soa: false,
            size: message.start().max(HEADER),
        };
        for (place, record) in message.records().flatten().enumerate() {
            if record.rtype == rtype::OPT {
                said.rcode |= u16::try_from(record.ttl >> 24).unwrap_or(0) << 4;
                continue;
            }
            let place = u16::try_from(place).unwrap_or(u16::MAX);
            let authority = said.answers..said.answers.saturating_add(message.count(Section::Authority));
            said.soa |= record.rtype == rtype::SOA && authority.contains(&place);
            said.size += record.owner.len() + 10 + record.data.len();
        }
        Some(said)
    }
}

/// A line.
struct Line<'a> {
    query: &'a Query<'a>,
    question: &'a Question<'a>,
    said: Option<&'a Said>,
    took: Duration,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { query, question, said, took } = self;
        let client = SocketAddr::new(question.ends.client, question.ends.port);
        let (kind, class) = (Rtype::from_int(query.qtype), Class::from_int(query.qclass));
        let (proto, room) = match question.transport {
            Transport::Udp => ("udp", query.udp_limit()),
            Transport::Tcp => ("tcp", usize::from(u16::MAX)),
        };
        let (name, size) = (to_text(query.name.wire()), question.message.len());
        let dnssec = query.edns.is_some_and(|edns| edns.dnssec);
        write!(f, "{client} - {} \"{kind} {class} {name} {proto} {size} {dnssec} {room}\" ", query.id())?;
        match said {
            Some(said) => write!(f, "{} {} {}", code(said.rcode), flags(said.flags), said.size)?,
            None => write!(f, "{NOTHING} {NOTHING} 0")?,
        }
        write!(f, " {}s", took.as_secs_f64())
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
    use crate::beyond::Ends;
    use crate::config::Name;
    use crate::wire::{Reply, from_text};

    fn asked(name: &str, qtype: u16) -> Vec<u8> {
        let mut message = vec![0xc2, 0x0e, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(from_text(name).expect("a name"));
        message.extend([qtype.to_be_bytes(), 1_u16.to_be_bytes()].concat());
        message
    }

    /// A reply with so many addresses, and with a SOA or without.
    fn reply(message: &[u8], code: u16, addresses: u8, soa: bool) -> Vec<u8> {
        let query = Query::parse(message).expect("a question");
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
        let ends = Ends::new(client.parse().expect("an address"), at);
        let question = Question { message, ends, transport };
        let (query, said) = (Query::parse(message).expect("a question"), Said::read(reply));
        let took = Duration::from_nanos(193_317);
        Line { query: &query, question: &question, said: said.as_ref(), took }.to_string()
    }

    #[test]
    fn a_line_is_what_coredns_would_write() {
        let message = asked("X.example.", rtype::A);
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
        let odd = asked("a b.example.", 257);
        let none = reply(&odd, rcode::NXDOMAIN, 0, true);
        let text = line("127.0.0.1:1", &odd, &none, Transport::Udp);
        assert!(text.contains("\"CAA IN a\\032b.example. udp 29 false 512\" NXDOMAIN qr,aa,rd 62 "), "{text}");
    }

    #[test]
    fn results_have_classes() {
        let message = asked("x.example.", rtype::A);
        let class =
            |code, addresses, soa| class_of(rtype::A, Said::read(&reply(&message, code, addresses, soa)).as_ref());
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
            let message = asked(text, rtype::A);
            let said = Said::read(&reply(&message, code, 0, soa));
            is_wanted(&rules, name(text).as_wire(), rtype::A, said.as_ref())
        };
        assert!(wanted("x.b.example", rcode::NXDOMAIN, true));
        assert!(!wanted("b.example", rcode::SERVFAIL, false), "a later rule is not asked");
        assert!(wanted("c.example", rcode::SERVFAIL, false));
        assert!(!wanted("elsewhere", rcode::NXDOMAIN, true));
    }
}
