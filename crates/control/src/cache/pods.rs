//! Pods by name, by label and by node, and unscheduled Pods.
//!
//! The index has one list of Pods per label; a selector scans the shortest list of its labels. Pods have numbers, so that a list needs a few bytes
//! per Pod.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use diagnose::Selector;
use serde_json::Value;
use store::Entry;

use super::Versions;
use super::labels::ByLabel;
use crate::objects::placement::Requests;
use crate::objects::pod::Pod;
use crate::objects::service::selects;

/// All Pods.
#[derive(Debug, Default)]
pub struct Pods {
    numbers: HashMap<Box<str>, u32>,
    pods: Vec<Option<Arc<Pod>>>,
    free: Vec<u32>,
    by_label: ByLabel<u32>,
    by_node: HashMap<Box<str>, OnNode>,
    /// Pods that wait for the scheduler.
    unscheduled: BTreeSet<u32>,
    /// The number of Pods per namespace.
    counts: HashMap<Box<str>, usize>,
}

/// The Pods of a node, and the sum of their requests.
#[derive(Debug, Default)]
struct OnNode {
    pods: BTreeSet<u32>,
    load: Load,
}

/// The load of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// The number of Pods that have not terminated.
    pub pods: u64,
    /// The sum of their requests.
    pub requests: Requests,
}

impl Pods {
    pub(super) fn apply(&mut self, entry: &Arc<Entry>, deleted: bool) -> Versions<Pod> {
        let key = &entry.key.name;
        let old = self.numbers.get(key).copied().and_then(|number| self.remove(key, number));
        if deleted {
            return Versions { old, new: None };
        }
        let new = Arc::new(Pod::read(entry));
        self.insert(key, &new);
        Versions { old, new: Some(new) }
    }

    fn insert(&mut self, key: &str, pod: &Arc<Pod>) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.pods.push(None);
            u32::try_from(self.pods.len() - 1).expect("fewer than 2^32 Pods")
        });
        for (label, value) in &pod.entry.facts.labels {
            self.by_label.insert(pod.namespace(), label, value, number);
        }
        if !pod.node.is_empty() {
            let here = self.by_node.entry(pod.node.clone()).or_default();
            here.pods.insert(number);
            if !pod.finished {
                here.load = here.load.with(pod);
            }
        }
        if pod.placement.is_some() {
            self.unscheduled.insert(number);
        }
        *self.counts.entry(pod.namespace().into()).or_default() += 1;
        self.pods[number as usize] = Some(Arc::clone(pod));
        self.numbers.insert(key.into(), number);
    }

    fn remove(&mut self, key: &str, number: u32) -> Option<Arc<Pod>> {
        let pod = self.pods[number as usize].take()?;
        for (label, value) in &pod.entry.facts.labels {
            self.by_label.remove(pod.namespace(), label, value, &number);
        }
        if let Some(here) = self.by_node.get_mut(&pod.node) {
            here.pods.remove(&number);
            if !pod.finished {
                here.load.pods = here.load.pods.saturating_sub(1);
                here.load.requests = here.load.requests.minus(pod.requests);
            }
            if here.pods.is_empty() {
                self.by_node.remove(&pod.node);
            }
        }
        self.unscheduled.remove(&number);
        if let Some(count) = self.counts.get_mut(pod.namespace()) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(pod.namespace());
            }
        }
        self.numbers.remove(key);
        self.free.push(number);
        Some(pod)
    }

    /// The Pod of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<Pod>> {
        self.pods[*self.numbers.get(key)? as usize].as_ref()
    }

    /// The number of Pods in a namespace.
    #[must_use]
    pub fn count(&self, namespace: &str) -> usize {
        self.counts.get(namespace).copied().unwrap_or_default()
    }

    /// The Pods of a namespace that a selector matches, by name. An empty selector matches none.
    #[must_use]
    pub fn matching(&self, namespace: &str, selector: &Selector) -> Vec<&Arc<Pod>> {
        let lists = selector.iter().map(|(key, value)| self.by_label.get(namespace, key, value));
        let Some(shortest) = lists.min_by_key(|list| list.map_or(0, BTreeSet::len)) else { return Vec::new() };
        let pods = self.numbered(shortest);
        // The list of a single label is the result.
        let only = selector.len() == 1;
        let mut found: Vec<&Arc<Pod>> = pods.filter(|pod| only || selects(selector, &pod.entry.facts)).collect();
        found.sort_unstable_by(|a, b| a.entry.key.name.cmp(&b.entry.key.name));
        found
    }

    /// The Pods of a namespace that the selector of a workload matches. `object` is the same selector as JSON: its `matchLabels` use the index, so
    /// that not all Pods are scanned.
    #[must_use]
    pub fn selected(&self, namespace: &str, object: &Value, selector: &api::selector::Selector) -> Vec<&Arc<Pod>> {
        let labels = object.get("matchLabels").unwrap_or(object).as_object().into_iter().flatten();
        let lists = labels.filter_map(|(key, value)| Some(self.by_label.get(namespace, key, value.as_str()?)));
        let matches = |pod: &&Arc<Pod>| selector.matches(&pod.entry.facts, "", "");
        match lists.min_by_key(|list| list.map_or(0, BTreeSet::len)) {
            Some(shortest) => self.numbered(shortest).filter(matches).collect(),
            None => self.iter().filter(|pod| pod.namespace() == namespace).filter(matches).collect(),
        }
    }

    /// Any Pod of a namespace that a selector matches.
    #[must_use]
    pub fn any(&self, namespace: &str, selector: &Selector) -> Option<&Arc<Pod>> {
        let lists = selector.iter().map(|(key, value)| self.by_label.get(namespace, key, value));
        let shortest = lists.min_by_key(|list| list.map_or(0, BTreeSet::len)).flatten();
        self.numbered(shortest).find(|pod| selects(selector, &pod.entry.facts))
    }

    /// The namespaces that have Pods, in no order.
    pub fn namespaces(&self) -> impl ExactSizeIterator<Item = &str> {
        self.counts.keys().map(|namespace| &**namespace)
    }

    /// The Pods on a node.
    pub fn on_node(&self, node: &str) -> impl Iterator<Item = &Arc<Pod>> {
        self.numbered(self.by_node.get(node).map(|here| &here.pods))
    }

    /// The load of a node.
    #[must_use]
    pub fn load(&self, node: &str) -> Load {
        self.by_node.get(node).map(|here| here.load).unwrap_or_default()
    }

    /// The names of nodes that Pods are bound to, whether they exist or not.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.by_node.keys().map(|name| &**name)
    }

    /// The Pods that wait for the scheduler.
    pub fn unscheduled(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.numbered(Some(&self.unscheduled))
    }

    /// All Pods, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().flatten()
    }

    /// The values a label has in a namespace, each with the number of its Pods.
    pub fn values(&self, namespace: &str, key: &str) -> impl Iterator<Item = (&str, usize)> {
        self.by_label.values(namespace, key)
    }

    /// The keys of the labels that Pods of a namespace have.
    pub fn keys(&self, namespace: &str) -> impl Iterator<Item = &str> {
        self.by_label.keys(namespace)
    }

    fn numbered<'a>(&'a self, list: Option<&'a BTreeSet<u32>>) -> impl Iterator<Item = &'a Arc<Pod>> {
        list.into_iter().flatten().filter_map(|number| self.pods[*number as usize].as_ref())
    }
}

impl Load {
    /// Adds a Pod.
    #[must_use]
    pub fn with(self, pod: &Pod) -> Self {
        Self { pods: self.pods + 1, requests: self.requests.plus(pod.requests) }
    }
}
