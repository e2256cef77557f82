//! Frames, byte by byte, and what must not be believed.

use proptest::prelude::*;

use super::*;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn v4() -> IpAddr {
    IpAddr::from([192, 0, 2, 7])
}

fn v6() -> IpAddr {
    "2001:db8::abcd:1207".parse().expect("an address")
}

#[test]
fn an_announcement_by_arp_is_as_everybody_writes_it() {
    let [request, reply] = announce(OWN, v4()).try_into().expect("both forms");
    #[rustfmt::skip]
    let expected: [u8; 42] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6,
        0, 1, 8, 0, 6, 4, 0, 1,
        2, 0, 0, 0, 0, 1, 192, 0, 2, 7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 192, 0, 2, 7,
    ];
    assert_eq!(request, expected);
    assert_eq!((reply[21], &reply[22..]), (2, &expected[22..]));
    for frame in [request, reply] {
        assert_eq!(read(&frame), [None, Some(Message::Announcement { address: v4(), mac: OWN })]);
    }
}

#[test]
fn a_probe_asks_and_says_nothing_of_the_asker() {
    for address in [v4(), v6()] {
        let [Some(Message::Request { address: asked, sender, mac, to }), None] = read(&probe(OWN, address)) else {
            panic!("a question")
        };
        assert_eq!((asked, mac), (address, OWN));
        assert!(sender.is_unspecified() && to.is_group());
    }
    let frame = probe(OWN, v6());
    assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0xcd, 0x12, 0x07], "the solicited-node group");
}

#[test]
fn an_answer_goes_to_who_asked() {
    let client = IpAddr::from([192, 0, 2, 9]);
    let frame = reply(OWN, v4(), client, OTHER).expect("an answer");
    assert_eq!(frame[..6], OTHER.0);
    assert_eq!(read(&frame), [None, Some(Message::Announcement { address: v4(), mac: OWN })]);
    let client = "2001:db8::9".parse().expect("an address");
    let frame = reply(OWN, v6(), client, OTHER).expect("an answer");
    assert_eq!((&frame[..6], frame[58]), (&OTHER.0[..], 0x60), "solicited, and it replaces what was known");
    assert_eq!(read(&frame), [Some(Message::Announcement { address: v6(), mac: OWN }), None]);
    let unspecified = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let frame = reply(OWN, v6(), unspecified, OTHER).expect("an answer");
    assert_eq!((&frame[..6], frame[58]), (&[0x33, 0x33, 0, 0, 0, 1][..], 0x20), "a probe gets a multicast reply");
    assert_eq!(reply(OWN, v6(), v4(), OTHER), None);
}

#[test]
fn a_question_by_arp_also_says_what_the_asker_has() {
    let client = Ipv4Addr::new(192, 0, 2, 9);
    let IpAddr::V4(wanted) = v4() else { unreachable!() };
    let frame = arp_frame(OWN, OTHER, ARP_REQUEST, (OTHER, client), (Mac([0; 6]), wanted));
    let who = Message::Request { address: v4(), sender: client.into(), mac: OTHER, to: OWN };
    assert_eq!(read(&frame), [Some(who), Some(Message::Announcement { address: client.into(), mac: OTHER })]);
}

#[test]
fn what_is_not_well_formed_is_not_believed() {
    let good = reply(OWN, v6(), "2001:db8::9".parse().expect("an address"), OTHER).expect("an answer");
    // The hop limit: it came through a router. The checksum. The code. The length of an option.
    for place in [21, 56, 55, 79] {
        let mut bad = good.clone();
        bad[place] ^= 1;
        assert_eq!(read(&bad), [None, None], "byte {place}");
    }
    assert_eq!(read(&good[..good.len() - 1]), [None, None]);
    let mut lying = announce(OWN, v4()).remove(0);
    lying[11] = 9;
    assert_eq!(read(&lying), [None, None], "the sender differs from the source of the frame");
}

#[test]
fn checksums_are_those_of_the_standard() {
    let (source, destination) = ("fe80::2".parse().expect("an address"), "ff02::1:ff00:1".parse().expect("an address"));
    let frame = discovery_frame(OTHER, OWN, (source, destination), SOLICITATION, 0, "fe80::1".parse().expect("one"));
    let message = &frame[54..];
    // 0xfe80 twice, 0xff02, 0xff00, small numbers, length 24, next header 58, type 135: added up by hand.
    let words = 0xfe80 * 2 + 2 + 0xff02 + 1 + 0xff00 + 1 + 24 + 58 + 0x8700 + 1;
    let folded = (words & 0xffff) + (words >> 16);
    assert_eq!(u32::from(u16::from_be_bytes([message[2], message[3]])), !folded & 0xffff);
}

proptest! {
    #[test]
    fn no_frame_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = read(&bytes);
    }

    /// Frames of ours with a few bytes changed get further.
    #[test]
    fn no_change_of_a_frame_makes_the_reader_panic(
        is_v6 in any::<bool>(),
        changes in prop::collection::vec((0usize..90, any::<u8>()), 0..6),
        cut in 0usize..90,
    ) {
        let mut frame = announce(OWN, if is_v6 { v6() } else { v4() }).remove(0);
        for (place, value) in changes {
            if let Some(byte) = frame.get_mut(place) {
                *byte = value;
            }
        }
        frame.truncate(frame.len().saturating_sub(cut));
        let _ = read(&frame);
    }

    #[test]
    fn what_is_written_is_read_back(octets in any::<[u8; 16]>(), mac in any::<[u8; 6]>()) {
        let address = Ipv6Addr::from(octets);
        let mac = Mac([mac[0] & 0xfe, mac[1], mac[2], mac[3], mac[4], mac[5]]);
        prop_assume!(!address.is_multicast());
        for frame in announce(mac, address.into()) {
            prop_assert_eq!(read(&frame), [Some(Message::Announcement { address: address.into(), mac }), None]);
        }
    }
}
