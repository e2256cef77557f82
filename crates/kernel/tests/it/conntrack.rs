//! Conntrack in the real kernel: listing and deleting.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use kernel::conntrack::linux::Linux;
use kernel::conntrack::{Conntrack, Counted, Flow, UDP};
use kernel::nft::linux::Linux as Nftables;
use kernel::nft::{
    Base, BaseKind, Batch, Change, Family, Field, Hook, Key, Name, Nft, Part, Set, SetValue, Statement, Type, Value,
};

use crate::namespace::Namespace;

/// A rule that matches connections makes the kernel track them.
fn track(family: Family) {
    let at = || (family, Name::from("track"));
    let base = Base { kind: BaseKind::Filter, hook: Hook::Output, priority: 0 };
    let changes = vec![
        Change::AddTable(at().0, at().1, String::new()),
        Change::AddChain(at().0, at().1, Name::from("out"), Some(base)),
        Change::AddRules(at().0, at().1, Name::from("out"), vec![vec![Statement::NewConnection]]),
    ];
    Nftables::open().expect("a socket").apply(&Batch { changes }).expect("applied");
}

#[test]
fn a_udp_entry_is_listed_and_deleted() {
    for (family, home) in
        [(Family::Ip, IpAddr::from([127, 0, 0, 1])), (Family::Ip6, "::1".parse().expect("an address"))]
    {
        let namespace = Namespace::new();
        namespace.inside(|| {
            let mut conntrack = Linux::open().expect("a socket");
            assert_eq!(conntrack.udp_flows(family).expect("listed"), []);
            track(family);
            let [client, other, server] = [(); 3].map(|()| UdpSocket::bind((home, 0)).expect("a socket"));
            for sender in [&client, &other] {
                sender.send_to(b"x", server.local_addr().expect("bound")).expect("sent");
            }
            let mut flows = conntrack.udp_flows(family).expect("listed");
            flows.sort_by_key(|flow| flow.original.source.port() != client.local_addr().expect("bound").port());
            assert_eq!(flows.len(), 2);
            let Flow { original, reply, protocol, zone, translated, .. } = flows[0];
            assert_eq!((protocol, zone, translated), (UDP, 0, false));
            assert_eq!(Ok(original.source), client.local_addr().map_err(|_| ()));
            assert_eq!(Ok(original.destination), server.local_addr().map_err(|_| ()));
            assert_eq!((reply.source, reply.destination), (original.destination, original.source));

            assert_eq!(conntrack.delete(&flows[..1]).expect("deleted"), 1);
            assert_eq!(conntrack.delete(&flows[..1]).expect("gone before"), 0);
            assert_eq!(conntrack.udp_flows(family).expect("listed"), &flows[1..]);
            let strangers = if family == Family::Ip { Family::Ip6 } else { Family::Ip };
            assert_eq!(conntrack.udp_flows(strangers).expect("listed"), []);
        });
    }
}

/// A rule that redirects TCP from one of our ports to another.
fn lead(family: Family, home: IpAddr, from: u16, to: u16) {
    let at = || (family, Name::from("lead"), Name::from("ports"));
    let base = Base { kind: BaseKind::Nat, hook: Hook::Output, priority: -100 };
    let key = vec![Field::Protocol, Field::DestinationPort];
    let set = Set {
        key: vec![Type::Protocol, Type::Port],
        value: SetValue::Data(vec![Type::Address, Type::Port]),
        interval: false,
        timeout: None,
        counters: false,
        elements: BTreeMap::new(),
    };
    let element =
        (Key::new(&[Part::Protocol(6), Part::Port(from)]), Value::data(&[Part::Address(home), Part::Port(to)]));
    let translate = Statement::Translate { key, map: at().2 };
    let changes = vec![
        Change::AddTable(at().0, at().1, String::new()),
        Change::AddSet(at().0, at().1, at().2, set),
        Change::AddElements(at().0, at().1, at().2, vec![element]),
        Change::AddChain(at().0, at().1, Name::from("out"), Some(base)),
        Change::AddRules(at().0, at().1, Name::from("out"), vec![vec![translate]]),
    ];
    Nftables::open().expect("a socket").apply(&Batch { changes }).expect("applied");
}

#[test]
fn a_translated_tcp_connection_is_counted_until_it_ends() {
    for (family, home) in
        [(Family::Ip, IpAddr::from([127, 0, 0, 1])), (Family::Ip6, "::1".parse().expect("an address"))]
    {
        let namespace = Namespace::new();
        namespace.inside(|| {
            let server = TcpListener::bind((home, 0)).expect("a port");
            let to = server.local_addr().expect("bound");
            let asked = SocketAddr::new(home, if to.port() == 80 { 81 } else { 80 });
            lead(family, home, asked.port(), to.port());
            std::fs::write("/proc/sys/net/netfilter/nf_conntrack_acct", "1").expect("the kernel counts");
            let mut client = TcpStream::connect(asked).expect("it is led to the server");
            let (mut answers, _) = server.accept().expect("a connection");
            client.write_all(&[7; 1000]).expect("sent");
            answers.read_exact(&mut [0; 1000]).expect("received");
            // An untranslated connection is not listed.
            let plain = TcpStream::connect(to).expect("a connection");
            let mut conntrack = Linux::open().expect("a socket");
            let led = conntrack.translated_flows(family).expect("listed");
            assert_eq!(led.len(), 1, "{led:?}");
            let Counted { flow, bytes, ended } = led[0];
            assert_eq!((flow.protocol, flow.translated, ended), (6, true, false));
            assert_eq!((flow.original.destination, flow.reply.source), (asked, to));
            assert!(bytes.is_some_and(|bytes| (1000..3000).contains(&bytes)), "{bytes:?}");
            let strangers = if family == Family::Ip { Family::Ip6 } else { Family::Ip };
            assert_eq!(conntrack.translated_flows(strangers).expect("listed"), []);

            drop((client, answers, plain));
            let led = conntrack.translated_flows(family).expect("listed");
            assert!(led.iter().all(|led| led.ended), "{led:?}");
        });
    }
}
