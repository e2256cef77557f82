//! At most one node announces an address, and one does soon after every fault.

use proptest::prelude::*;

use super::simulation::{Fault, World};
use super::*;

/// Advances the time; checks every millisecond that at most one node announces an address.
fn pass(world: &mut World, milliseconds: u64) {
    for _ in 0..milliseconds {
        world.step();
        for ip in world.addresses() {
            let answering = world.answering(*ip);
            assert!(answering.len() <= 1, "{answering:?} answer for {ip} at {} ms", world.now);
        }
    }
}

/// Advances the time until every address is announced; returns how long that took.
fn until_answered(world: &mut World, at_most: u64) -> u64 {
    let begun = world.now;
    while world.addresses().iter().any(|ip| world.answering(*ip).is_empty()) {
        assert!(world.now - begun < at_most, "not announced after {at_most} ms");
        pass(world, 1);
    }
    world.now - begun
}

/// The announcing node of each address.
fn owners(world: &World) -> Vec<String> {
    world.addresses().iter().map(|ip| world.answering(*ip).join(",")).collect()
}

#[test]
fn addresses_are_announced_at_once_and_by_the_preferred_node() {
    let mut world = World::new(1, 3, 8);
    let took = until_answered(&mut world, 1000);
    assert!(took < 700, "{took} ms");
    pass(&mut world, 12_000);
    for (ip, owner) in world.addresses().iter().zip(owners(&world)) {
        let preferred = (0..3).map(|n| format!("n{n}")).max_by_key(|node| weight(node, *ip)).expect("three");
        assert_eq!(owner, preferred, "{ip}");
    }
    let spread: BTreeSet<String> = owners(&world).into_iter().collect();
    assert_eq!(spread.len(), 3, "addresses spread over nodes");
}

#[test]
fn a_dead_node_is_replaced_within_two_seconds_and_nothing_else_moves() {
    for seed in 0..20 {
        let mut world = World::new(seed, 3, 4);
        pass(&mut world, 12_000 + seed * 37);
        let before = owners(&world);
        let dead = before[0].clone();
        let number = world.machines.iter().position(|machine| machine.name == dead).expect("one of them");
        world.inject(number, Fault::Crash);
        let took = until_answered(&mut world, 2000);
        assert!((500..1600).contains(&took), "{took} ms: not before the other has fallen silent");
        pass(&mut world, 10_000);
        for (was, is) in before.iter().zip(owners(&world)) {
            assert!(*was == dead || *was == is, "{was} became {is}");
        }
    }
}

#[test]
fn a_node_that_leaves_is_replaced_in_milliseconds() {
    let mut world = World::new(5, 2, 2);
    pass(&mut world, 12_000);
    let first = owners(&world)[0].clone();
    let number = world.machines.iter().position(|machine| machine.name == first).expect("one of them");
    world.inject(number, Fault::Leave);
    pass(&mut world, 60);
    let took = until_answered(&mut world, 500);
    assert!(took < 250, "{took} ms");
    assert_ne!(owners(&world)[0], first);
    pass(&mut world, 15_000);
    assert_eq!(owners(&world)[0], first, "it is back, and preferred");
}

#[test]
fn who_is_no_candidate_any_more_gives_back_at_once() {
    let mut world = World::new(6, 2, 1);
    pass(&mut world, 12_000);
    let first = owners(&world)[0].clone();
    let number = world.machines.iter().position(|machine| machine.name == first).expect("one of them");
    world.inject(number, Fault::Candidate(false));
    pass(&mut world, 5);
    assert_ne!(owners(&world)[0], first, "it falls silent before anything else");
    assert!(until_answered(&mut world, 500) < 250);
}

#[test]
fn who_is_cut_off_falls_silent_before_another_answers() {
    for seed in 0..20 {
        let mut world = World::new(100 + seed, 2, 1);
        pass(&mut world, 12_000 + seed * 31);
        let first = owners(&world)[0].clone();
        let number = world.machines.iter().position(|machine| machine.name == first).expect("one of them");
        world.inject(number, Fault::Partition(5000));
        pass(&mut world, 990);
        assert_ne!(owners(&world)[0], first, "it is silent by now");
        until_answered(&mut world, 1000);
        pass(&mut world, 20_000);
        assert_eq!(owners(&world)[0], first, "back in the network, it is preferred again");
    }
}

