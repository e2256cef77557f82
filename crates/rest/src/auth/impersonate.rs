//! Impersonation: the `Impersonate-*` headers.
//!
//! In: the user, the headers, and the request. Out: the user to act as. Each impersonated attribute (name, uid, groups, extra) must be
//! allowed with the verb of a mode. The constrained modes also need permission for this request while impersonating
//! (`impersonate-on:MODE:VERB`); the verb `impersonate` allows everything that the impersonated user may do. The first mode that allows it
//! is used; a refusal has the message of the first mode that was tried.

use std::collections::HashMap;

use api::names;
use api::status::Status;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, service_account};
use crate::authz::node::{NODES, USER_PREFIX as NODE_PREFIX};
use crate::authz::{Attributes, Authorizer, refused};
use crate::pki::MASTERS;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const EXTRA: &str = "impersonate-extra-";
/// The API group of the resources for attributes of a user.
const API_GROUP: &str = "authentication.k8s.io";
/// In a token of a Pod: the node that it runs on.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// For how many users the last mode is cached.
const MAX_CACHED: usize = 1024;

/// The modes of impersonation, in the order in which they are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// The node that the Pod of the ServiceAccount runs on.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    ServiceAccount,
    /// Users that are neither nodes nor ServiceAccounts.
    UserInfo,
    /// The verb `impersonate`, without constraint.
    Unconstrained,
}

const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Unconstrained];

/// Authorizes impersonation, and caches the mode of a user: it is tried first the next time.
#[derive(Default)]
pub(crate) struct Impersonation {
    last: Mutex<HashMap<String, Mode>>,
}

impl Impersonation {
    /// The user as whom a request acts, and the constrained mode that allowed it, if any; `attributes` are those of the request with the
    /// authenticated user.
    ///
    /// # Errors
    /// 403 when that is not allowed, 400 when the headers are invalid.
    pub(crate) fn resolve(
        &self,
        authorizer: &Authorizer,
        headers: &HeaderMap,
        attributes: &Attributes<'_>,
    ) -> Result<Option<(User, Option<&'static str>)>, Status> {
        let Some(wanted) = wanted(headers)? else { return Ok(None) };
        let known = self.last.lock().get(&attributes.user.name).copied();
        let others = MODES.into_iter().filter(|mode| Some(*mode) != known);
        let mut refusal = None;
        for mode in known.into_iter().chain(others).filter(|mode| mode.applies(&wanted, attributes.user)) {
            match mode.check(authorizer, &wanted, attributes) {
                Ok(user) => {
                    self.remember(&attributes.user.name, mode);
                    tracing::debug!(user = attributes.user.name, impersonated = user.name, ?mode, "impersonate user");
                    return Ok(Some((user, mode.name())));
                }
                Err(status) => refusal = refusal.or(Some(status)),
            }
        }
        Err(refusal.unwrap_or_else(|| Status::internal("no mode of impersonation applies")))
    }

    fn remember(&self, user: &str, mode: Mode) {
        let mut last = self.last.lock();
        if last.len() >= MAX_CACHED && !last.contains_key(user) {
            last.clear();
        }
        last.insert(user.to_owned(), mode);
    }
}

