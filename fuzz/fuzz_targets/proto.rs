//! A protobuf body: the envelope, then the message. A decoded message survives a round trip, and it has the shape of this
//! kind in JSON. A JSON object survives conversion to protobuf and back.
#![no_main]

use api::{decode, proto};
use api::schema::TypeId;
use api::value::ValueExt as _;
use libfuzzer_sys::fuzz_target;

/// Protobuf represents the same as JSON.
fn from_json(ty: TypeId, body: &[u8]) {
    let Ok(decoded) = decode::decode_json(ty, body) else { return };
    let mut value = decoded.value;
    value.drop_path("kind");
    value.drop_path("apiVersion");
    let mut through = proto::decode(ty, &proto::encode(ty, &value)).expect("we wrote it");
    decode::prune(ty, &mut value);
    decode::prune(ty, &mut through);
    assert_eq!(through, value);
}

fuzz_target!(|data: &[u8]| {
    let _ = proto::decode_envelope(data);
    let Some((kind, body)) = common::pick(data) else { return };
    let ty = kind.type_id();
    from_json(ty, body);
    let Ok(mut value) = proto::decode(ty, body) else { return };
    let bytes = proto::encode(ty, &value);
    let mut again = proto::decode(ty, &bytes).expect("we wrote it");
    assert_eq!(proto::encode(ty, &again), bytes);
    // A struct that was not set is encoded nevertheless; only its emptiness survives.
    decode::prune(ty, &mut value);
    decode::prune(ty, &mut again);
    assert_eq!(again, value);

    let mut checked = value.clone();
    decode::check(ty, &mut checked).unwrap_or_else(|error| panic!("{error}: {value}"));
    let envelope = proto::encode_envelope(&kind.api_version(), kind.kind, &bytes);
    let opened = proto::decode_envelope(&envelope).expect("we wrote it");
    assert_eq!((opened.kind.as_str(), opened.raw), (kind.kind, &bytes[..]));
});
