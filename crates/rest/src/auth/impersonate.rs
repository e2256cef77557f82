//! Acting as someone else: the `Impersonate-*` headers.
//!
//! In: the user who asks, and the headers. Out: the user to act as. Each thing that is taken on (name, uid, groups,
//! extra) must be allowed by [`crate::authz`] with the verb `impersonate`; the words of a refusal are its words.

use api::status::Status;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, service_account};
use crate::authz::{self, Attributes};

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const EXTRA: &str = "impersonate-extra-";
/// The group of the resources that stand for parts of a user.
const API_GROUP: &str = "authentication.k8s.io";

/// The user as whom a request acts, when the one who asks may.
pub(super) fn act(user: &User, mut wanted: User) -> Result<User, Status> {
    authorize(user, &wanted)?;
    if let Some((namespace, _)) = service_account::split_username(&wanted.name)
        && wanted.groups.is_empty()
    {
        wanted.groups = service_account::groups(namespace);
    }
    if wanted.name == ANONYMOUS {
        wanted.add_group(UNAUTHENTICATED);
    } else if !wanted.is_in(UNAUTHENTICATED) {
        wanted.add_group(AUTHENTICATED);
    }
    tracing::debug!(user = user.name, acting_as = wanted.name, "impersonation");
    Ok(wanted)
}

/// As whom a request is to act, in the words of its headers; nobody else when there are none.
pub(super) fn wanted(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let mut wanted = User { name: single(headers, &USER)?, uid: single(headers, &UID)?, ..User::default() };
    for value in headers.get_all(GROUP) {
        wanted.groups.push(text(value)?.to_owned());
    }
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            wanted.extra.entry(unescape(key)).or_default().push(text(value)?.to_owned());
        }
    }
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == User::default() {
        return Ok(None);
    }
    Err(Status::bad_request("requested a uid, groups or extra without impersonating a user name"))
}

fn authorize(user: &User, wanted: &User) -> Result<(), Status> {
    let base = Attributes {
        user,
        verb: "impersonate",
        group: "",
        resource: "users",
        subresource: "",
        name: &wanted.name,
        namespace: "",
        fields: &[],
        path: None,
    };
    let name = match service_account::split_username(&wanted.name) {
        Some((namespace, name)) => Attributes { resource: "serviceaccounts", namespace, name, ..base },
        None => base,
    };
    authz::require(&name, &authz::Nothing)?;
    if !wanted.uid.is_empty() {
        authz::require(&Attributes { group: API_GROUP, resource: "uids", name: &wanted.uid, ..base }, &authz::Nothing)?;
    }
    for group in &wanted.groups {
        authz::require(&Attributes { resource: "groups", name: group, ..base }, &authz::Nothing)?;
    }
    for (key, values) in &wanted.extra {
        for value in values {
            let extra = Attributes { group: API_GROUP, resource: "userextras", subresource: key, name: value, ..base };
            authz::require(&extra, &authz::Nothing)?;
        }
    }
    Ok(())
}

/// A header that may be there once; absent reads as empty.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<String, Status> {
    let mut values = headers.get_all(name).iter();
    let first: Option<&'h HeaderValue> = values.next();
    if values.next().is_some() {
        return Err(Status::unauthorized());
    }
    Ok(first.map(text).transpose()?.unwrap_or_default().to_owned())
}

fn text(value: &HeaderValue) -> Result<&str, Status> {
    std::str::from_utf8(value.as_bytes()).map_err(|_| Status::unauthorized())
}

/// Undoes percent-encoding; what is not well encoded stays as it is.
fn unescape(key: &str) -> String {
    let mut out = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first != b'%' {
            out.push(*first);
            rest = tail;
            continue;
        }
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(byte) = byte.and_then(|two| u8::from_str_radix(two, 16).ok()) else { return key.to_owned() };
        out.push(byte);
        rest = &tail[2..];
    }
    String::from_utf8(out).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_keys_are_unescaped() {
        assert_eq!(unescape("acme.com%2fproject"), "acme.com/project");
        for odd in ["50%", "%zz", "%2", "%+1", "%ff"] {
            assert_eq!(unescape(odd), odd);
        }
    }
}
