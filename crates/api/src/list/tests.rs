use proptest::prelude::*;

use super::*;
use crate::selector::tests::SERVICE;

fn read(pairs: &[(&str, &str)]) -> Result<ListOptions, Status> {
    let query: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    parse(&SERVICE, &query, false)
}

fn refused(pairs: &[(&str, &str)]) -> (u16, String) {
    let status = read(pairs).expect_err("refused");
    (status.code, status.message)
}

fn invalid(words: &str) -> (u16, String) {
    (422, format!("ListOptions.meta.k8s.io \"\" is invalid: {words}"))
}

#[test]
fn a_list_shows_the_state_it_asks_for() {
    let snapshot = |pairs: &[(&str, &str)]| read(pairs).expect("fine").snapshot();
    assert_eq!(snapshot(&[]), Snapshot::Latest);
    assert_eq!(snapshot(&[("resourceVersion", "0"), ("limit", "5")]), Snapshot::Any);
    assert_eq!(snapshot(&[("resourceVersion", "7")]), Snapshot::NotOlderThan(7));
    assert_eq!(snapshot(&[("resourceVersion", "7"), ("limit", "5")]), Snapshot::Exact(7));
    assert_eq!(snapshot(&[("resourceVersion", "7"), ("limit", "-1")]), Snapshot::NotOlderThan(7));
    assert_eq!(snapshot(&[("resourceVersion", "7"), ("resourceVersionMatch", "Exact")]), Snapshot::Exact(7));
    let newer = [("resourceVersion", "7"), ("resourceVersionMatch", "NotOlderThan"), ("limit", "5")];
    assert_eq!(snapshot(&newer), Snapshot::NotOlderThan(7));
    let token = |version| Continue { version, start: "a\0".to_owned() }.encode();
    assert_eq!(snapshot(&[("continue", &token(9)), ("resourceVersion", "0")]), Snapshot::Exact(9));
    assert_eq!(snapshot(&[("continue", &token(-1))]), Snapshot::Latest);
}

