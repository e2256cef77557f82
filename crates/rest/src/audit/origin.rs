//! Where a request comes from: its audit id, and the addresses it passed.
//!
//! In: headers, and the peer of the connection. Out: the id that the response, the log and the audit events share, and `sourceIPs`.
//! Headers are the client's claims: of the addresses only the last is certain.

use std::net::{IpAddr, Ipv4Addr};

use http::header::{HeaderMap, HeaderName};

/// The header of the id, in requests and responses.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// The longest id that is accepted from a client, in bytes.
const MAX_ID: usize = 128;

/// The client's id if it is printable ASCII and not too long, otherwise a new one.
pub(super) fn audit_id(headers: &HeaderMap) -> String {
    let sent = headers.get(AUDIT_ID).and_then(|value| value.to_str().ok());
    let is_sane = |id: &&str| (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    sent.filter(is_sane).map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// The addresses of `X-Forwarded-For`, that of `X-Real-Ip` unless it is among them, and the peer unless it is the last.
pub(super) fn source_ips(headers: &HeaderMap, peer: IpAddr) -> Vec<IpAddr> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut ips: Vec<IpAddr> = text(FORWARDED_FOR).split(',').filter_map(parse).collect();
    if let Some(ip) = parse(text(REAL_IP)).filter(|ip| !ips.contains(ip)) {
        ips.push(ip);
    }
    let peer = peer.to_canonical();
    if ips.last() != Some(&peer) {
        ips.push(peer);
    }
    ips
}

/// An address; IPv4 also with leading zeros, which Go's `ParseIPSloppy` reads as decimal.
fn parse(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let sloppy = || {
        let mut octets = [0; 4];
        let mut parts = text.split('.');
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?;
            *octet = part.parse().ok()?;
        }
        parts.next().is_none().then(|| Ipv4Addr::from(octets).into())
    };
    text.parse::<IpAddr>().ok().or_else(sloppy).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(list: &[(HeaderName, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap())).collect()
    }

    #[test]
    fn sane_ids_are_kept() {
        let id = |text: &str| audit_id(&headers(&[(AUDIT_ID, text)]));
        assert_eq!(id("0b5c8a1e-7f3d"), "0b5c8a1e-7f3d");
        assert_eq!(id(&"x".repeat(MAX_ID)), "x".repeat(MAX_ID));
        for bad in ["", "two words", "caf\u{e9}", &"x".repeat(MAX_ID + 1)] {
            assert!(uuid::Uuid::parse_str(&id(bad)).is_ok(), "{bad:?}");
        }
        assert_ne!(audit_id(&HeaderMap::new()), audit_id(&HeaderMap::new()));
    }

    #[test]
    fn addresses_in_the_order_of_proxies() {
        let ips = |list: &[(HeaderName, &str)], peer: &str| {
            let ips = source_ips(&headers(list), peer.parse().unwrap());
            ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ips(&[], "::ffff:10.0.0.9"), "10.0.0.9");
        let chain = (FORWARDED_FOR, "1.1.1.1, nonsense,2001:db8:0::1 ,,010.0.0.1, 1.2.3.4:80");
        assert_eq!(ips(std::slice::from_ref(&chain), "10.0.0.9"), "1.1.1.1 2001:db8::1 10.0.0.1 10.0.0.9");
        assert_eq!(ips(&[chain.clone(), (REAL_IP, "1.1.1.1")], "10.0.0.1"), "1.1.1.1 2001:db8::1 10.0.0.1");
        assert_eq!(ips(&[(REAL_IP, "3.3.3.3")], "10.0.0.1"), "3.3.3.3 10.0.0.1");
    }

    proptest! {
        #[test]
        fn any_header_ends_with_the_peer(forwarded in "[ -~]{0,60}", real in "[ -~]{0,30}", peer: [u8; 4]) {
            let peer = IpAddr::from(peer);
            let ips = source_ips(&headers(&[(FORWARDED_FOR, &forwarded), (REAL_IP, &real)]), peer);
            prop_assert_eq!(ips.last(), Some(&peer));
        }
    }
}
