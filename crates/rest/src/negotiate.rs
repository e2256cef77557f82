//! Content negotiation: the Accept header in, the form of the response out.
//!
//! Clauses are tried by quality, then in order; a clause with an unsupported transform is skipped, as in kube-apiserver. kubectl
//! and client-go rely on this to fall back.

use api::status::Status;

/// The media types of a collection, as listed in a 406.
const COLLECTION_FORMS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf, \
                                application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
/// The media types of an object.
const OBJECT_FORMS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The media types of custom resources.
const CUSTOM_FORMS: &str = "application/json, application/yaml";

/// A media type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Media {
    Json,
    Yaml,
    Protobuf,
}

/// A transform of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transform {
    None,
    /// A `Table` of meta.k8s.io.
    Table {
        version: &'static str,
    },
    /// Only the metadata of one object.
    Partial {
        version: &'static str,
    },
    /// Only the metadata of a list of objects.
    PartialList {
        version: &'static str,
    },
}

/// The form of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Form {
    pub(crate) media: Media,
    pub(crate) transform: Transform,
    pub(crate) pretty: bool,
}

/// The form of errors before negotiation, and of requests without an Accept header.
pub(crate) const PLAIN: Form = Form { media: Media::Json, transform: Transform::None, pretty: false };

/// One clause of an Accept header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

/// Negotiates the form of a response.
pub(crate) fn choose(accept: Option<&str>, collection: bool) -> Result<Form, Status> {
    let forms = if collection { COLLECTION_FORMS } else { OBJECT_FORMS };
    choose_among(accept, true, forms)
}

/// Negotiates the form of a response with custom resources, which have no protobuf messages; their metadata has.
pub(crate) fn choose_custom(accept: Option<&str>) -> Result<Form, Status> {
    choose_among(accept, false, CUSTOM_FORMS)
}

fn choose_among(accept: Option<&str>, with_protobuf: bool, forms: &str) -> Result<Form, Status> {
    let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else { return Ok(PLAIN) };
    let mut known_media = false;
    for clause in clauses(accept) {
        let Some(media) = media(&clause) else { continue };
        if media == Media::Protobuf && !with_protobuf && param(&clause, "as").is_none() {
            continue;
        }
        known_media = true;
        if let Some(transform) = transform(&clause, media) {
            return Ok(Form { media, transform, pretty: param(&clause, "pretty") == Some("1") });
        }
    }
    if known_media {
        return Err(Status::not_acceptable(format!("only the following media types are accepted: {OBJECT_FORMS}")));
    }
    Err(Status::nothing_acceptable(forms))
}

/// Whether a JSON clause requests aggregated discovery in a supported version.
pub(crate) fn wants_aggregated_discovery(accept: Option<&str>) -> bool {
    accept.is_some_and(|accept| {
        clauses(accept).iter().any(|clause| {
            media(clause) == Some(Media::Json)
                && param(clause, "g") == Some("apidiscovery.k8s.io")
                && param(clause, "v") == Some("v2")
                && param(clause, "as") == Some("APIGroupDiscoveryList")
        })
    })
}

/// The format of a request body.
pub(crate) fn body_media(content_type: Option<&str>) -> Result<Media, Status> {
    let Some(text) = content_type.filter(|text| !text.is_empty()) else { return Ok(Media::Json) };
    match essence(text).as_str() {
        "application/json" => Ok(Media::Json),
        "application/yaml" => Ok(Media::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Media::Protobuf),
        _ => Err(Status::unsupported_media_type()),
    }
}

/// `type/subtype` of a content type, without parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut out: Vec<Clause<'_>> = accept.split(',').filter_map(clause).collect();
    // A stable sort: among equals the more specific clause wins, then the first.
    out.sort_by(|a, b| b.quality.total_cmp(&a.quality).then_with(|| specificity(b).cmp(&specificity(a))));
    out
}

fn specificity(clause: &Clause<'_>) -> u8 {
    match (clause.kind, clause.subtype) {
        ("*", _) => 0,
        (_, "*") => 1,
        _ => 2,
    }
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let (kind, subtype) = parts.next()?.split_once('/')?;
    let params: Vec<(&str, &str)> =
        parts.filter_map(|part| part.split_once('=')).map(|(key, value)| (key.trim(), value.trim())).collect();
    let quality = params.iter().find(|(key, _)| *key == "q").and_then(|(_, value)| value.parse().ok()).unwrap_or(1.0);
    Some(Clause { kind: kind.trim(), subtype: subtype.trim(), params, quality })
}

fn param<'a>(clause: &Clause<'a>, key: &str) -> Option<&'a str> {
    clause.params.iter().find(|(have, _)| *have == key).map(|(_, value)| *value)
}

fn media(clause: &Clause<'_>) -> Option<Media> {
    match (clause.kind, clause.subtype) {
        ("*", "*") | ("application", "json") => Some(Media::Json),
        ("application", "yaml") => Some(Media::Yaml),
        ("application", "vnd.kubernetes.protobuf") => Some(Media::Protobuf),
        _ => None,
    }
}

fn transform(clause: &Clause<'_>, media: Media) -> Option<Transform> {
    let Some(name) = param(clause, "as") else { return Some(Transform::None) };
    if param(clause, "g") != Some("meta.k8s.io") {
        return None;
    }
    let version = match param(clause, "v") {
        Some("v1") => "v1",
        Some("v1beta1") => "v1beta1",
        _ => return None,
    };
    match name {
        "Table" if media != Media::Protobuf => Some(Transform::Table { version }),
        "PartialObjectMetadata" => Some(Transform::Partial { version }),
        "PartialObjectMetadataList" => Some(Transform::PartialList { version }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_a_table() {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let form = choose(Some(accept), true).expect("acceptable");
        assert_eq!(form.transform, Transform::Table { version: "v1" });
    }

    #[test]
    fn quality_decides_before_order() {
        let form = choose(Some("application/json;q=0.5, application/yaml;q=0.9"), false).expect("acceptable");
        assert_eq!(form.media, Media::Yaml);
    }

    #[test]
    fn an_unknown_transform_falls_back_or_is_refused() {
        let accept = "application/json;as=Frob;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(choose(Some(accept), true), Ok(PLAIN));
        let refused = choose(Some("application/json;as=Frob;v=v1;g=meta.k8s.io"), true).expect_err("refused");
        assert!(refused.message.starts_with("only the following media types"));
        assert!(choose(Some("application/*"), false).expect_err("refused").message.starts_with("406: Not Acceptable"));
    }

    #[test]
    fn typed_clients_get_protobuf() {
        let form = choose(Some("application/vnd.kubernetes.protobuf,application/json"), false).expect("acceptable");
        assert_eq!(form.media, Media::Protobuf);
    }
}
