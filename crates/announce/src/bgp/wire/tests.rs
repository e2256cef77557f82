//! Messages as the RFCs draw them, byte by byte; what hostile bytes get; and that everything written reads the same.

mod faults;
mod property;

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::*;

const FOUR_OCTET: Negotiated = Negotiated { four_octet_as: true, internal: false };
const NARROW: Negotiated = Negotiated { four_octet_as: false, internal: false };

fn net(text: &str) -> IpNet {
    text.parse().expect("a network")
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| net(text)).collect()
}

/// Bytes written as hexadecimal digits; spaces and everything after `//` on a line mean nothing.
fn bytes(text: &str) -> Vec<u8> {
    let digits: String =
        text.lines().flat_map(|line| line.split("//").next()).flat_map(str::split_whitespace).collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("two digits")).collect()
}

fn message(kind: u8, body: &str) -> Vec<u8> {
    frame(kind, &bytes(body))
}

fn update(body: &str, negotiated: Negotiated) -> Result<ReceivedUpdate, Notification> {
    match read(&message(UPDATE, body), negotiated)? {
        Message::Update(taken) => Ok(*taken),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_keepalive_is_a_head_and_nothing_else() {
    let written = bytes("ffffffff ffffffff ffffffff ffffffff 0013 04");
    assert_eq!(keepalive(), written);
    assert_eq!(read(&written, FOUR_OCTET), Ok(Message::Keepalive));
    assert_eq!(length(&written[..18]), Ok(None));
    assert_eq!(length(&written), Ok(Some(19)));
}

#[test]
fn an_open_says_who_speaks_and_what_it_can() {
    let written = message(
        OPEN,
        "04          // version
         5ba0        // AS_TRANS (RFC 6793)
         005a        // hold time
         c0000201    // identifier
         26          // length of parameters
         02 24       // capabilities (RFC 5492)
         01 04 0001 00 01      // IPv4 unicast (RFC 4760)
         01 04 0002 00 01      // IPv6 unicast
         02 00                 // route refresh (RFC 2918)
         40 0a 8078 0001 01 80 0002 01 00 // graceful restart (RFC 4724): restarted, 120 s, IPv4 forwarded, IPv6 not
         41 04 fa56ea00        // AS 4200000000
         46 02 0102            // something else",
    );
    let restart = Restart { restarted: true, seconds: 120, families: vec![(Family::V4, true), (Family::V6, false)] };
    let open = Open {
        my_as: 23456,
        hold: 90,
        id: Ipv4Addr::new(192, 0, 2, 1),
        capabilities: vec![
            Capability::Multiprotocol(Family::V4),
            Capability::Multiprotocol(Family::V6),
            Capability::Refresh,
            Capability::Restart(restart.clone()),
            Capability::FourOctetAs(4_200_000_000),
            Capability::Unknown { code: 70, data: vec![1, 2] },
        ],
    };
    assert_eq!(read(&written, FOUR_OCTET), Ok(Message::Open(open.clone())));
    assert_eq!(open.write(), written);
    assert_eq!((open.asn(), open.has_four_octet_as(), open.restart()), (4_200_000_000, true, Some(&restart)));
    assert!(open.supports(Family::V4) && open.supports(Family::V6));
}

#[test]
fn an_open_without_capabilities_is_one_of_old() {
    let Ok(Message::Open(open)) = read(&message(OPEN, "04 fc00 00b4 0a000001 00"), FOUR_OCTET) else {
        panic!("no OPEN")
    };
    assert_eq!((open.asn(), open.has_four_octet_as(), open.hold), (64512, false, 180));
    assert!(open.supports(Family::V4) && !open.supports(Family::V6));
}

#[test]
fn parameters_may_have_long_lengths() {
    let short = message(OPEN, "04 fc00 00b4 0a000001 08 02 06 41 04 0000fc00");
    let long = message(OPEN, "04 fc00 00b4 0a000001 ff ff 0009 02 0006 41 04 0000fc00");
    assert_eq!(read(&short, FOUR_OCTET), read(&long, FOUR_OCTET));
    let many = Capability::Unknown { code: 99, data: vec![7; 200] };
    let open = Open { my_as: 1, hold: 3, id: [1, 1, 1, 1].into(), capabilities: vec![many.clone(), many] };
    assert_eq!(read(&open.write(), FOUR_OCTET), Ok(Message::Open(open)));
}

#[test]
fn routes_of_ipv4_stand_in_the_message() {
    let written = message(
        UPDATE,
        "0004 18 c63364           // withdrawn: 198.51.100.0/24
         001b                     // attributes
         40 01 01 00              // ORIGIN IGP
         40 02 06 02 01 0000fc00  // AS_PATH 64512
         40 03 04 c000020b        // NEXT_HOP 192.0.2.11
         c0 08 04 fc000064        // COMMUNITIES 64512:100 (RFC 1997)
         20 cb007107 00           // 203.0.113.7/32 and everything",
    );
    let Ok(Message::Update(taken)) = read(&written, FOUR_OCTET) else { panic!("no UPDATE") };
    let attributes = Attributes {
        origin: Some(0),
        path: Some(vec![Segment { ordered: true, systems: vec![64512] }]),
        next_hop: Some([192, 0, 2, 11].into()),
        communities: vec![0xfc00_0064],
        ..Attributes::default()
    };
    let announced = nets(&["203.0.113.7/32", "0.0.0.0/0"]);
    let update = Update { withdrawn: nets(&["198.51.100.0/24"]), attributes, announced: announced.clone() };
    assert_eq!(*taken, ReceivedUpdate { update: update.clone(), error: None });
    assert_eq!(update.write(FOUR_OCTET), written);
    assert_eq!(taken.announced().collect::<Vec<_>>(), announced);
    assert_eq!(taken.withdrawn().collect::<Vec<_>>(), nets(&["198.51.100.0/24"]));
}

#[test]
fn routes_of_ipv6_stand_in_attributes_and_those_come_first() {
    let hop: IpAddr = "2001:db8::b".parse().expect("an address");
    let attributes = Attributes {
        origin: Some(0),
        path: Some(Vec::new()),
        local_pref: Some(200),
        large: vec![[64512, 1, 2]],
        reach: Some(Reach { family: Family::V6, next_hop: hop, routes: nets(&["2001:db8:1::7/128"]) }),
        unreach: Some(Unreach { family: Family::V6, routes: nets(&["2001:db8:2::/47"]) }),
        ..Attributes::default()
    };
    let update = Update { attributes, ..Update::default() };
    let written = message(
        UPDATE,
        "0000 0053
         80 0f 0a 0002 01 2f 20010db80002                    // gone (RFC 4760)
         80 0e 26 0002 01 10 20010db800000000000000000000000b 00 80 20010db8000100000000000000000007
         40 01 01 00 40 02 00 40 05 04 000000c8              // ORIGIN, AS_PATH, LOCAL_PREF
         c0 20 0c 0000fc00 00000001 00000002                 // large communities (RFC 8092)",
    );
    let internal = Negotiated { four_octet_as: true, internal: true };
    assert_eq!(update.write(internal), written);
    assert_eq!(read(&written, internal), Ok(Message::Update(Box::new(ReceivedUpdate { update, error: None }))));
}

#[test]
fn an_end_of_routes_is_an_update_of_nothing() {
    let v4 = message(UPDATE, "0000 0000");
    let v6 = message(UPDATE, "0000 0006 80 0f 03 0002 01");
    for (family, written) in [(Family::V4, v4), (Family::V6, v6)] {
        assert_eq!(Update::end_of_rib(family).write(FOUR_OCTET), written);
        let Ok(Message::Update(taken)) = read(&written, FOUR_OCTET) else { panic!("no UPDATE") };
        assert_eq!(taken.end_of_rib(), Some(family));
    }
}

#[test]
fn who_knows_no_wide_numbers_gets_a_stand_in_and_the_truth_beside_it() {
    let path = Some(vec![Segment { ordered: true, systems: vec![4_200_000_000, 64512] }]);
    let update = Update { attributes: Attributes { path, ..Attributes::default() }, ..Update::default() };
    let written = message(UPDATE, "0000 0016 40 02 06 02 02 5ba0 fc00 c0 11 0a 02 02 fa56ea00 0000fc00");
    assert_eq!(update.write(NARROW), written);
    let Ok(Message::Update(taken)) = read(&written, NARROW) else { panic!("no UPDATE") };
    let narrow = Some(vec![Segment { ordered: true, systems: vec![23456, 64512] }]);
    assert_eq!(taken.update.attributes.path, narrow);
}

#[test]
fn a_shutdown_has_words() {
    let words = "maintenance until 18:00 ☕";
    let shutdown = Notification::shutdown(words);
    let written = shutdown.write();
    assert_eq!(written[HEADER_LEN..HEADER_LEN + 3], [6, 2, 27], "RFC 9003: a length, then text");
    assert_eq!(read(&written, FOUR_OCTET), Ok(Message::Notification(shutdown.clone())));
    assert_eq!(shutdown.words(), Some(words));
    assert_eq!(shutdown.to_string(), format!("administrative shutdown (6/2), message: {words}"));
    let long = Notification::shutdown(&"ä".repeat(200));
    assert_eq!(long.words().map(str::len), Some(254), "cut between letters");
    let wicked = Notification { data: vec![3, 0x1b, b'[', b'm'], ..Notification::new(6, 2) };
    assert_eq!(wicked.words(), None, "nothing that changes a terminal is shown");
    assert_eq!(Notification::new(99, 1).to_string(), "unknown reason (99/1)");
}

#[test]
fn a_refresh_names_a_family() {
    let written = message(ROUTE_REFRESH, "0002 00 01");
    assert_eq!(refresh(Family::V6), written);
    assert_eq!(read(&written, FOUR_OCTET), Ok(Message::Refresh(Family::V6)));
}
