//! Watches Services, EndpointSlices, Namespaces and Pods, and applies them to the snapshot.
//!
//! In: a [`Source`], the store of this process or a remote API server. Out: a [`ZoneSnapshot`] that follows it. The
//! snapshot becomes ready when every initial list is complete. After a relist, objects that are no longer listed are
//! deleted when the list is complete, and unchanged objects change nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::kinds;
use api::status::Status;
use api::view;
use api::view::annotations::LAST_CHANGE_TRIGGER_TIME;
use client::watch::{Event, KnownKeys, Object, Selection, Source, Watch, WatchStatus};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::metrics::Metrics;
use crate::snapshot::{Update, ZoneSnapshot};
use crate::zone::Pods;

/// Watches of a DNS server. Dropping them stops them.
#[derive(Debug)]
pub struct Informers {
    /// Status of each watch.
    pub watched: Vec<WatchStatus>,
    tasks: JoinSet<()>,
}

/// Conversion of watched objects of one kind into updates.
struct EventMapping {
    updated: fn(&Object) -> Option<Update>,
    deleted: fn(Box<str>) -> Update,
}

/// Receiver of updates.
#[derive(Clone)]
struct Sink {
    snapshot: Arc<ZoneSnapshot>,
    metrics: Arc<Metrics>,
    /// Number of initial lists that are incomplete.
    incomplete: Arc<AtomicUsize>,
}

impl Informers {
    /// Starts the watches that the zone configuration needs.
    ///
    /// # Errors
    /// When a label selector of the configuration is invalid.
    pub fn start(source: &dyn Source, snapshot: &Arc<ZoneSnapshot>, metrics: &Arc<Metrics>) -> Result<Self, Status> {
        let config = &snapshot.config;
        let mut watches = vec![
            (
                Selection::all(&kinds::namespace::KIND).selected(&config.namespace_labels, "")?,
                EventMapping { updated: namespace, deleted: Update::NamespaceDeleted },
            ),
            (
                Selection::all(&kinds::service::KIND).selected(&config.labels, "")?,
                EventMapping { updated: service, deleted: Update::ServiceDeleted },
            ),
        ];
        if config.endpoints {
            let what = Selection::all(&kinds::endpointslice::KIND).selected(&config.labels, "")?;
            watches.push((what, EventMapping { updated: slice, deleted: Update::SliceDeleted }));
        }
        if config.pods == Pods::Verified || config.clients {
            let what = Selection::all(&kinds::pod::KIND).selected(&config.labels, "")?;
            watches.push((what, EventMapping { updated: pod, deleted: Update::PodDeleted }));
        }
        let incomplete = Arc::new(AtomicUsize::new(watches.len()));
        let sink = Sink { snapshot: snapshot.clone(), metrics: metrics.clone(), incomplete };
        let (mut watched, mut tasks) = (Vec::new(), JoinSet::new());
        for (what, mapping) in watches {
            let watch = source.watch(what);
            watched.push(watch.status());
            tasks.spawn(run_watch(watch, mapping, sink.clone()));
        }
        metrics.watch(&watched);
        Ok(Self { watched, tasks })
    }

    /// Watches that are out of sync, each with the reason; empty if all are in sync.
    #[must_use]
    pub fn out_of_sync(&self) -> Vec<String> {
        let out_of_sync_reason = self.watched.iter().filter_map(|watched| {
            let out_of_sync_reason = watched.health().out_of_sync?;
            Some(format!(
                "{}: {}",
                watched.name(),
                out_of_sync_reason.reason.as_deref().unwrap_or("initial list not complete")
            ))
        });
        out_of_sync_reason.collect()
    }

    /// Number of running watches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no watch is running.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

/// Runs one watch. The last watch to complete its initial list marks the snapshot as ready.
async fn run_watch(mut watch: Watch, mapping: EventMapping, sink: Sink) {
    let (mut known, mut first) = (KnownKeys::default(), true);
    loop {
        let event = watch.next().await;
        let vanished = known.apply(&event);
        let complete = matches!(event, Event::InitDone);
        let update = match event {
            Event::InitApply(object) | Event::Apply(object) => (mapping.updated)(&object),
            Event::Delete(object) => Some((mapping.deleted)(object.key().into())),
            Event::Init | Event::InitDone => None,
        };
        for update in update.into_iter().chain(vanished.into_iter().map(mapping.deleted)) {
            sink.apply(update, !first);
        }
        if complete && std::mem::take(&mut first) && sink.incomplete.fetch_sub(1, Ordering::AcqRel) == 1 {
            sink.snapshot.set_ready();
            tracing::info!(services = sink.snapshot.len(), "DNS zone synced");
        }
    }
}

impl Sink {
    fn apply(&self, update: Update, timed: bool) {
        let now = Timestamp::now();
        let since = match &update {
            Update::Slice(slice) if timed => {
                let changed = slice.metadata.annotations.get(LAST_CHANGE_TRIGGER_TIME);
                changed.and_then(|text| Some((text.parse::<Timestamp>().ok()?, slice.is_headless())))
            }
            _ => None,
        };
        // The serial is Unix time, which fits into 32 bits until 2106.
        let seconds = u32::try_from(now.as_second()).unwrap_or(u32::MAX);
        if !self.snapshot.apply(update, seconds) {
            return;
        }
        self.metrics.changed();
        if let Some((since, headless)) = since {
            self.metrics.programmed(headless, Timestamp::now().duration_since(since).as_secs_f64());
        }
    }
}

/// Parses an object; an invalid one is logged and ignored.
fn parse<T: DeserializeOwned>(object: &Object) -> Option<T> {
    view::parse(&object.value)
        .map_err(|error| tracing::warn!(object = object.key(), %error, "ignoring invalid object"))
        .ok()
}

fn service(object: &Object) -> Option<Update> {
    parse(object).map(|service| Update::Service(Box::new(service)))
}

fn slice(object: &Object) -> Option<Update> {
    parse(object).map(|slice| Update::Slice(Box::new(slice)))
}

fn namespace(object: &Object) -> Option<Update> {
    Some(Update::Namespace(object.name.clone()))
}

/// A terminating Pod keeps its addresses until it is deleted; its other changes are ignored.
fn pod(object: &Object) -> Option<Update> {
    let pod = parse::<view::Pod>(object).filter(|pod| !pod.metadata.is_deleting());
    pod.map(|pod| Update::Pod(Box::new(pod)))
}

#[cfg(test)]
mod tests;
