//! Tables in the real kernel: content, listing, evaluation, and atomic failure.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use kernel::Errno;
use kernel::nft::linux::{Linux, Watcher};
use kernel::nft::{
    Base, BaseKind, Batch, Change, Family, Field, Hook, Key, Monitor, Name, Nft, NftError, Part, Rule, Set, SetValue,
    Statement, Type, Value, Verdict,
};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::namespace::Namespace;
use crate::sample::{self, TABLE};

fn open(namespace: &Namespace) -> Linux {
    namespace.inside(|| Linux::open().expect("a socket"))
}

fn name(text: &str) -> Name {
    Name::from(text)
}

fn apply(nft: &mut Linux, changes: Vec<Change>) -> Result<(), NftError> {
    nft.apply(&Batch { changes })
}

#[test]
fn a_table_with_everything_is_there_and_can_be_listed() {
    let namespace = Namespace::new();
    let mut nft = open(&namespace);
    for family in Family::ALL {
        assert_eq!(nft.dump(family, TABLE).expect("read"), None);
        let table = sample::table(family);
        nft.apply(&sample::make(family, &table)).expect("applied");
        assert_eq!(nft.dump(family, TABLE).expect("read"), Some(sample::dump(&table)));
    }
    let listed = namespace.tool("nft", &["list", "ruleset"]);
    for line in include_str!("listed.txt").lines() {
        assert!(listed.lines().any(|other| other.trim() == line), "not listed: {line}\n{listed}");
    }
    namespace.reload();
}

#[test]
fn a_failed_batch_changes_nothing_and_names_the_change() {
    let namespace = Namespace::new();
    let mut nft = open(&namespace);
    let table = sample::table(Family::Ip);
    let mut batch = sample::make(Family::Ip, &table);
    let elements = vec![(Key::new(&[Part::Port(1)]), Value::Nothing)];
    batch.changes.insert(4, Change::AddRules(Family::Ip, name(TABLE), name("nowhere"), vec![vec![Statement::Reject]]));
    batch.changes.push(Change::AddElements(Family::Ip, name(TABLE), name("ports"), elements));
    let error = nft.apply(&batch).expect_err("there is no such chain");
    assert_eq!((error.errno, error.change), (Errno::NOENT, Some(4)));
    assert!(error.is_gone());
    assert_eq!(nft.dump(Family::Ip, TABLE).expect("read"), None);
    // The failed batch must not change the known shapes.
    let orphan = vec![(Key::new(&[Part::Port(1)]), Value::Nothing)];
    let error = apply(&mut nft, vec![Change::AddElements(Family::Ip, name(TABLE), name("ports"), orphan)]);
    assert_eq!(error.map_err(|error| (error.errno, error.change)), Err((Errno::NOENT, Some(0))));
}

#[test]
fn elements_change_by_key() {
    let namespace = Namespace::new();
    for family in Family::ALL {
        let mut nft = open(&namespace);
        let mut table = sample::table(family);
        nft.apply(&sample::make(family, &table)).expect("applied");
        // Another socket does not know the sets and reads their shapes.
        let mut nft = open(&namespace);
        let mut changes = Vec::new();
        for set in ["ranges", "sources", "endpoints", "frontends"] {
            let content = table.sets.get_mut(set).expect("a set of the sample");
            let (gone, _) = content.elements.pop_first().expect("an element");
            let mut changed = content.elements.first_entry().expect("another");
            let value = match changed.get() {
                Value::Data(_) => Value::data(&[Part::Address(sample::address(family, 7)), Part::Port(7)]),
                Value::Verdict(_) => Value::Verdict(Verdict::Drop),
                Value::Nothing => Value::Nothing,
            };
            changed.insert(value.clone());
            let key = changed.key().clone();
            changes.push(Change::DeleteElements(family, name(TABLE), name(set), vec![gone, key.clone()]));
            changes.push(Change::AddElements(family, name(TABLE), name(set), vec![(key, value)]));
        }
        apply(&mut nft, changes).expect("applied");
        assert_eq!(nft.dump(family, TABLE).expect("read"), Some(sample::dump(&table)));
        let again = vec![Change::AddSet(family, name(TABLE), name("ranges"), table.sets["ranges"].bare())];
        apply(&mut nft, again).expect("the same set may be made again");
        apply(&mut nft, vec![Change::DeleteTable(family, name(TABLE))]).expect("deleted");
        let error = apply(&mut nft, vec![Change::DeleteTable(family, name(TABLE))]).expect_err("it is gone");
        assert!(error.is_gone(), "{error}");
    }
}

