//! What a policy says, once for all of its targets: text becomes values.
//!
//! The server has checked policies when they were written; objects of another server, or of a later version, may still have
//! values that are not known here. A restriction that cannot be understood closes the targets, a setting is left out.

use std::sync::Arc;
use std::time::Duration;

use api::view::traffic_policy::{
    Authentication as AuthenticationSpec, BasicAuthentication, ConsistentHash, ExternalAuthentication, LoadBalancing,
    OutlierDetection, Session, SessionCookie, TrafficPolicySpec, TrafficRateLimit,
};
use api::{gateway_duration, quantity};
use http::HeaderName;
use ipnet::IpNet;

use super::fields::{Authentication, Fields, Ranges, Restrictions, Settings, Timeouts};
use crate::policy::{
    BalancingMethod, BasicAuth, ConnectionLimit, CookieAffinity, ExternalAuth, HashKey, Outlier, PasswordFormat,
    RateKey, RateLimit, SameSite, SlowStart, Template, source_range,
};

/// The status of requests beyond a limit.
const TOO_MANY: u16 = 429;

/// What a policy says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Compiled {
    fields: Fields,
    /// Values that are not understood: field and reason.
    pub(crate) problems: Vec<String>,
    /// `namespace/name` of the Secret with passwords.
    pub(crate) passwords: Option<Arc<str>>,
}

impl Compiled {
    /// Reads the spec of a policy of this namespace.
    pub(crate) fn new(namespace: &str, spec: &TrafficPolicySpec) -> Self {
        let mut problems = Vec::new();
        let mut restrictions = restrictions(namespace, spec, &mut problems);
        restrictions.is_closed = !problems.is_empty();
        let settings = settings(spec, &mut problems);
        let authentication = restrictions.authentication.as_ref();
        let passwords = authentication.and_then(|auth| auth.basic.as_ref()).map(|basic| Arc::clone(&basic.secret));
        Self { fields: Fields { restrictions, settings }, problems, passwords }
    }

    /// Its fields for a target, whose limits are counted apart from those of other targets.
    pub(crate) fn at(&self, zone: &str) -> Fields {
        let Fields { restrictions, settings } = self.fields.clone();
        Fields { restrictions: restrictions.with_zone(zone), settings }
    }

    /// Its settings.
    pub(crate) const fn settings(&self) -> &Settings {
        &self.fields.settings
    }

    /// Whether it closes its targets.
    pub(crate) const fn is_closed(&self) -> bool {
        self.fields.restrictions.is_closed
    }
}

/// Keeps the problem of a field; its value otherwise.
fn keep<T>(problems: &mut Vec<String>, field: &str, value: Result<T, String>) -> Option<T> {
    value.map_err(|why| problems.push(format!("{field}: {why}"))).ok()
}

fn restrictions(namespace: &str, spec: &TrafficPolicySpec, problems: &mut Vec<String>) -> Restrictions {
    let body = spec.request_body.as_ref().map(|body| size(&body.max_size));
    let ranges = spec.source_ranges.as_ref().map(|given| {
        let (allow, deny) = (nets(&given.allow)?, nets(&given.deny)?);
        Ok(Ranges { allow, deny })
    });
    let authentication = spec.authentication.as_ref().map(|given| authentication(namespace, given));
    let limits = (!spec.rate_limits.is_empty()).then(|| spec.rate_limits.iter().map(rate_limit).collect());
    let connections = spec.max_concurrent_requests.as_ref().map(|given| {
        let exempt = nets(&given.exempt)?;
        Ok(ConnectionLimit { zone: "".into(), limit: given.limit, exempt, status: TOO_MANY })
    });
    Restrictions {
        body_limit: body.and_then(|body| keep(problems, "requestBody.maxSize", body)),
        ranges: ranges.and_then(|ranges| keep(problems, "sourceRanges", ranges)),
        authentication: authentication.and_then(|given| keep(problems, "authentication", given)),
        rate_limits: limits.and_then(|limits| keep(problems, "rateLimits", limits)),
        connection_limit: connections.and_then(|given| keep(problems, "maxConcurrentRequests", given)),
        require_https: spec.require_https,
        is_closed: false,
    }
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = quantity::thousandths(text).map(|thousandths| thousandths / 1000);
    bytes.ok_or_else(|| format!("\"{text}\" is not a quantity"))
}

fn nets(texts: &[Box<str>]) -> Result<Vec<IpNet>, String> {
    let net = |text: &str| {
        let net = text.parse::<IpNet>().ok().and_then(source_range);
        net.ok_or_else(|| format!("\"{text}\" is not an address range"))
    };
    texts.iter().map(|text| net(text)).collect()
}

fn authentication(namespace: &str, given: &AuthenticationSpec) -> Result<Authentication, String> {
    let basic = given.basic.as_ref().map(|BasicAuthentication { secret_name, realm }| BasicAuth {
        realm: realm.clone(),
        secret: format!("{namespace}/{secret_name}").into(),
        format: PasswordFormat::File,
    });
    let external = given.external.as_ref().map(external).transpose()?;
    if basic.is_none() && external.is_none() {
        return Err("the way of authentication is not known".to_owned());
    }
    Ok(Authentication { basic, external })
}

