//! Who may send requests. An annotation that restricts access and cannot be honoured closes the rules: all requests fail,
//! as with ingress-nginx.

use api::view::ingress::password_secret;

use crate::ingress::Reason;
use crate::ingress::reader::{Reader, ranges};
use crate::policy::{BasicAuth, ExternalAuth, PasswordFormat, Policy, Template};

/// The status of rules that are closed.
const CLOSED: u16 = 503;

pub(super) fn read(policy: &mut Policy, reader: &mut Reader<'_>, namespace: &str) {
    let mut problems = Vec::new();
    let mut list = |keys: &[&str]| {
        let Some((key, text)) = reader.any(keys) else { return Vec::new() };
        ranges(text).unwrap_or_else(|| {
            problems
                .push(format!("annotation {key}: the value must be address ranges that commas separate, not `{text}`"));
            Vec::new()
        })
    };
    policy.allow = list(&["allowlist-source-range", "whitelist-source-range"]);
    policy.deny = list(&["denylist-source-range"]);
    match basic(reader, namespace) {
        Ok(auth) => policy.basic_auth = auth,
        Err(problem) => problems.push(problem),
    }
    match external(reader) {
        Ok(auth) => policy.external_auth = auth,
        Err(problem) => problems.push(problem),
    }
    let verifies = reader.text("auth-tls-verify-client").unwrap_or("on") == "on";
    if reader.text("auth-tls-secret").is_some() && verifies {
        problems.push("annotation auth-tls-secret: certificates of clients are verified by a Gateway only".to_owned());
    }
    if !problems.is_empty() {
        policy.refuse = Some(CLOSED);
    }
    for problem in problems {
        reader.find(Reason::AccessRefused, format!("{problem}; all requests fail with {CLOSED}"));
    }
}

fn basic(reader: &Reader<'_>, namespace: &str) -> Result<Option<BasicAuth>, String> {
    match reader.text("auth-type") {
        None => return Ok(None),
        Some("basic") => (),
        Some(other) => return Err(format!("annotation auth-type: `{other}` is not supported, only basic")),
    }
    let secret =
        password_secret(reader.annotations, namespace).map_err(|error| format!("annotation auth-secret: {error}"))?;
    let format = match reader.text("auth-secret-type") {
        None | Some("auth-file") => PasswordFormat::File,
        Some("auth-map") => PasswordFormat::Map,
        Some(other) => return Err(format!("annotation auth-secret-type: `{other}` is neither auth-file nor auth-map")),
    };
    // The realm is a quoted string of a header.
    let realm = reader.text("auth-realm").unwrap_or_default().replace(['"', '\\'], "");
    let realm = realm.chars().filter(|c| !c.is_control()).collect::<String>();
    Ok(Some(BasicAuth { realm: realm.into(), secret: secret.into(), format }))
}

fn external(reader: &mut Reader<'_>) -> Result<Option<ExternalAuth>, String> {
    let Some(url) = reader.text("auth-url") else { return Ok(None) };
    let mut auth = ExternalAuth::new(url).map_err(|error| format!("annotation auth-url: {error}"))?;
    // `$host` becomes the host of the rule.
    if auth.is_chosen_by_clients() && auth.at_host("host").is_none() {
        return Err(format!(
            "annotation auth-url: the host of `{url}` must have no variable but $host; name it, such as http://NAME.NAMESPACE.svc/auth"
        ));
    }
    if let Some(method) = reader.text("auth-method") {
        http::Method::from_bytes(method.as_bytes())
            .map_err(|_| format!("annotation auth-method: `{method}` is not a method"))?;
        auth.method = Some(method.into());
    }
    for header in reader.list("auth-response-headers").unwrap_or_default() {
        let is_header = http::HeaderName::from_bytes(header.as_bytes()).is_ok();
        if !is_header {
            return Err(format!("annotation auth-response-headers: `{header}` is not the name of a header"));
        }
        auth.response_headers.push(header);
    }
    if let Some(signin) = reader.text("auth-signin") {
        match ExternalAuth::signin_page(signin, reader.text("auth-signin-redirect-param")) {
            Ok(page) => auth.signin = Some(page),
            Err(error) => reader.reject("auth-signin", error),
        }
    }
    if let Some(redirect) = reader.text("auth-request-redirect") {
        match Template::parse(redirect) {
            Ok(redirect) => auth.request_redirect = redirect,
            Err(error) => reader.reject("auth-request-redirect", error),
        }
    }
    auth.always_set_cookie = reader.flag("auth-always-set-cookie").unwrap_or_default();
    Ok(Some(auth))
}
