//! Counts the ready endpoints of each Service as objects change, and detects when all have the expected number.

use std::collections::HashMap;

use super::objects::Size;
use super::sight::{Kind, Sight};

/// Counts ready endpoints of each Service.
pub(super) struct Tally {
    size: Size,
    /// Service and ready endpoints of each object.
    objects: HashMap<(Kind, String), (String, usize)>,
    /// Ready endpoints of each Service.
    ready: HashMap<(Kind, String), usize>,
    /// How many of those are as many as they should be.
    right: usize,
}

impl Tally {
    /// Initially empty.
    pub(super) fn new(size: Size) -> Self {
        Self { size, objects: HashMap::new(), ready: HashMap::new(), right: 0 }
    }

    /// Whether every Service has as many as it should.
    pub(super) fn is_right(&self) -> bool {
        self.right == Kind::ALL.len() * self.size.services
    }

    /// How far it is.
    pub(super) fn describe(&self) -> String {
        let has =
            |kind| self.ready.iter().filter(|((of, _), ready)| *of == kind && **ready == self.wanted(kind)).count();
        let (slices, endpoints) = (has(Kind::Slices), has(Kind::Endpoints));
        format!("of {} Services {slices} have their slices and {endpoints} their Endpoints", self.size.services)
    }

    fn wanted(&self, kind: Kind) -> usize {
        match kind {
            Kind::Slices => self.size.pods,
            Kind::Endpoints => self.size.addresses(),
        }
    }

    /// Takes in an object, or its new state.
    pub(super) fn put(&mut self, kind: Kind, sight: &Sight) {
        self.remove(kind, &sight.name);
        // Others have endpoints as well, the API server itself for one.
        if sight.service.starts_with("svc-") {
            let ready = sight.ready();
            self.change(kind, &sight.service, |count| count + ready);
            self.objects.insert((kind, sight.name.clone()), (sight.service.clone(), ready));
        }
    }

    /// An object is gone.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) {
        if let Some((service, ready)) = self.objects.remove(&(kind, name.to_owned())) {
            self.change(kind, &service, |count| count - ready);
        }
    }

    /// Everything of a kind is about to be relisted.
    pub(super) fn forget(&mut self, kind: Kind) {
        self.objects.retain(|(of, _), _| *of != kind);
        let wanted = self.wanted(kind);
        self.right -= self.ready.iter().filter(|((of, _), ready)| *of == kind && **ready == wanted).count();
        self.ready.retain(|(of, _), _| *of != kind);
    }

    fn change(&mut self, kind: Kind, service: &str, by: impl FnOnce(usize) -> usize) {
        let wanted = self.wanted(kind);
        let count = self.ready.entry((kind, service.to_owned())).or_default();
        self.right -= usize::from(*count == wanted);
        *count = by(*count);
        self.right += usize::from(*count == wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::sight::Member;

    fn sight(name: &str, service: &str, ready: usize) -> Sight {
        let member = Member { pod: String::new(), address: String::new(), node: String::new(), ready: true };
        Sight { name: name.to_owned(), service: service.to_owned(), members: vec![member; ready], ports: vec![] }
    }

    #[test]
    fn it_is_right_when_every_service_has_all_its_pods_in_slices_and_endpoints() {
        let mut tally = Tally::new(Size { services: 1, pods: 3 });
        tally.put(Kind::Slices, &sight("a", "svc-0", 2));
        tally.put(Kind::Slices, &sight("b", "svc-0", 1));
        assert!(!tally.is_right(), "no Endpoints");
        tally.put(Kind::Endpoints, &sight("svc-0", "svc-0", 3));
        tally.put(Kind::Endpoints, &sight("kubernetes", "kubernetes", 3));
        assert!(tally.is_right());
        tally.put(Kind::Slices, &sight("b", "svc-0", 0));
        assert!(!tally.is_right(), "one is not ready");
        tally.put(Kind::Slices, &sight("b", "svc-0", 1));
        tally.remove(Kind::Slices, "a");
        assert!(!tally.is_right(), "a slice is gone");
    }

    #[test]
    fn a_new_list_replaces_what_was_known() {
        let mut tally = Tally::new(Size { services: 1, pods: 1 });
        tally.put(Kind::Slices, &sight("a", "svc-0", 1));
        tally.put(Kind::Endpoints, &sight("svc-0", "svc-0", 1));
        tally.forget(Kind::Slices);
        assert!(!tally.is_right());
        tally.put(Kind::Slices, &sight("c", "svc-0", 1));
        assert!(tally.is_right());
    }
}
