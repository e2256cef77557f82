//! Strategic merge patches of an object: merged by keys, or refused; and then checked and defaulted as any object.
#![no_main]

use api::decode;
use api::options::FieldValidation;
use api::patch::{Patch, PatchError, PatchKind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = common::pick(data) else { return };
    let object = common::sample(kind);
    let Ok(patch) = Patch::parse(PatchKind::Strategic, body, FieldValidation::Warn) else { return };
    match patch.apply(kind.type_id(), &object).map_err(PatchError::into_status) {
        Ok(mut patched) => match decode::check(kind.type_id(), &mut patched) {
            Ok(_) => kind.rules.default(&mut patched),
            Err(error) => drop(patch.refuse(kind.type_id(), &object, &error.to_string())),
        },
        Err(status) => assert!(status.code >= 400),
    }
});
