//! get, list and watch: from memory, as of one revision.

use std::sync::Arc;
use std::time::Duration;

use api::list::{self, Continue, ListOptions, Snapshot};
use api::status::Status;
use futures_util::StreamExt as _;
use futures_util::stream;
use store::{Entry, Table};
use tokio::time::Instant;

use crate::handler::{Ask, Shared};
use crate::registry::key;
use crate::reply::Reply;
use crate::route::Target;
use crate::view::ListMeta;
use crate::watch::{self, Feed, Plan, selects};

/// How long a read waits for a revision that has not happened yet.
const PATIENCE: Duration = Duration::from_secs(3);
/// A watch without a limit of its own ends after this, plus as much again at random, so that not all end at once.
const WATCH_SECONDS: u64 = 1800;

/// One object.
pub(crate) async fn get(shared: &Shared, ask: &Ask<'_>, target: &Target<'_>) -> Result<Reply, Status> {
    let name = target.name.unwrap_or_default();
    if let Some(revision) = list::get_version(&ask.query)? {
        wait_for(shared, revision).await?;
    }
    let entry = shared.registry.store.get(&key(target.kind, target.namespace, name));
    let entry = entry.ok_or_else(|| Status::not_found(target.kind.resource(), name))?;
    Ok(Reply::document(200, ask.view.entry(target.kind, &entry)?))
}

