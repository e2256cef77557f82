//! Source that applies [`super`] to Services and EndpointSlices of another source.
//!
//! In: the source and the gateway's listen addresses. Out: events in the order a [`Source`] guarantees: listener
//! changes during a list are emitted when the list is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kinds;
use client::watch::{Event, Health, Object, Selection, Source, Watch, WatchSender};
use tokio::sync::watch;

use super::{Listening, Services, changes, slices};

/// Source with split Services.
pub struct Split<'a> {
    inner: &'a dyn Source,
    node: Arc<str>,
    listening: watch::Receiver<Arc<Listening>>,
}

impl<'a> Split<'a> {
    /// Wraps `inner` for the proxy of a node.
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
            return Watch::run(&what, |out| watch_services(inner, out));
        }
        if is(&kinds::endpointslice::KIND) {
            let inner = self.inner.watch(what.clone());
            let (node, listening) = (self.node.clone(), self.listening.clone());
            return Watch::run(&what, |out| watch_slices(inner, node, listening, out));
        }
        self.inner.watch(what)
    }
}

async fn watch_services(mut inner: Watch, out: WatchSender) {
    let (mut services, mut watched, mut was_out_of_sync) = (Services::default(), inner.status(), false);
    loop {
        let events = tokio::select! {
            event = inner.next() => services.follow(event),
            Some(health) = watched.changed() => {
                forward_health(&health, &mut was_out_of_sync, &out);
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

async fn watch_slices(
    mut inner: Watch,
    node: Arc<str>,
    mut listening: watch::Receiver<Arc<Listening>>,
    out: WatchSender,
) {
    let (mut watched, mut was_out_of_sync) = (inner.status(), false);
    let mut emitted: BTreeMap<String, Object> = BTreeMap::new();
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
                    emitted = slices(&listening.borrow_and_update(), &node);
                    emitted.values().cloned().map(Event::InitApply).chain([Event::InitDone]).collect()
                }
                other => vec![other],
            },
            Ok(()) = listening.changed(), if !is_listing => {
                let now = slices(&listening.borrow_and_update(), &node);
                let events = changes(&emitted, &now);
                emitted = now;
                events
            }
            Some(health) = watched.changed() => {
                forward_health(&health, &mut was_out_of_sync, &out);
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

/// Forwards the health of the inner watch. The completion of the initial list is signalled by the list itself.
fn forward_health(health: &Health, was_out_of_sync: &mut bool, out: &WatchSender) {
    match &health.out_of_sync {
        Some(lost) => {
            if let Some(reason) = &lost.reason {
                *was_out_of_sync = true;
                out.failed(lost.since, reason);
            }
        }
        None if std::mem::take(was_out_of_sync) => out.synced(),
        None => {}
    }
}
