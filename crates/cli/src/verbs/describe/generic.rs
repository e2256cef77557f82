//! Any kind by its fields. Of a Secret only the sizes of its values are shown.

use api::value::ValueExt as _;
use base64::Engine as _;
use serde_json::Value;

use super::sheet::{STEP, Sheet, conditions, controller};

/// Fields that are not listed.
const SHOWN: [&str; 3] = ["metadata", "apiVersion", "kind"];

pub(super) fn describe(object: &Value, sheet: &mut Sheet) {
    sheet.metadata(object);
    sheet.field("API Version", object.text("apiVersion"));
    sheet.field("Kind", object.text("kind"));
    sheet.some("Created", object.text("metadata.creationTimestamp"));
    sheet.some("Deleted", object.text("metadata.deletionTimestamp"));
    sheet.some("Controlled By", controller(object));
    let secret = object.text("kind") == "Secret";
    for (name, value) in object.as_object().into_iter().flatten().filter(|(name, _)| !SHOWN.contains(&name.as_str())) {
        let mut value = value.clone();
        if name == "status" {
            value.drop_path("conditions");
        }
        let title = titled(name);
        match &value {
            Value::Object(map) if map.is_empty() => {}
            Value::Object(map) if secret && name == "data" => {
                sheet.heading(&title);
                sheet.inside(|sheet| map.iter().for_each(|(key, value)| sheet.field(key, size(value))));
            }
            Value::Object(_) | Value::Array(_) => {
                sheet.heading(&title);
                sheet.block(STEP, &api::yaml::to_yaml(&value));
            }
            Value::String(text) => sheet.field(&title, text),
            other => sheet.field(&title, other.to_string()),
        }
    }
    conditions(object, sheet);
}

/// `externalName` becomes `External Name`.
fn titled(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.chars().enumerate() {
        match letter {
            letter if at == 0 => out.extend(letter.to_uppercase()),
            letter if letter.is_uppercase() && !out.ends_with(char::is_uppercase) => {
                out.push(' ');
                out.push(letter);
            }
            letter => out.push(letter),
        }
    }
    out
}

fn size(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).map_or(text.len(), |bytes| bytes.len());
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secrets_are_not_shown() {
        let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}});
        let mut sheet = Sheet::default();
        describe(&secret, &mut sheet);
        let text = sheet.text();
        assert!(text.contains("password:  7 bytes") && !text.contains("aHVud"), "{text}");
    }

    #[test]
    fn names_of_fields_become_titles() {
        assert_eq!(
            (titled("spec"), titled("externalName"), titled("podCIDRs")),
            ("Spec".into(), "External Name".into(), "Pod CIDRs".into())
        );
    }
}
