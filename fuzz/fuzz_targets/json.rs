//! A JSON body, all the way: decoded, defaulted, validated, pruned, stored, read, shown. What was decoded once decodes to
//! itself, and what was stored is what is read.
#![no_main]

use api::field::Errors;
use api::{decode, object};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = common::pick(data) else { return };
    let _ = decode::find_kind(body);
    let Ok(decoded) = decode::decode_json(kind.type_id(), body) else { return };
    let again = decode::decode_json(kind.type_id(), decoded.value.to_string().as_bytes()).expect("it was decoded before");
    assert_eq!(again.value, decoded.value);

    let mut made = decoded.value;
    kind.rules.default(&mut made);
    kind.rules.prepare_create(&mut made);
    let mut errors = Errors::default();
    kind.rules.validate_create(&made, &mut errors);
    kind.rules.warnings(&made, None, &mut Vec::new());
    decode::prune(kind.type_id(), &mut made);
    let mut pruned = made.clone();
    decode::prune(kind.type_id(), &mut pruned);
    assert_eq!(pruned, made, "pruning again changes something");

    let _ = kind.facts(&made);
    let _ = (kind.table_view.row)(&made, Timestamp::UNIX_EPOCH);
    let stored = object::encode(&made);
    let read = object::decode(kind, &stored, 7);
    let mut shown = Vec::new();
    object::write_json(&mut shown, kind, &stored, 7, true);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&shown).expect("JSON"), read);
});
