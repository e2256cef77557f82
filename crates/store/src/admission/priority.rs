//! The admission plugin Priority: sets the priority of a new Pod, and allows one default PriorityClass.

use std::sync::Arc;

use api::admission::Plugin;
use api::kinds::{pod, priorityclass};
use api::object;
use api::priority;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;

use super::{Admission, Request};
use crate::{Compare, Entry, Key, Table};

impl Admission<'_> {
    /// Sets the priority of a new Pod by its class. The class must be the same when the Pod is stored.
    pub(super) fn fill_priority(&self, request: &Request<'_>, object: &mut Value) -> Result<Option<Compare>, Status> {
        if !request.is(&pod::KIND) || !self.has_priority(request) {
            return Ok(None);
        }
        let class = match object.text("spec.priorityClassName") {
            "" => self.default_class(),
            name => {
                let refused = || request.refuse(&format!("no PriorityClass with name {name} was found"));
                Some(self.store.get(&Key::new(classes(), name)).ok_or_else(refused)?)
            }
        };
        let read = class.as_ref().map(|entry| object::decode_light(&entry.value));
        priority::admit(object, read.as_ref()).map_err(|why| request.refuse(&why))?;
        Ok(class.map(|entry| Compare { key: entry.key.clone(), modified: entry.modified }))
    }

    /// Refuses a second default class.
    pub(super) fn check_default_class(
        &self,
        request: &Request<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if !request.is(&priorityclass::KIND) || !self.has_priority(request) || !new.flag("globalDefault") {
            return Ok(());
        }
        let all: Vec<Value> = self.all_classes().iter().map(|entry| object::decode_light(&entry.value)).collect();
        priority::check_default(new, old.is_none(), &all).map_err(|why| request.refuse(&why))
    }

    fn has_priority(&self, request: &Request<'_>) -> bool {
        request.subresource.is_empty() && self.runs(Plugin::Priority)
    }

    fn default_class(&self) -> Option<Arc<Entry>> {
        let entries = self.all_classes();
        let read: Vec<Value> = entries.iter().map(|entry| object::decode_light(&entry.value)).collect();
        let name = priority::default_class(&read)?.text("metadata.name");
        entries.into_iter().find(|entry| *entry.key.name == *name)
    }

    fn all_classes(&self) -> Vec<Arc<Entry>> {
        self.store.range(classes(), "", None).map(|range| range.entries).unwrap_or_default()
    }
}

fn classes() -> Table {
    Table::named(priorityclass::KIND.table)
}
