use proptest::prelude::*;

use super::*;

fn client(text: &str) -> Option<SocketAddr> {
    Some(text.parse().expect("an address"))
}

/// A header of version 2.
fn version_2_header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("a length");
    [SIGNATURE, &[command, family], &length.to_be_bytes(), rest].concat()
}

fn of_ipv4() -> Vec<u8> {
    [&[192, 0, 2, 7, 192, 0, 2, 11][..], &5000_u16.to_be_bytes(), &443_u16.to_be_bytes()].concat()
}

fn of_ipv6(ip: &str) -> Vec<u8> {
    let ip: Ipv6Addr = ip.parse().expect("an address");
    [&ip.octets()[..], &[0; 16], &5000_u16.to_be_bytes(), &443_u16.to_be_bytes()].concat()
}

#[test]
fn lines_of_version_1_have_the_client() {
    for (line, expected) in [
        ("PROXY TCP4 192.0.2.7 192.0.2.11 5000 443\r\n", client("192.0.2.7:5000")),
        ("PROXY TCP6 2001:db8::7 2001:db8::b 65535 0\r\n", client("[2001:db8::7]:65535")),
        ("PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n", client("192.0.2.7:1")),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
        ("PROXY UNKNOWN anything at all\r\n", None),
    ] {
        let whole = format!("{line}GET / HTTP/1.1\r\n");
        assert_eq!(parse(whole.as_bytes()), Ok(Parsed::Complete { length: line.len(), client: expected }), "{line}");
    }
}

#[test]
fn headers_of_version_2_have_the_client() {
    let with_tlvs = |mut rest: Vec<u8>| {
        rest.extend([0x04, 0, 3, 1, 2, 3]);
        rest
    };
    for (header, expected) in [
        (version_2_header(0x21, 0x11, &of_ipv4()), client("192.0.2.7:5000")),
        (version_2_header(0x21, 0x11, &with_tlvs(of_ipv4())), client("192.0.2.7:5000")),
        (version_2_header(0x21, 0x21, &with_tlvs(of_ipv6("2001:db8::7"))), client("[2001:db8::7]:5000")),
        (version_2_header(0x21, 0x21, &of_ipv6("::ffff:192.0.2.7")), client("192.0.2.7:5000")),
        (version_2_header(0x21, 0x31, &[0; 216]), None),
        (version_2_header(0x21, 0x00, &[]), None),
        (version_2_header(0x20, 0x00, &[]), None),
        (version_2_header(0x20, 0x11, &of_ipv4()), None),
        (version_2_header(0x21, 0x11, &[1; MAX_V2]), client("1.1.1.1:257")),
    ] {
        let whole = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(parse(&whole), Ok(Parsed::Complete { length: header.len(), client: expected }), "{header:?}");
    }
}

#[test]
fn anything_else_is_malformed_as_soon_as_that_is_certain() {
    let long = format!("PROXY TCP4 {}", "1".repeat(MAX_V1));
    let mut endless = version_2_header(0x21, 0x11, &[]);
    endless[14..16].copy_from_slice(&u16::to_be_bytes(4097));
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x16\x03\x01",
        b"PROXX",
        b"PR0",
        b"POST",
        b"\r\n\r\nx",
        b"\n",
        b"PROXY\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.11 5000\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.11 5000 443 1\r\n",
        b"PROXY TCP4  192.0.2.7 192.0.2.11 5000 443\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::b 1 2\r\n",
        b"PROXY TCP6 192.0.2.7 192.0.2.11 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.11 65536 443\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.11 +1 443\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.11  443\r\n",
        b"PROXY TCP4 192.0.2.007 192.0.2.11 1 443\r\n",
        b"PROXY TCP4 192.0.2.7\n192.0.2.11 1 443\r\n",
        b"PROXY UDP4 192.0.2.7 192.0.2.11 1 443\r\n",
        b"PROXY UNKNOWN\xff\r\n",
        b"PROXY unknown\r\n",
        long.as_bytes(),
        &endless,
        &version_2_header(0x11, 0x11, &of_ipv4()),
        &version_2_header(0x22, 0x11, &of_ipv4()),
        &version_2_header(0x21, 0x11, &of_ipv4()[..11]),
        &version_2_header(0x21, 0x21, &of_ipv6("::1")[..35]),
        &version_2_header(0x21, 0x31, &[0; 215]),
        &version_2_header(0x21, 0x12, &of_ipv4()),
        &version_2_header(0x21, 0x22, &of_ipv6("::1")),
        &version_2_header(0x21, 0x01, &[]),
    ] {
        assert!(parse(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn the_header_for_pods_has_the_client_address() {
    let line = |from: &str, to: &str| header(from.parse().expect("one"), to.parse().expect("another"));
    assert_eq!(line("192.0.2.7:5000", "192.0.2.11:443"), "PROXY TCP4 192.0.2.7 192.0.2.11 5000 443\r\n");
    assert_eq!(line("[2001:db8::7]:5", "[2001:db8::b]:6"), "PROXY TCP6 2001:db8::7 2001:db8::b 5 6\r\n");
    assert_eq!(line("[::ffff:192.0.2.7]:5", "192.0.2.11:6"), "PROXY TCP4 192.0.2.7 192.0.2.11 5 6\r\n");
    assert_eq!(line("[2001:db8::7]:5", "192.0.2.11:6"), "PROXY UNKNOWN\r\n");
}

proptest! {
    /// What is parsed does not depend on how the bytes are divided: before its end, a header is incomplete.
    #[test]
    fn a_header_is_incomplete_until_its_end(ip in any::<IpAddr>(), port in any::<u16>(), more in any::<Vec<u8>>()) {
        let client = canonical(ip, port);
        let line = header(client, SocketAddr::new(client.ip(), 443)).into_bytes();
        let rest = match client.ip() {
            IpAddr::V4(ip) => [&ip.octets()[..], &[0; 4], &port.to_be_bytes(), &[0; 2]].concat(),
            IpAddr::V6(ip) => [&ip.octets()[..], &[0; 16], &port.to_be_bytes(), &[0; 2]].concat(),
        };
        let binary = version_2_header(0x21, if client.is_ipv4() { 0x11 } else { 0x21 }, &rest);
        for header in [line, binary] {
            let whole = [&header[..], &more].concat();
            prop_assert_eq!(parse(&whole), Ok(Parsed::Complete { length: header.len(), client: Some(client) }));
            for end in 0..header.len() {
                prop_assert_eq!(parse(&header[..end]), Ok(Parsed::Incomplete));
            }
        }
    }

    #[test]
    fn what_is_certain_after_some_bytes_stays_so(bytes in any::<Vec<u8>>(), start in 0..3_usize) {
        let start = [&b""[..], WORD, SIGNATURE][start];
        let bytes = [start, &bytes].concat();
        let certain = (0..=bytes.len()).map(|end| (end, parse(&bytes[..end])));
        let first = certain.into_iter().find(|(_, parsed)| *parsed != Ok(Parsed::Incomplete));
        prop_assert_eq!(first.map_or(Ok(Parsed::Incomplete), |(_, parsed)| parsed), parse(&bytes));
        if let Some((end, Ok(Parsed::Complete { length, .. }))) = first {
            prop_assert_eq!(length, end);
        }
    }
}
