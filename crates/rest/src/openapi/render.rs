//! Documents: operations and definitions in, an OpenAPI document of either version out.

use api::kind::Kind;
use serde_json::{Map, Value, json};

use super::definitions::Definitions;
use super::exchange::{Dialect, Exchange};
use super::operations::{self, Answer, Body, Operation, Path};
use super::parameters::Parameter;
use super::text::Texts;
use crate::version;

const ANYTHING: &[&str] = &["*/*"];

/// The media types of a kind.
struct Media {
    /// An object in a response.
    objects: &'static [&'static str],
    /// A list in a response, besides: events of a watch.
    streams: &'static [&'static str],
    /// An object in a request.
    bodies: &'static [&'static str],
    patches: &'static [&'static str],
}

static BUILT_IN: Media = Media {
    objects: &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"],
    streams: &["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"],
    bodies: ANYTHING,
    patches: &[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ],
};

/// Custom resources have neither protobuf nor strategic merge patches. `kubectl apply` sends the latter to every kind that lists them.
static CUSTOM: Media = Media {
    objects: &["application/json", "application/yaml"],
    streams: &[],
    bodies: &["application/json", "application/yaml"],
    patches: &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"],
};

impl Media {
    fn of(kind: &Kind) -> &'static Self {
        if kind.table_type().is_some() { &BUILT_IN } else { &CUSTOM }
    }

    fn consumed(&self, body: Option<Body>) -> &'static [&'static str] {
        if body.is_some_and(|body| matches!(body.exchange, Exchange::Patch)) { self.patches } else { self.bodies }
    }

    fn produced(&self, answer: Answer) -> Vec<&'static str> {
        match (answer.exchange, answer.stream) {
            (Exchange::Text, _) => ANYTHING.to_vec(),
            (_, true) => [self.objects, self.streams].concat(),
            (_, false) => self.objects.to_vec(),
        }
    }
}

/// Renders the document of these kinds.
pub(super) fn document(dialect: Dialect, texts: &Texts, kinds: &[&'static Kind]) -> Value {
    let mut definitions = Definitions::new(dialect, texts, kinds);
    let mut paths = Map::new();
    for (media, path) in
        kinds.iter().flat_map(|kind| operations::of(kind).into_iter().map(|path| (Media::of(kind), path)))
    {
        for operation in &path.operations {
            definitions.need(operation.answer.exchange);
            if let Some(body) = operation.body {
                definitions.need(body.exchange);
            }
        }
        let item = render_path(dialect, media, &path);
        paths.insert(path.path, item);
    }
    let token = json!({
        "BearerToken": {
            "type": "apiKey",
            "in": "header",
            "name": "authorization",
            "description": "Bearer Token authentication",
        }
    });
    match dialect {
        Dialect::V2 => json!({
            "swagger": "2.0",
            "info": { "title": "Kubernetes", "version": version::git_version() },
            "paths": paths,
            "definitions": definitions.into_map(),
            "securityDefinitions": token,
            "security": [{ "BearerToken": [] }],
        }),
        Dialect::V3 => {
            let mut components = json!({ "schemas": definitions.into_map() });
            if kinds.iter().any(|kind| !kind.is_custom()) {
                components["securitySchemes"] = token;
            }
            json!({
                "openapi": "3.0.0",
                "info": { "title": "Kubernetes", "version": version::git_version() },
                "paths": paths,
                "components": components,
            })
        }
    }
}

fn render_path(dialect: Dialect, media: &Media, path: &Path) -> Value {
    let mut item = Map::new();
    item.insert("parameters".to_owned(), render_parameters(dialect, &path.parameters).into());
    for operation in &path.operations {
        item.insert(operation.method.to_owned(), render_operation(dialect, media, operation));
    }
    item.into()
}

fn render_parameters(dialect: Dialect, parameters: &[&'static Parameter]) -> Vec<Value> {
    parameters.iter().map(|parameter| parameter.render(dialect)).collect()
}

fn render_operation(dialect: Dialect, media: &Media, operation: &Operation) -> Value {
    let mut parameters = render_parameters(dialect, operation.parameters);
    let mut out = json!({
        "description": operation.text,
        "operationId": operation.id,
        "tags": [operation.tag],
        "responses": responses(dialect, media, operation.answer),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": operation.gvk.to_value(),
    });
    match dialect {
        Dialect::V2 => {
            if let Some(body) = operation.body {
                let schema = schema(dialect, body.exchange);
                let mut entry = json!({ "name": "body", "in": "body", "schema": schema });
                if body.required {
                    entry["required"] = true.into();
                }
                parameters.insert(0, entry);
            }
            out["consumes"] = media.consumed(operation.body).into();
            out["produces"] = media.produced(operation.answer).into();
            out["schemes"] = json!(["https"]);
        }
        Dialect::V3 => {
            if let Some(body) = operation.body {
                out["requestBody"] = json!({ "content": content(dialect, body.exchange, media.consumed(Some(body))) });
                if body.required {
                    out["requestBody"]["required"] = true.into();
                }
            }
        }
    }
    if !parameters.is_empty() {
        out["parameters"] = parameters.into();
    }
    out
}

fn responses(dialect: Dialect, media: &Media, answer: Answer) -> Value {
    let mut out = Map::new();
    for code in answer.codes {
        let mut entry = json!({ "description": reason(*code) });
        match dialect {
            Dialect::V2 => entry["schema"] = schema(dialect, answer.exchange),
            Dialect::V3 => entry["content"] = content(dialect, answer.exchange, &media.produced(answer)),
        }
        out.insert(code.to_string(), entry);
    }
    out.insert("401".to_owned(), json!({ "description": reason(401) }));
    out.into()
}

fn schema(dialect: Dialect, exchange: Exchange) -> Value {
    exchange.definition().map_or_else(|| json!({ "type": "string" }), |name| dialect.reference(&name))
}

fn content(dialect: Dialect, exchange: Exchange, types: &[&str]) -> Value {
    types
        .iter()
        .map(|media| ((*media).to_owned(), json!({ "schema": schema(dialect, exchange) })))
        .collect::<Map<_, _>>()
        .into()
}

fn reason(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        401 => "Unauthorized",
        _ => "OK",
    }
}