/// Rules that translate connections of this machine.
fn balancer(family: Family, to: (IpAddr, u16), virtual_ip: IpAddr) -> Vec<Change> {
    let place = vec![Field::Destination, Field::Protocol, Field::DestinationPort];
    let slot = [&place[..], &[Field::Random(1)]].concat();
    let types = |fields: &[Field]| fields.iter().map(|field| field.kind()).collect::<Vec<_>>();
    let at = || (family, name(TABLE));
    let base = Base { kind: BaseKind::Nat, hook: Hook::Output, priority: -100 };
    let frontends = Set { counters: true, key: types(&place), value: SetValue::Verdict, ..Set::default() };
    let data = SetValue::Data(vec![Type::Address, Type::Port]);
    let endpoints = Set { key: types(&slot), value: data, ..Set::default() };
    let clients = Set { key: vec![Type::Address], timeout: Some(60), ..Set::default() };
    let rules: Vec<Rule> = vec![
        vec![Statement::Remember { set: name("clients"), key: vec![Field::Source] }],
        vec![Statement::Translate { key: slot, map: name("endpoints") }],
    ];
    let dispatch = vec![vec![Statement::Dispatch { key: place, map: name("frontends") }]];
    let front = [Part::Address(virtual_ip), Part::Protocol(6), Part::Port(80)];
    let back = [Part::Address(to.0), Part::Port(to.1)];
    let [address, protocol, port] = front;
    vec![
        Change::AddTable(at().0, at().1, String::new()),
        Change::AddChain(at().0, at().1, name("out"), Some(base)),
        Change::AddChain(at().0, at().1, name("one"), None),
        Change::AddSet(at().0, at().1, name("frontends"), frontends),
        Change::AddSet(at().0, at().1, name("endpoints"), endpoints),
        Change::AddSet(at().0, at().1, name("clients"), clients),
        Change::AddRules(at().0, at().1, name("out"), dispatch),
        Change::AddRules(at().0, at().1, name("one"), rules),
        Change::AddElements(
            at().0,
            at().1,
            name("frontends"),
            vec![(Key::new(&front), Value::Verdict(Verdict::Goto(name("one"))))],
        ),
        Change::AddElements(
            at().0,
            at().1,
            name("endpoints"),
            vec![(Key::new(&[address, protocol, port, Part::Random(0)]), Value::data(&back))],
        ),
    ]
}

#[test]
fn connections_are_translated_counted_and_remembered() {
    for family in Family::ALL {
        let namespace = Namespace::new();
        let (home, virtual_ip) = (sample::address(family, 1), sample::address(family, 0x100));
        let bits = family.address_len() * 8;
        namespace.add_address(home);
        namespace.tool("ip", &["route", "add", &format!("{virtual_ip}/{bits}"), "dev", "lo"]);
        let mut nft = open(&namespace);
        let (begun, ended) = namespace.inside(|| {
            let server = TcpListener::bind((home, 0)).expect("a server");
            let port = server.local_addr().expect("bound").port();
            apply(&mut nft, balancer(family, (home, port), virtual_ip)).expect("applied");
            let mut client = TcpStream::connect((virtual_ip, 80)).expect("translated");
            let mut served = server.accept().expect("a client").0;
            let mut counted = || nft.counters(family, TABLE, "frontends").expect("counted");
            let begun = counted();
            for _ in 0..20 {
                client.write_all(b"hello").expect("sent");
                let mut heard = [0; 5];
                served.read_exact(&mut heard).expect("read");
                assert_eq!(&heard, b"hello");
                served.write_all(&heard).expect("answered");
                client.read_exact(&mut heard).expect("heard");
            }
            (begun, counted())
        });
        assert_eq!(begun.len(), 1);
        // More than one when the kernel dropped a SYN and the client retransmitted it.
        assert!(begun[0].packets >= 1, "the first packet of a connection is looked up");
        assert_eq!(ended[0].packets, begun[0].packets, "no later packet of a connection is looked up");
        assert!(begun[0].bytes >= 40);
        let listed = namespace.tool("nft", &["list", "table", if bits == 32 { "ip" } else { "ip6" }, TABLE]);
        assert!(listed.contains(&format!("elements = {{ {home} ")), "the client is not remembered:\n{listed}");
        let dump = nft.dump(family, TABLE).expect("read").expect("there");
        assert!(dump.sets["clients"].elements.is_empty(), "what packets put there is theirs");
    }
}

#[test]
fn missing_privileges_are_reported() {
    let namespace = Namespace::new();
    let error = namespace.inside(|| {
        let mut sets = capabilities(None).expect("capabilities");
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets).expect("fewer rights");
        let mut nft = Linux::open().expect("a socket is free");
        apply(&mut nft, vec![Change::AddTable(Family::Ip, name(TABLE), String::new())]).expect_err("not allowed")
    });
    assert!(error.is_permission(), "{error}");
    assert_eq!(open(&namespace).dump(Family::Ip, TABLE).expect("read"), None);
}