fn external(given: &ExternalAuthentication) -> Result<ExternalAuth, String> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut auth = ExternalAuth::new(&given.url).map_err(|error| format!("external.url: {error}"))?;
    if auth.is_chosen_by_clients() {
        return Err("external.url: the host has variables".to_owned());
    }
    auth.method = text(&given.method).map(Into::into);
    if let Some(page) = text(&given.sign_in_url) {
        let page = ExternalAuth::signin_page(&page, text(&given.sign_in_redirect_parameter).as_deref());
        auth.signin = Some(page.map_err(|error| format!("external.signInURL: {error}"))?);
    }
    if let Some(redirect) = text(&given.request_redirect) {
        let redirect = Template::parse(&redirect);
        auth.request_redirect = redirect.map_err(|error| format!("external.requestRedirect: {error}"))?;
    }
    auth.response_headers.clone_from(&given.response_headers);
    auth.always_set_cookie = given.always_set_cookie;
    Ok(auth)
}

fn rate_limit(given: &TrafficRateLimit) -> Result<RateLimit, String> {
    let seconds = match &*given.per {
        "Second" => 1,
        "Minute" => 60,
        "Hour" => 3600,
        other => return Err(format!("the period \"{other}\" is not known")),
    };
    let key = match &*given.key.kind {
        "" | "Client" => RateKey::Client,
        "Header" => RateKey::Header(given.key.header.clone()),
        other => return Err(format!("the key \"{other}\" is not known")),
    };
    Ok(RateLimit {
        zone: "".into(),
        requests: given.requests,
        per: Duration::from_secs(seconds),
        burst: given
            .burst
            .map_or(Ok(given.requests), u32::try_from)
            .map_err(|_| "the burst is out of range".to_owned())?,
        key,
        exempt: nets(&given.exempt)?,
        status: TOO_MANY,
    })
}

fn settings(spec: &TrafficPolicySpec, problems: &mut Vec<String>) -> Settings {
    let timeouts = spec.timeouts.as_ref().map(|given| {
        let limit = |text: &str| if text.is_empty() { Ok(None) } else { duration(text).map(Some) };
        Ok(Timeouts { connect: limit(&given.connect)?, read: limit(&given.read)?, send: limit(&given.send)? })
    });
    let slow_start = spec.slow_start.as_ref().map(|given| duration(&given.window).map(|window| SlowStart { window }));
    let method = spec.load_balancing.as_ref().map(method);
    let outlier = spec.outlier_detection.as_ref().map(outlier);
    let session = spec.session.as_ref().map(session);
    Settings {
        timeouts: timeouts.and_then(|timeouts| keep(problems, "timeouts", timeouts)),
        method: method.and_then(|method| keep(problems, "loadBalancing", method)),
        outlier: outlier.and_then(|outlier| keep(problems, "outlierDetection", outlier)),
        slow_start: slow_start.and_then(|slow_start| keep(problems, "slowStart.window", slow_start)),
        session: session.and_then(|session| keep(problems, "session", session)),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    gateway_duration::parse(text).ok_or_else(|| format!("\"{text}\" is not a duration"))
}

fn method(given: &LoadBalancing) -> Result<BalancingMethod, String> {
    match (&*given.kind, &given.consistent_hash) {
        ("LeastRequest", _) => Ok(BalancingMethod::LeastRequest),
        ("RoundRobin", _) => Ok(BalancingMethod::RoundRobin),
        ("Random", _) => Ok(BalancingMethod::Random),
        ("ConsistentHash", Some(hash)) => hash_key(hash).map(BalancingMethod::ConsistentHash),
        ("ConsistentHash", None) => Err("consistentHash is missing".to_owned()),
        (other, _) => Err(format!("the type \"{other}\" is not known")),
    }
}

fn hash_key(hash: &ConsistentHash) -> Result<HashKey, String> {
    let name = hash.name.clone();
    Ok(match &*hash.kind {
        "SourceIP" => HashKey::Source,
        "Header" => {
            let header = HeaderName::from_bytes(name.as_bytes());
            HashKey::Header(header.map_err(|_| format!("\"{name}\" is not the name of a header"))?)
        }
        "Cookie" => HashKey::Cookie(name),
        "QueryParam" => HashKey::Query(name),
        "Path" => HashKey::Path,
        other => return Err(format!("the hash of \"{other}\" is not known")),
    })
}

fn outlier(given: &OutlierDetection) -> Result<Outlier, String> {
    let default = Outlier::default();
    let time = |text: &str, default| if text.is_empty() { Ok(default) } else { duration(text) };
    let errors = u16::try_from(given.consecutive_errors).unwrap_or(u16::MAX);
    Ok(Outlier {
        consecutive_errors: if errors == 0 { default.consecutive_errors } else { errors },
        base_ejection: time(&given.base_ejection_time, default.base_ejection)?,
        max_ejection: time(&given.max_ejection_time, default.max_ejection)?,
        max_ejection_percent: match given.max_ejection_percent {
            0 => default.max_ejection_percent,
            percent => percent.min(100),
        },
        statuses: default.statuses,
    })
}

fn session(given: &Session) -> Result<CookieAffinity, String> {
    let SessionCookie { name, path, domain, max_age, secure, same_site } = &given.cookie;
    let text = |text: &str| (!text.is_empty()).then(|| text.into());
    let same_site = match &**same_site {
        "" => None,
        "None" => Some(SameSite::None),
        "Lax" => Some(SameSite::Lax),
        "Strict" => Some(SameSite::Strict),
        other => return Err(format!("sameSite \"{other}\" is not known")),
    };
    Ok(CookieAffinity {
        path: Some(text(path).unwrap_or_else(|| "/".into())),
        domain: text(domain),
        max_age: if max_age.is_empty() { None } else { Some(duration(max_age)?) },
        secure: *secure,
        same_site,
        change_on_failure: given.change_on_failure.unwrap_or(true),
        is_persistent: true,
        ..CookieAffinity::new(name)
    })
}
