use serde_json::json;

use super::*;

fn query(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn message(result: Result<impl std::fmt::Debug, Status>) -> String {
    result.expect_err("refused").message
}

#[test]
fn a_create_warns_by_default() {
    let options = WriteOptions::create(&query(&[("dryRun", "All"), ("fieldManager", "me"), ("fieldManager", "you")]));
    let expected = WriteOptions {
        dry_run: true,
        field_manager: "me".into(),
        field_validation: FieldValidation::Warn,
        force: false,
    };
    assert_eq!(options, Ok(expected));
}

#[test]
fn bad_values_are_refused_in_order() {
    let status = WriteOptions::create(&query(&[("fieldValidation", "Maybe")])).expect_err("refused");
    let words =
        "fieldValidation: Unsupported value: \"Maybe\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
    assert_eq!(status.message, format!("CreateOptions.meta.k8s.io \"\" is invalid: {words}"));
    assert_eq!(status.details.as_ref().map(|details| details["kind"].clone()), Some(json!("CreateOptions")));
    assert_eq!(
        message(WriteOptions::update(&query(&[("dryRun", "Some"), ("dryRun", "All")]))),
        "UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\",\"All\"]: supported values: \"All\""
    );
    assert!(
        message(WriteOptions::create(&query(&[("fieldManager", &"m".repeat(129))])))
            .ends_with("is invalid: fieldManager: Too long: may not be more than 128 bytes")
    );
}

#[test]
fn managers_are_printable() {
    assert!(
        message(WriteOptions::create(&query(&[("fieldManager", "a\u{7}")])))
            .ends_with("fieldManager: Invalid value: \"a\\a\": invalid character U+0007 (at position 1)")
    );
    for fine in ["kubectl-client-side-apply", "é\u{301} ü 漢 '\"\\", "🙂"] {
        assert!(WriteOptions::create(&query(&[("fieldManager", fine)])).is_ok(), "{fine}");
    }
    for bad in ["\u{200b}", "\u{a0}", "\n", "\u{e000}"] {
        assert!(WriteOptions::create(&query(&[("fieldManager", bad)])).is_err(), "{bad:?}");
    }
}

#[test]
fn apply_needs_a_manager_and_only_apply_may_force() {
    assert_eq!(
        message(WriteOptions::patch(&query(&[]), true)),
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    assert_eq!(
        message(WriteOptions::patch(&query(&[("force", "false")]), false)),
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
    let forced = WriteOptions::patch(&query(&[("fieldManager", "m"), ("force", "true")]), true);
    assert!(forced.is_ok_and(|options| options.force));
}

#[test]
fn delete_options_come_from_the_body_or_the_query() {
    let body = json!({"gracePeriodSeconds": -1, "propagationPolicy": "Orphan", "preconditions": {"uid": ""}});
    let options = DeleteOptions::from_value(&body).expect("fine");
    assert_eq!(options.grace_period_seconds, Some(-1));
    assert_eq!(options.propagation, Some(Propagation::Orphan));
    assert_eq!((options.uid, options.dry_run), (Some(String::new()), false));

    let options = DeleteOptions::from_query(&query(&[("uid", ""), ("resourceVersion", "7"), ("dryRun", "All")]));
    let options = options.expect("fine");
    assert_eq!((options.uid, options.resource_version, options.dry_run), (None, Some("7".to_owned()), true));
    let status = DeleteOptions::from_query(&query(&[("gracePeriodSeconds", "x")])).expect_err("refused");
    assert_eq!((status.code, status.message.as_str()), (400, "strconv.ParseInt: parsing \"x\": invalid syntax"));
}

#[test]
fn policies_are_known_and_not_said_twice() {
    assert_eq!(
        message(DeleteOptions::from_value(&json!({"propagationPolicy": "Sideways"}))),
        "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": \
         supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
    );
    assert_eq!(
        message(DeleteOptions::from_value(&json!({"propagationPolicy": "Background", "orphanDependents": true}))),
        "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Background\": \
         orphanDependents and deletionPropagation cannot be both set"
    );
    assert_eq!(
        message(DeleteOptions::from_query(&query(&[("dryRun", "Some")]))),
        "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""
    );
}

#[test]
fn numbers_fail_as_in_go() {
    assert_eq!(parse_uint("+1"), Err("strconv.ParseUint: parsing \"+1\": invalid syntax".to_owned()));
    assert_eq!(parse_uint("-1"), Err("strconv.ParseUint: parsing \"-1\": invalid syntax".to_owned()));
    assert_eq!(parse_int(""), Err("strconv.ParseInt: parsing \"\": invalid syntax".to_owned()));
    let large = "99999999999999999999";
    assert_eq!(parse_uint(large), Err(format!("strconv.ParseUint: parsing \"{large}\": value out of range")));
    assert_eq!(parse_int("+5"), Ok(5));
}
