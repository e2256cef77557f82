//! OpenAPI: the table of kinds in, OpenAPI documents out.
//!
//! `/openapi/v3` is an index with one document per group version; its URLs contain the hash of the document, so that clients can cache it
//! indefinitely. `/openapi/v2` is one document for everything, in JSON and in protobuf for old versions of kubectl. Structure comes
//! from the schema tables, descriptions from the `k8s-openapi` crate.
//!
//! Most clients never request them, so documents are built on the first request: all of v3 at once, because the index needs every hash, and v2
//! separately. They are stored compressed, at a tenth of the size; nearly every client accepts gzip.
//!
//! [`OpenApiCache`] follows CustomResourceDefinitions: after a change, documents of other groups are kept.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, OnceLock};

use api::custom::Kinds;
use api::kind::Kind;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::exchange::Dialect;
use self::text::Texts;
use crate::discovery::{self, hash};

mod custom;
mod definitions;
mod exchange;
mod gnostic;
mod operations;
mod own;
mod parameters;
mod render;
mod text;

#[cfg(test)]
mod tests;

/// The content type of the v2 document in protobuf, whichever of its names was requested.
pub(crate) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name that clients still request. It is not a valid media type: clients fail on a response that has it.
const V2_PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The `Cache-Control` of a v3 document that was requested by its hash.
pub(crate) const IMMUTABLE: &str = "public, immutable";

/// The media type of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// `application/json`.
    Json,
    /// [`V2_PROTOBUF`].
    Protobuf,
}

/// One document, stored compressed.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// The document, compressed with gzip.
    pub(crate) gzip: Bytes,
    /// Upper-case SHA-512 of the JSON; in quotes, it is the entity tag.
    pub(crate) hash: String,
}

/// All documents of a set of kinds, built on the first request, which takes some tens of milliseconds.
pub(crate) struct OpenApi {
    kinds: Vec<&'static Kind>,
    /// Documents of an earlier set of kinds.
    earlier: BTreeMap<String, Built>,
    v3: OnceLock<V3>,
    v2: OnceLock<V2>,
}

struct V3 {
    index: Bytes,
    documents: BTreeMap<String, Built>,
}

