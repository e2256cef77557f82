//! The binary form of an OpenAPI v2 document: the JSON document in, protobuf out.
//!
//! Old versions of kubectl read only this form (`openapi.v2.Document` of the gnostic library). The messages follow the JSON closely
//! except that maps are lists of pairs, alternatives are wrapped in a message with one field set, and free-form values are YAML text.
//! [`Form`] lists these encodings, and the tables below assign an encoding and a field number to each member. Unknown members are
//! omitted, except extensions (`x-…`), which every message has.

use serde_json::{Map, Value};

/// The encoding of a JSON value.
enum Form {
    Text,
    Flag,
    /// Any value, as YAML; JSON is YAML.
    Any,
    /// An object with known members.
    Message(&'static Message),
    /// A list: the field is repeated.
    List(&'static Self),
    /// An object with free keys: pairs of name and value, repeated under this number of a message of their own.
    Pairs(u32, &'static Self),
    /// A message whose only field has this number.
    Inside(u32, &'static Self),
    /// A parameter, whose place decides its message.
    Parameter,
}

struct Message {
    members: &'static [(&'static str, u32, Form)],
    /// The field number of extensions.
    extensions: u32,
}

static DOCUMENT: Message = Message {
    members: &[
        ("swagger", 1, Form::Text),
        ("info", 2, Form::Message(&INFO)),
        ("paths", 8, Form::Pairs(2, &Form::Message(&PATH_ITEM))),
        ("definitions", 9, Form::Pairs(1, &Form::Message(&SCHEMA))),
        ("security", 12, Form::List(&Form::Pairs(1, &Form::List(&Form::Text)))),
        ("securityDefinitions", 13, Form::Pairs(1, &Form::Inside(2, &Form::Message(&API_KEY)))),
    ],
    extensions: 16,
};

static INFO: Message = Message { members: &[("title", 1, Form::Text), ("version", 2, Form::Text)], extensions: 7 };

static API_KEY: Message = Message {
    members: &[("type", 1, Form::Text), ("name", 2, Form::Text), ("in", 3, Form::Text), ("description", 4, Form::Text)],
    extensions: 5,
};

static PATH_ITEM: Message = Message {
    members: &[
        ("get", 2, Form::Message(&OPERATION)),
        ("put", 3, Form::Message(&OPERATION)),
        ("post", 4, Form::Message(&OPERATION)),
        ("delete", 5, Form::Message(&OPERATION)),
        ("patch", 8, Form::Message(&OPERATION)),
        ("parameters", 9, Form::List(&Form::Parameter)),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    members: &[
        ("tags", 1, Form::List(&Form::Text)),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("produces", 6, Form::List(&Form::Text)),
        ("consumes", 7, Form::List(&Form::Text)),
        ("parameters", 8, Form::List(&Form::Parameter)),
        ("responses", 9, Form::Pairs(1, &Form::Inside(1, &Form::Message(&RESPONSE)))),
        ("schemes", 10, Form::List(&Form::Text)),
    ],
    extensions: 13,
};

static RESPONSE: Message = Message {
    members: &[("description", 1, Form::Text), ("schema", 2, Form::Inside(1, &Form::Message(&SCHEMA)))],
    extensions: 5,
};

static BODY: Message = Message {
    members: &[
        ("description", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 5, Form::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY: Message = Message {
    members: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 6, Form::Text),
        ("uniqueItems", 20, Form::Flag),
    ],
    extensions: 23,
};

static PATH: Message = Message {
    members: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 5, Form::Text),
        ("uniqueItems", 19, Form::Flag),
    ],
    extensions: 22,
};

static SCHEMA: Message = Message {
    members: &[
        ("$ref", 1, Form::Text),
        ("format", 2, Form::Text),
        ("description", 4, Form::Text),
        ("default", 5, Form::Any),
        ("required", 19, Form::List(&Form::Text)),
        ("additionalProperties", 21, Form::Inside(1, &Form::Message(&SCHEMA))),
        ("type", 22, Form::Inside(1, &Form::Text)),
        ("items", 23, Form::Inside(1, &Form::Message(&SCHEMA))),
        ("properties", 25, Form::Pairs(1, &Form::Message(&SCHEMA))),
    ],
    extensions: 31,
};

/// The name and the value of a pair.
const PAIR_NAME: u32 = 1;
const PAIR_VALUE: u32 = 2;
/// The text of a free-form value.
const ANY_YAML: u32 = 2;

/// The document in protobuf.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, &DOCUMENT, document);
    out
}

/// The members of a message, without its length.
fn message(out: &mut Vec<u8>, table: &Message, value: &Value) {
    let Value::Object(members) = value else { return };
    for (name, number, form) in table.members {
        if let Some(value) = members.get(*name) {
            field(out, *number, form, value);
        }
    }
    extensions(out, table.extensions, members);
}

fn extensions(out: &mut Vec<u8>, number: u32, members: &Map<String, Value>) {
    for (name, value) in members.iter().filter(|(name, _)| name.starts_with("x-")) {
        nested(out, number, |pair| {
            text(pair, PAIR_NAME, name);
            field(pair, PAIR_VALUE, &Form::Any, value);
        });
    }
}

fn field(out: &mut Vec<u8>, number: u32, form: &Form, value: &Value) {
    match form {
        Form::Text => text(out, number, value.as_str().unwrap_or_default()),
        Form::Flag => {
            varint(out, u64::from(number) << 3);
            varint(out, u64::from(value.as_bool().unwrap_or_default()));
        }
        Form::Any => nested(out, number, |any| text(any, ANY_YAML, &value.to_string())),
        Form::Message(table) => nested(out, number, |inner| message(inner, table, value)),
        Form::List(item) => {
            for value in value.as_array().into_iter().flatten() {
                field(out, number, item, value);
            }
        }
        Form::Pairs(pair_number, item) => nested(out, number, |pairs| {
            for (name, value) in value.as_object().into_iter().flatten() {
                nested(pairs, *pair_number, |pair| {
                    text(pair, PAIR_NAME, name);
                    pair_value(pair, item, value);
                });
            }
        }),
        Form::Inside(inner_number, item) => nested(out, number, |inner| field(inner, *inner_number, item, value)),
        Form::Parameter => nested(out, number, |item| nested(item, 1, |choice| parameter(choice, value))),
    }
}

/// A list as the value of a pair is in a separate message, since a pair has only one value.
fn pair_value(pair: &mut Vec<u8>, form: &Form, value: &Value) {
    match form {
        Form::List(_) => nested(pair, PAIR_VALUE, |list| field(list, 1, form, value)),
        _ => field(pair, PAIR_VALUE, form, value),
    }
}

fn parameter(out: &mut Vec<u8>, value: &Value) {
    match value.get("in").and_then(Value::as_str) {
        Some("body") => field(out, 1, &Form::Message(&BODY), value),
        Some("path") => nested(out, 2, |other| field(other, 4, &Form::Message(&PATH), value)),
        _ => nested(out, 2, |other| field(other, 3, &Form::Message(&QUERY), value)),
    }
}

fn text(out: &mut Vec<u8>, number: u32, value: &str) {
    varint(out, u64::from(number) << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

/// A message in a message: it is encoded separately first, because its length comes before it.
fn nested(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    varint(out, u64::from(number) << 3 | 2);
    varint(out, inner.len() as u64);
    out.append(&mut inner);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
