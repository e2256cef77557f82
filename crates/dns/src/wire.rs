//! DNS messages as bytes: numbers, names, questions in, replies out.
//!
//! In: a datagram, or a frame of a connection. Out: a [`Query`] that borrows from it, and a [`Reply`] written into a
//! buffer that is used again and again. Nothing here allocates once the buffers have grown, nothing panics whatever the
//! bytes are, and nothing knows of Services.

mod name;
mod query;
mod reader;
mod reply;
mod text;

pub use name::{BadName, Name, from_text, to_text};
pub use query::{Edns, Query, Refusal};
pub use reader::{BadMessage, Message, Record, Section};
pub use reply::{Mark, POINTER, QUESTION, Reply, refuse};

/// The length of the header.
pub const HEADER: usize = 12;
/// The largest reply over UDP to somebody who says nothing of sizes.
pub const UDP_MIN: usize = 512;
/// The size of datagrams that we say to accept.
pub const UDP_OURS: u16 = 1232;
/// The longest message that has a length.
pub const LONGEST: usize = 65535;
/// The longest name, with its lengths and its end.
pub const NAME_MAX: usize = 255;
/// The longest label.
pub const LABEL_MAX: usize = 63;

/// Bits of the header.
pub mod flag {
    /// A reply.
    pub const QR: u16 = 0x8000;
    /// Said by who knows.
    pub const AA: u16 = 0x0400;
    /// Not all of it.
    pub const TC: u16 = 0x0200;
    /// Others may be asked.
    pub const RD: u16 = 0x0100;
    /// Others can be asked.
    pub const RA: u16 = 0x0080;
    /// Checked.
    pub const AD: u16 = 0x0020;
    /// Need not be checked.
    pub const CD: u16 = 0x0010;
    /// What is asked for: 0 is a query.
    pub const OPCODE: u16 = 0x7800;
}

/// Types of records.
pub mod rtype {
    /// An IPv4 address.
    pub const A: u16 = 1;
    /// A name server.
    pub const NS: u16 = 2;
    /// Another name.
    pub const CNAME: u16 = 5;
    /// The start of a zone.
    pub const SOA: u16 = 6;
    /// The name of an address.
    pub const PTR: u16 = 12;
    /// Host information.
    pub const HINFO: u16 = 13;
    /// A mail server.
    pub const MX: u16 = 15;
    /// Text.
    pub const TXT: u16 = 16;
    /// An IPv6 address.
    pub const AAAA: u16 = 28;
    /// A service.
    pub const SRV: u16 = 33;
    /// What EDNS says.
    pub const OPT: u16 = 41;
    /// The changes of a zone.
    pub const IXFR: u16 = 251;
    /// A whole zone.
    pub const AXFR: u16 = 252;
    /// Whatever there is.
    pub const ANY: u16 = 255;

    /// How a type is written.
    #[must_use]
    pub fn text(rtype: u16) -> Option<&'static str> {
        TABLE.iter().find(|(number, _)| *number == rtype).map(|(_, text)| *text)
    }

    /// The type that is written so, in any case; `TYPE123` is understood for all.
    #[must_use]
    pub fn parse(text: &str) -> Option<u16> {
        let known = TABLE.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(number, _)| *number);
        known.or_else(|| text.to_ascii_uppercase().strip_prefix("TYPE")?.parse().ok())
    }

    /// Types that have a name of their own in answers to people and in metrics.
    pub const TABLE: [(u16, &str); 28] = [
        (A, "A"),
        (NS, "NS"),
        (CNAME, "CNAME"),
        (SOA, "SOA"),
        (PTR, "PTR"),
        (HINFO, "HINFO"),
        (MX, "MX"),
        (TXT, "TXT"),
        (24, "SIG"),
        (AAAA, "AAAA"),
        (29, "LOC"),
        (SRV, "SRV"),
        (35, "NAPTR"),
        (OPT, "OPT"),
        (43, "DS"),
        (44, "SSHFP"),
        (46, "RRSIG"),
        (47, "NSEC"),
        (48, "DNSKEY"),
        (50, "NSEC3"),
        (52, "TLSA"),
        (64, "SVCB"),
        (65, "HTTPS"),
        (99, "SPF"),
        (257, "CAA"),
        (IXFR, "IXFR"),
        (AXFR, "AXFR"),
        (ANY, "ANY"),
    ];
}

/// The class of the Internet, the only one with data here.
pub const IN: u16 = 1;

/// How it went.
pub mod rcode {
    /// Well.
    pub const NOERROR: u16 = 0;
    /// The question cannot be read.
    pub const FORMERR: u16 = 1;
    /// Something is wrong here.
    pub const SERVFAIL: u16 = 2;
    /// There is no such name.
    pub const NXDOMAIN: u16 = 3;
    /// That is not done here.
    pub const NOTIMP: u16 = 4;
    /// That is not done for you.
    pub const REFUSED: u16 = 5;
    /// A version of EDNS that is not known here.
    pub const BADVERS: u16 = 16;

    /// How a code is written.
    #[must_use]
    pub const fn text(code: u16) -> &'static str {
        match code {
            NOERROR => "NOERROR",
            FORMERR => "FORMERR",
            SERVFAIL => "SERVFAIL",
            NXDOMAIN => "NXDOMAIN",
            NOTIMP => "NOTIMP",
            REFUSED => "REFUSED",
            BADVERS => "BADVERS",
            _ => "OTHER",
        }
    }
}

/// Why an answer is not what it could be, for those who speak EDNS (RFC 8914).
pub mod extended {
    /// The option that carries it.
    pub const OPTION: u16 = 15;
    /// Not ready yet.
    pub const NOT_READY: u16 = 14;
    /// Not for this client.
    pub const PROHIBITED: u16 = 18;
}

/// What the fuzzer calls: a message is read, and whatever is understood must be answerable.
pub fn fuzz(bytes: &[u8]) {
    let mut out = Vec::new();
    match Query::parse(bytes) {
        Ok(query) => {
            let mut reply = Reply::begin(&mut out, &query, UDP_MIN);
            let whole = reply.answer(rtype::A, 30, |w| w.extend_from_slice(&[192, 0, 2, 1]));
            reply.finish(rcode::NOERROR, flag::AA);
            assert!(out.len() <= UDP_MIN, "no longer than allowed");
            let read = Message::read(&out).expect("what we write can be read");
            assert_eq!((read.id(), usize::from(read.count(Section::Answer))), (query.id(), usize::from(whole)));
            assert_eq!(out[HEADER..query.question_end()], bytes[HEADER..query.question_end()]);
        }
        Err(refusal) => assert!(!refuse(bytes, refusal, &mut out) || out.len() == HEADER, "a header alone"),
    }
    if let Ok(message) = Message::read(bytes) {
        for record in message.records() {
            let _ = record.map(|record| record.owner.len() + record.data.len());
        }
    }
}

#[cfg(test)]
mod tests;
