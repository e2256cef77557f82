//! Watches Services, EndpointSlices, the local Node, ServiceCIDRs, Leases of leaders and redirects, and sends updates to the
//! sync loop.
//!
//! In: a [`Source`] (the in-process store or a remote API server), and the redirects of this node. Out: messages. After
//! a relist, objects that are missing are reported as deleted; until the list is complete nothing is deleted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use api::kind::Kind;
use api::kinds;
use api::view::labels::{HEADLESS, SERVICE_PROXY_NAME};
use client::watch::{Event, KnownKeys, Object, Selection, Source, Watch, WatchStatus};
use plan::{Redirect, Update};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::leases;
use crate::sync::Message;

/// The proxy's watches.
#[derive(Debug)]
pub struct Inputs {
    /// Sync state of each watch.
    pub watched: Vec<WatchStatus>,
    /// Watch tasks; dropping them stops the watches.
    tasks: JoinSet<()>,
}

/// Converts objects of a kind to updates.
struct Conversion {
    apply: fn(&Object) -> Option<Update>,
    delete: fn(&str) -> Update,
}

impl Inputs {
    /// Starts the watches.
    ///
    /// # Errors
    /// When one of our selectors is invalid, which is a bug.
    pub fn start(
        source: &Arc<dyn Source>,
        redirects: watch::Receiver<Arc<BTreeSet<Redirect>>>,
        leases: watch::Receiver<BTreeSet<Arc<str>>>,
        node: &str,
        out: &Sender<Message>,
    ) -> Result<Self, api::status::Status> {
        let all = |kind: &'static Kind| Selection::all(kind);
        let services =
            all(&kinds::service::KIND).selected(&format!("!{SERVICE_PROXY_NAME}"), "spec.clusterIP!=None")?;
        let slices = all(&kinds::endpointslice::KIND).selected(&format!("!{HEADLESS}"), "")?;
        let watches = [
            (services, Conversion { apply: service, delete: |key| Update::ServiceGone(key.to_owned()) }),
            (slices, Conversion { apply: slice, delete: |key| Update::SliceGone(key.to_owned()) }),
            (all(&kinds::node::KIND).named(node)?, Conversion { apply: self::node, delete: |_| Update::Node(None) }),
            (
                all(&kinds::servicecidr::KIND).optional(),
                Conversion { apply: range, delete: |key| Update::CidrGone(key.to_owned()) },
            ),
        ];
        let remaining = Arc::new(AtomicUsize::new(watches.len()));
        let (mut watched, mut tasks) = (Vec::new(), JoinSet::new());
        tasks.spawn(forward_redirects(redirects, out.clone()));
        tasks.spawn(leases::follow(Arc::clone(source), leases, out.clone()));
        for (what, conversion) in watches {
            let watch = source.watch(what);
            watched.push(watch.status());
            tasks.spawn(forward(watch, conversion, remaining.clone(), out.clone()));
        }
        Ok(Self { watched, tasks })
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

/// Forwards one watch. The task that completes the last initial list sends [`Message::Ready`].
async fn forward(mut watch: Watch, conversion: Conversion, remaining: Arc<AtomicUsize>, out: Sender<Message>) {
    let (mut known, mut first) = (KnownKeys::default(), true);
    loop {
        let event = watch.next().await;
        let vanished = known.apply(&event);
        let update = match &event {
            Event::InitApply(object) | Event::Apply(object) => (conversion.apply)(object),
            Event::Delete(object) => Some((conversion.delete)(&object.key())),
            Event::Init | Event::InitDone => None,
        };
        let gone = vanished.iter().map(|key| (conversion.delete)(key));
        for update in update.into_iter().chain(gone) {
            if out.send(Message::Update(Box::new(update))).is_err() {
                return;
            }
        }
        if matches!(event, Event::InitDone)
            && std::mem::take(&mut first)
            && remaining.fetch_sub(1, Ordering::AcqRel) == 1
        {
            let _ = out.send(Message::Ready);
        }
    }
}

/// Forwards the redirects until their publisher ends: those of then stay in effect.
async fn forward_redirects(mut redirects: watch::Receiver<Arc<BTreeSet<Redirect>>>, out: Sender<Message>) {
    loop {
        let update = Update::Redirects(Arc::clone(&redirects.borrow_and_update()));
        if out.send(Message::Update(Box::new(update))).is_err() || redirects.changed().await.is_err() {
            return;
        }
    }
}

/// Parses an object. An invalid one is logged, and the last valid version stays in effect.
fn parse<T: DeserializeOwned>(object: &Object) -> Option<T> {
    api::view::parse(&object.value)
        .map_err(|error| tracing::warn!(object = object.key(), %error, "cannot parse object; ignoring this version"))
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
