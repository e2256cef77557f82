//! A source that wraps another and says of Services and slices what [`super`] says.
//!
//! In: the source, and a value that says where the gateway listens. Out: events in the order that a [`Source`] promises: what changes
//! about listeners while a list is under way is said when the list is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kinds;
use client::watch::{Event, Health, Object, Selection, Source, Watch, WatchSender};
use tokio::sync::watch;

use super::{Listening, Services, changes, slices};

/// See the module.
pub struct Split<'a> {
    inner: &'a dyn Source,
    node: Arc<str>,
    listening: watch::Receiver<Arc<Listening>>,
}

impl<'a> Split<'a> {
    /// A source over this one, for the proxy of a node.
    #[must_use]
    pub fn new(inner: &'a dyn Source, node: &str, listening: watch::Receiver<Arc<Listening>>) -> Self {
        Self { inner, node: node.into(), listening }
    }
}

impl Source for Split<'_> {
    fn watch(&self, what: Selection) -> Watch {
        let is = |kind: &'static api::kind::Kind| std::ptr::eq(what.kind, kind);
        if is(&kinds::service::KIND) {
            let inner = self.inner.watch(what.clone());
            return Watch::run(&what, |out| follow_services(inner, out));
        }
        if is(&kinds::endpointslice::KIND) {
            let inner = self.inner.watch(what.clone());
            let (node, listening) = (self.node.clone(), self.listening.clone());
            return Watch::run(&what, |out| follow_slices(inner, node, listening, out));
        }
        self.inner.watch(what)
    }
}

async fn follow_services(mut inner: Watch, out: WatchSender) {
    let (mut services, mut watched, mut is_lost) = (Services::default(), inner.status(), false);
    loop {
        let events = tokio::select! {
            event = inner.next() => services.follow(event),
            Some(health) = watched.changed() => {
                relay(&health, &mut is_lost, &out);
                continue;
            }
        };
        for event in events {
            if !out.send(event).await {
                return;
            }
        }
    }
}

async fn follow_slices(
    mut inner: Watch,
    node: Arc<str>,
    mut listening: watch::Receiver<Arc<Listening>>,
    out: WatchSender,
) {
    let (mut watched, mut is_lost) = (inner.status(), false);
    let mut told: BTreeMap<String, Object> = BTreeMap::new();
    let mut is_listing = true;
    loop {
        let events = tokio::select! {
            event = inner.next() => match event {
                Event::Init => {
                    is_listing = true;
                    vec![event]
                }
                Event::InitDone => {
                    is_listing = false;
                    told = slices(&listening.borrow_and_update(), &node);
                    told.values().cloned().map(Event::InitApply).chain([Event::InitDone]).collect()
                }
                other => vec![other],
            },
            Ok(()) = listening.changed(), if !is_listing => {
                let now = slices(&listening.borrow_and_update(), &node);
                let events = changes(&told, &now);
                told = now;
                events
            }
            Some(health) = watched.changed() => {
                relay(&health, &mut is_lost, &out);
                continue;
            }
        };
        for event in events {
            if !out.send(event).await {
                return;
            }
        }
    }
}

/// Says how the watch beneath goes. That a first list is complete says the list itself.
fn relay(health: &Health, is_lost: &mut bool, out: &WatchSender) {
    match &health.out_of_sync {
        Some(lost) => {
            if let Some(reason) = &lost.reason {
                *is_lost = true;
                out.failed(lost.since, reason);
            }
        }
        None if std::mem::take(is_lost) => out.synced(),
        None => {}
    }
}