#[test]
fn no_request_is_sent_without_addresses() {
    let mut owner = Owner::new("n1", "p1");
    let due = owner.poll(Duration::from_secs(1));
    assert!(due.requests.is_empty() && due.wake.is_none());
    owner.set_wanted(BTreeMap::from([(IpAddr::from([192, 0, 2, 1]), BTreeSet::from(["n2".into()]))]));
    let due = owner.poll(Duration::from_secs(2));
    assert!(due.requests.is_empty() && due.wake.is_none(), "it is for another node");
}

#[test]
fn a_second_process_of_a_node_waits_until_the_first_is_silent() {
    let mut owner = Owner::new("n1", "p2");
    let ip = IpAddr::from([192, 0, 2, 1]);
    owner.set_wanted(BTreeMap::from([(ip, BTreeSet::from(["n1".into()]))]));
    let other =
        Versioned { lease: Lease { holder: "n1".into(), session: "p1-1".into(), renewal: 7 }, version: "9".into() };
    let mut now = Duration::from_secs(5);
    let began = now;
    loop {
        let due = owner.poll(now);
        let mut started = false;
        for (id, _, operation) in due.requests {
            assert_eq!(operation, Operation::Get);
            let requests = owner.on_response(id, Ok(Some(other.clone())), now);
            started |= requests
                .iter()
                .any(|(_, _, operation)| matches!(operation, Operation::Replace(_, version) if **version == *"9"));
        }
        if started {
            break;
        }
        now += Duration::from_millis(10);
        assert!(now < began + EXPIRY_TIMEOUT * 2);
    }
    assert!(now >= began + EXPIRY_TIMEOUT, "{:?}", now - began);
}

#[test]
fn a_life_that_ended_by_itself_leaves_nothing_behind() {
    let mut world = World::new(7, 1, 1);
    pass(&mut world, 2000);
    world.inject(0, Fault::Partition(3000));
    pass(&mut world, 2000);
    assert_eq!(world.kept().len(), 2, "it could not give them back");
    world.want_nothing();
    pass(&mut world, 2000);
    assert_eq!(world.kept(), Vec::<String>::new());
}

/// Ends all faults.
fn mend(world: &mut World) {
    world.loss = None;
    for number in 0..4 {
        world.inject(number, Fault::Candidate(true));
        world.inject(number, Fault::Pause(0));
        world.inject(number, Fault::Partition(0));
        world.inject(number, Fault::StallWatch(0));
    }
    // What was held up before is still to come.
    pass(world, 6200);
}

/// What may happen, to which machine, and after how many milliseconds the next.
fn faults() -> impl Strategy<Value = Vec<(usize, Fault, u64)>> {
    let fate = prop_oneof![
        (1u64..3000).prop_map(Fault::Pause),
        Just(Fault::Restart),
        Just(Fault::Leave),
        (1u64..4000).prop_map(Fault::Partition),
        (1u64..6000).prop_map(Fault::StallWatch),
        any::<bool>().prop_map(Fault::Candidate),
    ];
    prop::collection::vec((0usize..4, fate, 0u64..1500), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn never_two_answer_whatever_happens(
        seed in any::<u64>(), delay in 0u64..120, sweep in prop::option::of(1200u64..4000), faults in faults(),
    ) {
        let mut world = World::new(seed, 4, 2);
        world.sweep = sweep;
        world.delay = delay;
        world.loss = Some(12);
        pass(&mut world, 1500);
        for (number, fate, after) in faults {
            world.inject(number, fate);
            pass(&mut world, after);
        }
        pass(&mut world, 3000);
    }

    #[test]
    fn addresses_are_announced_after_all_faults(seed in any::<u64>(), faults in faults()) {
        let mut world = World::new(seed, 4, 2);
        world.loss = Some(12);
        world.sweep = Some(3000);
        for (number, fate, after) in faults {
            world.inject(number, fate);
            pass(&mut world, after);
        }
        mend(&mut world);
        until_answered(&mut world, 2000);
    }

    #[test]
    fn all_leases_are_released_without_addresses(seed in any::<u64>(), faults in faults(), unwanted in 0usize..25) {
        let mut world = World::new(seed, 4, 2);
        world.loss = Some(12);
        pass(&mut world, 1500);
        for (count, (number, fate, after)) in faults.into_iter().enumerate() {
            if count == unwanted {
                world.want_nothing();
            }
            world.inject(number, fate);
            pass(&mut world, after);
        }
        world.want_nothing();
        mend(&mut world);
        pass(&mut world, 3000);
        prop_assert_eq!(world.kept(), Vec::<String>::new());
    }
}
