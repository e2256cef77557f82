//! Rollout strategies: RollingUpdate and Recreate.

use api::value::ValueExt as _;

use super::Work;
use crate::controller::View;

impl Work<'_> {
    /// One step of a rolling update: scale up within the surge, otherwise scale down within availability.
    pub(super) fn roll(&mut self) {
        let Some(newest) = self.ensure_newest() else { return };
        // A new set already has its size.
        let size = self.size_of_newest(newest);
        if self.sets[newest].workload.is_none() {
            return;
        }
        if self.sets[newest].size() != size {
            self.resize(newest, size);
            return;
        }
        if self.scale_down_old(newest) {
            return;
        }
        if self.is_complete(self.workload.object.at("status")) {
            self.clean_up();
        }
    }

    /// The size that the newest set may have now.
    pub(super) fn size_of_newest(&self, newest: usize) -> i64 {
        let (wanted, size) = (self.wanted(), self.sets[newest].size());
        if size >= wanted || self.workload.object.text("spec.strategy.type") == "Recreate" {
            return wanted;
        }
        let room = (wanted + self.surge() - self.total()).max(0);
        size + room.min(wanted - size)
    }

    /// Scales down old sets, unavailable Pods first; true when something changed.
    fn scale_down_old(&mut self, newest: usize) -> bool {
        let old = self.active_old();
        let least = self.wanted() - self.unavailable();
        let not_yet = self.sets[newest].size() - self.sets[newest].available();
        let most = self.total() - least - not_yet;
        if old.is_empty() || most <= 0 {
            return false;
        }
        let (mut sizes, mut gone) = (Vec::new(), 0);
        for index in &old {
            let set = &self.sets[*index];
            let idle = (set.size() - set.available()).clamp(0, most - gone);
            gone += idle;
            sizes.push(set.size() - idle);
        }
        let available: i64 = old.iter().chain([&newest]).map(|index| self.sets[*index].available()).sum();
        let mut spare = (available - least).clamp(0, most - gone);
        for size in &mut sizes {
            let down = (*size).min(spare);
            *size -= down;
            spare -= down;
            gone += down;
        }
        for (index, size) in old.into_iter().zip(sizes) {
            if self.sets[index].size() != size {
                self.resize(index, size);
            }
        }
        gone > 0
    }

    /// Recreate: all old Pods terminate before new ones are created.
    pub(super) fn recreate(&mut self) {
        self.update_newest();
        let old = self.active_old();
        if !old.is_empty() {
            for index in old {
                self.resize(index, 0);
            }
            return;
        }
        if self.old_pods_run(self.view) {
            return;
        }
        let Some(newest) = self.ensure_newest() else { return };
        if self.sets[newest].size() != self.wanted() {
            let wanted = self.wanted();
            self.resize(newest, wanted);
        }
        if self.is_complete(self.workload.object.at("status")) {
            self.clean_up();
        }
    }

    /// Whether a Pod of an old set has not terminated yet.
    fn old_pods_run(&self, view: &View<'_>) -> bool {
        self.old().into_iter().filter_map(|index| self.sets[index].workload.as_ref()).any(|set| {
            let below = view.cache.owners.dependents_of(set.uid()).filter(|one| one.key.table.as_str() == "pods");
            below.filter_map(|one| view.cache.pods.get(&one.key.name)).any(|pod| !pod.finished)
        })
    }
}
