//! Brings Services, endpoints, our Node and the Service ranges to the loop, wherever they come from.
//!
//! In: a [`Source`], which is the store of this process or a server elsewhere. Out: messages. When a watch had to list again, what
//! is no longer there is said to be gone; until then nothing is taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use api::kind::Kind;
use api::kinds;
use api::view::labels::{HEADLESS, SERVICE_PROXY_NAME};
use client::watch::{Event, KnownKeys, Object, Selection, Source, Watch, WatchStatus};
use plan::Update;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::sync::Message;

/// The watches of a proxy.
#[derive(Debug)]
pub struct Inputs {
    /// Whether each is in step.
    pub watched: Vec<WatchStatus>,
    /// The tasks; dropping them ends the watches.
    tasks: JoinSet<()>,
}

/// How objects of a kind become updates.
struct Reading {
    read: fn(&Object) -> Option<Update>,
    gone: fn(&str) -> Update,
}

impl Inputs {
    /// Begins to watch.
    ///
    /// # Errors
    /// When a selector of ours is not understood, which would be a fault in the program.
    pub fn start(source: &dyn Source, node: &str, out: &Sender<Message>) -> Result<Self, api::status::Status> {
        let all = |kind: &'static Kind| Selection::all(kind);
        let services =
            all(&kinds::service::KIND).selected(&format!("!{SERVICE_PROXY_NAME}"), "spec.clusterIP!=None")?;
        let slices = all(&kinds::endpointslice::KIND).selected(&format!("!{HEADLESS}"), "")?;
        let watches = [
            (services, Reading { read: service, gone: |key| Update::ServiceGone(key.to_owned()) }),
            (slices, Reading { read: slice, gone: |key| Update::SliceGone(key.to_owned()) }),
            (all(&kinds::node::KIND).named(node)?, Reading { read: self::node, gone: |_| Update::Node(None) }),
            (
                all(&kinds::servicecidr::KIND).optional(),
                Reading { read: range, gone: |key| Update::CidrGone(key.to_owned()) },
            ),
        ];
        let left = Arc::new(AtomicUsize::new(watches.len()));
        let (mut watched, mut tasks) = (Vec::new(), JoinSet::new());
        for (what, reading) in watches {
            let watching = source.watch(what);
            watched.push(watching.status());
            tasks.spawn(follow(watching, reading, left.clone(), out.clone()));
        }
        Ok(Self { watched, tasks })
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

/// Follows one watch. Whoever completes the last first list says that all is read.
async fn follow(mut watching: Watch, reading: Reading, left: Arc<AtomicUsize>, out: Sender<Message>) {
    let (mut known, mut first) = (KnownKeys::default(), true);
    loop {
        let event = watching.next().await;
        let vanished = known.apply(&event);
        let update = match &event {
            Event::InitApply(object) | Event::Apply(object) => (reading.read)(object),
            Event::Delete(object) => Some((reading.gone)(&object.key())),
            Event::Init | Event::InitDone => None,
        };
        let gone = vanished.iter().map(|key| (reading.gone)(key));
        for update in update.into_iter().chain(gone) {
            if out.send(Message::Update(Box::new(update))).is_err() {
                return;
            }
        }
        if matches!(event, Event::InitDone) && std::mem::take(&mut first) && left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = out.send(Message::Ready);
        }
    }
}

/// Reads an object; one that cannot be read is said and left as it was.
fn parse<T: DeserializeOwned>(object: &Object) -> Option<T> {
    api::view::parse(&object.value)
        .map_err(|error| tracing::warn!(object = object.key(), %error, "an object cannot be read; it is left out"))
        .ok()
}

fn service(object: &Object) -> Option<Update> {
    parse(object).map(|service| Update::Service(Box::new(service)))
}

fn slice(object: &Object) -> Option<Update> {
    parse(object).map(Update::Slice)
}

fn node(object: &Object) -> Option<Update> {
    parse(object).map(|node| Update::Node(Some(Box::new(node))))
}

fn range(object: &Object) -> Option<Update> {
    parse(object).map(Update::Cidr)
}
