//! Whatever is written reads the same; whatever is read costs nothing but an answer.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn v4() -> impl Strategy<Value = IpNet> {
    (any::<[u8; 4]>(), 0..=32u8).prop_map(|(octets, bits)| IpNet::new(octets.into(), bits).expect("a network").trunc())
}

fn v6() -> impl Strategy<Value = IpNet> {
    (any::<[u8; 16]>(), 0..=128u8)
        .prop_map(|(octets, bits)| IpNet::new(octets.into(), bits).expect("a network").trunc())
}

/// A family of ours, routes of it, and a next hop.
fn routes() -> impl Strategy<Value = (Family, Vec<IpNet>, IpAddr)> {
    let hop = prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
    let of_v4 = vec(v4(), 0..20).prop_map(|routes| (Family::V4, routes));
    let of_v6 = vec(v6(), 0..20).prop_map(|routes| (Family::V6, routes));
    (prop_oneof![of_v4, of_v6], hop).prop_map(|((family, routes), hop)| (family, routes, hop))
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let segment = (any::<bool>(), vec(any::<u32>(), 1..5)).prop_map(|(ordered, systems)| Segment { ordered, systems });
    let first = (0..=2u8, vec(segment, 0..4), any::<[u8; 4]>(), proptest::option::of(any::<u32>()));
    let second = (vec(any::<u32>(), 0..70), vec(any::<Large>(), 0..5), routes(), routes());
    (first, second, any::<[bool; 2]>()).prop_map(
        |((origin, path, hop, local_pref), (communities, large, come, go), has)| {
            let (family, routes, next_hop) = come;
            Attributes {
                origin: Some(origin),
                path: Some(path),
                next_hop: Some(hop.into()),
                local_pref,
                communities,
                large,
                reach: has[0].then_some(Reach { family, next_hop, routes }),
                unreach: has[1].then_some(Unreach { family: go.0, routes: go.1 }),
            }
        },
    )
}

fn capability() -> impl Strategy<Value = Capability> {
    let family = || (any::<u16>(), any::<u8>()).prop_map(|(afi, safi)| Family { afi, safi });
    let restart = (any::<bool>(), 0..4096u16, vec((family(), any::<bool>()), 0..4));
    prop_oneof![
        family().prop_map(Capability::Multiprotocol),
        Just(Capability::Refresh),
        restart.prop_map(|(restarted, seconds, families)| Capability::Restart(Restart {
            restarted,
            seconds,
            families
        })),
        any::<u32>().prop_map(Capability::FourOctetAs),
        (66..=255u8, vec(any::<u8>(), 0..50)).prop_map(|(code, data)| Capability::Unknown { code, data }),
    ]
}

proptest! {
    #[test]
    fn updates_read_as_they_were_written(attributes in attributes(), withdrawn in vec(v4(), 0..20), announced in vec(v4(), 0..20)) {
        let negotiated = Negotiated { four_octet_as: true, internal: true };
        let update = Update { withdrawn, attributes, announced };
        let taken = Box::new(ReceivedUpdate { update: update.clone(), error: None });
        prop_assert_eq!(read(&update.write(negotiated), negotiated), Ok(Message::Update(taken)));
    }

    #[test]
    fn introductions_read_as_they_were_written(my_as: u16, hold in 3..=u16::MAX, id in 1..=u32::MAX, capabilities in vec(capability(), 0..10)) {
        let open = Open { my_as, hold, id: id.into(), capabilities };
        prop_assert_eq!(read(&open.write(), FOUR_OCTET), Ok(Message::Open(open)));
    }

    #[test]
    fn reasons_read_as_they_were_written(code: u8, subcode: u8, data in vec(any::<u8>(), 0..300)) {
        let notification = Notification { code, subcode, data };
        let _ = notification.to_string();
        prop_assert_eq!(read(&notification.write(), FOUR_OCTET), Ok(Message::Notification(notification)));
    }

    #[test]
    fn any_bytes_get_an_answer(kind in 0..7u8, body in vec(any::<u8>(), 0..200), four_octet_as: bool, internal: bool) {
        let negotiated = Negotiated { four_octet_as, internal };
        let message = frame(kind, &body);
        let _ = length(&message);
        if let Ok(Message::Update(taken)) = read(&message, negotiated) {
            let both = taken.announced().count().min(taken.withdrawn().count());
            prop_assert!(taken.error.is_none() || both == 0 || taken.error.is_some_and(|error| error.action == ErrorAction::DiscardAttribute));
        }
    }

    /// One byte of a good message is another: a session that ends is fine, a program that ends is not.
    #[test]
    fn a_wrong_byte_gets_an_answer(attributes in attributes(), announced in vec(v4(), 0..5), at: prop::sample::Index, byte: u8) {
        let update = Update { attributes, announced, ..Update::default() };
        let mut written = update.write(FOUR_OCTET);
        let at = at.index(written.len());
        written[at] = byte;
        let _ = read(&written, FOUR_OCTET);
    }
}
