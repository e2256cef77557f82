//! The fake refuses what the kernel refuses and evaluates packets. Agreement with a real kernel is tested in
//! `tests/it/agreement.rs`.

use super::*;
use crate::nft::{Base, BaseKind, Field, Hook, Key, Name, Part, Rule, Set, SetValue, Statement, Type, Value, Verdict};

const FAMILY: Family = Family::Ip;

fn name(text: &str) -> Name {
    Name::from(text)
}

fn table() -> Name {
    name("t")
}

fn ip(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn chain(of: &str, base: Option<(BaseKind, Hook, i32)>, rules: Vec<Rule>) -> [Change; 2] {
    let base = base.map(|(kind, hook, priority)| Base { kind, hook, priority });
    [Change::AddChain(FAMILY, table(), name(of), base), Change::AddRules(FAMILY, table(), name(of), rules)]
}

fn set(of: &str, set: Set) -> Change {
    Change::AddSet(FAMILY, table(), name(of), set)
}

const PLACE: [Field; 3] = [Field::Destination, Field::Protocol, Field::DestinationPort];
const PLACE_TYPES: [Type; 3] = [Type::Address, Type::Protocol, Type::Port];

fn place(last: u8) -> [Part; 3] {
    [Part::Address(ip(last)), Part::Protocol(6), Part::Port(80)]
}

/// A small balancer: 10.0.0.1 has two backends with affinity; 10.0.0.2 has none; the rest of 10.0.0.0/28 is rejected;
/// traffic not from pods is masqueraded.
fn balancer() -> Batch {
    let slot = [PLACE[0], PLACE[1], PLACE[2], Field::Random(2)];
    let frontends = Set { key: PLACE_TYPES.to_vec(), value: SetValue::Verdict, counters: true, ..Set::default() };
    let data = SetValue::Data(vec![Type::Address, Type::Port]);
    let endpoints = Set { key: slot.map(Field::kind).to_vec(), value: data, ..Set::default() };
    let clients = Set { key: vec![Type::Address], timeout: Some(10), ..Set::default() };
    let ranges = Set { key: vec![Type::Address], interval: true, ..Set::default() };
    let dispatch = || vec![Statement::Dispatch { key: PLACE.to_vec(), map: name("frontends") }];
    let is_in = |field, set: &str| Statement::In { key: vec![field], set: name(set), negate: false };
    let pods = Statement::Interface { name: "pod".to_owned(), prefix: true, negate: true };
    let mut changes = vec![
        Change::AddTable(FAMILY, table(), "1".to_owned()),
        set("frontends", frontends),
        set("endpoints", endpoints),
        set("clients", clients),
        set("ranges", ranges),
    ];
    changes.extend(chain(
        "two",
        None,
        vec![
            vec![Statement::Remember { set: name("clients"), key: vec![Field::Source] }],
            vec![Statement::Translate { key: slot.to_vec(), map: name("endpoints") }],
        ],
    ));
    let services = vec![vec![pods, Statement::Mark(1)], dispatch()];
    changes.extend(chain("pre", Some((BaseKind::Nat, Hook::Prerouting, -100)), services));
    changes.extend(chain("out", Some((BaseKind::Nat, Hook::Output, -100)), vec![dispatch()]));
    let refuse = || vec![vec![Statement::NewConnection, is_in(Field::Destination, "ranges"), Statement::Reject]];
    changes.extend(chain("forward", Some((BaseKind::Filter, Hook::Forward, 0)), refuse()));
    changes.extend(chain("in", Some((BaseKind::Filter, Hook::Input, 0)), refuse()));
    changes.extend(chain(
        "post",
        Some((BaseKind::Nat, Hook::Postrouting, 100)),
        vec![vec![Statement::Marked(1), Statement::Unmark(1), Statement::Masquerade]],
    ));
    let front = |last, verdict| (Key::new(&place(last)), Value::Verdict(verdict));
    let slot = |index| {
        let [address, protocol, port] = place(1);
        let backend = u8::try_from(100 + index).expect("small");
        let value = Value::data(&[Part::Address(ip(backend)), Part::Port(8080)]);
        (Key::new(&[address, protocol, port, Part::Random(index)]), value)
    };
    let fronts = vec![front(1, Verdict::Goto(name("two"))), front(2, Verdict::Drop)];
    changes.push(Change::AddElements(FAMILY, table(), name("frontends"), fronts));
    changes.push(Change::AddElements(FAMILY, table(), name("endpoints"), vec![slot(0), slot(1)]));
    let range = Key::range(&[Part::Address(ip(0))], &[Part::Address(ip(15))]);
    changes.push(Change::AddElements(FAMILY, table(), name("ranges"), vec![(range, Value::Nothing)]));
    Batch { changes }
}

fn kernel() -> Fake {
    let mut fake = Fake::default();
    fake.apply(&balancer()).expect("applied");
    fake.set_local([ip(200)]);
    fake
}

fn send(fake: &Fake, to: u8, interface: Option<&str>) -> Fate {
    fake.evaluate(&Packet::first(ip(50), ip(to), 6, 80, interface), &mut |below| below - 1)
}

#[test]
fn the_random_number_selects_the_backend() {
    let mut fake = kernel();
    let fate = send(&fake, 1, Some("pod1"));
    assert_eq!((fate.end, fate.translated, fate.masqueraded), (End::Accepted, Some((ip(101), 8080)), false));
    assert_eq!(fate.remembered.into_iter().collect::<Vec<_>>(), [name("clients")]);
    let fate = send(&fake, 1, Some("eth0"));
    assert_eq!((fate.translated, fate.masqueraded, fate.mark), (Some((ip(101), 8080)), true, 0));
    let fate = send(&fake, 1, None);
    assert_eq!(
        (fate.translated, fate.masqueraded),
        (Some((ip(101), 8080)), false),
        "no interface, but not asked either"
    );
    let counters = fake.counters(FAMILY, "t", "frontends").expect("counted");
    assert_eq!(counters.iter().map(|counter| counter.packets).collect::<Vec<_>>(), [3, 0]);
}

#[test]
fn the_destination_decides_the_hooks() {
    let fake = kernel();
    let ended = |to, interface| {
        let fate = send(&fake, to, interface);
        (fate.end, fate.hook)
    };
    assert_eq!(ended(2, Some("eth0")), (End::Dropped, Some(Hook::Prerouting)));
    assert_eq!(ended(2, None), (End::Dropped, Some(Hook::Output)));
    assert_eq!(ended(3, Some("eth0")), (End::Rejected, Some(Hook::Forward)));
    assert_eq!(
        ended(3, None),
        (End::Accepted, None),
        "what the machine sends elsewhere passes neither forward nor input"
    );
    fake.set_local([ip(3)]);
    assert_eq!(ended(3, Some("eth0")), (End::Rejected, Some(Hook::Input)));
    assert_eq!(ended(3, None), (End::Rejected, Some(Hook::Input)), "what it sends to itself comes in again");
    assert_eq!(ended(99, Some("eth0")), (End::Accepted, None));
}

#[test]
fn only_the_first_packet_is_translated() {
    let fake = kernel();
    let packet = Packet { first: false, ..Packet::first(ip(50), ip(1), 6, 80, Some("eth0")) };
    let fate = fake.evaluate(&packet, &mut |_| 0);
    assert_eq!((fate.translated, fate.end), (None, End::Accepted));
}

#[test]
fn dynamic_elements_expire() {
    let mut fake = kernel();
    let is_in = Statement::In { key: vec![Field::Source], set: name("clients"), negate: false };
    let early = chain(
        "early",
        Some((BaseKind::Filter, Hook::Prerouting, -300)),
        vec![vec![is_in, Statement::Go(Verdict::Drop)]],
    );
    fake.apply(&Batch { changes: early.to_vec() }).expect("applied");
    let end = |fake: &Fake| send(fake, 1, Some("pod1")).end;
    assert_eq!(end(&fake), End::Accepted);
    fake.advance(9);
    assert_eq!(end(&fake), End::Dropped);
    fake.advance(1);
    assert_eq!(end(&fake), End::Accepted);
    assert!(fake.dump(FAMILY, "t").expect("read").expect("there").sets["clients"].elements.is_empty());
}

#[test]
fn a_failed_batch_changes_nothing() {
    let mut fake = kernel();
    let before = fake.table(FAMILY, "t");
    let (batches, changes) = (fake.batches(), fake.changes());
    let refused = [
        (Change::DeleteChain(FAMILY, table(), name("two")), Errno::BUSY),
        (Change::DeleteSet(FAMILY, table(), name("clients")), Errno::BUSY),
        (Change::DeleteSet(FAMILY, table(), name("nothing")), Errno::NOENT),
        (Change::DeleteElements(FAMILY, table(), name("frontends"), vec![Key::new(&place(9))]), Errno::NOENT),
        (
            Change::AddElements(
                FAMILY,
                table(),
                name("frontends"),
                vec![(Key::new(&place(1)), Value::Verdict(Verdict::Drop))],
            ),
            Errno::EXIST,
        ),
        (
            Change::AddElements(
                FAMILY,
                table(),
                name("ranges"),
                vec![(Key::new(&[Part::Address(ip(7))]), Value::Nothing)],
            ),
            Errno::EXIST,
        ),
        (
            Change::AddElements(FAMILY, table(), name("ranges"), vec![(Key::new(&[Part::Port(7)]), Value::Nothing)]),
            Errno::INVAL,
        ),
        (Change::AddRules(FAMILY, table(), name("post"), vec![vec![Statement::Reject]]), Errno::OPNOTSUPP),
        (
            Change::AddRules(FAMILY, table(), name("two"), vec![vec![Statement::Go(Verdict::Jump(name("two")))]]),
            Errno::MLINK,
        ),
        (Change::AddTable(Family::Ip6, name("other"), String::new()), Errno::NOBUFS),
    ];
    for (change, errno) in refused {
        if errno == Errno::NOBUFS {
            fake.fail_next(errno);
        }
        let first = Change::AddChain(FAMILY, table(), name("first"), None);
        let error = fake.apply(&Batch { changes: vec![first, change.clone()] }).expect_err("refused");
        assert_eq!(error.errno, errno, "{change:?}");
        assert_eq!(error.change, (errno != Errno::NOBUFS).then_some(1), "{change:?}");
        assert_eq!(fake.table(FAMILY, "t"), before, "{change:?}");
    }
    assert_eq!((fake.batches(), fake.changes()), (batches, changes));
}

#[test]
fn changes_by_other_programs_are_reported() {
    let mut fake = kernel();
    let mut watcher = fake.listen("t");
    fake.apply(&Batch { changes: vec![Change::FlushChain(FAMILY, table(), name("two"))] }).expect("applied");
    fake.foreign(&Batch { changes: vec![Change::FlushChain(FAMILY, table(), name("pre"))] }).expect("applied");
    fake.flush_ruleset();
    fake.lose_messages();
    let heard = std::iter::from_fn(|| watcher.wait(Some(Duration::ZERO)).expect("listening"));
    assert_eq!(heard.collect::<Vec<_>>(), [Touch::Changed(FAMILY), Touch::Deleted(FAMILY), Touch::Unknown]);
    assert_eq!(fake.dump(FAMILY, "t").expect("read"), None);
}
