//! Definitions: the schema tables in, JSON schemas with the Kubernetes extensions out.
//!
//! [`Definitions`] gets the types that the operations of a document exchange, and adds every type that can be reached from them.

use std::collections::BTreeMap;

use api::kind::Kind;
use api::schema::{self, Field, Merge, Shape, Type, TypeId};
use serde_json::{Map, Value, json};

use super::custom;
use super::exchange::{Dialect, Exchange, Gvk, META, definition_name, definition_of, definition_of_kind, object_of};
use super::text::Texts;
use crate::discovery;

/// The definitions of one document.
pub(super) struct Definitions<'a> {
    dialect: Dialect,
    texts: &'a Texts,
    kinds: &'a [&'static Kind],
    out: BTreeMap<String, Value>,
}

impl<'a> Definitions<'a> {
    /// No definitions yet; `kinds` are those of the document.
    pub(super) fn new(dialect: Dialect, texts: &'a Texts, kinds: &'a [&'static Kind]) -> Self {
        Self { dialect, texts, kinds, out: BTreeMap::new() }
    }

    /// The definitions by name.
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.out.into_iter().collect()
    }

    /// Adds a type, and everything below it.
    pub(super) fn need(&mut self, exchange: Exchange) {
        let Some(name) = exchange.definition() else { return };
        if self.out.contains_key(&name) {
            return;
        }
        match exchange {
            Exchange::Object(id) => self.object(id),
            Exchange::Custom(kind) => self.custom(kind),
            Exchange::List(kind) => {
                let value = self.list(kind);
                self.out.insert(name, value);
                match kind.table_type() {
                    Some(id) => self.object(id),
                    None => self.custom(kind),
                }
                self.object(schema::named("meta.ListMeta"));
            }
            Exchange::Patch => self.simple(name, json!({ "type": "object" })),
            Exchange::WatchEvent => {
                let value = self.watch_event(&name);
                self.out.insert(name, value);
                self.shape(&Shape::Raw);
            }
            Exchange::Text => {}
        }
    }

    /// A custom resource: the schema of its definition, with the metadata of all objects.
    fn custom(&mut self, kind: &'static Kind) {
        let name = definition_of_kind(kind);
        let Some(definition) = kind.rules.definition() else { return };
        if self.out.contains_key(&name) {
            return;
        }
        let mut type_meta = Map::new();
        self.put_type_meta(&mut type_meta, &format!("{META}.Status"));
        let metadata = self.refer(&format!("{META}.ObjectMeta"), "Standard object's metadata.", None);
        type_meta.insert("metadata".to_owned(), metadata);
        let schema = custom::schema(self.dialect, &definition.published, type_meta, Gvk::of(kind));
        self.out.insert(name, schema);
        self.object(schema::named("meta.ObjectMeta"));
    }

    /// Types refer to types, so pending ones are in a list and not on the stack.
    fn object(&mut self, id: TypeId) {
        let mut todo = vec![id];
        while let Some(id) = todo.pop() {
            let (kind, name) = (id.get(), definition_name(id.get().name));
            if self.out.contains_key(&name) {
                continue;
            }
            let value = self.message(kind, &name);
            self.out.insert(name, value);
            for field in kind.json_fields() {
                match leaf(&field.shape) {
                    Shape::Object(id) => todo.push(*id),
                    scalar => self.shape(scalar),
                }
            }
        }
    }

