//! Conversion of custom resources between the versions of a definition, by its webhook.
//!
//! ```text
//! read:  stored entry ─▶ pruned, defaulted in its version ─▶ webhook ─▶ pruned ─▶ entry in the version of the request
//! write: validated object ─▶ webhook ─▶ pruned ─▶ object in the storage version
//! ```
//! In: entries of the store, or an object to be stored. Out: the same in another version, or the error of kube-apiserver. What a
//! response may contain is decided in `api::crd::conversion`. Entries that have the wanted version, and all entries of other kinds, are
//! returned as they are. Calls are made outside of transactions and locks; their number and the size of each are limited.

mod cache;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::crd::conversion::{ConversionError, Exchange, Webhook};
use api::custom::Definition;
use api::kind::Kind;
use api::object;
use api::status::Status;
use api::value::ValueExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use store::Entry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::webhooks::Caller;
use crate::webhooks::target::Target;
use cache::Cache;

/// The timeout of a call, and of waiting for its turn.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest number of calls to the webhook of one definition at the same time.
const MAX_CALLS: usize = 8;
/// How many bytes of objects are sent at once; one object may be larger.
const BATCH: usize = 2 << 20;
/// Larger reviews are written and parsed on threads of their own.
const OFFLOAD: usize = 256 << 10;

/// See the module.
pub(crate) struct Converter {
    caller: Arc<dyn Caller>,
    cache: Mutex<Cache>,
    /// The turns of calls, by definition.
    turns: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// A conversion to one version of a definition.
struct Conversion {
    kind: &'static Kind,
    definition: Arc<Definition>,
    webhook: Arc<Webhook>,
    /// The wanted version.
    api_version: String,
}

/// A review that is sent.
struct Review {
    uid: String,
    version: &'static str,
    desired: String,
    objects: Vec<Value>,
}

impl Review {
    fn exchange(&self) -> Exchange<'_> {
        Exchange { uid: &self.uid, version: self.version, desired: &self.desired, objects: &self.objects }
    }
}

/// Whether objects of a kind may be converted by a webhook.
pub(crate) fn applies(kind: &Kind) -> bool {
    kind.rules.definition().is_some_and(|definition| definition.webhook.is_some())
}

impl Converter {
    pub(crate) fn new(caller: Arc<dyn Caller>) -> Self {
        Self { caller, cache: Mutex::default(), turns: Mutex::default() }
    }

    /// Entries in the version of a kind, in the same order.
    ///
    /// # Errors
    /// When one of them cannot be converted.
    pub(crate) async fn entries(
        &self,
        kind: &'static Kind,
        mut entries: Vec<Arc<Entry>>,
    ) -> Result<Vec<Arc<Entry>>, Status> {
        let Some(conversion) = Conversion::to(kind) else { return Ok(entries) };
        let conversion = Arc::new(conversion);
        let mut missing = Vec::new();
        for (index, entry) in entries.iter_mut().enumerate().filter(|(_, entry)| conversion.is_needed(entry)) {
            match self.cached(&conversion, entry) {
                Some(found) => *entry = found,
                None => missing.push(index),
            }
        }
        for batch in batches(&missing, |index| entries[index].value.len()) {
            let originals = batch.iter().map(|index| entries[*index].clone()).collect();
            let converted = self.convert(&conversion, originals, true).await?;
            for (index, converted) in batch.iter().zip(converted) {
                entries[*index] = converted;
            }
        }
        Ok(entries)
    }

    /// One entry in the version of a kind.
    ///
    /// # Errors
    /// When it cannot be converted.
    pub(crate) async fn entry(&self, kind: &'static Kind, entry: Arc<Entry>) -> Result<Arc<Entry>, Status> {
        let converted = self.entries(kind, vec![entry.clone()]).await?;
        Ok(converted.into_iter().next().unwrap_or(entry))
    }

