//! Error handling of malformed messages (RFC 7606).

use super::*;

const ORIGIN: &str = "40 01 01 00 ";
const PATH: &str = "40 02 06 02 01 0000fc00 ";
const HOP: &str = "40 03 04 c000020b ";
const HOST: &str = "20 cb007107";

/// The body of an UPDATE with these attributes and one host of IPv4.
fn with(attributes: &str) -> String {
    format!("0000 {:04x} {attributes} {HOST}", bytes(attributes).len())
}

fn action(attributes: &str, negotiated: Negotiated) -> Option<ErrorAction> {
    let taken = update(&with(attributes), negotiated).expect("a session that goes on");
    let (announced, withdrawn) = (taken.announced().count(), taken.withdrawn().count());
    let action = taken.error.map(|error| error.action);
    let expected = if action == Some(ErrorAction::TreatAsWithdraw) { (0, 1) } else { (1, 0) };
    assert_eq!((announced, withdrawn), expected, "{attributes}");
    action
}

#[test]
fn wrong_attributes_cost_the_routes_and_not_the_session() {
    let good = [ORIGIN, PATH, HOP].concat();
    assert_eq!(action(&good, FOUR_OCTET), None);
    for wrong in [
        "40 01 01 03",             // ORIGIN of an unknown value
        "40 01 02 0000",           // … of a wrong length
        "80 01 01 00",             // … optional
        "40 02 06 09 01 0000fc00", // AS_PATH with an unknown segment
        "40 02 02 02 00",          // … with an empty one
        "40 02 05 02 01 0000fc",   // … that breaks off
        "40 03 03 c00002",         // NEXT_HOP of three octets
        "80 04 02 0000",           // MULTI_EXIT_DISC
        "c0 08 00",                // no COMMUNITIES
        "c0 08 03 fc0000",         // COMMUNITIES
        "c0 10 04 00000000",       // EXTENDED COMMUNITIES
        "c0 20 04 00000000",       // LARGE_COMMUNITY
    ] {
        let kind = bytes(wrong)[1];
        let others = [ORIGIN, PATH, HOP].into_iter().filter(|other| bytes(other)[1] != kind);
        let all: String = others.chain([wrong]).collect();
        assert_eq!(action(&all, FOUR_OCTET), Some(ErrorAction::TreatAsWithdraw), "{wrong}");
    }
    for lacking in [[ORIGIN, PATH], [ORIGIN, HOP], [PATH, HOP]] {
        assert_eq!(action(&lacking.concat(), FOUR_OCTET), Some(ErrorAction::TreatAsWithdraw), "{lacking:?}");
    }
}

#[test]
fn attributes_that_matter_little_are_let_go() {
    let good = [ORIGIN, PATH, HOP].concat();
    for (more, expected) in [
        ("40 06 01 00", Some(ErrorAction::DiscardAttribute)), // ATOMIC_AGGREGATE with a value
        ("c0 07 06 fc00 c0000201", Some(ErrorAction::DiscardAttribute)), // AGGREGATOR of a narrow system
        ("40 01 01 01", Some(ErrorAction::DiscardAttribute)), // ORIGIN again
        ("40 05 01 00", None),                                // LOCAL_PREF from outside, whatever it is
        ("80 09 01 00", None),                                // ORIGINATOR_ID from outside
        ("c0 63 02 0102", None),                              // unknown and optional
        ("80 0e 05 4004 47 00 00", None),                     // routes of a family that is not ours
    ] {
        assert_eq!(action(&format!("{good}{more}"), FOUR_OCTET), expected, "{more}");
    }
    let internal = Negotiated { four_octet_as: true, internal: true };
    for (more, expected) in [
        ("40 05 01 00", Some(ErrorAction::TreatAsWithdraw)),
        ("80 09 01 00", Some(ErrorAction::TreatAsWithdraw)),
        ("80 0a 04 01010101", None),
    ] {
        assert_eq!(action(&format!("{good}{more}"), internal), expected, "{more}");
    }
}