    fn message(&self, kind: &'static Type, name: &str) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in kind.json_fields() {
            properties.insert(field.json.to_owned(), self.field(name, field));
            if field.required {
                required.push(Value::from(field.json));
            }
        }
        let gvks = self.gvks(kind.name);
        if !gvks.is_empty() {
            self.put_type_meta(&mut properties, name);
        }
        let mut out = Map::new();
        self.describe(&mut out, name);
        out.insert("type".to_owned(), "object".into());
        if !properties.is_empty() {
            out.insert("properties".to_owned(), properties.into());
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), required.into());
        }
        if kind.atomic {
            out.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        if !gvks.is_empty() {
            let gvks: Vec<Value> = gvks.into_iter().map(Gvk::to_value).collect();
            out.insert("x-kubernetes-group-version-kind".to_owned(), gvks.into());
        }
        out.into()
    }

    fn list(&self, kind: &'static Kind) -> Value {
        let object = definition_of_kind(kind);
        let mut properties = Map::new();
        self.put_type_meta(&mut properties, &object);
        let items = self.dialect.reference(&object);
        properties.insert(
            "items".to_owned(),
            json!({ "description": format!("The {} of the list.", kind.plural), "type": "array", "items": items }),
        );
        let metadata = self.refer(&format!("{META}.ListMeta"), "Standard list metadata.", Some(json!({})));
        properties.insert("metadata".to_owned(), metadata);
        json!({
            "description": format!("{kind}List is a list of {kind} objects.", kind = kind.kind),
            "type": "object",
            "properties": properties,
            "required": ["items"],
            "x-kubernetes-group-version-kind":
                [{ "group": kind.group, "version": kind.version, "kind": kind.list_kind() }],
        })
    }

    fn watch_event(&self, name: &str) -> Value {
        let raw = self.refer(&definition_of(&Shape::Raw).unwrap_or_default(), "The object, or a Status.", None);
        let gvks: Vec<Value> = self.common_gvks("WatchEvent").into_iter().map(Gvk::to_value).collect();
        let mut kind = json!({ "description": "What happened to the object.", "type": "string" });
        if self.dialect == Dialect::V3 {
            kind["default"] = "".into();
        }
        json!({
            "description": self.texts.of_type(name).unwrap_or_default(),
            "type": "object",
            "properties": { "object": raw, "type": kind },
            "required": ["type", "object"],
            "x-kubernetes-group-version-kind": gvks,
        })
    }

    /// The kinds under which a type is exchanged as a whole; such a type names its kind and version.
    fn gvks(&self, schema: &str) -> Vec<Gvk> {
        match schema {
            "meta.Status" => vec![Gvk { group: "", version: "v1", kind: "Status" }],
            "meta.DeleteOptions" => self.common_gvks("DeleteOptions"),
            _ => {
                let main = self.kinds.iter().filter(|kind| kind.schema == schema).map(|kind| Gvk::of(kind));
                let parts = self.kinds.iter().flat_map(|kind| kind.subresources).filter_map(|sub| {
                    let (group, version) = discovery::foreign(sub.kind)?;
                    (object_of(group, sub.kind)?.get().name == schema).then_some(Gvk { group, version, kind: sub.kind })
                });
                let mut out: Vec<Gvk> = Vec::new();
                for gvk in main.chain(parts) {
                    if !out.contains(&gvk) {
                        out.push(gvk);
                    }
                }
                out
            }
        }
    }

    /// Types that every group version has.
    fn common_gvks(&self, kind: &'static str) -> Vec<Gvk> {
        let mut out = vec![Gvk { group: "", version: "v1", kind }];
        for (group, version) in discovery::group_versions(self.kinds) {
            let gvk = Gvk { group, version, kind };
            if !out.contains(&gvk) {
                out.push(gvk);
            }
        }
        out
    }

    fn put_type_meta(&self, properties: &mut Map<String, Value>, definition: &str) {
        for name in ["apiVersion", "kind"] {
            let text = self.texts.of_field(definition, name).unwrap_or_default();
            properties.insert(name.to_owned(), json!({ "description": text, "type": "string" }));
        }
    }

    fn field(&self, definition: &str, field: &Field) -> Value {
        let text = self.texts.of_field(definition, field.json).unwrap_or_default();
        let default = if self.dialect == Dialect::V3 { default_of(field) } else { None };
        let mut value = match definition_of(&field.shape) {
            Some(name) => self.refer(&name, text, default),
            None => {
                let mut value = self.inline(&field.shape);
                if !text.is_empty() {
                    value["description"] = text.into();
                }
                if let Some(default) = default {
                    value["default"] = default;
                }
                value
            }
        };
        put_merge(&mut value, field);
        value
    }

    /// A reference with a description. OpenAPI v3 allows nothing beside `$ref`, so it stands in an `allOf` there.
    fn refer(&self, definition: &str, text: &str, default: Option<Value>) -> Value {
        let reference = self.dialect.reference(definition);
        let mut value = match self.dialect {
            Dialect::V2 => reference,
            Dialect::V3 => json!({ "allOf": [reference] }),
        };
        if !text.is_empty() {
            value["description"] = text.into();
        }
        if let Some(default) = default.filter(|_| self.dialect == Dialect::V3) {
            value["default"] = default;
        }
        value
    }

    fn inline(&self, shape: &Shape) -> Value {
        match shape {
            Shape::List(item) => json!({ "type": "array", "items": self.inline(item) }),
            Shape::Map(item) => json!({ "type": "object", "additionalProperties": self.inline(item) }),
            Shape::Bool => json!({ "type": "boolean" }),
            Shape::Int32 => json!({ "type": "integer", "format": "int32" }),
            Shape::Int64 => json!({ "type": "integer", "format": "int64" }),
            Shape::Float64 => json!({ "type": "number", "format": "double" }),
            Shape::Bytes => json!({ "type": "string", "format": "byte" }),
            other => match definition_of(other) {
                Some(name) => self.dialect.reference(&name),
                None => json!({ "type": "string" }),
            },
        }
    }

    /// The definition of a type that is not a message of the tables, if it has one.
    fn shape(&mut self, shape: &Shape) {
        let Some(name) = definition_of(shape) else { return };
        let value = match (shape, self.dialect) {
            (Shape::Time | Shape::MicroTime, _) => json!({ "type": "string", "format": "date-time" }),
            (Shape::Raw | Shape::FieldsV1, _) => json!({ "type": "object" }),
            // Values of any type.
            (Shape::Json | Shape::Union(..), _) => json!({}),
            (Shape::IntOrString, Dialect::V3) => {
                json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
            }
            (Shape::Quantity, Dialect::V3) => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
            (Shape::IntOrString, Dialect::V2) => json!({ "type": "string", "format": "int-or-string" }),
            _ => json!({ "type": "string" }),
        };
        self.simple(name, value);
    }

    fn simple(&mut self, name: String, value: Value) {
        if let (false, Value::Object(mut value)) = (self.out.contains_key(&name), value) {
            self.describe(&mut value, &name);
            self.out.insert(name, value.into());
        }
    }

    fn describe(&self, value: &mut Map<String, Value>, definition: &str) {
        if let Some(text) = self.texts.of_type(definition) {
            value.insert("description".to_owned(), text.into());
        }
    }
}