    /// An entry that has just been written, in the version of a kind. It is not cached: after a dry run it has the revision of
    /// another one.
    ///
    /// # Errors
    /// When it cannot be converted.
    pub(crate) async fn written(&self, kind: &'static Kind, entry: Entry) -> Result<Entry, Status> {
        let conversion = Conversion::to(kind).filter(|conversion| conversion.is_needed(&entry));
        let Some(conversion) = conversion else { return Ok(entry) };
        let converted = self.convert(&Arc::new(conversion), vec![Arc::new(entry.clone())], false).await?;
        Ok(converted.into_iter().next().map_or(entry, Arc::unwrap_or_clone))
    }

    /// The object to store for an object of a custom kind.
    ///
    /// # Errors
    /// When it cannot be converted.
    pub(crate) async fn to_storage(&self, kind: &'static Kind, object: &Value) -> Result<Value, Status> {
        let conversion = Conversion::to(kind);
        let conversion =
            conversion.filter(|conversion| conversion.definition.storage_version != conversion.api_version);
        let Some(conversion) = conversion else { return Ok(kind.rules.shown_to_stored(object.clone())) };
        let mut sent = object.clone();
        sent.drop_path("metadata.resourceVersion");
        sent.put("apiVersion", conversion.api_version.as_str());
        sent.put("kind", kind.kind);
        let Conversion { definition, webhook, .. } = conversion;
        let _turn = self.turn(&webhook).await?;
        let converted = self.exchange(&webhook, &definition.storage_version, vec![sent], object_size(object)).await?;
        let mut stored = converted.into_iter().next().unwrap_or_default();
        if let Some(schema) = &definition.stored {
            schema.prune(&mut stored);
        }
        Ok(stored)
    }

    /// Converts the entries of one batch.
    async fn convert(
        &self,
        conversion: &Arc<Conversion>,
        originals: Vec<Arc<Entry>>,
        is_cached: bool,
    ) -> Result<Vec<Arc<Entry>>, Status> {
        let _turn = self.turn(&conversion.webhook).await?;
        // Another request may have converted them while this one waited.
        let found: Option<Vec<_>> = originals.iter().map(|entry| self.cached(conversion, entry)).collect();
        if let Some(found) = found.filter(|_| is_cached) {
            return Ok(found);
        }
        let size = originals.iter().map(|entry| entry.value.len()).sum();
        let (own, values) = (conversion.clone(), originals.clone());
        let sent =
            offloaded(size, move || values.iter().map(|entry| own.sent(&entry.value)).collect::<Result<Vec<_>, _>>());
        let converted = self.exchange(&conversion.webhook, &conversion.api_version, sent.await??, size).await?;
        let own = conversion.clone();
        let finished = offloaded(size, move || {
            let pairs = originals.iter().zip(converted);
            pairs.map(|(original, object)| own.finished(original, object)).collect::<Vec<_>>()
        });
        let finished = finished.await?;
        if is_cached {
            let mut cache = self.cache.lock();
            for entry in &finished {
                cache.insert(conversion.cache_key(entry), entry.clone());
            }
        }
        Ok(finished)
    }

    /// Calls the webhook with objects of this size in bytes.
    async fn exchange(
        &self,
        webhook: &Webhook,
        desired: &str,
        objects: Vec<Value>,
        size: usize,
    ) -> Result<Vec<Value>, Status> {
        let Some(version) = webhook.review_version else {
            return Err(refused(webhook, &ConversionError::NoReviewVersion));
        };
        let uid = uuid::Uuid::new_v4().to_string();
        let review = Arc::new(Review { uid, version, desired: desired.to_owned(), objects });
        let own = review.clone();
        let body = offloaded(size, move || own.exchange().request()).await?;
        let answer = self.caller.post(&target(webhook), body.into(), TIMEOUT).await;
        let answer = answer.map_err(|error| refused(webhook, &review.exchange().failed(error.reason())))?;
        let converted = offloaded(answer.len(), move || review.exchange().read(&answer)).await?;
        converted.map_err(|error| refused(webhook, &error))
    }

