//! Queries and replies round-trip, and no input causes a panic.

use proptest::prelude::*;

use super::*;

fn question(name: &str, qtype: u16, edns: Option<u16>) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    out.extend(from_text(name).expect("a name"));
    out.extend([qtype.to_be_bytes(), IN.to_be_bytes()].concat());
    if let Some(size) = edns {
        out.extend([&[0, 0, 41][..], &size.to_be_bytes(), &[0, 0, 0x80, 0, 0, 0]].concat());
    }
    out
}

#[test]
fn a_query_is_parsed_and_its_case_kept() {
    let bytes = question("SvC1.TestNS.svc.Cluster.Local.", rtype::SRV, Some(4096));
    let query = Query::parse(&bytes).expect("a question");
    assert_eq!((query.id(), query.qtype, query.qclass, query.udp_limit()), (0x1234, rtype::SRV, IN, 4096));
    assert_eq!(query.edns, Some(Edns { size: 4096, version: 0, dnssec: true }));
    assert_eq!(to_text(query.name.wire()), "svc1.testns.svc.cluster.local.");
    assert_eq!(to_text(query.original_name()), "SvC1.TestNS.svc.Cluster.Local.");
    assert_eq!((query.name.count(), query.name.label(1)), (5, &b"testns"[..]));
    assert_eq!(query.name.labels(0, 2), b"\x04svc1\x06testns");
    assert!(query.name.is_below(b"\x07cluster\x05local\0", 2) && !query.name.is_below(b"\x05local\0", 2));
}

#[test]
fn non_queries_are_rejected_or_dropped() {
    let good = question("a.b", rtype::A, None);
    let formerr = Some(QueryError::Rcode(rcode::FORMERR));
    let error = |bytes: &[u8]| Query::parse(bytes).err();
    assert_eq!(error(&good), None);
    assert_eq!(error(&good[..11]), Some(QueryError::Drop));
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(error(&with(2, 0x81)), Some(QueryError::Drop), "a reply");
    assert_eq!(error(&with(2, 0x20)), Some(QueryError::Rcode(rcode::NOTIMP)), "NOTIFY");
    for (at, value) in [(5, 0), (5, 2), (7, 2), (9, 2), (11, 3), (11, 1), (12, 0xc0), (12, 0x40), (12, 60)] {
        assert_eq!(error(&with(at, value)), formerr, "byte {at} is {value}");
    }
    assert_eq!(error(&good[..good.len() - 1]), formerr);
    let long = question(&["x".repeat(63).as_str(); 3].join("."), rtype::A, None);
    assert!(error(&long).is_none());
    let mut out = vec![1; 40];
    assert!(!write_error(&good, QueryError::Drop, &mut out));
    assert!(write_error(&good, QueryError::Rcode(rcode::FORMERR), &mut out));
    assert_eq!(out, [0x12, 0x34, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_record_that_does_not_fit_is_omitted() {
    let bytes = question("big.example", rtype::A, Some(512));
    let query = Query::parse(&bytes).expect("a question");
    let mut out = Vec::new();
    let mut reply = Reply::begin(&mut out, &query, 100);
    let fitted = (0..10u8).filter(|last| reply.answer(rtype::A, 30, |w| w.extend([192, 0, 2, *last]))).count();
    assert!(!reply.additional(|w| w.push(0), rtype::TXT, 1, |w| w.extend([0; 60])) && reply.is_truncated());
    reply.finish(rcode::BADVERS, flag::AA);
    let message = Message::read(&out).expect("a message");
    assert!(out.len() <= 100 && fitted == 3, "{fitted} records, {} bytes", out.len());
    let flags = flag::QR | flag::AA | flag::TC | flag::RD;
    assert_eq!((message.flags(), usize::from(message.count(Section::Answer))), (flags, fitted));
    let records: Vec<_> = message.records().map(|record| record.expect("whole")).collect();
    assert_eq!((to_text(&records[0].owner).as_str(), &records[2].data[..]), ("big.example.", &[192, 0, 2, 2][..]));
    let opt = &records[3];
    assert_eq!(
        (opt.rtype, opt.class, opt.ttl),
        (rtype::OPT, UDP_PAYLOAD_SIZE, 0x0100_8000),
        "the high bits of the code, and DO"
    );
    assert_eq!(message.end(), Ok(out.len()));
}

#[test]
fn compressed_names_are_decoded_and_loops_rejected() {
    let mut bytes = vec![0, 1, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, b'a', 0xc0, 12];
    bytes.extend([0, 5, 0, 1, 0, 0, 0, 1, 0, 2, 0xc0, 12]);
    let read = |bytes: &[u8]| Message::read(bytes).expect("a header").records().next().expect("a record");
    assert!(read(&bytes).is_err(), "it points at itself");
    bytes[14] = 1;
    bytes[15] = b'b';
    bytes.insert(16, 0);
    let record = read(&bytes).expect("whole");
    assert_eq!((to_text(&record.owner), to_text(&record.data)), ("a.b.".to_owned(), "a.b.".to_owned()));
}

#[test]
fn text_and_wire_are_the_same_names() {
    for text in ["a.b.c.", ".", "\\000x\\.y.z.", "\\\\.", "_http._tcp.x."] {
        assert_eq!(to_text(&from_text(text).expect("a name")), text);
    }
    let label = "x".repeat(64);
    for text in ["a..b", "\\25", "\\999", label.as_str()] {
        assert_eq!(from_text(text), Err(BadName), "{text}");
    }
    assert_eq!(rtype::parse("aaaa").zip(rtype::parse("type65280")), Some((28, 65280)));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz(&bytes);
    }

    /// Input that is mostly a valid query.
    #[test]
    fn mutated_queries_do_not_panic(
        labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..12),
        qtype in any::<u16>(),
        edns in prop::option::of(any::<u16>()),
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        cut in 0usize..6,
    ) {
        let name: String =
            labels.iter().map(|label| label.iter().map(|b| format!("\\{b:03}")).collect::<String>() + ".").collect();
        let mut bytes = question(&name, qtype, edns);
        if let Some((at, value)) = change {
            let at = at.index(bytes.len());
            bytes[at] = value;
        } else {
            let query = Query::parse(&bytes).expect("a question");
            prop_assert_eq!(query.name.count(), labels.len());
            let lower: Vec<_> = labels.iter().map(|label| label.to_ascii_lowercase()).collect();
            prop_assert!((0..labels.len()).all(|number| query.name.label(number) == lower[number]));
            prop_assert_eq!(to_text(query.original_name()), to_text(&from_text(&name).expect("a name")));
        }
        bytes.truncate(bytes.len() - cut);
        fuzz(&bytes);
    }
}
