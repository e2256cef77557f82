//! Where in the schema a merge is, and what is below: error messages name Go's types.

use crate::decode;
use crate::schema::{Field, Patch, Shape};

/// The type of the value being merged.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    shape: &'a Shape,
    pointer: bool,
}

impl<'a> Place<'a> {
    /// The place of a type.
    pub(super) fn of(shape: &'a Shape) -> Self {
        Self { shape, pointer: false }
    }

    /// The type of a member.
    pub(super) fn member(self, name: &str) -> Result<Place<'static>, String> {
        let field = self.field(name)?;
        Ok(Place { shape: &field.shape, pointer: field.pointer })
    }

    /// Whether a member that is an object is replaced as a whole.
    pub(super) fn is_replaced(self, name: &str) -> bool {
        self.field(name).is_ok_and(|field| field.patch.replace)
    }

    /// The type of the elements of a member that is a list, and how the list merges.
    pub(super) fn element(self, name: &str) -> Result<(Place<'static>, &'static Patch), String> {
        let field = self.field(name)?;
        let shape = match &field.shape {
            Shape::List(item) if matches!(**item, Shape::List(_) | Shape::Bytes) => {
                return Err("unexpected slice of slice".to_owned());
            }
            Shape::List(item) => item,
            other if field.pointer => other,
            _ => return Err(format!("expected slice or array type, but got: {}", self.kind())),
        };
        Ok((Place::of(shape), &field.patch))
    }

    fn field(self, name: &str) -> Result<&'static Field, String> {
        let missing = |of: &str| format!("unable to find api field in struct {of} for the json field {name:?}");
        let ty = match self.shape {
            Shape::Object(id) => id.get(),
            Shape::Time => return Err(missing("Time")),
            Shape::MicroTime => return Err(missing("MicroTime")),
            Shape::Duration => return Err(missing("Duration")),
            Shape::Quantity => return Err(missing("Quantity")),
            Shape::IntOrString => return Err(missing("IntOrString")),
            Shape::Raw => return Err(missing("RawExtension")),
            Shape::FieldsV1 => return Err(missing("FieldsV1")),
            Shape::Json => return Err(missing("JSON")),
            Shape::Union(ty, other) => {
                let name = ty.get().name.rsplit('.').next().unwrap_or_default();
                return Err(missing(&format!("{name}{}", decode::alternative(other))));
            }
            _ => {
                let kind = Place { shape: self.shape, pointer: false }.kind();
                return Err(format!("merging an object in json but data type is not struct, instead is: {kind}"));
            }
        };
        // Patches have always been held against fields without regard to case.
        ty.field(name)
            .or_else(|| ty.json_fields().find(|field| field.json.eq_ignore_ascii_case(name)))
            .ok_or_else(|| missing(ty.name.rsplit('.').next().unwrap_or_default()))
    }

    /// The kind of Go type.
    pub(super) fn kind(self) -> &'static str {
        if self.pointer {
            return "ptr";
        }
        match self.shape {
            Shape::String => "string",
            Shape::Bool => "bool",
            Shape::Int32 => "int32",
            Shape::Int64 => "int64",
            Shape::Float64 => "float64",
            Shape::Bytes | Shape::List(_) => "slice",
            Shape::Map(_) => "map",
            _ => "struct",
        }
    }
}
