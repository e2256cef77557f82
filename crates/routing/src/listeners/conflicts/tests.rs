//! Conflicts of objects that come, change and go, against a recomputation that takes all listeners in their order.

use proptest::prelude::*;

use super::*;

/// What is taken of a port, listener by listener.
#[derive(Default)]
struct Taken {
    classes: BTreeSet<Class>,
    hostnames: BTreeMap<Option<Arc<str>>, usize>,
}

#[derive(Default)]
struct Oracle(BTreeMap<(Transport, u16), Taken>);

impl Oracle {
    fn take(&mut self, slot: &Slot) {
        let port = self.0.entry(slot.port()).or_default();
        port.classes.insert(Class::of(slot.protocol));
        *port.hostnames.entry(slot.hostname.clone()).or_default() += 1;
    }

    /// The conflict of a listener with those that have taken the port; `own` 1 when it is among them.
    fn conflict(&self, slot: &Slot, own: usize) -> Option<Conflict> {
        let port = self.0.get(&slot.port())?;
        let class = Class::of(slot.protocol);
        let is_shared = port.hostnames.values().sum::<usize>() > own;
        if port.classes.iter().any(|taken| *taken != class) || (class == Class::Whole && is_shared) {
            return Some(Conflict::Protocol);
        }
        let same = port.hostnames.get(&slot.hostname).copied().unwrap_or_default();
        (same > own).then_some(Conflict::Hostname)
    }

    /// The conflicts of an object, which takes what is left.
    fn judge(&mut self, slots: &[Slot]) -> Vec<Option<Conflict>> {
        let lost: Vec<_> = slots.iter().map(|slot| self.conflict(slot, 0)).collect();
        let mut own = Self::default();
        let kept: Vec<_> = slots.iter().zip(&lost).filter(|(_, lost)| lost.is_none()).map(|(slot, _)| slot).collect();
        kept.iter().for_each(|slot| own.take(slot));
        let conflicts = slots.iter().zip(lost).map(|(slot, lost)| lost.or_else(|| own.conflict(slot, 1))).collect();
        kept.into_iter().for_each(|slot| self.take(slot));
        conflicts
    }
}

/// The decisions that a conflict depends on.
fn dependencies(ports: &Ports, owner: &Precedence, slots: &[Slot]) -> BTreeSet<Decision> {
    let noted = std::cell::RefCell::new(BTreeSet::new());
    for slot in slots {
        ports.conflict(owner, slot, |decision| noted.borrow_mut().extend([decision]));
    }
    noted.into_inner()
}

fn slots() -> impl Strategy<Value = Vec<Slot>> {
    let protocol = prop::sample::select(vec![
        ListenerProtocol::Http,
        ListenerProtocol::Http,
        ListenerProtocol::Https,
        ListenerProtocol::TlsPassthrough,
        ListenerProtocol::Tcp,
        ListenerProtocol::Udp,
    ]);
    let hostname = prop::sample::select(vec![None, Some("a.test"), Some("b.test")]);
    let slot = (protocol, 1_u16..3, hostname).prop_map(|(protocol, port, hostname)| Slot {
        protocol,
        port,
        hostname: hostname.map(Into::into),
    });
    prop::collection::vec(slot, 0..4)
}

fn precedence() -> impl Strategy<Value = Precedence> {
    (0..4_u8).prop_map(|place| match place {
        0 => Precedence::Gateway,
        place => Precedence::Set { created: "2026".into(), key: format!("a/{place}").into() },
    })
}

proptest! {
    #[test]
    fn conflicts_equal_a_recomputation_and_all_that_differ_depend_on_a_decision(
        changes in prop::collection::vec((precedence(), prop::option::of(slots())), 1..30),
    ) {
        let mut ports = Ports::default();
        let mut objects: BTreeMap<Precedence, Vec<Slot>> = BTreeMap::new();
        let mut before: BTreeMap<Precedence, Vec<Option<Conflict>>> = BTreeMap::new();
        for (owner, slots) in changes {
            let old = match slots.clone() {
                Some(slots) => objects.insert(owner.clone(), slots),
                None => objects.remove(&owner),
            };
            let decisions: BTreeSet<_> = ports
                .replace(old.as_deref().map(|slots| (&owner, slots)), slots.as_deref().map(|slots| (&owner, slots)))
                .into_iter()
                .collect();
            let mut oracle = Oracle::default();
            for (other, slots) in &objects {
                let conflict = |slot| ports.conflict(other, slot, |_| ());
                let conflicts: Vec<_> = slots.iter().map(conflict).collect();
                prop_assert_eq!(&conflicts, &oracle.judge(slots), "{:?}", other);
                let is_same = before.get(other) == Some(&conflicts);
                let depends = !dependencies(&ports, other, slots).is_disjoint(&decisions);
                prop_assert!(is_same || depends || *other == owner, "{:?} differs and was not found", other);
                before.insert(other.clone(), conflicts);
            }
            before.retain(|other, _| objects.contains_key(other));
        }
        for (owner, slots) in objects {
            ports.replace(Some((&owner, &slots)), None);
        }
        prop_assert!(ports.is_empty());
    }
}

#[test]
fn a_listener_beside_thousands_decides_about_itself_only() {
    let set = |number: usize| Precedence::Set { created: "2026".into(), key: format!("a/{number}").into() };
    let slot = |number: usize| Slot {
        protocol: ListenerProtocol::Http,
        port: 80,
        hostname: Some(format!("{number}.test").into()),
    };
    let mut ports = Ports::default();
    let decided: Vec<usize> =
        (0..3000).map(|number| ports.replace(None, Some((&set(number), &[slot(number)]))).len()).collect();
    assert_eq!((decided[0], decided[1..].iter().max()), (2, Some(&1)), "the first one decides about the port, too");
}
