//! Connections in the real kernel: listed, and forgotten one by one.

use std::net::{IpAddr, UdpSocket};

use kernel::conntrack::linux::Linux;
use kernel::conntrack::{Conntrack, Flow, UDP};
use kernel::nft::linux::Linux as Nftables;
use kernel::nft::{Base, BaseKind, Batch, Change, Family, Hook, Name, Nft, Statement};

use crate::namespace::Namespace;

/// A rule that looks at connections makes the kernel track them.
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
fn a_udp_connection_is_listed_and_forgotten() {
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