    /// Waits until the webhook of a definition may be called.
    async fn turn(&self, webhook: &Webhook) -> Result<OwnedSemaphorePermit, Status> {
        let turns = {
            let mut all = self.turns.lock();
            all.retain(|_, turns| turns.strong_count() > 0);
            let known = all.get(&webhook.definition).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turns = Arc::new(Semaphore::new(MAX_CALLS));
                all.insert(webhook.definition.clone(), Arc::downgrade(&turns));
                turns
            })
        };
        match timeout(TIMEOUT, turns.acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            // Semaphores are never closed.
            Ok(Err(_)) | Err(_) => Err(Status::too_many_requests(format!(
                "too many objects of {} are being converted; please try again",
                webhook.definition
            ))),
        }
    }

    fn cached(&self, conversion: &Conversion, entry: &Entry) -> Option<Arc<Entry>> {
        self.cache.lock().get(&conversion.cache_key(entry))
    }
}

impl Conversion {
    /// The conversion to the version of a kind; `None` when no webhook converts it.
    fn to(kind: &'static Kind) -> Option<Self> {
        let definition = kind.rules.definition()?;
        let webhook = definition.webhook.clone()?;
        Some(Self { kind, definition, webhook, api_version: kind.api_version() })
    }

    /// Whether an entry is stored in another version.
    fn is_needed(&self, entry: &Entry) -> bool {
        let version = object::stored_version(&entry.value).unwrap_or(&self.definition.first_version);
        !version.is_empty() && version != self.api_version
    }

    fn cache_key(&self, entry: &Entry) -> cache::Key {
        cache::Key {
            definition: self.definition.revision,
            version: self.kind.version,
            name: entry.key.name.clone(),
            modified: entry.modified,
        }
    }

    /// The object to send for stored bytes: pruned and with the defaults of its version.
    fn sent(&self, stored: &[u8]) -> Result<Value, Status> {
        let mut object = object::decode_bare(stored);
        if object.text("apiVersion").is_empty() {
            object.put("apiVersion", self.definition.first_version.as_str());
        }
        let Some(schema) = self.definition.schema_of(object.text("apiVersion")) else {
            let version = object.text("apiVersion").to_owned();
            return Err(refused(&self.webhook, &ConversionError::UnknownVersion(version)));
        };
        schema.prune(&mut object);
        schema.apply_defaults(&mut object);
        object.put("kind", self.kind.kind);
        Ok(object)
    }

    /// The entry of a converted object.
    fn finished(&self, original: &Entry, mut object: Value) -> Arc<Entry> {
        self.definition.schema().prune(&mut object);
        let facts = Arc::new(self.kind.facts(&object));
        Arc::new(Entry { value: object::encode_converted(object), facts, ..original.clone() })
    }
}

/// The error of a request whose objects cannot be converted.
fn refused(webhook: &Webhook, error: &ConversionError) -> Status {
    tracing::warn!(definition = webhook.definition, %error, "failed to convert custom resources");
    Status::raw(error.to_string())
}

fn target(webhook: &Webhook) -> Target {
    let mut target = Target::read(&webhook.client_config);
    if target.authorities.trim_ascii().is_empty() {
        target.authorities.clear();
    }
    target
}

/// Divides indexes into batches by the sizes of their entries.
fn batches(indexes: &[usize], size: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let mut out: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for &index in indexes {
        let next = size(index);
        match out.last_mut().filter(|_| used.saturating_add(next) <= BATCH) {
            Some(batch) => batch.push(index),
            None => {
                used = 0;
                out.push(vec![index]);
            }
        }
        used += next;
    }
    out
}

/// A lower bound of the size of an object as JSON: enough to detect large ones.
fn object_size(object: &Value) -> usize {
    match object {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(object_size).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + object_size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Runs work on this many bytes where it delays no other request.
async fn offloaded<T: Send + 'static>(size: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    if size < OFFLOAD {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|_| Status::internal("the server is going away"))
}
