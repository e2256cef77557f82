//! A sample table with every kind of chain, set, statement and verdict.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kernel::nft::{
    Base, BaseKind, Batch, Chain, ChainState, Change, Dump, Family, Field, Hook, Key, Name, Part, Rule, Set, SetValue,
    Statement, Table, Type, Value, Verdict,
};

/// Table name of the tests.
pub(crate) const TABLE: &str = "sample";

/// A numbered address of a family.
pub(crate) fn address(family: Family, number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    match family {
        Family::Ip => [10, 1, high, low].into(),
        Family::Ip6 => [0xfd00, 0, 0, 0, 0, 0, 1, number].into(),
    }
}

fn set(key: &[Type], value: SetValue) -> Set {
    Set { key: key.to_vec(), value, ..Set::default() }
}

fn name(text: &str) -> Name {
    Name::from(text)
}

const PLACE: [Type; 3] = [Type::Address, Type::Protocol, Type::Port];
const PLACE_FIELDS: [Field; 3] = [Field::Destination, Field::Protocol, Field::DestinationPort];

fn place(family: Family, number: u16) -> [Part; 3] {
    [Part::Address(address(family, number)), Part::Protocol(6), Part::Port(80)]
}

fn sets(family: Family) -> BTreeMap<Name, Set> {
    let slot = |number, index| {
        let [address, protocol, port] = place(family, number);
        Key::new(&[address, protocol, port, Part::Random(index)])
    };
    let endpoint = |number| Value::data(&[Part::Address(address(family, number)), Part::Port(8080)]);
    let data = || SetValue::Data(vec![Type::Address, Type::Port]);
    let last: IpAddr = if family == Family::Ip { [255; 4].into() } else { [255u8; 16].into() };
    let range = |from, to| Key::range(&[Part::Address(from)], &[Part::Address(to)]);
    let source = |from, to| {
        let [address, protocol, port] = place(family, 1);
        let whole = |end| [address, protocol, port, Part::Address(end)];
        (Key::range(&whole(from), &whole(to)), Value::Nothing)
    };
    let at = |number| address(family, number);
    let mut sets = BTreeMap::from([
        ("addresses", set(&[Type::Address], SetValue::Nothing)),
        ("ports", set(&[Type::Port], SetValue::Nothing)),
        ("protocols", set(&[Type::Protocol], SetValue::Nothing)),
        ("ranges", Set { interval: true, ..set(&[Type::Address], SetValue::Nothing) }),
        ("sources", Set { interval: true, ..set(&[PLACE[0], PLACE[1], PLACE[2], Type::Address], SetValue::Nothing) }),
        ("hairpin", set(&[Type::Address, Type::Address, Type::Protocol, Type::Port], SetValue::Nothing)),
        ("clients", Set { timeout: Some(60), ..set(&[Type::Address], SetValue::Nothing) }),
        ("frontends", Set { counters: true, ..set(&PLACE, SetValue::Verdict) }),
        ("node-ports", set(&PLACE[1..], SetValue::Verdict)),
        ("endpoints", set(&[PLACE[0], PLACE[1], PLACE[2], Type::Random], data())),
        ("node-port-endpoints", set(&[Type::Protocol, Type::Port, Type::Random], data())),
        ("doors", set(&PLACE, SetValue::Data(vec![Type::Port]))),
        ("node-port-doors", set(&PLACE[1..], SetValue::Data(vec![Type::Port]))),
    ]);
    let mut fill = |set: &str, elements: Vec<(Key, Value)>| {
        sets.get_mut(set).expect("a set of the sample").elements = elements.into_iter().collect();
    };
    fill("addresses", vec![(Key::new(&[Part::Address(at(1))]), Value::Nothing)]);
    fill("ports", vec![(Key::new(&[Part::Port(443)]), Value::Nothing)]);
    fill("protocols", vec![(Key::new(&[Part::Protocol(132)]), Value::Nothing)]);
    // Adjacent ranges, a single value, and the maximum address.
    let ranges = [range(at(16), at(31)), range(at(32), at(40)), range(at(99), at(99)), range(at(0x8000), last)];
    fill("ranges", ranges.into_iter().map(|key| (key, Value::Nothing)).collect());
    fill("sources", vec![source(at(0), at(255)), source(at(0x300), at(0x300))]);
    fill(
        "frontends",
        vec![
            (Key::new(&place(family, 1)), Value::Verdict(Verdict::Goto(name("two")))),
            (Key::new(&place(family, 2)), Value::Verdict(Verdict::Jump(name("two")))),
            (Key::new(&place(family, 3)), Value::Verdict(Verdict::Drop)),
            (Key::new(&place(family, 4)), Value::Verdict(Verdict::Accept)),
            (Key::new(&place(family, 5)), Value::Verdict(Verdict::Continue)),
            (Key::new(&place(family, 6)), Value::Verdict(Verdict::Return)),
        ],
    );
    fill("doors", vec![(Key::new(&place(family, 1)), Value::data(&[Part::Port(40_001)]))]);
    fill("endpoints", vec![(slot(1, 0), endpoint(100)), (slot(1, 1), endpoint(101)), (slot(2, 0x0102), endpoint(102))]);
    sets.into_iter().map(|(of, set)| (name(of), set)).collect()
}

