//! Server-side apply: two managers, one after the other, then the first again. Applying the same configuration again,
//! with force, changes nothing.
#![no_main]

use api::apply::{Manager, apply, revert_times, track_update};
use api::value::ValueExt as _;
use api::yaml::from_yaml;
use api::{decode, kind::Kind};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// One apply as the server does it: the result is checked and defaulted.
fn applied(kind: &Kind, live: Option<&Value>, config: &[u8], who: &str) -> Option<Value> {
    let (mut config, _) = from_yaml(config).ok().filter(|(config, _)| config.is_object())?;
    config.put("kind", kind.kind);
    config.put("apiVersion", kind.api_version());
    let version = kind.api_version();
    let manager = Manager { name: who, api_version: &version, subresource: "" };
    let mut object = apply(kind.type_id(), live, &config, &manager, true, "2026-01-01T00:00:00Z").ok()?;
    decode::check(kind.type_id(), &mut object).ok()?;
    kind.rules.default(&mut object);
    if let Some(live) = live {
        revert_times(live, &mut object);
    }
    Some(object)
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = common::pick(data) else { return };
    let (first, second) = common::halves(rest);
    let Some(one) = applied(kind, None, first, "one") else { return };
    let _ = applied(kind, Some(&common::sample(kind)), first, "kubectl");
    let Some(both) = applied(kind, Some(&one), second, "two") else { return };
    let mut updated = one.clone();
    let version = kind.api_version();
    track_update(
        kind.type_id(),
        Some(&both),
        &mut updated,
        &Manager { name: "three", api_version: &version, subresource: "" },
        "2026-01-01T00:00:00Z",
    );
    let Some(settled) = applied(kind, Some(&both), second, "two") else { return };
    let again = applied(kind, Some(&settled), second, "two");
    assert_eq!(again.as_ref(), Some(&settled), "the same apply changes something");
});
