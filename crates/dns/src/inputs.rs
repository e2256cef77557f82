//! Brings Services, endpoints, namespaces and Pods into the book, wherever they come from.
//!
//! In: a [`Source`], which is the store of this process or a server elsewhere. Out: a [`Book`] that follows it. Nothing
//! is answered before every list is complete. When a watch had to list again, what is no longer there is taken out at
//! its end, and what is the same changes nothing; until then everything stays as it was.

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

use crate::book::{Book, Update};
use crate::metrics::Metrics;
use crate::zone::Pods;

/// The watches of a server. Dropping them ends them.
#[derive(Debug)]
pub struct Inputs {
    /// Whether each is in step.
    pub watched: Vec<WatchStatus>,
    tasks: JoinSet<()>,
}

/// How objects of a kind become updates.
struct Reading {
    read: fn(&Object) -> Option<Update>,
    gone: fn(Box<str>) -> Update,
}

/// Where updates go.
#[derive(Clone)]
struct Sink {
    book: Arc<Book>,
    metrics: Arc<Metrics>,
    /// How many first lists are not complete.
    left: Arc<AtomicUsize>,
}

impl Inputs {
    /// Begins to watch what the configuration of the book needs.
    ///
    /// # Errors
    /// When a selector of the configuration is not understood.
    pub fn start(source: &dyn Source, book: &Arc<Book>, metrics: &Arc<Metrics>) -> Result<Self, Status> {
        let config = &book.config;
        let mut watches = vec![
            (
                Selection::all(&kinds::namespace::KIND).selected(&config.namespace_labels, "")?,
                Reading { read: namespace, gone: Update::NamespaceGone },
            ),
            (
                Selection::all(&kinds::service::KIND).selected(&config.labels, "")?,
                Reading { read: service, gone: Update::ServiceGone },
            ),
        ];
        if config.endpoints {
            let what = Selection::all(&kinds::endpointslice::KIND).selected(&config.labels, "")?;
            watches.push((what, Reading { read: slice, gone: Update::SliceGone }));
        }
        if config.pods == Pods::Verified || config.clients {
            let what = Selection::all(&kinds::pod::KIND).selected(&config.labels, "")?;
            watches.push((what, Reading { read: pod, gone: Update::PodGone }));
        }
        let left = Arc::new(AtomicUsize::new(watches.len()));
        let sink = Sink { book: book.clone(), metrics: metrics.clone(), left };
        let (mut watched, mut tasks) = (Vec::new(), JoinSet::new());
        for (what, reading) in watches {
            let watching = source.watch(what);
            watched.push(watching.status());
            tasks.spawn(follow(watching, reading, sink.clone()));
        }
        metrics.watch(&watched);
        Ok(Self { watched, tasks })
    }

    /// What is lost, and why: nothing while every watch knows the present.
    #[must_use]
    pub fn lost(&self) -> Vec<String> {
        let lost = self.watched.iter().filter_map(|watched| {
            let lost = watched.health().out_of_sync?;
            Some(format!("{}: {}", watched.name(), lost.reason.as_deref().unwrap_or("the first list is on its way")))
        });
        lost.collect()
    }

    /// How many watches run.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether none runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

/// Follows one watch. Whoever completes the last first list says that the book is complete.
async fn follow(mut watching: Watch, reading: Reading, sink: Sink) {
    let (mut known, mut first) = (KnownKeys::default(), true);
    loop {
        let event = watching.next().await;
        let vanished = known.apply(&event);
        let complete = matches!(event, Event::InitDone);
        let update = match event {
            Event::InitApply(object) | Event::Apply(object) => (reading.read)(&object),
            Event::Delete(object) => Some((reading.gone)(object.key().into())),
            Event::Init | Event::InitDone => None,
        };
        for update in update.into_iter().chain(vanished.into_iter().map(reading.gone)) {
            sink.apply(update, !first);
        }
        if complete && std::mem::take(&mut first) && sink.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            sink.book.ready();
            tracing::info!(services = sink.book.len(), "every name is known");
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
        // The serial number is a clock that every reader understands until 2106.
        let seconds = u32::try_from(now.as_second()).unwrap_or(u32::MAX);
        if !self.book.apply(update, seconds) {
            return;
        }
        self.metrics.changed();
        if let Some((since, headless)) = since {
            self.metrics.programmed(headless, Timestamp::now().duration_since(since).as_secs_f64());
        }
    }
}

/// Reads an object; one that cannot be read is said and left as it was.
fn parse<T: DeserializeOwned>(object: &Object) -> Option<T> {
    view::parse(&object.value)
        .map_err(|error| tracing::warn!(object = object.key(), %error, "an object cannot be read; it is left out"))
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

/// A Pod that is asked to go keeps its addresses until it is gone; what changes about it meanwhile does not matter.
fn pod(object: &Object) -> Option<Update> {
    let pod = parse::<view::Pod>(object).filter(|pod| !pod.metadata.is_deleting());
    pod.map(|pod| Update::Pod(Box::new(pod)))
}

#[cfg(test)]
mod tests;
