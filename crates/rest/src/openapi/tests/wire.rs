//! The binary form, read back by a reader that knows only the wire format and the published field numbers.

use super::*;

/// A field: its number and its bytes; plain numbers have none.
type Field<'a> = (u64, &'a [u8]);

fn varint(input: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = input.split_first().expect("a byte");
        *input = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return value;
        }
    }
}

fn fields(mut input: &[u8]) -> Vec<Field<'_>> {
    let mut out = Vec::new();
    while !input.is_empty() {
        let key = varint(&mut input);
        match key & 7 {
            0 => {
                varint(&mut input);
                out.push((key >> 3, &[][..]));
            }
            2 => {
                let length = usize::try_from(varint(&mut input)).expect("a length");
                let (bytes, rest) = input.split_at(length);
                out.push((key >> 3, bytes));
                input = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    out
}

fn all(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter(move |field| field.0 == number).map(|field| field.1)
}

fn one(message: &[u8], number: u64) -> &[u8] {
    all(message, number).next().unwrap_or_else(|| panic!("no field {number}"))
}

fn text(message: &[u8], number: u64) -> &str {
    std::str::from_utf8(one(message, number)).expect("text")
}

/// The value of the pair with this name among repeated pairs.
fn pair<'a>(pairs: &'a [u8], number: u64, name: &str) -> &'a [u8] {
    let found = all(pairs, number).find(|pair| text(pair, 1) == name);
    one(found.unwrap_or_else(|| panic!("no {name}")), 2)
}

#[test]
fn definitions_and_paths_are_all_there() {
    let openapi = OpenApi::new(KINDS);
    let (bytes, document) = (openapi.v2_proto().plain(), v2());
    assert_eq!(text(&bytes, 1), "2.0");
    assert_eq!(text(one(&bytes, 2), 1), "Kubernetes");
    let definitions: Vec<&str> = all(one(&bytes, 9), 1).map(|pair| text(pair, 1)).collect();
    let expected: Vec<&String> = document["definitions"].as_object().expect("definitions").keys().collect();
    assert_eq!(definitions, expected);
    let paths: Vec<&str> = all(one(&bytes, 8), 2).map(|pair| text(pair, 1)).collect();
    let expected: Vec<&String> = document["paths"].as_object().expect("paths").keys().collect();
    assert_eq!(paths, expected);
    assert_eq!(openapi.v2_proto().hash, openapi.v2_json().hash);
}

#[test]
fn a_schema_keeps_types_references_and_extensions() {
    let bytes = OpenApi::new(KINDS).v2_proto().plain();
    let spec = pair(one(&bytes, 9), 1, "io.k8s.api.core.v1.ServiceSpec");
    let ports = pair(one(spec, 25), 1, "ports");
    assert_eq!(text(one(ports, 22), 1), "array");
    assert_eq!(text(one(one(ports, 23), 1), 1), "#/definitions/io.k8s.api.core.v1.ServicePort");
    let keys = all(ports, 31).find(|named| text(named, 1) == "x-kubernetes-list-map-keys").expect("keys");
    assert_eq!(text(one(keys, 2), 2), r#"["port","protocol"]"#);
    let selector = pair(one(spec, 25), 1, "selector");
    assert_eq!(text(one(one(one(selector, 21), 1), 22), 1), "string");
    let port = pair(one(&bytes, 9), 1, "io.k8s.api.core.v1.ServicePort");
    assert_eq!(all(port, 19).collect::<Vec<_>>(), [b"port"]);
}

#[test]
fn a_patch_has_its_kind_body_and_parameters() {
    let bytes = OpenApi::new(KINDS).v2_proto().plain();
    let path = pair(one(&bytes, 8), 2, "/api/v1/namespaces/{namespace}/services/{name}");
    let patch = one(path, 8);
    let gvk = all(patch, 13).find(|named| text(named, 1) == "x-kubernetes-group-version-kind").expect("a kind");
    let gvk: Value = serde_json::from_str(text(one(gvk, 2), 2)).expect("JSON");
    assert_eq!(gvk, json!({ "group": "", "version": "v1", "kind": "Service" }));
    // Each parameter is wrapped: item → parameter → (body, or other → query).
    let parameters: Vec<&[u8]> = all(patch, 8).map(|item| one(item, 1)).collect();
    assert_eq!(text(one(parameters[0], 1), 3), "body");
    let names: Vec<&str> = parameters[1..].iter().map(|item| text(one(one(item, 2), 3), 4)).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let own: Vec<&str> = all(path, 9)
        .map(|item| one(one(item, 1), 2))
        .filter_map(|other| all(other, 4).next())
        .map(|in_path| text(in_path, 4))
        .collect();
    assert_eq!(own, ["name", "namespace"]);
    let response = pair(one(patch, 9), 1, "200");
    assert_eq!(text(one(one(one(response, 1), 2), 1), 1), "#/definitions/io.k8s.api.core.v1.Service");
}

#[test]
fn security_is_kept() {
    let bytes = OpenApi::new(KINDS).v2_proto().plain();
    assert_eq!(text(one(pair(one(&bytes, 13), 1, "BearerToken"), 2), 3), "header");
    assert!(pair(one(&bytes, 12), 1, "BearerToken").is_empty());
}
