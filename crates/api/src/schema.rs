//! The shape of every kind, read once from the tables in `schema/*.schema`.
//!
//! In: one line per field (protobuf number, JSON name, type, attributes). Out: [`Type`]s that decoding,
//! pruning, patching, applying, transcoding and OpenAPI all walk. The server works on JSON values, because typed
//! decoding drops what it does not know; these tables are what gives a JSON value its type back.
//!
//! Grammar of a table (`schema/README.md` has the long form):
//! ```text
//! ServicePort                               a type; `atomic` after the name: merged as one value
//!     3 port      int32     keep required   number, JSON name, type, attributes
//!     4 targetPort IntOrString
//! ```
//! Types are `string bool int32 int64 float64 bytes Time MicroTime Duration Quantity IntOrString Raw FieldsV1 Json`,
//! `*T` (may be absent), `[]T`, `map<T>`, `Other|T` (an object of that type, or a T), or another type, with its table in
//! front when it is in another one.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

/// All types of all tables.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
    names: HashMap<&'static str, TypeId>,
}

/// A handle on a [`Type`]; dereference it with [`TypeId::get`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TypeId(u16);

/// One message: its fields, and how it merges.
#[derive(Debug)]
pub struct Type {
    /// `core.ServiceSpec`: the table's name, a dot, the message.
    pub name: &'static str,
    /// Server-side apply treats the whole value as one field.
    pub atomic: bool,
    /// The fields as the protobuf message has them; inlined messages are one field.
    pub fields: Vec<Field>,
    /// JSON name → where the field is, inlined messages flattened.
    json: HashMap<&'static str, (TypeId, u16)>,
}

/// One field of a [`Type`].
#[derive(Debug)]
pub struct Field {
    /// The JSON name; `-` for an inlined message.
    pub json: &'static str,
    /// The protobuf number.
    pub number: u32,
    /// What it holds.
    pub shape: Shape,
    /// A pointer in Kubernetes: absent and empty are different things.
    pub pointer: bool,
    /// Serialised even when empty.
    pub keep: bool,
    /// A struct that disappears when it is empty.
    pub omit_zero: bool,
    /// A message whose fields are inlined in the parent's JSON object.
    pub inline: bool,
    /// The client must give it.
    pub required: bool,
    /// How strategic merge patch treats it.
    pub patch: Patch,
    /// How server-side apply treats a list or map.
    pub merge: Merge,
    /// The default that the schema publishes.
    pub default: Option<Value>,
}

/// The type of a value.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// A JSON string.
    String,
    /// A JSON boolean.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Float64,
    /// Bytes, base64 in JSON.
    Bytes,
    /// RFC 3339, seconds.
    Time,
    /// RFC 3339 with exactly six digits of fraction.
    MicroTime,
    /// A Go duration string.
    Duration,
    /// A resource quantity.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// Any JSON object.
    Raw,
    /// A field set of `managedFields`.
    FieldsV1,
    /// Any JSON, as part of a schema (`default`, `enum`).
    Json,
    /// A message of the tables.
    Object(TypeId),
    /// A message of the tables, or a value of another shape that is no object (`additionalProperties: false`).
    Union(TypeId, Box<Self>),
    /// A list.
    List(Box<Self>),
    /// A map with string keys.
    Map(Box<Self>),
}

/// What strategic merge patch does with a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Patch {
    /// `Some("")`: a list of scalars that merges as a set; `Some(key)`: objects that merge by this key.
    pub merge_key: Option<&'static str>,
    /// `$retainKeys` is understood.
    pub retain_keys: bool,
    /// An object is replaced as a whole.
    pub replace: bool,
}

/// What server-side apply does with a list or map.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Merge {
    /// The default: maps and objects are granular, lists are atomic.
    #[default]
    Unset,
    /// One field, whatever is in it.
    Atomic,
    /// A list of scalars owned item by item.
    Set,
    /// A list of objects owned item by item, identified by these keys.
    Keys(Vec<&'static str>),
}

