//! Secrets that grant access: join tokens, and ServiceAccount tokens that do not expire.

use api::bootstrap_token::{Kept, Until};
use api::value::ValueExt as _;
use api::view::annotations::SERVICE_ACCOUNT_NAME;
use jiff::Timestamp;
use serde_json::Value;

use super::{Finding, Severity};

pub(super) const JOIN: &str = "join-tokens";
pub(super) const LEGACY: &str = "legacy-tokens";

/// The type of Secrets that hold a token of a ServiceAccount.
pub const LEGACY_TYPE: &str = "kubernetes.io/service-account-token";

/// How long machines take to join, in seconds.
const DAY: i64 = 86_400;

/// Tokens with which a machine joins that never end, or are older than a day.
pub(super) fn join_tokens(secrets: &[Value], now: Timestamp) -> Vec<Finding> {
    let finding = |secret: &Value| {
        let kept = Kept::read(secret).filter(|kept| kept.authenticates)?;
        let age = secret.text("metadata.creationTimestamp").parse::<Timestamp>().ok();
        let age = age.map_or(0, |since| now.as_second().saturating_sub(since.as_second()));
        let saw = match kept.until {
            Until::Removed => "does not expire: its holder can join as a node",
            Until::Time(end) if end > now && age > DAY => "is older than a day and still lets machines join",
            Until::Time(_) | Until::Unreadable => return None,
        };
        Some(Finding {
            check: JOIN,
            severity: Severity::Warning,
            object: format!("join token {}", kept.token.id()),
            saw: saw.to_owned(),
            fix: format!("waypost token delete {}; waypost token create makes one for a day", kept.token.id()),
        })
    };
    secrets.iter().filter_map(finding).collect()
}

/// Secrets with tokens of ServiceAccounts, which never end.
pub(super) fn legacy_tokens(secrets: &[Value]) -> Vec<Finding> {
    let legacy = secrets.iter().filter(|secret| secret.text("type") == LEGACY_TYPE);
    let finding = |secret: &Value| {
        let (namespace, name) = (secret.text("metadata.namespace"), secret.text("metadata.name"));
        let account = secret.at("metadata.annotations").get(SERVICE_ACCOUNT_NAME);
        let account = account.and_then(Value::as_str).unwrap_or("ACCOUNT");
        Finding {
            check: LEGACY,
            severity: Severity::Warning,
            object: format!("Secret {namespace}/{name}"),
            saw: format!("holds a token of ServiceAccount {namespace}/{account} that never ends"),
            fix: format!(
                "use projected tokens or kubectl create token {account} -n {namespace}; then kubectl delete secret {name} -n {namespace}"
            ),
        }
    };
    legacy.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use api::bootstrap_token::Token;
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    fn found(created: i64, until: Option<i64>) -> usize {
        let token = Token::parse("abcdef.0123456789abcdef").expect("a token");
        let mut secret = token.keep("", until.map(at));
        // As the API returns it.
        if let Some(Value::Object(texts)) = secret.drop_path("stringData") {
            use base64::Engine as _;
            for (key, value) in texts {
                let text = base64::engine::general_purpose::STANDARD.encode(value.as_str().expect("text"));
                secret["data"][key] = json!(text);
            }
        }
        secret["metadata"]["creationTimestamp"] = json!(at(created).to_string());
        join_tokens(&[secret], at(0)).len()
    }

    #[test]
    fn join_tokens_that_outlive_a_day_are_found() {
        assert_eq!(found(-10, None), 1, "it never ends");
        assert_eq!(found(-2 * DAY, Some(DAY)), 1, "it is two days old");
        assert_eq!(found(-10, Some(DAY)), 0, "it is new");
        assert_eq!(found(-2 * DAY, Some(-1)), 0, "it has ended");
    }

    #[test]
    fn tokens_in_secrets_are_found() {
        let secret = |kind: &str| json!({"metadata": {"name": "t", "namespace": "shop"}, "type": kind});
        let found = legacy_tokens(&[secret(LEGACY_TYPE), secret("Opaque")]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].object == "Secret shop/t" && found[0].fix.contains("kubectl delete secret t -n shop"),
            "{found:?}"
        );
    }
}
