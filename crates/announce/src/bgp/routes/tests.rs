//! Many routes fit into few messages, and no message is too long.

use super::super::wire::{self, Message};
use super::*;

fn many(count: u32, is_ipv4: bool) -> Vec<IpAddr> {
    let v4 = |index: u32| IpAddr::V4(Ipv4Addr::from(0xcb00_0000 + index));
    let v6 = |index: u32| IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(index)));
    (0..count).map(|index| if is_ipv4 { v4(index) } else { v6(index) }).collect()
}

#[test]
fn thousands_of_routes_are_split_into_messages_that_fit() {
    for internal in [false, true] {
        let route_attributes = RouteAttributes {
            negotiated: Negotiated { four_octet_as: true, internal },
            asn: 64512,
            local_pref: 100,
            communities: vec![7; 500],
            hops: Hops { v4: Some([192, 0, 2, 11].into()), v6: Some(Ipv6Addr::LOCALHOST) },
        };
        for family in Family::OURS {
            let addresses = many(5000, family == Family::V4);
            for (messages, most) in [
                (route_attributes.announce(family, &addresses), 60),
                (route_attributes.withdraw(family, &addresses), 25),
            ] {
                assert!(messages.len() <= most, "{} messages", messages.len());
                let mut found = Vec::new();
                for message in messages {
                    assert!(message.len() <= MAX_LEN, "{} bytes", message.len());
                    let Ok(Message::Update(taken)) = wire::read(&message, route_attributes.negotiated) else {
                        panic!("no UPDATE")
                    };
                    assert_eq!(taken.error, None);
                    found.extend(taken.announced().chain(taken.withdrawn()).map(|network| network.addr()));
                }
                assert_eq!(found, addresses);
            }
        }
    }
}

#[test]
fn next_hops_are_of_the_session_first_and_never_of_one_wire_alone() {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let node = [address("192.0.2.11"), address("fe80::1"), address("2001:db8::11")];
    let over_v4 = Hops::new(address("198.51.100.1"), &node);
    assert_eq!(over_v4.of(Family::V4), Some(address("198.51.100.1")));
    assert_eq!(over_v4.of(Family::V6), Some(address("2001:db8::11")));
    let over_v6 = Hops::new(address("2001:db8:ff::1"), &node);
    assert_eq!(over_v6.of(Family::V4), Some(address("192.0.2.11")));
    assert_eq!(over_v6.of(Family::V6), Some(address("2001:db8:ff::1")));
    assert_eq!(Hops::new(address("192.0.2.11"), &[]).of(Family::V6), None);
}
