//! get, list and watch: from memory, as of one revision.

use std::sync::Arc;
use std::time::Duration;

use api::kind::Kind;
use api::list::{self, Continue, ListOptions, Snapshot};
use api::status::Status;
use futures_util::StreamExt as _;
use futures_util::stream;
use store::{Entry, Table};
use tokio::time::Instant;

use super::api_request::ApiRequest;
use crate::conversion;
use crate::handler::Shared;
use crate::registry::key;
use crate::reply::Reply;
use crate::route::Target;
use crate::view::ListMeta;
use crate::watch::{self, Feed, Plan, may_select, selects};

/// The longest time that a read waits for a revision of the future.
const REVISION_TIMEOUT: Duration = Duration::from_secs(3);
/// The least duration of a watch without `timeoutSeconds`; as much again is added at random, so that not all end at once.
const WATCH_SECONDS: u64 = 1800;

/// One object.
pub(super) async fn get(request: &ApiRequest<'_>) -> Result<Reply, Status> {
    let context = request.context;
    if let Some(revision) = list::get_version(&context.query)? {
        wait_for(request.shared, revision).await?;
    }
    let entry = request.shared.registry.read(&request.call("", false), request.name).await?;
    Ok(Reply::document(200, context.view.entry(request.target.kind, &entry)?))
}

