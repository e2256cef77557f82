//! DNS wire format: constants, names, query parser, reply writer.
//!
//! In: a UDP datagram or TCP frame. Out: a [`Query`] that borrows from it, and a [`Reply`] written into a reused
//! buffer. Does not allocate once buffers have grown, and never panics for any input. Independent of Kubernetes.

mod name;
mod query;
mod reader;
mod reply;
mod text;

pub use name::{BadName, Name, from_text, to_text};
pub use query::{Edns, Query, QueryError};
pub use reader::{BadMessage, Message, Record, Section};
pub use reply::{Mark, POINTER, QUESTION, Reply, write_error};

/// Length of the message header.
pub const HEADER: usize = 12;
/// Largest UDP reply to a client without EDNS.
pub const UDP_MIN: usize = 512;
/// EDNS UDP payload size that we advertise.
pub const UDP_PAYLOAD_SIZE: u16 = 1232;
/// Largest message.
pub const MESSAGE_MAX: usize = 65535;
/// Longest name in wire form.
pub const NAME_MAX: usize = 255;
/// Longest label.
pub const LABEL_MAX: usize = 63;

/// Header flags.
pub mod flag {
    /// Response.
    pub const QR: u16 = 0x8000;
    /// Authoritative answer.
    pub const AA: u16 = 0x0400;
    /// Truncated.
    pub const TC: u16 = 0x0200;
    /// Recursion desired.
    pub const RD: u16 = 0x0100;
    /// Recursion available.
    pub const RA: u16 = 0x0080;
    /// Authentic data.
    pub const AD: u16 = 0x0020;
    /// Checking disabled.
    pub const CD: u16 = 0x0010;
    /// Opcode mask; 0 is a standard query.
    pub const OPCODE: u16 = 0x7800;
}

/// Record types.
pub mod rtype {
    /// IPv4 address.
    pub const A: u16 = 1;
    /// Name server.
    pub const NS: u16 = 2;
    /// Canonical name.
    pub const CNAME: u16 = 5;
    /// Start of authority.
    pub const SOA: u16 = 6;
    /// Domain name pointer.
    pub const PTR: u16 = 12;
    /// Host information.
    pub const HINFO: u16 = 13;
    /// Mail exchange.
    pub const MX: u16 = 15;
    /// Text.
    pub const TXT: u16 = 16;
    /// IPv6 address.
    pub const AAAA: u16 = 28;
    /// Service location.
    pub const SRV: u16 = 33;
    /// EDNS pseudo-record.
    pub const OPT: u16 = 41;
    /// Incremental zone transfer.
    pub const IXFR: u16 = 251;
    /// Zone transfer.
    pub const AXFR: u16 = 252;
    /// Any type.
    pub const ANY: u16 = 255;

    /// Mnemonic of a type.
    #[must_use]
    pub fn text(rtype: u16) -> Option<&'static str> {
        TABLE.iter().find(|(number, _)| *number == rtype).map(|(_, text)| *text)
    }

    /// Type of a mnemonic or `TYPE123`, case-insensitive.
    #[must_use]
    pub fn parse(text: &str) -> Option<u16> {
        let known = TABLE.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(number, _)| *number);
        known.or_else(|| text.to_ascii_uppercase().strip_prefix("TYPE")?.parse().ok())
    }

    /// Types with a mnemonic in output and metrics.
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

/// Class IN, the only one with data here.
pub const IN: u16 = 1;

/// Response codes.
pub mod rcode {
    /// No error.
    pub const NOERROR: u16 = 0;
    /// Malformed query.
    pub const FORMERR: u16 = 1;
    /// Server failure.
    pub const SERVFAIL: u16 = 2;
    /// Name does not exist.
    pub const NXDOMAIN: u16 = 3;
    /// Not implemented.
    pub const NOTIMP: u16 = 4;
    /// Refused.
    pub const REFUSED: u16 = 5;
    /// Unsupported EDNS version.
    pub const BADVERS: u16 = 16;

    /// Mnemonic of an RCODE.
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

/// Extended DNS errors (RFC 8914).
pub mod extended {
    /// EDNS option code.
    pub const OPTION: u16 = 15;
    /// Not Ready.
    pub const NOT_READY: u16 = 14;
    /// Prohibited.
    pub const PROHIBITED: u16 = 18;
}

/// Fuzz entry point: every query that parses can be answered within the size limit.
#[cfg(any(test, fuzzing))]
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
        Err(error) => assert!(!write_error(bytes, error, &mut out) || out.len() == HEADER, "a header alone"),
    }
    if let Ok(message) = Message::read(bytes) {
        for record in message.records() {
            let _ = record.map(|record| record.owner.len() + record.data.len());
        }
    }
}

#[cfg(test)]
mod tests;