impl Mode {
    /// The name in verbs; `None` for the mode without constraint.
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::AssociatedNode => Some("associated-node"),
            Self::ArbitraryNode => Some("arbitrary-node"),
            Self::ServiceAccount => Some("serviceaccount"),
            Self::UserInfo => Some("user-info"),
            Self::Unconstrained => None,
        }
    }

    /// Whether this mode applies to such a user.
    fn applies(self, wanted: &User, user: &User) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node_name(&wanted.name), service_account::split_username(&wanted.name));
        match self {
            Self::AssociatedNode => {
                let own = user.extra.get(NODE_NAME).and_then(|values| values.first());
                let is_account = service_account::split_username(&user.name).is_some();
                only_name && is_account && node.is_some() && own.map(String::as_str) == node
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Unconstrained => true,
        }
    }

    fn check(self, authorizer: &Authorizer, wanted: &User, attributes: &Attributes<'_>) -> Result<User, Status> {
        let verb = match self.name() {
            Some(name) => {
                let on = format!("impersonate-on:{name}:{}", attributes.verb);
                authorizer.require(&Attributes { verb: &on, ..*attributes })?;
                format!("impersonate:{name}")
            }
            None => "impersonate".to_owned(),
        };
        let base = Attributes {
            user: attributes.user,
            verb: &verb,
            group: API_GROUP,
            resource: "",
            subresource: "",
            name: "",
            namespace: "",
            fields: &[],
            path: None,
        };
        let group = if self == Self::Unconstrained { "" } else { API_GROUP };
        self.check_name(authorizer, wanted, &Attributes { group, ..base })?;
        if !wanted.uid.is_empty() {
            authorizer.require(&Attributes { resource: "uids", name: &wanted.uid, ..base })?;
        }
        self.check_groups(authorizer, wanted, &Attributes { group, resource: "groups", ..base })?;
        for (key, values) in &wanted.extra {
            for value in values {
                authorizer.require(&Attributes { resource: "userextras", subresource: key, name: value, ..base })?;
            }
        }
        Ok(self.acting(wanted))
    }

    fn check_name(self, authorizer: &Authorizer, wanted: &User, base: &Attributes<'_>) -> Result<(), Status> {
        let name = match (service_account::split_username(&wanted.name), node_name(&wanted.name)) {
            (Some((namespace, name)), _) => Attributes { resource: "serviceaccounts", namespace, name, ..*base },
            // The node was compared already.
            (None, Some(_)) if self == Self::AssociatedNode => Attributes { resource: "nodes", name: "*", ..*base },
            (None, Some(name)) if self != Self::Unconstrained => Attributes { resource: "nodes", name, ..*base },
            _ => Attributes { resource: "users", name: &wanted.name, ..*base },
        };
        authorizer.require(&name)
    }

    fn check_groups(self, authorizer: &Authorizer, wanted: &User, base: &Attributes<'_>) -> Result<(), Status> {
        for group in &wanted.groups {
            let one = Attributes { name: group, ..*base };
            if self != Self::Unconstrained && group.is_empty() {
                return Err(refused(base, "impersonating the empty string group is not allowed"));
            }
            if self != Self::Unconstrained && group == MASTERS {
                return Err(refused(&one, "impersonating the system:masters group is not allowed"));
            }
            authorizer.require(&one)?;
        }
        Ok(())
    }

    /// The user with the groups that the name implies.
    fn acting(self, wanted: &User) -> User {
        let mut user = wanted.clone();
        if let Some((namespace, _)) = service_account::split_username(&user.name)
            && user.groups.is_empty()
        {
            user.groups = service_account::groups(namespace);
        }
        if self != Self::Unconstrained && node_name(&user.name).is_some() {
            user.groups = vec![NODES.to_owned()];
        }
        if user.name == ANONYMOUS {
            user.add_group(UNAUTHENTICATED);
        } else if !user.is_in(UNAUTHENTICATED) {
            user.add_group(AUTHENTICATED);
        }
        user
    }
}

/// The node of a user name.
fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX).filter(|name| names::dns_subdomain(name).is_empty())
}

/// The user that the headers name; `None` without them.
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
    Err(Status::bad_request(format!("requested {} without impersonating a user name", printed(&wanted))))
}

/// A user in the format of Go's `%v`.
fn printed(user: &User) -> String {
    let list = |words: &[String]| words.iter().map(|word| api::field::quote(word)).collect::<Vec<_>>().join(", ");
    let groups = match &user.groups[..] {
        [] => "[]string(nil)".to_owned(),
        groups => format!("[]string{{{}}}", list(groups)),
    };
    let extra = match user.extra.len() {
        0 => "map[string][]string(nil)".to_owned(),
        _ => {
            let pairs = user
                .extra
                .iter()
                .map(|(key, values)| format!("{}:[]string{{{}}}", api::field::quote(key), list(values)));
            format!("map[string][]string{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    };
    let uid = api::field::quote(&user.uid);
    format!("&user.DefaultInfo{{Name:\"\", UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

/// A header that may occur once; empty if absent.
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

/// Percent-decodes; invalid encoding stays as it is.
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
mod tests;