const TABLES: &[(&str, &str)] = &[
    ("meta", include_str!("../schema/meta.schema")),
    ("core", include_str!("../schema/core.schema")),
    ("discovery", include_str!("../schema/discovery.schema")),
    ("networking", include_str!("../schema/networking.schema")),
    ("coordination", include_str!("../schema/coordination.schema")),
    ("events", include_str!("../schema/events.schema")),
    ("authorization", include_str!("../schema/authorization.schema")),
    ("authentication", include_str!("../schema/authentication.schema")),
    ("apps", include_str!("../schema/apps.schema")),
    ("autoscaling", include_str!("../schema/autoscaling.schema")),
    ("autoscaling_v2", include_str!("../schema/autoscaling_v2.schema")),
    ("batch", include_str!("../schema/batch.schema")),
    ("policy", include_str!("../schema/policy.schema")),
    ("certificates", include_str!("../schema/certificates.schema")),
    ("admissionregistration", include_str!("../schema/admissionregistration.schema")),
    ("apiextensions", include_str!("../schema/apiextensions.schema")),
    ("apiregistration", include_str!("../schema/apiregistration.schema")),
    ("flowcontrol", include_str!("../schema/flowcontrol.schema")),
    ("node", include_str!("../schema/node.schema")),
    ("rbac", include_str!("../schema/rbac.schema")),
    ("scheduling", include_str!("../schema/scheduling.schema")),
    ("storage", include_str!("../schema/storage.schema")),
    ("waypost", include_str!("../schema/waypost.schema")),
];

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::parse(TABLES));

/// The type of this name (`core.Service`).
///
/// # Panics
/// When no table has it: a name is written in our own source, so this is found by the first test.
#[must_use]
pub fn named(name: &str) -> TypeId {
    find(name).unwrap_or_else(|| panic!("no schema table has {name}"))
}

/// The type of this name, if a table has it.
#[must_use]
pub fn find(name: &str) -> Option<TypeId> {
    SCHEMA.names.get(name).copied()
}

/// Every type, in the order of the tables.
pub fn all() -> impl Iterator<Item = TypeId> {
    (0..SCHEMA.types.len()).map(|index| TypeId(u16::try_from(index).expect("fewer than 65536 types")))
}

// === impl TypeId ===

impl TypeId {
    /// The type behind the handle.
    #[must_use]
    pub fn get(self) -> &'static Type {
        &SCHEMA.types[usize::from(self.0)]
    }
}

// === impl Type ===

impl Type {
    /// The field of this JSON name, looking through inlined messages.
    #[must_use]
    pub fn field(&self, json: &str) -> Option<&'static Field> {
        let (owner, index) = self.json.get(json)?;
        Some(&owner.get().fields[usize::from(*index)])
    }

    /// The fields as JSON shows them: inlined messages flattened.
    pub fn json_fields(&'static self) -> Box<dyn Iterator<Item = &'static Field>> {
        Box::new(self.fields.iter().flat_map(|field| match (&field.shape, field.inline) {
            (Shape::Object(id), true) => id.get().json_fields(),
            _ => Box::new(std::iter::once(field)),
        }))
    }
}

// === impl Schema ===

impl Schema {
    fn parse(tables: &[(&'static str, &'static str)]) -> Self {
        let mut names = HashMap::new();
        let mut order: Vec<(&'static str, &'static str, bool, Vec<&'static str>)> = Vec::new();
        for (table, text) in tables {
            for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
                if line.starts_with(' ') {
                    order.last_mut().expect("a field follows its type").3.push(line);
                    continue;
                }
                let mut words = line.split_whitespace();
                let name: &'static str =
                    Box::leak(format!("{table}.{}", words.next().expect("a name")).into_boxed_str());
                let id = TypeId(u16::try_from(order.len()).expect("fewer than 65536 types"));
                assert!(names.insert(name, id).is_none(), "{name} is declared twice");
                order.push((table, name, words.next() == Some("atomic"), Vec::new()));
            }
        }
        let types = order
            .iter()
            .map(|(table, name, atomic, lines)| Type {
                name,
                atomic: *atomic,
                fields: lines.iter().map(|line| parse_field(table, line, &names)).collect(),
                json: HashMap::new(),
            })
            .collect();
        let mut schema = Self { types, names };
        for index in 0..schema.types.len() {
            let json = schema.flatten(TypeId(u16::try_from(index).expect("counted above")));
            schema.types[index].json = json;
        }
        schema
    }