/// The element type of a list or map, however deep.
fn leaf(shape: &Shape) -> &Shape {
    match shape {
        Shape::List(item) | Shape::Map(item) => leaf(item),
        other => other,
    }
}

/// The default of an absent field: that of the table, or the zero value of a field that is always written.
fn default_of(field: &Field) -> Option<Value> {
    if field.default.is_some() || field.pointer {
        return field.default.clone();
    }
    match field.shape {
        Shape::Object(_) => Some(json!({})),
        Shape::String if field.keep => Some("".into()),
        Shape::Bool if field.keep => Some(false.into()),
        Shape::Int32 | Shape::Int64 | Shape::Float64 if field.keep => Some(0.into()),
        _ => None,
    }
}

fn put_merge(value: &mut Value, field: &Field) {
    let is_list = matches!(field.shape, Shape::List(_));
    match &field.merge {
        Merge::Unset => {}
        Merge::Atomic if is_list => value["x-kubernetes-list-type"] = "atomic".into(),
        Merge::Atomic => value["x-kubernetes-map-type"] = "atomic".into(),
        Merge::Set => value["x-kubernetes-list-type"] = "set".into(),
        Merge::Keys(keys) => {
            value["x-kubernetes-list-type"] = "map".into();
            value["x-kubernetes-list-map-keys"] = keys.as_slice().into();
        }
    }
    if let Some(key) = field.patch.merge_key.filter(|key| !key.is_empty()) {
        value["x-kubernetes-patch-merge-key"] = key.into();
    }
    let strategy = match (field.patch.merge_key, field.patch.retain_keys) {
        (Some(_), true) => "merge,retainKeys",
        (Some(_), false) => "merge",
        (None, true) => "retainKeys",
        (None, false) if field.patch.replace => "replace",
        (None, false) => return,
    };
    value["x-kubernetes-patch-strategy"] = strategy.into();
}
