//! JSON patches and merge patches of an object: whatever comes out can be checked against the schema, or is refused.
#![no_main]

use api::decode;
use api::options::FieldValidation;
use api::patch::{Patch, PatchKind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = common::pick(data) else { return };
    let object = common::sample(kind);
    for format in [PatchKind::Json, PatchKind::Merge] {
        for validation in [FieldValidation::Strict, FieldValidation::Ignore] {
            let Ok(patch) = Patch::parse(format, body, validation) else { continue };
            let Ok(mut patched) = patch.apply(kind.type_id(), &object) else { continue };
            if format == PatchKind::Merge {
                let twice = patch.apply(kind.type_id(), &patched);
                assert_eq!(twice.as_ref(), Ok(&patched), "a merge patch applied twice is applied once");
            }
            if let Err(error) = decode::check(kind.type_id(), &mut patched) {
                let _ = patch.refuse(kind.type_id(), &object, &error.to_string());
            }
        }
    }
});
