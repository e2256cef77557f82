use proptest::prelude::*;

use super::*;

const RULES: Rules = Rules { errors: 3, base: Duration::from_secs(30), max: Duration::from_secs(300) };
const LEASE: Duration = Duration::from_secs(30);

fn fail(health: Health, pass: Pass, now: u64) -> Health {
    health.fail(pass, now, &RULES, || true)
}

/// Ejected by errors at this time.
fn ejected(mut health: Health, now: u64) -> Health {
    for _ in 0..RULES.errors {
        health = fail(health, Pass::Usable, now);
    }
    health
}

#[test]
fn errors_in_a_row_lead_to_an_ejection() {
    let two = fail(fail(Health::new(0), Pass::Usable, 1), Pass::Usable, 2);
    assert!(two.is_usable());
    assert!(fail(two.succeed(Pass::Usable, 3), Pass::Usable, 4).is_usable(), "a success in between");
    let ejected = fail(two, Pass::Usable, 5);
    assert!(ejected.is_ejected() && !ejected.is_open(30_004) && ejected.is_open(30_005));
    let never = Rules { errors: 0, ..RULES };
    assert!((0..99).fold(two, |health, _| health.fail(Pass::Usable, 0, &never, || true)).is_usable());
}

#[test]
fn one_request_is_let_through_and_decides() {
    let health = ejected(Health::new(0), 0);
    assert_eq!(health.admit(29_999, LEASE), None);
    let (probing, pass) = health.admit(30_000, LEASE).unwrap();
    assert_eq!((pass, probing.admit(30_001, LEASE)), (Pass::Probe, None));
    assert!(probing.admit(60_000, LEASE).is_some(), "the request takes too long");
    assert!(probing.succeed(Pass::Probe, 30_001).is_usable());
    assert!(probing.succeed(Pass::Usable, 30_001).is_ejected(), "one from before the ejection");
    assert!(probing.give_up().is_open(30_001));
    let again = fail(probing, Pass::Probe, 40_000);
    assert!(!again.is_open(99_999) && again.is_open(100_000), "twice as long");
}

#[test]
fn the_time_doubles_up_to_the_limit_and_starts_over_after_a_healthy_time() {
    let (mut health, mut now, mut times) = (Health::new(0), 0, Vec::new());
    for _ in 0..6 {
        health = ejected(health, now);
        let end = (now..).step_by(1000).find(|time| health.is_open(*time)).unwrap();
        times.push((end - now) / 1000);
        now = end;
        health = health.admit(now, LEASE).unwrap().0.succeed(Pass::Probe, now);
    }
    assert_eq!(times, [30, 60, 120, 240, 300, 300]);
    let soon = ejected(health, now + 299_999);
    assert!(!soon.is_open(now + 299_999 + 299_999));
    assert!(ejected(health, now + 300_000).is_open(now + 330_000));
}

#[test]
fn without_room_an_endpoint_stays_and_is_ejected_by_the_next_error() {
    let mut health = Health::new(0);
    for _ in 0..10 {
        health = health.fail(Pass::Usable, 0, &RULES, || false);
        assert!(health.is_usable());
    }
    assert!(fail(health, Pass::Usable, 0).is_ejected());
}

#[test]
fn a_request_without_choice_ends_an_ejection_by_success_only() {
    let health = ejected(Health::new(0), 0);
    assert_eq!(fail(health, Pass::Forced, 10), health);
    assert!(health.succeed(Pass::Forced, 10).is_usable());
    assert_eq!(health.succeed(Pass::Usable, 10), health);
}

/// What happens to an endpoint.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    Admit,
    Succeed(Pass),
    Fail(Pass, bool),
    GiveUp,
    Remove,
}

fn step() -> impl Strategy<Value = Step> {
    let pass = || prop_oneof![Just(Pass::Usable), Just(Pass::Probe), Just(Pass::Forced)];
    prop_oneof![
        4 => (0_u64..200_000).prop_map(Step::Wait),
        4 => Just(Step::Admit),
        4 => pass().prop_map(Step::Succeed),
        16 => (pass(), any::<bool>()).prop_map(|(pass, room)| Step::Fail(pass, room)),
        4 => Just(Step::GiveUp),
        1 => Just(Step::Remove),
    ]
}

proptest! {
    #[test]
    fn any_history_keeps_the_limits(steps in proptest::collection::vec(step(), 0..200)) {
        let (mut health, mut now, mut is_removed) = (Health::new(0), 0, false);
        for step in steps {
            let before = health;
            let mut asked = false;
            health = match step {
                Step::Wait(time) => { now += time; health }
                Step::Admit => health.admit(now, LEASE).map_or(health, |(health, _)| health),
                Step::Succeed(pass) => health.succeed(pass, now),
                Step::Fail(pass, room) => health.fail(pass, now, &RULES, || { asked = true; room }),
                Step::GiveUp => health.give_up(),
                Step::Remove => { is_removed = true; Health::removed() }
            };
            prop_assert_eq!(Health::of_word(health.to_word()), health);
            prop_assert_eq!(Health::is_quiet(health.to_word()), health.is_usable() && health.errors == 0);
            // Each ejection of a usable endpoint has asked for room, and nothing else changes the number of ejected ones upwards.
            if !before.is_ejected() && health.is_ejected() {
                prop_assert!(asked && matches!(step, Step::Fail(_, true)));
            }
            // An ejection ends in time: an endpoint is never lost.
            if health.is_ejected() {
                prop_assert!(health.is_open(now + 300_000));
            }
            if is_removed {
                prop_assert_eq!(health, Health::removed());
            }
        }
    }

    #[test]
    fn an_ejection_lasts_at_least_the_base_and_at_most_the_limit(level in 0_u8..=MAX_LEVEL, now in 0_u64..1 << 38) {
        let health = ejected(Health { level, ..Health::new(now) }, now);
        prop_assert!(!health.is_open(now + 29_999) && health.is_open(now + 300_000));
    }
}
