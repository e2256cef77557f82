//! ListenerSet: further listeners of a Gateway, in an object of their own.

use serde_json::{Value, json};

use super::conditions::{conditions, pending};
use super::definition::{Names, Version, age, condition_column, definition as define, root};
use super::gateway::PENDING;
use super::listener::{listener, listener_statuses, listeners};
use super::schema::{object, optional, required};
use super::{Channel, references};

pub(super) fn definition(channel: Channel) -> Value {
    let spec = object([
        required("listeners", "Ports, protocols and hostnames.", listeners(listener(channel))),
        required("parentRef", "The Gateway that the listeners belong to.", references::gateway()),
    ]);
    let status = object([
        optional("conditions", "The state of the set.", conditions().default(pending(&PENDING))),
        optional("listeners", "The state of each listener.", listener_statuses()),
    ])
    .default(json!({"conditions": pending(&PENDING)}));
    let columns = json!([condition_column("Accepted"), condition_column("Programmed"), age()]);
    let schema = root("ListenerSet adds listeners to a Gateway.", spec, Some(status));
    let names = Names { short: Some("lset"), ..Names::namespaced("ListenerSet", "listenersets") };
    define(channel, &names, [Version::stored("v1", columns, schema)])
}