#[test]
fn a_message_whose_routes_cannot_be_found_ends_the_session() {
    let good = [ORIGIN, PATH, HOP].concat();
    let attributes = |more: &str| format!("0000 {:04x} {good}{more}", bytes(&format!("{good}{more}")).len());
    let double = "80 0f 03 0002 01";
    for (body, expected) in [
        ("0001 0000".to_owned(), Notification::BAD_ATTRIBUTES), // withdrawn routes that are not there
        ("0000 0001".to_owned(), Notification::BAD_ATTRIBUTES), // attributes that are not there
        ("0001 21 0000".to_owned(), Notification::BAD_NETWORK), // /33
        ("0002 10 c0 0000".to_owned(), Notification::BAD_NETWORK), // a prefix that breaks off
        (format!("{} 21 cb00710700", attributes("")), Notification::BAD_NETWORK),
        (attributes("80 0e 02 0002"), Notification::BAD_OPTIONAL), // MP_REACH_NLRI that breaks off
        (attributes("80 0e 08 0002 01 03 000000 00"), Notification::BAD_OPTIONAL), // a next hop of three octets
        (attributes("80 0f 04 0002 01 81"), Notification::BAD_OPTIONAL), // /129
        (attributes(&format!("{double}{double}")), Notification::BAD_ATTRIBUTES),
        (attributes("40"), Notification::BAD_ATTRIBUTES), // an attribute that breaks off
        (attributes("40 63 01 07"), Notification { data: vec![0x40, 0x63, 7], ..Notification::new(3, 2) }),
    ] {
        assert_eq!(update(&body, FOUR_OCTET), Err(expected), "{body}");
    }
    // The routes are there, whatever was lost.
    assert_eq!(action(&format!("{good}40"), FOUR_OCTET), Some(ErrorAction::TreatAsWithdraw));
}

#[test]
fn heads_and_introductions_are_checked() {
    let mut unmarked = keepalive();
    unmarked[3] = 0;
    assert_eq!(length(&unmarked), Err(Notification::NOT_SYNCHRONIZED));
    assert_eq!(length(&message(9, "")), Err(Notification::bad_type(9)));
    assert_eq!(length(&message(KEEPALIVE, "00")), Err(Notification::bad_length(20)));
    assert_eq!(length(&message(OPEN, "04")), Err(Notification::bad_length(20)));
    assert_eq!(length(&frame(UPDATE, &[0; MAX_LEN])), Err(Notification::bad_length(4115)));
    for (body, expected) in [
        ("03 fc00 00b4 0a000001 00", Notification::bad_version()),
        ("04 fc00 0002 0a000001 00", Notification::BAD_HOLD_TIME),
        ("04 fc00 00b4 00000000 00", Notification::BAD_IDENTIFIER),
        ("04 fc00 00b4 0a000001 01", Notification::BAD_OPEN),
        ("04 fc00 00b4 0a000001 02 01 00", Notification::BAD_PARAMETER),
        ("04 fc00 00b4 0a000001 03 02 05 41", Notification::BAD_OPEN),
        ("04 fc00 00b4 0a000001 04 02 02 41 04", Notification::BAD_OPEN),
        ("04 fc00 00b4 0a000001 ff ff 00", Notification::BAD_OPEN),
    ] {
        assert_eq!(read(&message(OPEN, body), FOUR_OCTET), Err(expected), "{body}");
    }
    // A capability of invalid length is treated as unknown.
    let Ok(Message::Open(open)) = read(&message(OPEN, "04 fc00 00b4 0a000001 05 02 03 41 01 07"), FOUR_OCTET) else {
        panic!("no OPEN")
    };
    assert_eq!((open.asn(), open.has_four_octet_as()), (64512, false));
}

#[test]
fn bits_that_do_not_count_are_not_kept() {
    let body = with(&[ORIGIN, PATH, HOP].concat()).replace(HOST, "04 ff");
    assert_eq!(update(&body, FOUR_OCTET).expect("an UPDATE").update.announced, nets(&["240.0.0.0/4"]));
}
