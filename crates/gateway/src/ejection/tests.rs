use proptest::prelude::*;

use super::*;

/// Trackers of one cause that share their limits.
struct Group {
    clock: Clock,
    ejections: Ejections,
    endpoints: Vec<Tracker>,
}

const RULES: Rules = Rules { errors: 2, base: Duration::from_secs(30), max: Duration::from_secs(300) };

impl Group {
    fn new(count: usize) -> Self {
        let clock = Clock::stopped();
        let ejections = Ejections::new(clock.clone(), Arc::default());
        ejections.set_total(count);
        let endpoints = (0..count).map(|_| Tracker::new(Cause::Outlier, 0)).collect();
        Self { clock, ejections, endpoints }
    }

    fn now(&self) -> u64 {
        self.ejections.millis(self.clock.now())
    }

    /// Counted one by one.
    fn ejected(&self) -> usize {
        self.endpoints.iter().filter(|one| one.health().is_ejected()).count()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Request { of: usize, is_error: bool },
    GiveUp { of: usize },
    Remove { of: usize },
    Wait { seconds: u64 },
}

fn step(count: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..count, prop::bool::weighted(0.7)).prop_map(|(of, is_error)| Step::Request { of, is_error }),
        1 => (0..count).prop_map(|of| Step::GiveUp { of }),
        1 => (0..count).prop_map(|of| Step::Remove { of }),
        1 => (0_u64..100).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

proptest! {
    #[test]
    fn the_limits_hold_in_any_history(
        (count, steps) in (1_usize..12).prop_flat_map(|count| (Just(count), prop::collection::vec(step(count), 0..150))),
        percent in 0_u8..=100,
    ) {
        let mut group = Group::new(count);
        for step in steps {
            let before = group.ejected();
            match step {
                Step::Request { of, is_error } => {
                    let one = &group.endpoints[of];
                    let pass = one.admit(group.now(), Duration::from_secs(30)).unwrap_or(Pass::Forced);
                    match is_error {
                        true => one.fail(pass, &RULES, percent, &group.ejections),
                        false => one.succeed(pass, &group.ejections),
                    }
                }
                Step::GiveUp { of } => {
                    let one = &group.endpoints[of];
                    if one.admit(group.now(), Duration::from_secs(30)) == Some(Pass::Probe) {
                        one.give_up(&group.ejections);
                    }
                }
                // In its place comes a new one.
                Step::Remove { of } => {
                    group.endpoints[of].remove(&group.ejections);
                    group.endpoints[of] = Tracker::new(Cause::Outlier, group.now());
                }
                Step::Wait { seconds } => group.clock.advance(Duration::from_secs(seconds)),
            }
            let ejected = group.ejected();
            prop_assert_eq!(group.ejections.count(Cause::Outlier), ejected, "after {:?}", step);
            if ejected > before {
                prop_assert!(ejected * 100 <= count * usize::from(percent), "{} of {}", ejected, count);
                prop_assert!(ejected < count, "one is usable");
            }
        }
    }
}

#[test]
fn concurrent_errors_keep_the_limits() {
    for _ in 0..50 {
        let group = Group::new(8);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for one in group.endpoints.iter().cycle().take(64) {
                        one.fail(Pass::Usable, &RULES, 50, &group.ejections);
                    }
                });
            }
        });
        assert_eq!((group.ejected(), group.ejections.count(Cause::Outlier)), (4, 4));
    }
}

#[test]
fn both_causes_together_leave_one_endpoint() {
    let ejections = Ejections::new(Clock::stopped(), Arc::default());
    ejections.set_total(4);
    let reserved = [
        ejections.reserve(Cause::Outlier, 50),
        ejections.reserve(Cause::Connection, 100),
        ejections.reserve(Cause::Outlier, 50),
        ejections.reserve(Cause::Connection, 100),
        ejections.reserve(Cause::Outlier, 100),
    ];
    assert_eq!(reserved, [true, true, true, false, false]);
    ejections.release(Cause::Outlier);
    assert!(ejections.reserve(Cause::Connection, 100));
}