/// A document, and the kinds and revisions of definitions that it was built from.
#[derive(Clone)]
struct Built {
    from: Vec<(&'static str, u64)>,
    document: Document,
}

/// The documents of the kinds of a server.
#[derive(Default)]
pub(crate) struct OpenApiCache {
    current: Mutex<Option<(u64, Arc<OpenApi>)>>,
}

impl OpenApiCache {
    /// The documents of these kinds.
    pub(crate) fn read(&self, kinds: &Kinds) -> Arc<OpenApi> {
        let mut current = self.current.lock();
        let earlier = match &*current {
            Some((generation, documents)) if *generation >= kinds.generation() => return documents.clone(),
            Some((_, documents)) => documents.built(),
            None => BTreeMap::new(),
        };
        let documents = Arc::new(OpenApi { earlier, ..OpenApi::new(kinds.served()) });
        *current = Some((kinds.generation(), documents.clone()));
        documents
    }
}

struct V2 {
    json: Document,
    protobuf: Document,
}

// === impl OpenApi ===

impl OpenApi {
    /// No document is built yet.
    pub(crate) fn new(kinds: &[&'static Kind]) -> Self {
        Self { kinds: kinds.to_vec(), earlier: BTreeMap::new(), v3: OnceLock::new(), v2: OnceLock::new() }
    }

    /// The documents that exist already.
    fn built(&self) -> BTreeMap<String, Built> {
        self.v3.get().map_or_else(|| self.earlier.clone(), |v3| v3.documents.clone())
    }

    /// `/openapi/v3`: the index.
    pub(crate) fn v3_index(&self) -> Bytes {
        self.all_v3().index.clone()
    }

    /// `/openapi/v3/{path}`, where `path` is `api/v1` or `apis/{group}/{version}`.
    pub(crate) fn v3(&self, path: &str) -> Option<Document> {
        self.all_v3().documents.get(path).map(|built| built.document.clone())
    }

    /// `/openapi/v2` in JSON.
    pub(crate) fn v2_json(&self) -> Document {
        self.both_v2().json.clone()
    }

    /// `/openapi/v2` in protobuf; it has the hash of the JSON.
    pub(crate) fn v2_proto(&self) -> Document {
        self.both_v2().protobuf.clone()
    }

    fn all_v3(&self) -> &V3 {
        self.v3.get_or_init(|| {
            let texts = Texts::read();
            let mut documents = BTreeMap::new();
            for (group, version) in discovery::group_versions(&self.kinds) {
                let kinds = discovery::kinds_of(&self.kinds, group, version);
                let path = discovery::path(group, version);
                let from: Vec<_> = kinds.iter().map(|kind| (kind.plural, revision(kind))).collect();
                let built = match self.earlier.get(&path) {
                    Some(earlier) if earlier.from == from => earlier.clone(),
                    _ => {
                        let text = render::document(Dialect::V3, &texts, &kinds).to_string();
                        Built { from, document: Document::new(text.as_bytes(), hash(text.as_bytes())) }
                    }
                };
                documents.insert(path, built);
            }
            let location = |(path, built): (&String, &Built)| {
                (path.clone(), json!({ "serverRelativeURL": v3_location(path, &built.document.hash) }))
            };
            let paths: BTreeMap<String, Value> = documents.iter().map(location).collect();
            V3 { index: json!({ "paths": paths }).to_string().into(), documents }
        })
    }

    fn both_v2(&self) -> &V2 {
        self.v2.get_or_init(|| {
            let document = render::document(Dialect::V2, &Texts::read(), &self.kinds);
            let text = document.to_string();
            let hash = hash(text.as_bytes());
            let protobuf = Document::new(&gnostic::encode(&document), hash.clone());
            V2 { json: Document::new(text.as_bytes(), hash), protobuf }
        })
    }
}

// === impl Document ===

impl Document {
    fn new(plain: &[u8], hash: String) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let gzip = encoder.write_all(plain).and_then(|()| encoder.finish());
        // Writing to memory does not fail.
        Self { gzip: gzip.unwrap_or_default().into(), hash }
    }

    /// The decompressed document.
    pub(crate) fn plain(&self) -> Bytes {
        let mut plain = Vec::with_capacity(self.gzip.len() * 12);
        // These bytes were compressed here.
        let _ = GzDecoder::new(&*self.gzip).read_to_end(&mut plain);
        plain.into()
    }
}

/// The revision of the definition of a custom kind; zero for others, which do not change.
fn revision(kind: &Kind) -> u64 {
    kind.rules.definition().map_or(0, |definition| definition.revision)
}

/// The URL of a v3 document: in the index, and the redirect (301) of a request with another hash.
pub(crate) fn v3_location(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// The media type of `/openapi/v2` for an Accept header; `None`: 406.
pub(crate) fn v2_form(accept: Option<&str>) -> Option<Form> {
    preferred(accept, |media| match media {
        V2_PROTOBUF | V2_PROTOBUF_ASKED => Some(Form::Protobuf),
        other => json_form(other),
    })
}

/// The media type of a v3 document for an Accept header; `None`: 406.
pub(crate) fn v3_form(accept: Option<&str>) -> Option<Form> {
    preferred(accept, json_form)
}

fn json_form(media: &str) -> Option<Form> {
    matches!(media, "application/json" | "application/*" | "*/*").then_some(Form::Json)
}

/// The first supported media type, by quality and then in order.
fn preferred(accept: Option<&str>, form: impl Fn(&str) -> Option<Form>) -> Option<Form> {
    let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else { return Some(Form::Json) };
    let mut best: Option<(f32, Form)> = None;
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let Some(form) = parts.next().and_then(&form) else { continue };
        let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(1.0));
        if best.is_none_or(|(have, _)| quality > have) {
            best = Some((quality, form));
        }
    }
    best.map(|(_, form)| form)
}
