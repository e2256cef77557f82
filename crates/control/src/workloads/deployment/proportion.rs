//! Proportional scaling: one ReplicaSet takes the whole change, or several share it during a rollout.

use std::cmp::Reverse;

use api::value::ValueExt as _;

use super::{DESIRED, MAXIMUM, Work};

impl Work<'_> {
    /// Scales the sets to the size of the Deployment.
    pub(super) fn scale(&mut self) {
        let active: Vec<usize> = (0..self.sets.len()).filter(|index| self.sets[*index].size() > 0).collect();
        let wanted = self.wanted();
        match (active.as_slice(), self.newest) {
            ([only], _) => self.resize_if_needed(*only, wanted),
            ([], Some(newest)) => self.resize_if_needed(newest, wanted),
            ([], None) => {
                // The youngest old set: sets are sorted by age.
                if let Some(last) = self.sets.len().checked_sub(1) {
                    self.resize_if_needed(last, wanted);
                }
            }
            (_, Some(newest)) if self.is_saturated(newest) => {
                for index in self.active_old() {
                    self.resize(index, 0);
                }
            }
            _ if self.workload.object.text("spec.strategy.type") == "RollingUpdate" => self.share(active),
            _ => {}
        }
    }

    fn resize_if_needed(&mut self, index: usize, size: i64) {
        if self.sets[index].size() != size {
            self.resize(index, size);
        }
    }

    /// Whether the newest set has all desired replicas available.
    fn is_saturated(&self, newest: usize) -> bool {
        let (set, wanted) = (&self.sets[newest], self.wanted());
        set.size() == wanted && set.number(DESIRED) == Some(wanted) && set.available() == wanted
    }

    /// Distributes a change proportionally; the largest set gets the remainder.
    fn share(&mut self, mut active: Vec<usize>) {
        let wanted = self.wanted();
        let allowed = if wanted > 0 { wanted + self.surge() } else { 0 };
        let to_add = allowed - self.total();
        // Sets are sorted by age, so the index breaks ties.
        if to_add > 0 {
            active.sort_by_key(|index| (Reverse(self.sets[*index].size()), Reverse(*index)));
        } else {
            active.sort_by_key(|index| (Reverse(self.sets[*index].size()), *index));
        }
        let mut added = 0;
        let mut sizes: Vec<i64> = Vec::new();
        for index in &active {
            let part = self.part(*index, to_add, to_add - added);
            added += part;
            sizes.push(self.sets[*index].size() + part);
        }
        if let Some(first) = sizes.first_mut().filter(|_| to_add != 0) {
            *first = (*first + to_add - added).max(0);
        }
        for (index, size) in active.into_iter().zip(sizes) {
            self.resize(index, size);
        }
    }

    /// The part of a set, limited by what is left.
    fn part(&self, index: usize, to_add: i64, left: i64) -> i64 {
        let set = &self.sets[index];
        if set.size() == 0 || to_add == 0 || left == 0 {
            return 0;
        }
        let fraction = self.fraction(index);
        if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
    }

    fn fraction(&self, index: usize) -> i64 {
        let (set, wanted) = (&self.sets[index], self.wanted());
        if wanted == 0 {
            return -set.size();
        }
        let before = set.number(MAXIMUM).filter(|number| *number > 0);
        let before = before.unwrap_or_else(|| self.workload.object.at("status.replicas").as_i64().unwrap_or_default());
        if before == 0 {
            return 0;
        }
        // Rounds half up.
        let doubled = 2 * set.size() * (wanted + self.surge());
        (doubled + before).div_euclid(2 * before) - set.size()
    }
}
