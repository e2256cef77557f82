//! The fake and the kernel agree on refusals, error numbers, failing changes, and the resulting state.

use kernel::nft::fake::Fake;
use kernel::nft::linux::Linux;
use kernel::nft::{
    Base, BaseKind, Batch, Change, Family, Field, Hook, Key, Name, Nft, Part, Rule, Set, SetValue, Statement, Type,
    Value, Verdict,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::namespace::Namespace;
use crate::sample::address;

const TABLE: &str = "agreement";
const CHAINS: [&str; 5] = ["a", "b", "c", "nat", "filter"];
const SETS: [&str; 7] = ["addresses", "ranges", "sources", "verdicts", "endpoints", "doors", "clients"];

fn name(text: &str) -> Name {
    Name::from(text)
}

fn chain_base(chain: &str) -> Option<Base> {
    match chain {
        "nat" => Some(Base { kind: BaseKind::Nat, hook: Hook::Prerouting, priority: -100 }),
        "filter" => Some(Base { kind: BaseKind::Filter, hook: Hook::Input, priority: 0 }),
        _ => None,
    }
}

fn set(set: &str) -> Set {
    let key = |types: &[Type]| types.to_vec();
    match set {
        "addresses" => Set { key: key(&[Type::Address]), ..Set::default() },
        "ranges" => Set { key: key(&[Type::Address]), interval: true, ..Set::default() },
        "sources" => Set { key: key(&[Type::Port, Type::Address]), interval: true, ..Set::default() },
        "verdicts" => Set { key: key(&[Type::Protocol, Type::Port]), value: SetValue::Verdict, ..Set::default() },
        "clients" => Set { key: key(&[Type::Address]), timeout: Some(600), ..Set::default() },
        "doors" => {
            Set { key: key(&[Type::Protocol, Type::Port]), value: SetValue::Data(vec![Type::Port]), ..Set::default() }
        }
        _ => Set {
            key: key(&[Type::Port, Type::Random]),
            value: SetValue::Data(vec![Type::Address, Type::Port]),
            ..Set::default()
        },
    }
}

fn key(family: Family, set: &str, number: u16, length: u16) -> Key {
    let at = |number| Part::Address(address(family, number));
    match set {
        // Adjacent ranges, never overlapping: the kernel does not always detect that.
        "ranges" => Key::range(&[at(number * 4)], &[at(number * 4 + number % 4)]),
        "sources" => {
            let [from, to] = [at(number * 4), at(number * 4 + number % 4)];
            Key::range(&[Part::Port(length), from], &[Part::Port(length), to])
        }
        "verdicts" | "doors" => Key::new(&[Part::Protocol(6), Part::Port(number)]),
        "endpoints" => Key::new(&[Part::Port(number), Part::Random(u32::from(length))]),
        _ => Key::new(&[at(number)]),
    }
}

fn value(family: Family, set: &str, number: u16, chain: &str) -> Value {
    match set {
        "verdicts" if number.is_multiple_of(3) => Value::Verdict(Verdict::Drop),
        "verdicts" => Value::Verdict(Verdict::Goto(name(chain))),
        "doors" => Value::data(&[Part::Port(number)]),
        "endpoints" => Value::data(&[Part::Address(address(family, number)), Part::Port(number)]),
        _ => Value::Nothing,
    }
}

fn rules(number: usize, chain: &str) -> Rule {
    let is_in = |set: &str, key: &[Field]| Statement::In { key: key.to_vec(), set: name(set), negate: false };
    match number {
        0 => vec![is_in("addresses", &[Field::Source]), Statement::Go(Verdict::Jump(name(chain)))],
        1 => vec![is_in("ranges", &[Field::Destination]), Statement::Go(Verdict::Goto(name(chain)))],
        2 => vec![is_in("sources", &[Field::DestinationPort, Field::Source]), Statement::Go(Verdict::Drop)],
        3 => vec![Statement::Dispatch { key: vec![Field::Protocol, Field::DestinationPort], map: name("verdicts") }],
        4 => vec![Statement::Translate { key: vec![Field::DestinationPort, Field::Random(3)], map: name("endpoints") }],
        5 => vec![Statement::Remember { set: name("clients"), key: vec![Field::Source] }],
        6 => vec![Statement::Reject],
        8 => vec![Statement::Remember { set: name("ranges"), key: vec![Field::Source] }],
        7 => vec![Statement::Redirect {
            protocol: 6,
            key: vec![Field::Protocol, Field::DestinationPort],
            map: name("doors"),
        }],
        _ => vec![Statement::NewConnection, Statement::Mark(1)],
    }
}

fn change(family: Family) -> impl Strategy<Value = Change> {
    let at = move || (family, name(TABLE));
    let chain = || prop::sample::select(&CHAINS[..]);
    let a_set = || prop::sample::select(&SETS[..]);
    let numbers = || (0u16..8, 0u16..3);
    prop_oneof![
        2 => Just(Change::AddTable(family, name(TABLE), "agreement".to_owned())),
        1 => Just(Change::DeleteTable(family, name(TABLE))),
        5 => chain().prop_map(move |chain| Change::AddChain(at().0, at().1, name(chain), chain_base(chain))),
        3 => chain().prop_map(move |chain| Change::DeleteChain(at().0, at().1, name(chain))),
        2 => chain().prop_map(move |chain| Change::FlushChain(at().0, at().1, name(chain))),
        6 => (chain(), chain(), 0usize..10).prop_map(move |(chain, target, number)| {
            Change::AddRules(at().0, at().1, name(chain), vec![rules(number, target)])
        }),
        5 => a_set().prop_map(move |of| Change::AddSet(at().0, at().1, name(of), set(of))),
        1 => prop::sample::select(vec![("addresses", "clients"), ("clients", "addresses")]).prop_map(move |(of, like)| {
            Change::AddSet(at().0, at().1, name(of), set(like))
        }),
        2 => a_set().prop_map(move |of| Change::DeleteSet(at().0, at().1, name(of))),
        9 => (a_set(), chain(), prop::collection::vec((numbers(), 0u16..6), 0..4)).prop_map(move |(of, chain, elements)| {
            let elements = elements.into_iter().map(|((number, length), seed)| {
                (key(family, of, number, length), value(family, of, seed, chain))
            });
            Change::AddElements(at().0, at().1, name(of), elements.collect())
        }),
        4 => (a_set(), prop::collection::vec(numbers(), 0..3)).prop_map(move |(of, keys)| {
            let keys = keys.into_iter().map(|(number, length)| key(family, of, number, length));
            Change::DeleteElements(at().0, at().1, name(of), keys.collect())
        }),
    ]
}

/// All objects that rules and elements may refer to, so that most changes are possible.
fn beginning(family: Family) -> Batch {
    let mut changes = vec![Change::AddTable(family, name(TABLE), "agreement".to_owned())];
    changes.extend(CHAINS.map(|chain| Change::AddChain(family, name(TABLE), name(chain), chain_base(chain))));
    changes.extend(SETS.map(|of| Change::AddSet(family, name(TABLE), name(of), set(of))));
    Batch { changes }
}

/// Deletes the table if it exists.
fn nothing(family: Family) -> Batch {
    let table = || name(TABLE);
    Batch { changes: vec![Change::AddTable(family, table(), String::new()), Change::DeleteTable(family, table())] }
}

#[test]
fn fake_and_kernel_agree() {
    let namespace = Namespace::new();
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let batches = |family| prop::collection::vec(prop::collection::vec(change(family), 1..5), 1..25);
    let cases = prop_oneof![
        batches(Family::Ip).prop_map(|batches| (Family::Ip, batches)),
        batches(Family::Ip6).prop_map(|batches| (Family::Ip6, batches))
    ];
    let run = |(family, batches): (Family, Vec<Vec<Change>>)| {
        let (mut fake, mut linux) = (Fake::default(), namespace.inside(|| Linux::open().expect("a socket")));
        linux.apply(&nothing(family)).expect("whatever an earlier case left is gone");
        let batches = batches.into_iter().map(|changes| Batch { changes });
        for batch in std::iter::once(beginning(family)).chain(batches) {
            let told =
                [fake.apply(&batch), linux.apply(&batch)].map(|told| told.map_err(|error| (error.errno, error.change)));
            prop_assert_eq!(told[0], told[1], "{:?}", &batch);
            let dumps = [fake.dump(family, TABLE), linux.dump(family, TABLE)].map(|dump| dump.expect("read"));
            prop_assert_eq!(&dumps[0], &dumps[1], "{:?}", &batch);
        }
        Ok(())
    };
    TestRunner::new(config).run(&cases, run).unwrap_or_else(|failure| panic!("{failure}"));
}