/// A table of 10 000 services with 10 endpoints each.
fn big() -> Batch {
    let types = [Type::Address, Type::Protocol, Type::Port, Type::Random];
    let frontends = Set { counters: true, key: types[..3].to_vec(), value: SetValue::Verdict, ..Set::default() };
    let data = SetValue::Data(vec![Type::Address, Type::Port]);
    let endpoints = Set { key: types.to_vec(), value: data, ..Set::default() };
    let place = |service: u16| [Part::Address(sample::address(Family::Ip, service)), Part::Protocol(6), Part::Port(80)];
    let fronts = (0..10_000).map(|service| (Key::new(&place(service)), Value::Verdict(Verdict::Goto(name("ten")))));
    let backs = (0..10_000u16).flat_map(|service| {
        let [address, protocol, port] = place(service);
        (0..10).map(move |slot| {
            let value = Value::data(&[Part::Address(IpAddr::from([10, 244, slot, 1])), Part::Port(8080)]);
            (Key::new(&[address, protocol, port, Part::Random(slot.into())]), value)
        })
    });
    let at = || (Family::Ip, name(TABLE));
    let changes = vec![
        Change::AddTable(at().0, at().1, "big".to_owned()),
        Change::AddChain(at().0, at().1, name("ten"), None),
        Change::AddSet(at().0, at().1, name("frontends"), frontends),
        Change::AddSet(at().0, at().1, name("endpoints"), endpoints),
        Change::AddElements(at().0, at().1, name("frontends"), fronts.collect()),
        Change::AddElements(at().0, at().1, name("endpoints"), backs.collect()),
    ];
    Batch { changes }
}

/// Prints how long a big table takes; asserts only that it exists.
#[test]
fn a_big_table_is_loaded_at_once() {
    let namespace = Namespace::new();
    let mut nft = open(&namespace);
    let batch = big();
    let timed = |nft: &mut Linux, batch: &Batch| {
        let start = Instant::now();
        nft.apply(batch).expect("applied");
        start.elapsed()
    };
    let loaded = timed(&mut nft, &batch);
    let start = Instant::now();
    let dump = nft.dump(Family::Ip, TABLE).expect("read").expect("there");
    let read = start.elapsed();
    assert_eq!((dump.sets["frontends"].elements.len(), dump.sets["endpoints"].elements.len()), (10_000, 100_000));
    let key = dump.sets["endpoints"].elements.keys().next().expect("an element").clone();
    let delete = Change::DeleteElements(Family::Ip, name(TABLE), name("endpoints"), vec![key]);
    let changed = timed(&mut nft, &Batch { changes: vec![delete] });
    let deleted = timed(&mut nft, &Batch { changes: vec![Change::DeleteTable(Family::Ip, name(TABLE))] });
    let mut watcher = namespace.inside(|| Watcher::open(TABLE, nft.portid()).expect("a listener"));
    let again = timed(&mut nft, &batch);
    eprintln!("110 000 elements: loaded in {loaded:?}, {again:?} with a listener; read in {read:?}");
    eprintln!("one of them deleted in {changed:?}, all in {deleted:?}");
    let touch = watcher.wait(Some(Duration::ZERO)).expect("listening");
    assert_eq!(touch, None, "our own changes, all of them heard");
}

/// Shows where the kernel dropped a packet.
const COUNTERS: &str =
    "nft list ruleset; ip -s address; cat /proc/net/softnet_stat /proc/net/stat/nf_conntrack; nstat -a";

#[test]
fn rejected_packets_get_an_icmp_error() {
    for family in Family::ALL {
        let namespace = Namespace::new();
        let home = sample::address(family, 1);
        namespace.add_address(home);
        let mut nft = open(&namespace);
        let base = Base { kind: BaseKind::Filter, hook: Hook::Input, priority: 0 };
        let rules = vec![vec![Statement::NewConnection, Statement::LocalDestination, Statement::Reject]];
        apply(
            &mut nft,
            vec![
                Change::AddTable(family, name(TABLE), String::new()),
                Change::AddChain(family, name(TABLE), name("in"), Some(base)),
                Change::AddRules(family, name(TABLE), name("in"), rules),
            ],
        )
        .expect("applied");
        let error = namespace.inside(|| {
            let socket = UdpSocket::bind((home, 0)).expect("a socket");
            socket.connect((home, 9)).expect("an address");
            socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a limit");
            // A datagram or its reply may be lost under load, so it is sent a few times, as clients do.
            let ask = || socket.send(b"x").and_then(|_| socket.recv(&mut [0])).expect_err("nobody answers");
            (0..20).map(|_| ask()).find(|error| error.kind() != ErrorKind::WouldBlock)
        });
        let counters = || namespace.tool("sh", &["-c", COUNTERS]);
        let kind = error.map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::ConnectionRefused), "{family:?}\n{}", counters());
    }
}