/// Waits until the store has reached a revision.
async fn wait_for(shared: &Shared, revision: u64) -> Result<(), Status> {
    let store = &shared.registry.store;
    let deadline = Instant::now() + REVISION_TIMEOUT;
    while store.revision() < revision {
        if Instant::now() >= deadline {
            return Err(Status::future_revision(revision, store.revision()));
        }
        // The store has no event for a revision that has not been assigned yet.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The prefix of the keys of a collection.
fn prefix(target: &Target<'_>) -> String {
    if target.namespace.is_empty() { String::new() } else { format!("{}/", target.namespace) }
}

/// A list.
pub(super) async fn list(request: &ApiRequest<'_>) -> Result<Reply, Status> {
    let (view, kind) = (request.context.view, request.target.kind);
    if conversion::applies(kind) {
        let (entries, meta) = matching(request).await?;
        let size = entries.iter().map(|entry| entry.value.len()).sum();
        let document = request.shared.offload.run(request.context.user, size, move || view.list(kind, &entries, &meta));
        return Ok(Reply::document(200, document.await?));
    }
    let collection = read(request).await?;
    let document = request.shared.offload.run(request.context.user, collection.size(), move || {
        let (entries, meta) = collection.select();
        view.list(kind, &entries, &meta)
    });
    Ok(Reply::document(200, document.await?))
}

/// The selected objects of a collection, in the version of the request.
pub(super) async fn matching(request: &ApiRequest<'_>) -> Result<(Vec<Arc<Entry>>, ListMeta), Status> {
    let (kind, conversion) = (request.target.kind, &request.shared.registry.conversion);
    let mut collection = read(request).await?;
    if conversion::applies(kind) && !collection.options.selector.is_everything() {
        // Selectors see labels and fields of the requested version.
        collection.skip();
        collection.entries = conversion.entries(kind, collection.entries).await?;
    }
    let selected = request.shared.offload.run(request.context.user, collection.size(), move || Ok(collection.select()));
    let (entries, meta) = selected.await?;
    Ok((conversion.entries(kind, entries).await?, meta))
}

/// A collection as of one revision, before selectors and paging.
struct Collection {
    kind: &'static Kind,
    entries: Vec<Arc<Entry>>,
    revision: u64,
    options: ListOptions,
    prefix: String,
}

/// The collection of a list or a deletecollection.
async fn read(request: &ApiRequest<'_>) -> Result<Collection, Status> {
    let (shared, target) = (request.shared, request.target);
    let options = list::parse(target.kind, &request.context.query, false)?;
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
    let (entries, revision) = range(shared, target, &options, at)?;
    Ok(Collection { kind: target.kind, entries, revision, options, prefix: prefix(target) })
}

impl Collection {
    /// How many bytes are read: those of a page, or all of them when selectors must be evaluated on every object.
    fn size(&self) -> usize {
        let is_page = self.options.limit > 0 && self.options.selector.is_everything();
        let read = if is_page { self.options.limit } else { usize::MAX };
        self.entries.iter().take(read).map(|entry| entry.value.len()).sum()
    }

    /// Removes what was on earlier pages, and what the selector cannot match because of its name.
    fn skip(&mut self) {
        if let Some(token) = &self.options.start {
            let start = format!("{}{}", self.prefix, token.start);
            self.entries.retain(|entry| *entry.key.name >= *start);
        }
        if !self.options.selector.is_everything() {
            self.entries.retain(|entry| may_select(&self.options.selector, entry));
        }
    }

    /// The selected objects of one page.
    fn select(mut self) -> (Vec<Arc<Entry>>, ListMeta) {
        self.skip();
        let Self { kind, mut entries, revision, options, prefix } = self;
        if !options.selector.is_everything() {
            entries.retain(|entry| selects(kind, &options.selector, entry));
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

/// All entries of a collection as of one revision; only one if the selector names it.
fn range(
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

/// The error for a revision that has been compacted.
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
pub(super) async fn watch(request: &ApiRequest<'_>) -> Result<Reply, Status> {
    let (shared, target, view) = (request.shared, request.target, request.context.view);
    let mut options = list::parse(target.kind, &request.context.query, target.watch)?;
    if let (Some(name), true) = (target.name, target.watch) {
        options.selector = options.selector.with_name(name)?;
    }
    let store = &shared.registry.store;
    let table = Table::named(target.kind.table);
    let prefix = prefix(target);
    let content_type = watch::content_type(view.form.media);
    let from_now = matches!(options.version, None | Some(0));
    let wants_initial = options.initial_events.unwrap_or(from_now);
    let (initial, start) = if wants_initial {
        wait_for(shared, options.version.unwrap_or_default()).await?;
        let found = store.range(table, &prefix, None).map_err(|_| gone(&options))?;
        let (kind, selector, mut entries) = (target.kind, options.selector.clone(), found.entries);
        if conversion::applies(kind) {
            entries.retain(|entry| may_select(&selector, entry));
            entries = shared.registry.conversion.entries(kind, entries).await?;
        }
        // Fields of custom resources are read from the objects.
        let must_decode = kind.is_custom() && selector.asks_for_fields();
        let size = if must_decode { entries.iter().map(|entry| entry.value.len()).sum() } else { 0 };
        let select = move || {
            entries.retain(|entry| selects(kind, &selector, entry));
            Ok(entries)
        };
        (shared.offload.run(request.context.user, size, select).await?, found.revision)
    } else {
        (Vec::new(), options.version.filter(|revision| *revision > 0).unwrap_or_else(|| store.revision()))
    };
    let watch = match store.watch(table, &prefix, start) {
        Ok(watch) => watch,
        Err(compacted) => {
            let bytes = watch::expired(&view, compacted.requested, compacted.oldest);
            return Ok(Reply::stream(content_type, stream::once(async { bytes }).boxed()));
        }
    };
    let seconds =
        options.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    let plan = Plan {
        kind: target.kind,
        selector: options.selector,
        view,
        conversion: shared.registry.conversion.clone(),
        initial,
        initial_end: (wants_initial && options.bookmarks).then_some(start),
        bookmarks: options.bookmarks,
        start,
        timeout: Duration::from_secs(seconds.unwrap_or_else(|| WATCH_SECONDS + fastrand::u64(..WATCH_SECONDS))),
    };
    Ok(Reply::stream(content_type, feed(shared, Feed::new(plan, watch), target)))
}

/// The stream of a watch, until its timeout, the end of its client, or the shutdown of the server.
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
