//! The fake refuses what a host refuses, and evaluates packets as Linux does.

use super::*;

const V4: Family = Family::Ip;

fn packet(source: &str, destination: &str, port: u16, interface: Option<&str>) -> Packet {
    let parse = |text: &str| text.parse().expect("an address");
    Packet::first(parse(source), parse(destination), 6, port, interface)
}

#[test]
fn invalid_scripts_are_refused_and_change_nothing() {
    let fake = Fake::default();
    fake.foreign(V4, "*nat\n:A - [0:0]\n-A A -j ACCEPT\n-A PREROUTING -j A\nCOMMIT\n").expect("it is right");
    let before = fake.listing(V4);
    for script in [
        "*nat\n-A MISSING -j ACCEPT\nCOMMIT\n",
        "*nat\n-A A -j MISSING\nCOMMIT\n",
        "*nat\n-X A\nCOMMIT\n",
        "*nat\n-D A -j DROP\nCOMMIT\n",
        "*nat\n-A A -j REJECT\nCOMMIT\n",
        "*nat\n-A A -j DNAT --to-destination 10.0.0.1:80\nCOMMIT\n",
        "*filter\n-A INPUT -j REJECT --reject-with tcp-reset\nCOMMIT\n",
        "*nat\n:A - [0:0]\n",
        "*nat\n-A A -j A\nCOMMIT\n",
        "*nat\n:A-NAME-THAT-IS-LONGER-THAN-ANY - [0:0]\nCOMMIT\n",
        "*nat\n-A OUTPUT -i eth0 -j A\nCOMMIT\n",
        "*security\nCOMMIT\n",
        "-A A -j ACCEPT\n",
    ] {
        assert!(fake.foreign(V4, script).is_err(), "{script}");
        assert_eq!(fake.listing(V4), before, "{script}");
    }
    fake.foreign(V4, "*nat\n:A - [0:0]\n-D PREROUTING -j A\n-X A\nCOMMIT\n").expect("emptied, left alone, removed");
    assert!(!fake.listing(V4).contains(":A "));
}

#[test]
fn sections_before_a_failed_one_stay() {
    let fake = Fake::default();
    let script = "*filter\n:A - [0:0]\nCOMMIT\n*nat\n-A A -j ACCEPT\nCOMMIT\n";
    assert!(fake.foreign(V4, script).is_err());
    assert!(fake.listing(V4).contains(":A "));
}

#[test]
fn packets_are_translated_masqueraded_and_remembered() {
    let fake = Fake::default();
    let script = "*nat\n:SEP - [0:0]\n-A SEP -p tcp -m recent --set --name L --rsource -j DNAT --to-destination 10.9.9.9:8080\n\
        -A PREROUTING -m recent --rcheck --seconds 10 --reap --name L --rsource -j SEP\n\
        -A PREROUTING -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x4000/0x4000\n\
        -A PREROUTING -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -m statistic --mode random --probability 0.5000000000 -j SEP\n\
        -A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A POSTROUTING -j MARK --set-xmark 0x4000/0x0\n\
        -A POSTROUTING -j MASQUERADE --random-fully\nCOMMIT\n\
        *filter\n-A FORWARD -d 10.0.0.1/32 -m conntrack --ctstate NEW -j REJECT\nCOMMIT\n";
    fake.foreign(V4, script).expect("it is right");
    let sent = packet("192.0.2.9", "10.0.0.1", 80, Some("eth0"));
    let missed = fake.evaluate(&sent, &mut |_| false);
    assert_eq!((missed.end, missed.translated, missed.mark), (End::Rejected, None, 0x4000));
    let hit = fake.evaluate(&sent, &mut |chance| (chance - 0.5).abs() < 1e-9);
    assert_eq!((hit.end, hit.masqueraded, hit.mark), (End::Accepted, true, 0));
    assert_eq!(hit.translated.map(|(ip, port)| (ip.to_string(), port)), Some(("10.9.9.9".to_owned(), 8080)));
    // Affinity is checked before the random choice: the same endpoint until the timeout.
    fake.advance(10);
    let again = fake.evaluate(&sent, &mut |_| false);
    assert_eq!((again.translated.is_some(), again.masqueraded), (true, false));
    fake.advance(11);
    assert_eq!(fake.evaluate(&sent, &mut |_| false).translated, None);
    let known = Packet { first: false, ..sent };
    assert_eq!(fake.evaluate(&known, &mut |_| true).end, End::Accepted);
}