#[expect(clippy::too_many_lines, reason = "one of everything")]
fn chains() -> BTreeMap<Name, Chain> {
    use Statement::{Dispatch, Go, In, Interface, LocalDestination, LocalSource, Mark, Marked, Masquerade};
    use Statement::{NewConnection, Redirect, Reject, Remember, Reset, Translate, Translated, Unmark};
    let base = |kind, hook, priority, rules| Chain { base: Some(Base { kind, hook, priority }), rules };
    let plain = |rules: Vec<Rule>| Chain { base: None, rules };
    let is_in = |set: &str, key: &[Field], negate| In { key: key.to_vec(), set: name(set), negate };
    let interface = |text: &str, prefix, negate| Interface { name: text.to_owned(), prefix, negate };
    let [to, protocol, port] = PLACE_FIELDS;
    let from = Field::Source;
    let translate = |map: &str, key: &[Field]| vec![Translate { key: key.to_vec(), map: name(map) }];
    let redirect = |protocol, map: &str, key: &[Field]| Redirect { protocol, key: key.to_vec(), map: name(map) };
    BTreeMap::from([
        (
            name("here"),
            plain(vec![
                vec![redirect(6, "doors", &PLACE_FIELDS)],
                vec![redirect(17, "node-port-doors", &PLACE_FIELDS[1..])],
            ]),
        ),
        (
            name("two"),
            plain(vec![
                translate("endpoints", &[to, protocol, port, Field::Random(2)]),
                translate("node-port-endpoints", &[protocol, port, Field::Random(65_536)]),
                translate("node-port-endpoints", &[protocol, port, Field::Incremental(3)]),
                translate("node-port-endpoints", &[protocol, port, Field::SourceHash { below: 1021, seed: 7 }]),
                translate("endpoints", &[to, protocol, port, Field::SourceHash { below: 2, seed: 0 }]),
            ]),
        ),
        (
            name("pinned"),
            plain(vec![
                vec![Remember { set: name("clients"), key: vec![from] }],
                translate("node-port-endpoints", &[protocol, port, Field::Random(1)]),
            ]),
        ),
        (name("refuse"), plain(vec![vec![Reset], vec![Reject]])),
        (
            name("nat-in"),
            base(
                BaseKind::Nat,
                Hook::Prerouting,
                -100,
                vec![
                    vec![is_in("addresses", &[to], false), interface("eth0", false, true), Mark(0x4000)],
                    vec![is_in("addresses", &[to], true), interface("cni", true, false), Unmark(0x4000)],
                    vec![LocalSource, Mark(0x4000)],
                    vec![is_in("clients", &[from], false), Go(Verdict::Goto(name("pinned")))],
                    vec![Dispatch { key: PLACE_FIELDS.to_vec(), map: name("frontends") }],
                    vec![
                        LocalDestination,
                        is_in("ports", &[port], true),
                        Dispatch { key: vec![protocol, port], map: name("node-ports") },
                    ],
                ],
            ),
        ),
        (name("nat-out"), base(BaseKind::Nat, Hook::Output, -100, vec![vec![Go(Verdict::Jump(name("two")))]])),
        (
            name("nat-post"),
            base(
                BaseKind::Nat,
                Hook::Postrouting,
                100,
                vec![
                    vec![Marked(0x4000), Unmark(0x4000), Masquerade],
                    vec![Translated, is_in("hairpin", &[from, to, protocol, port], false), Masquerade],
                ],
            ),
        ),
        (
            name("early"),
            base(
                BaseKind::Filter,
                Hook::Prerouting,
                -110,
                vec![
                    vec![
                        NewConnection,
                        is_in("sources", &[to, protocol, port, from], true),
                        is_in("protocols", &[protocol], false),
                        Go(Verdict::Drop),
                    ],
                    vec![interface("veth", true, true), Go(Verdict::Accept)],
                ],
            ),
        ),
        (
            name("filter-in"),
            base(BaseKind::Filter, Hook::Input, 0, vec![vec![NewConnection, Go(Verdict::Jump(name("refuse")))]]),
        ),
        (
            name("filter-forward"),
            base(
                BaseKind::Filter,
                Hook::Forward,
                0,
                vec![
                    vec![NewConnection, is_in("ranges", &[to], false), Go(Verdict::Goto(name("refuse")))],
                    vec![Go(Verdict::Continue)],
                    vec![Go(Verdict::Return)],
                ],
            ),
        ),
    ])
}

/// The sample table.
pub(crate) fn table(family: Family) -> Table {
    Table { tag: "waypost sample 1".to_owned(), chains: chains(), sets: sets(family) }
}

/// All changes that create the table.
pub(crate) fn make(family: Family, table: &Table) -> Batch {
    let of = || (family, name(TABLE));
    let mut changes = vec![Change::AddTable(family, name(TABLE), table.tag.clone())];
    let chains = table.chains.iter();
    changes.extend(chains.map(|(chain, content)| Change::AddChain(of().0, of().1, chain.clone(), content.base)));
    changes.extend(table.sets.iter().map(|(set, content)| Change::AddSet(of().0, of().1, set.clone(), content.bare())));
    changes.extend(
        table
            .chains
            .iter()
            .map(|(chain, content)| Change::AddRules(of().0, of().1, chain.clone(), content.rules.clone())),
    );
    changes.extend(table.sets.iter().map(|(set, content)| {
        let elements = content.elements.iter().map(|(key, value)| (key.clone(), value.clone()));
        Change::AddElements(of().0, of().1, set.clone(), elements.collect())
    }));
    Batch { changes }
}

/// The expected dump.
pub(crate) fn dump(table: &Table) -> Dump {
    Dump {
        tag: table.tag.clone(),
        chains: table
            .chains
            .iter()
            .map(|(name, chain)| (name.clone(), ChainState { base: chain.base, rules: chain.rules.len() }))
            .collect(),
        sets: table.sets.clone(),
    }
}