    fn flatten(&self, id: TypeId) -> HashMap<&'static str, (TypeId, u16)> {
        let mut out = HashMap::new();
        for (index, field) in self.types[usize::from(id.0)].fields.iter().enumerate() {
            if let (Shape::Object(inner), true) = (&field.shape, field.inline) {
                out.extend(self.flatten(*inner));
            } else {
                out.insert(field.json, (id, u16::try_from(index).expect("few fields")));
            }
        }
        out
    }
}

fn parse_field(table: &str, line: &'static str, names: &HashMap<&'static str, TypeId>) -> Field {
    let mut words = line.split_whitespace();
    let (Some(number), Some(json), Some(kind)) = (words.next(), words.next(), words.next()) else {
        panic!("a field needs number, name and type: {line}");
    };
    let bare = kind.strip_prefix('*');
    let mut field = Field {
        json,
        number: number.parse().unwrap_or_else(|_| panic!("not a field number: {line}")),
        shape: parse_shape(table, bare.unwrap_or(kind), names),
        pointer: bare.is_some(),
        keep: false,
        omit_zero: false,
        inline: false,
        required: false,
        patch: Patch::default(),
        merge: Merge::default(),
        default: None,
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("keep", _) => field.keep = true,
            ("omitzero", _) => field.omit_zero = true,
            ("inline", _) => field.inline = true,
            ("required", _) => field.required = true,
            ("merge", key) => field.patch.merge_key = Some(key),
            ("retainKeys", _) => field.patch.retain_keys = true,
            ("replace", _) => field.patch.replace = true,
            ("atomic", _) => field.merge = Merge::Atomic,
            ("set", _) => field.merge = Merge::Set,
            ("map", keys) => field.merge = Merge::Keys(keys.split(',').collect()),
            ("default", json) => field.default = Some(serde_json::from_str(json).expect("a JSON default")),
            _ => panic!("unknown attribute {word}: {line}"),
        }
    }
    field
}

fn parse_shape(table: &str, text: &str, names: &HashMap<&'static str, TypeId>) -> Shape {
    if let Some(item) = text.strip_prefix("[]") {
        return Shape::List(Box::new(parse_shape(table, item, names)));
    }
    if let Some(item) = text.strip_prefix("map<").and_then(|rest| rest.strip_suffix('>')) {
        return Shape::Map(Box::new(parse_shape(table, item, names)));
    }
    if let Some((message, other)) = text.split_once('|') {
        let Shape::Object(message) = parse_shape(table, message, names) else {
            panic!("{message} is no message: {text}")
        };
        return Shape::Union(message, Box::new(parse_shape(table, other, names)));
    }
    match text {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "float64" => Shape::Float64,
        "bytes" => Shape::Bytes,
        "Time" => Shape::Time,
        "MicroTime" => Shape::MicroTime,
        "Duration" => Shape::Duration,
        "Quantity" => Shape::Quantity,
        "IntOrString" => Shape::IntOrString,
        "Raw" => Shape::Raw,
        "FieldsV1" => Shape::FieldsV1,
        "Json" => Shape::Json,
        other => {
            let full = if other.contains('.') { other.to_owned() } else { format!("{table}.{other}") };
            Shape::Object(*names.get(full.as_str()).unwrap_or_else(|| panic!("no type {full}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_port_has_its_numbers_and_keys() {
        let spec = named("core.ServiceSpec").get();
        let ports = spec.field("ports").expect("ports");
        assert_eq!(ports.number, 1);
        assert_eq!(ports.patch.merge_key, Some("port"));
        assert_eq!(ports.merge, Merge::Keys(vec!["port", "protocol"]));
        let port = named("core.ServicePort").get();
        assert_eq!(port.field("protocol").expect("protocol").default, Some(Value::from("TCP")));
        assert!(port.field("port").expect("port").keep);
    }

    #[test]
    fn inlined_messages_are_looked_through() {
        let probe = named("core.Probe").get();
        assert_eq!(probe.field("httpGet").map(|field| field.number), Some(2));
        assert!(probe.json_fields().any(|field| field.json == "tcpSocket"));
    }

    #[test]
    fn every_message_numbers_its_fields_once() {
        for id in all() {
            let mut seen = std::collections::HashSet::new();
            for field in &id.get().fields {
                assert!(field.number > 0 && seen.insert(field.number), "{} {}", id.get().name, field.json);
            }
        }
    }
}