/// Waits until a revision has happened.
async fn wait_for(shared: &Shared, revision: u64) -> Result<(), Status> {
    let store = &shared.registry.store;
    let deadline = Instant::now() + PATIENCE;
    while store.revision() < revision {
        if Instant::now() >= deadline {
            return Err(Status::future_revision(revision, store.revision()));
        }
        // Revisions are the store's own clock: there is no event to wait for before one is given out.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The names that a collection's objects begin with.
fn prefix(target: &Target<'_>) -> String {
    if target.namespace.is_empty() { String::new() } else { format!("{}/", target.namespace) }
}

/// A list.
pub(crate) async fn list(shared: &Shared, ask: &Ask<'_>, target: &Target<'_>) -> Result<Reply, Status> {
    let found = find(shared, ask, target).await?;
    let (view, kind) = (ask.view, target.kind);
    let document = shared.offload.run(ask.user, found.size(), move || {
        let (entries, meta) = found.select();
        view.list(kind, &entries, &meta)
    });
    Ok(Reply::document(200, document.await?))
}

/// The objects that a deletecollection is about.
pub(super) async fn matching(
    shared: &Shared,
    ask: &Ask<'_>,
    target: &Target<'_>,
) -> Result<(Vec<Arc<Entry>>, ListMeta), Status> {
    Ok(find(shared, ask, target).await?.select())
}

/// A collection as of one revision, and what is wanted of it.
struct Collection {
    entries: Vec<Arc<Entry>>,
    revision: u64,
    options: ListOptions,
    prefix: String,
}

/// The collection that a list or a deletecollection is about.
async fn find(shared: &Shared, ask: &Ask<'_>, target: &Target<'_>) -> Result<Collection, Status> {
    let options = list::parse(target.kind, &ask.query, false)?;
    let at = match options.snapshot() {
        Snapshot::Latest | Snapshot::Any => None,
        Snapshot::NotOlderThan(revision) => {
            wait_for(shared, revision).await?;
            None
        }
        Snapshot::Exact(revision) => {
            wait_for(shared, revision).await?;
            Some(revision)
        }
    };
    let (entries, revision) = read(shared, target, &options, at)?;
    Ok(Collection { entries, revision, options, prefix: prefix(target) })
}

impl Collection {
    /// How many bytes are read to answer: those of a page, or of everything when it must be searched for what is selected.
    fn size(&self) -> usize {
        let is_page = self.options.limit > 0 && self.options.selector.is_everything();
        let read = if is_page { self.options.limit } else { usize::MAX };
        self.entries.iter().take(read).map(|entry| entry.value.len()).sum()
    }

    /// The objects that are selected, of one page.
    fn select(self) -> (Vec<Arc<Entry>>, ListMeta) {
        let Self { mut entries, revision, options, prefix } = self;
        if let Some(token) = &options.start {
            let start = format!("{prefix}{}", token.start);
            entries.retain(|entry| *entry.key.name >= *start);
        }
        if !options.selector.is_everything() {
            entries.retain(|entry| selects(&options.selector, entry));
        }
        let mut meta = ListMeta { revision, ..ListMeta::default() };
        if options.limit > 0 && entries.len() > options.limit {
            let remaining = entries.len() - options.limit;
            entries.truncate(options.limit);
            if options.selector.is_everything() {
                meta.remaining = Some(remaining);
            }
            let last = entries.last().map_or("", |entry| &entry.key.name[prefix.len()..]);
            let version = i64::try_from(revision).unwrap_or(i64::MAX);
            meta.continue_token = Continue { version, start: format!("{last}\0") }.encode();
        }
        (entries, meta)
    }
}

/// Everything in the place a list is about, as of one revision.
fn read(
    shared: &Shared,
    target: &Target<'_>,
    options: &ListOptions,
    at: Option<u64>,
) -> Result<(Vec<Arc<Entry>>, u64), Status> {
    let store = &shared.registry.store;
    if let Some(name) = options.selector.name_requirement()
        && at.is_none()
        && (!target.kind.namespaced || !target.namespace.is_empty())
    {
        // The revision first: what is read after it is at least as new.
        let revision = store.revision();
        return Ok((store.get(&key(target.kind, target.namespace, name)).into_iter().collect(), revision));
    }
    let found = store.range(Table::named(target.kind.table), &prefix(target), at).map_err(|_| gone(options))?;
    Ok((found.entries, at.unwrap_or(found.revision)))
}

/// The revision that was asked for has been forgotten.
fn gone(options: &ListOptions) -> Status {
    let Some(token) = &options.start else {
        return Status::expired("The resourceVersion for the provided list is too old.");
    };
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.continue_token = Some(Continue { version: -1, start: token.start.clone() }.encode());
    status
}

/// A watch.
pub(crate) async fn watch(shared: &Arc<Shared>, ask: &Ask<'_>, target: &Target<'_>) -> Result<Reply, Status> {
    let mut options = list::parse(target.kind, &ask.query, target.watch)?;
    if let (Some(name), true) = (target.name, target.watch) {
        options.selector = options.selector.with_name(name)?;
    }
    let store = &shared.registry.store;
    let table = Table::named(target.kind.table);
    let prefix = prefix(target);
    let content_type = watch::content_type(ask.view.form.media);
    let from_now = matches!(options.version, None | Some(0));
    let wants_initial = options.initial_events.unwrap_or(from_now);
    let (initial, start) = if wants_initial {
        wait_for(shared, options.version.unwrap_or_default()).await?;
        let found = store.range(table, &prefix, None).map_err(|_| gone(&options))?;
        let mut entries = found.entries;
        entries.retain(|entry| selects(&options.selector, entry));
        (entries, found.revision)
    } else {
        (Vec::new(), options.version.filter(|revision| *revision > 0).unwrap_or_else(|| store.revision()))
    };
    let watch = match store.watch(table, &prefix, start) {
        Ok(watch) => watch,
        Err(compacted) => {
            let bytes = watch::expired(&ask.view, compacted.asked, compacted.oldest);
            return Ok(Reply::stream(content_type, stream::once(async { bytes }).boxed()));
        }
    };
    let seconds =
        options.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    let plan = Plan {
        kind: target.kind,
        selector: options.selector,
        view: ask.view,
        initial,
        initial_end: (wants_initial && options.bookmarks).then_some(start),
        bookmarks: options.bookmarks,
        start,
        timeout: Duration::from_secs(seconds.unwrap_or_else(|| WATCH_SECONDS + fastrand::u64(..WATCH_SECONDS))),
    };
    Ok(Reply::stream(content_type, feed(shared, Feed::new(plan, watch), target)))
}

/// The stream of a watch, until it ends, its client leaves, or the server goes away.
fn feed(shared: &Arc<Shared>, feed: Feed, target: &Target<'_>) -> stream::BoxStream<'static, bytes::Bytes> {
    let counted = shared.metrics.watching(target.kind);
    let draining = shared.draining.clone();
    stream::unfold((feed, draining, counted), |(mut feed, mut draining, counted)| async move {
        let next = tokio::select! {
            next = feed.next() => next?,
            _ = draining.wait_for(|draining| *draining) => return None,
        };
        Some((next, (feed, draining, counted)))
    })
    .boxed()
}
