//! Filters are executed as the kernel executes them, and compared with the policy.

use proptest::prelude::*;

use super::super::Rule;
use super::*;

/// A call as a filter sees it.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.architecture,
            _ => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { (argument & u64::from(u32::MAX)) as u32 } else { (argument >> 32) as u32 }
            }
        }
    }
}

/// Runs a filter; what it returns.
fn run(code: &[u64], call: &Call) -> u32 {
    let (mut at, mut loaded) = (0, 0);
    loop {
        let word = code[at];
        let (jt, jf, k) = ((word >> 16 & 0xff) as usize, (word >> 24 & 0xff) as usize, (word >> 32) as u32);
        let branch = |holds: bool| if holds { jt } else { jf };
        at += 1;
        match (word & 0xffff) as u16 {
            LOAD => loaded = call.word(k),
            AND => loaded &= k,
            JUMP => at += k as usize,
            IF_EQUAL => at += branch(loaded == k),
            IF_GREATER => at += branch(loaded > k),
            IF_NOT_LESS => at += branch(loaded >= k),
            RETURN => return k,
            other => panic!("instruction {other:x}"),
        }
    }
}

fn holds(condition: &Condition, arguments: &[u64; 6]) -> bool {
    let own = arguments[usize::from(condition.argument)];
    match condition.compare {
        Compare::Equal(value) => own == value,
        Compare::NotEqual(value) => own != value,
        Compare::Less(value) => own < value,
        Compare::LessOrEqual(value) => own <= value,
        Compare::Greater(value) => own > value,
        Compare::GreaterOrEqual(value) => own >= value,
        Compare::Masked { mask, value } => own & mask == value,
    }
}

/// The verdict of a policy, computed in the simplest way.
fn said(policy: &Policy, call: &Call) -> Action {
    let Some(architecture) = policy.architectures.iter().find(|one| audit(**one) == call.architecture) else {
        return UNKNOWN;
    };
    if *architecture == Architecture::X86_64 && call.number >= X32 {
        return UNKNOWN;
    }
    let own: Vec<&Rule> =
        policy.rules.iter().filter(|rule| calls::number(*architecture, &rule.call) == Some(call.number)).collect();
    let plain = own.iter().find(|rule| rule.conditions.is_empty());
    let first = || own.iter().find(|rule| rule.conditions.iter().all(|one| holds(one, &call.arguments)));
    match plain.or_else(first) {
        Some(rule) => rule.action,
        None if own.is_empty() && call.number > calls::newest(*architecture) => match policy.default {
            Action::Errno(_) => UNKNOWN,
            other => other,
        },
        None => policy.default,
    }
}

const NAMES: [&str; 8] = ["read", "write", "open", "clone", "clone3", "personality", "set_tls", "file_setattr"];
const ALL: [Architecture; 4] = [Architecture::X86_64, Architecture::X86, Architecture::Aarch64, Architecture::Arm];

fn action() -> impl Strategy<Value = Action> {
    prop::sample::select(vec![
        Action::Allow,
        Action::Errno(1),
        Action::Errno(38),
        Action::KillProcess,
        Action::KillThread,
        Action::Log,
        Action::Trap,
        Action::Trace(7),
    ])
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..3, Just(u64::from(u32::MAX)), Just(1 << 32), Just((1 << 32) + 1), any::<u64>()]
}

fn condition() -> impl Strategy<Value = Condition> {
    let compare = prop_oneof![
        value().prop_map(Compare::Equal),
        value().prop_map(Compare::NotEqual),
        value().prop_map(Compare::Less),
        value().prop_map(Compare::LessOrEqual),
        value().prop_map(Compare::Greater),
        value().prop_map(Compare::GreaterOrEqual),
        (value(), value()).prop_map(|(mask, value)| Compare::Masked { mask, value: value & mask }),
    ];
    (0u8..6, compare).prop_map(|(argument, compare)| Condition { argument, compare })
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let conditions = prop::collection::vec(condition(), 0..6);
    let rule = (prop::sample::select(NAMES.to_vec()), conditions, action());
    let rule = rule.prop_map(|(call, conditions, action)| Rule { call: call.to_owned(), conditions, action });
    prop::collection::vec(rule, 0..30)
}

fn call() -> impl Strategy<Value = Call> {
    let architecture = prop::sample::select(ALL.to_vec());
    let named = (architecture, prop::sample::select(NAMES.to_vec()))
        .prop_map(|(of, name)| (audit(of), calls::number(of, name).unwrap_or(u32::MAX)));
    let other = (prop::sample::select(ALL.to_vec()), prop_oneof![0u32..500, any::<u32>()])
        .prop_map(|(of, number)| (audit(of), number));
    let foreign = any::<u32>().prop_map(|architecture| (architecture, 0));
    (prop_oneof![6 => named, 3 => other, 1 => foreign], prop::array::uniform6(value()))
        .prop_map(|((architecture, number), arguments)| Call { number, architecture, arguments })
}

proptest! {
    #[test]
    fn a_filter_does_what_its_policy_says(
        default in action(),
        architectures in prop::sample::subsequence(ALL.to_vec(), 1..=4),
        rules in rules(),
        calls in prop::collection::vec(call(), 1..60),
    ) {
        let policy = Policy { default, architectures, rules };
        let code = program(&policy).expect("short enough");
        for call in &calls {
            let wanted = (give(said(&policy, call)) >> 32) as u32;
            prop_assert_eq!(run(&code, call), wanted, "{:?}", call);
        }
    }
}

#[test]
fn a_list_of_many_calls_is_searched_and_not_walked() {
    let names = ["read", "write", "open", "close", "stat", "fstat", "lstat", "poll"];
    let rule = |call: &str| Rule { call: call.to_owned(), conditions: Vec::new(), action: Action::Allow };
    let rules = names.iter().map(|name| rule(name)).collect();
    let policy = Policy { default: Action::Errno(1), architectures: vec![Architecture::X86_64], rules };
    // Calls 0 to 7 are one range of three: allowed, refused, newer than the table. Two comparisons tell them apart.
    assert_eq!(program(&policy).expect("short").len(), 1 + 2 + 1 + 2 + 3 + 1);
}

#[test]
fn a_policy_that_the_kernel_would_refuse_is_refused_with_its_size() {
    let compare = Compare::Masked { mask: u64::MAX, value: 7 };
    let rule = |value: u64| Rule {
        call: "read".to_owned(),
        conditions: vec![Condition { argument: 0, compare }, Condition { argument: 1, compare: Compare::Equal(value) }],
        action: Action::Allow,
    };
    let rules = (0..1000).map(rule).collect();
    let policy = Policy { default: Action::Errno(1), architectures: vec![Architecture::X86_64], rules };
    let TooLong(length) = program(&policy).expect_err("too long");
    assert!(length > MOST, "{length}");
}