#[test]
fn lists_are_checked() {
    assert_eq!(refused(&[("limit", "x")]), (400, "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned()));
    assert_eq!(
        refused(&[("resourceVersion", "abc")]),
        (
            400,
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
             invalid syntax"
                .to_owned()
        )
    );
    assert_eq!(
        refused(&[("resourceVersionMatch", "Exact"), ("resourceVersion", "0")]),
        invalid(
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
        )
    );
    assert_eq!(
        refused(&[("resourceVersionMatch", "Roughly"), ("resourceVersion", "5")]),
        invalid(
            "resourceVersionMatch: Unsupported value: \"Roughly\": supported values: \"Exact\", \"NotOlderThan\", \"\""
        )
    );
    assert_eq!(
        refused(&[("resourceVersionMatch", "Exact")]),
        invalid(
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    );
    assert_eq!(
        refused(&[("sendInitialEvents", "true")]),
        invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list")
    );
    let token = Continue { version: 3, start: "a\0".to_owned() }.encode();
    assert_eq!(
        refused(&[("continue", &token), ("resourceVersion", "5")]),
        (400, "specifying resource version is not allowed when using continue".to_owned())
    );
    // Syntax first, then the options among each other, then the fields of the kind.
    assert_eq!(refused(&[("sendInitialEvents", "1"), ("fieldSelector", "x")]).0, 400);
    assert_eq!(refused(&[("sendInitialEvents", "1"), ("fieldSelector", "x=1")]).0, 422);
}

#[test]
fn watches_are_checked() {
    let watch = |pairs: &[(&'static str, &'static str)]| [&[("watch", "true")], pairs].concat();
    assert_eq!(
        refused(&watch(&[("resourceVersionMatch", "NotOlderThan"), ("resourceVersion", "0")])),
        invalid(
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        )
    );
    assert_eq!(
        refused(&watch(&[("sendInitialEvents", "true"), ("resourceVersionMatch", "Exact"), ("resourceVersion", "5")])),
        invalid(
            "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, \
             resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]"
        )
    );
    let bad = read(&watch(&[("resourceVersion", "abc")])).expect_err("refused");
    assert_eq!((bad.code, bad.reason), (500, None));
    assert!(bad.message.starts_with("resourceVersion: Invalid value: \"abc\": strconv.ParseUint"));
    assert_eq!(
        refused(&watch(&[("fieldSelector", "spec.foo=x")])),
        (400, "field label not supported: spec.foo".to_owned())
    );
}

#[test]
fn a_watch_without_a_version_starts_with_what_is_there() {
    let initial = |pairs: &[(&str, &str)]| read(pairs).expect("fine").initial_events;
    assert_eq!(initial(&[("watch", "")]), Some(true));
    assert_eq!(initial(&[("watch", "1"), ("resourceVersion", "0")]), Some(true));
    assert_eq!(initial(&[("watch", "1"), ("resourceVersion", "5")]), None);
    let explicit = [("watch", "1"), ("sendInitialEvents", "false"), ("resourceVersionMatch", "NotOlderThan")];
    assert_eq!(initial(&explicit), Some(false));
    assert!(!read(&[("watch", "False")]).expect("fine").watch);
    let old_path = parse(&SERVICE, &[("resourceVersion".to_owned(), "5".to_owned())], true).expect("fine");
    assert!(old_path.watch && old_path.version == Some(5));
}

#[test]
fn tokens_have_the_known_form() {
    use base64::Engine as _;
    let token = Continue { version: 42, start: "ns/web\0".to_owned() }.encode();
    let json = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(&token).expect("base64");
    assert_eq!(json, br#"{"v":"meta.k8s.io/v1","rv":42,"start":"ns/web\u0000"}"#);
}

#[test]
fn bad_tokens_are_refused() {
    use base64::Engine as _;
    let words = |token: &str| {
        let status = Continue::decode(token).expect_err("refused");
        assert_eq!(status.code, 400);
        status.message.strip_prefix("invalid continue token: continue key is not valid: ").map(str::to_owned)
    };
    let of = |json: &str| words(&base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json));
    let said = |text: &str| Some(text.to_owned());
    assert_eq!(words("e30"), said("server does not recognize this encoded version "));
    assert_eq!(words("!"), said("illegal base64 data at input byte 0"));
    assert_eq!(words("e30="), said("illegal base64 data at input byte 3"));
    assert_eq!(words("abcde"), said("illegal base64 data at input byte 4"));
    assert_eq!(of("{"), said("unexpected end of JSON input"));
    assert_eq!(of("x"), said("invalid character 'x' looking for beginning of value"));
    assert_eq!(of("[]"), said("json: cannot unmarshal array into Go value of type storage.continueToken"));
    let version = "\"v\":\"meta.k8s.io/v1\"";
    assert_eq!(of(&format!("{{{version}}}")), said("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
    assert_eq!(of(&format!("{{{version},\"rv\":1}}")), said("encoded start key empty (version meta.k8s.io/v1)"));
    assert_eq!(of(&format!("{{{version},\"rv\":1,\"start\":\"../a\"}}")), said("../a"));
    assert_eq!(
        of(&format!("{{{version},\"rv\":\"1\"}}")),
        said("json: cannot unmarshal string into Go struct field continueToken.rv of type int64")
    );
}

proptest! {
    #[test]
    fn tokens_come_back(version in prop::num::i64::ANY, start in "[a-z0-9-]{1,20}(/[a-z0-9.-]*[a-z0-9])?\0?") {
        prop_assume!(version != 0);
        let token = Continue { version, start };
        prop_assert_eq!(Continue::decode(&token.encode()), Ok(token));
    }

    #[test]
    fn no_token_panics(text in "[ -~\n]*") {
        let _ = Continue::decode(&text);
    }

    #[test]
    fn base64_is_read_as_the_library_reads_it(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&bytes);
        prop_assert_eq!(token::decode_base64(&text), Ok(bytes));
    }
}
