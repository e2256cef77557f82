//! A path of a column or selectable field, a zero byte, and an object: parsed or refused; what it leads to is shown as a cell of every
//! type, and the same each time.
#![no_main]

use api::crd::jsonpath::JsonPath;
use api::crd::{columns, scale, selectable};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const TYPES: [&str; 5] = ["string", "integer", "number", "boolean", "date"];

fuzz_target!(|data: &[u8]| {
    let (path, object) = common::halves(data);
    let Ok(path) = std::str::from_utf8(path) else { return };
    let mut object: Value = serde_json::from_slice(object).unwrap_or_else(
        |_| json!({"metadata": {"name": "a"}, "spec": {"a": [1, {"b": "c"}, [2, 3]], "b": {"c": 1.5}}}),
    );
    if let Ok(parsed) = JsonPath::parse(path) {
        assert_eq!(parsed.first(&object), parsed.first(&object));
    }
    let listed = TYPES.map(|kind| json!({"name": kind, "type": kind, "jsonPath": path}));
    let version = json!({"additionalPrinterColumns": listed, "selectableFields": [{"jsonPath": path}]});
    let columns = columns::columns(&version);
    let cells = columns::row(&columns, &object, Timestamp::UNIX_EPOCH);
    assert_eq!(cells.len(), columns.definitions().len(), "a row has a cell for each column");
    assert_eq!(selectable::selectable(&version).fields(&object).len(), 1);

    let paths = json!({"specReplicasPath": path, "statusReplicasPath": path, "labelSelectorPath": path});
    if let Ok(mut shown) = scale::show(&paths, &object) {
        shown["spec"]["replicas"] = 7.into();
        let _ = scale::put(&paths, &mut object, &shown);
    }
});
