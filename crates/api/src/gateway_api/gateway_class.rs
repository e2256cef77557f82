//! GatewayClass: which controller manages Gateways.

use serde_json::{Value, json};

use super::conditions::{conditions, pending};
use super::definition::{Names, Version, age, column, condition_column, definition as define, root};
use super::schema::{Field, Schema, map_list, object, optional, required, string};
use super::shapes::controller_name;
use super::{Channel, references};

pub(super) fn definition(channel: Channel) -> Value {
    let names =
        Names { short: Some("gc"), is_namespaced: false, ..Names::namespaced("GatewayClass", "gatewayclasses") };
    let mut description = column("Description", ".spec.description");
    description["priority"] = json!(1);
    let columns =
        json!([column("Controller", ".spec.controllerName"), condition_column("Accepted"), age(), description]);
    let status = status(conditions().default(pending(&["Accepted"])));
    let schema = root("GatewayClass describes a class of Gateways that one controller manages.", spec(), Some(status));
    let v1 = Version::stored("v1", columns, schema);
    let v1beta1 = v1.also("v1beta1");
    define(channel, &names, [v1, v1beta1])
}

/// The spec of a class, and of a mesh.
pub(super) fn spec() -> Schema {
    let controller = controller_name().rule("field is immutable", "oldSelf == self");
    object([
        required("controllerName", "The controller, as DOMAIN/PATH.", controller),
        optional("description", "What the class is for.", string().max_length(64)),
        optional("parametersRef", "An object with the configuration of the class.", references::global()),
    ])
}

/// The status of a class, and of a mesh.
pub(super) fn status(conditions: Schema) -> Schema {
    object([optional("conditions", "How the controller judged the object.", conditions), supported_features()])
        .default(json!({"conditions": pending(&["Accepted"])}))
}

fn supported_features() -> Field {
    let feature = object([required("name", "The name of the feature.", string())]);
    let features = map_list(&["name"], feature).max_items(64);
    optional("supportedFeatures", "The features of the Gateway API that the controller supports.", features)
}
