//! All Gateways and IngressClasses at a glance: addresses, listeners, and their rules in order of precedence.
//!
//! ```text
//! Gateway ──▶ listeners ──▶ attached routes ──▶ rows: host, condition, route, backends; the first finding of each route
//! ```
//! In: the states of `routing`, and what may not be judged. Out: an [`Overview`], bounded whatever the routes contain.

use std::collections::{BTreeMap, BTreeSet};

use routing::cluster::{GatewayState, ListenerState};
use routing::model::{Backend, RouteId, RouteKind, Target};
use serde::Serialize;

use super::needs::Needs;
use super::objects::Kind;
use super::rows::{Row, Rows};
use super::{Layer7, Subject, code, namespace_of, state};
use crate::address;
use crate::finding::Finding;

/// The most rows of an overview, and the most objects beside them.
const ROWS: usize = 10_000;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Overview {
    /// Gateways, then IngressClasses.
    pub gateways: Vec<Front>,
    /// The judgements of all routes of the rows, by `KIND namespace/name`.
    pub routes: BTreeMap<String, Judgement>,
    /// Objects with a problem that are attached to none of them.
    pub apart: Vec<Apart>,
    /// How many rows or objects were left out.
    pub more: usize,
}

/// A Gateway, or an IngressClass.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Front {
    /// The object.
    #[serde(flatten)]
    pub subject: Subject,
    /// Its GatewayClass; empty for an IngressClass.
    pub class: String,
    /// How it is.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its listeners, those of ListenerSets too.
    pub listeners: Vec<Listener>,
    /// Its rules, in order of precedence.
    pub rows: Vec<Row>,
}

/// A listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// `namespace/name` of its ListenerSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// Its protocol, such as `HTTPS`.
    pub protocol: String,
    /// Its port.
    pub port: u16,
    /// Its hostname; `*` for all.
    pub host: String,
    /// How many routes are attached.
    pub routes: usize,
    /// How it is.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// How an object is: a state in a word, and its first finding.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Judgement {
    /// `ok`, `degraded`, `not working`, `not ours`, or `unknown`.
    pub state: &'static str,
    /// The code of the first finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Its message, or why the state is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The command that repairs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// An object that is attached nowhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Apart {
    /// The object.
    #[serde(flatten)]
    pub subject: Subject,
    /// Its hostnames.
    pub hosts: Vec<String>,
    /// How it is.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// Says why an object that needs others cannot be judged; nothing where it can.
pub type Unknown<'a> = &'a dyn Fn(&Needs) -> Option<String>;

impl Judgement {
    pub(super) fn of(findings: &[Finding]) -> Self {
        let first = findings.first();
        Self {
            state: state(findings),
            code: first.map(|one| one.code.to_string()),
            message: first.map(|one| one.message.clone()),
            fix: first.map(|one| one.fix.clone()),
        }
    }

    /// One that cannot be known, for this reason.
    #[must_use]
    pub fn unknown(why: String) -> Self {
        Self { state: "unknown", message: Some(why), ..Self::default() }
    }
}

impl Layer7<'_> {
    /// Everything at a glance.
    #[must_use]
    pub fn overview(&self, unknown: Unknown<'_>) -> Overview {
        let mut rows = Rows::new(ROWS);
        let gateways: Vec<Front> =
            self.objects.gateways.keys().map(|key| self.gateway_front(key, &mut rows, unknown)).collect();
        let classes = self.own_ingress_classes().map(|class| self.class_front(class, &mut rows));
        let mut gateways: Vec<Front> = gateways.into_iter().chain(classes).collect();
        let shown: BTreeSet<Subject> =
            gateways.iter().flat_map(|front| front.rows.iter().map(|row| row.route.clone())).collect();
        let judged = shown.iter().filter_map(|one| Some((one.to_string(), self.judge(one, unknown)?)));
        let routes: BTreeMap<String, Judgement> = judged.collect();
        for row in gateways.iter_mut().flat_map(|front| &mut front.rows) {
            let is_unknown = routes.get(&row.route.to_string()).is_none_or(|one| one.state == "unknown");
            // Why a reference leads nowhere is not known either.
            row.backends.iter_mut().filter(|_| is_unknown).for_each(|share| share.why = None);
        }
        let mut apart = self.apart(&shown, unknown);
        let more = rows.left_out + apart.len().saturating_sub(ROWS);
        apart.truncate(ROWS);
        Overview { gateways, routes, apart, more }
    }

    /// How an object is.
    #[must_use]
    pub fn judge(&self, subject: &Subject, unknown: Unknown<'_>) -> Option<Judgement> {
        let kind = Kind::named(subject.kind)?;
        Some(match unknown(&self.needs(kind, &subject.key)) {
            Some(why) => Judgement::unknown(why),
            None => self.judgement(kind, &subject.key),
        })
    }

    fn judgement(&self, kind: Kind, key: &str) -> Judgement {
        let findings = self.of(kind, key);
        let is_foreign = |one: &Finding| code::OF_OTHER_CONTROLLERS.contains(&&*one.code);
        let judgement = Judgement::of(&findings);
        match !findings.is_empty() && findings.iter().all(is_foreign) {
            true => Judgement { state: "not ours", code: None, fix: None, ..judgement },
            false => judgement,
        }
    }

    fn gateway_front(&self, key: &str, rows: &mut Rows, unknown: Unknown<'_>) -> Front {
        let subject = Kind::Gateway.subject(key);
        let class = self.objects.gateways.get(key).map(|one| one.spec.gateway_class_name.to_string());
        let judgement = self.judge(&subject, unknown).unwrap_or_default();
        let state = self.cluster.gateway(key);
        let addresses = state.into_iter().flat_map(|state| state.addresses.iter().map(|one| one.value.to_string()));
        let states = state.map(|state| self.all_listeners(key, state)).unwrap_or_default();
        for state in &states {
            rows.add_listener(&state.id.name, self.cluster.attached(&state.id.clone().into()));
        }
        let listeners = states.iter().filter_map(|state| self.listener(state, judgement.state == "unknown"));
        Front {
            subject,
            class: class.unwrap_or_default(),
            judgement: judgement.clone(),
            addresses: addresses.collect(),
            listeners: listeners.collect(),
            rows: rows.take(),
        }
    }

    /// The listeners of a Gateway, and of the ListenerSets that are attached to it.
    fn all_listeners<'s>(&'s self, key: &str, state: &'s GatewayState) -> Vec<&'s ListenerState> {
        let sets = self.objects.sets.keys().filter_map(|set| self.cluster.listener_set(set));
        let attached = sets.filter(|set| *set.gateway == *key);
        state.listeners.iter().chain(attached.flat_map(|set| &set.listeners)).collect()
    }

    fn listener(&self, state: &ListenerState, is_unknown: bool) -> Option<Listener> {
        let (_, spec) = self.listener_spec(&state.id)?;
        let judgement = match Judgement::of(&self.listener_findings(spec, state)) {
            _ if is_unknown => Judgement { state: "unknown", ..Judgement::default() },
            found if found.code.is_some() => found,
            found => {
                let works = self.is_served(&state.id) && state.programmed.holds();
                let state_word = if works { found.state } else { "not working" };
                Judgement { state: state_word, message: Some(self.listener_says(state)), ..found }
            }
        };
        Some(Listener {
            name: state.id.name.to_string(),
            set: state.id.set.as_ref().map(ToString::to_string),
            protocol: spec.protocol.to_string(),
            port: state.port,
            host: spec.host().map_or_else(|| "*".to_owned(), |host| host.to_string()),
            routes: state.attached_routes,
            judgement,
        })
    }

    fn own_ingress_classes(&self) -> impl Iterator<Item = &str> {
        let classes = self.objects.ingress_classes.iter();
        let ours = classes.filter(|(_, class)| &*class.spec.controller == api::view::ingress::CONTROLLER);
        ours.map(|(name, _)| &**name)
    }

    fn class_front(&self, class: &str, rows: &mut Rows) -> Front {
        let gateway = self.ingresses.gateway(class);
        let service = gateway.and_then(|gateway| self.snapshot.services().get(&*gateway.config.service));
        let found: Vec<Finding> = service.map(address::find).and_then(Result::err).into_iter().collect();
        let addresses = service.map(|service| service.ingress().into_iter().map(String::from).collect());
        let listeners = gateway.into_iter().flat_map(|gateway| gateway.config.listeners.iter());
        let listeners = listeners.map(|one| Listener {
            name: one.id.name.to_string(),
            set: None,
            protocol: if one.protocol.ends_tls() { "HTTPS" } else { "HTTP" }.to_owned(),
            port: one.port,
            host: "*".to_owned(),
            routes: self.ingresses.of_class(class).count(),
            judgement: Judgement { state: "ok", ..Judgement::default() },
        });
        let listeners = listeners.collect();
        if let Some(gateway) = gateway {
            rows.add_ingresses(&gateway.table);
        }
        Front {
            subject: Subject { kind: Kind::IngressClass.name(), key: class.into() },
            class: String::new(),
            judgement: Judgement::of(&found),
            addresses: addresses.unwrap_or_default(),
            listeners,
            rows: rows.take(),
        }
    }

    /// Objects with a problem that no row shows; those of other controllers are left out.
    fn apart(&self, shown: &BTreeSet<Subject>, unknown: Unknown<'_>) -> Vec<Apart> {
        let sets = self.objects.sets.keys().map(|key| Kind::ListenerSet.subject(key));
        let routes = self.objects.routes.keys().map(|id| Kind::of_route(id.kind).subject(&id.key));
        let policies = self.objects.policies.keys().map(|key| Kind::BackendTlsPolicy.subject(key));
        let ingresses = self.objects.ingresses.keys().map(|key| Kind::Ingress.subject(key));
        let all = routes.chain(ingresses).chain(sets).chain(policies).filter(|subject| !shown.contains(subject));
        let judged = all.filter_map(|subject| {
            let judgement = self.judge(&subject, unknown).filter(|one| !matches!(one.state, "ok" | "not ours"))?;
            Some(Apart { hosts: self.hosts_of(&subject), subject, judgement })
        });
        judged.collect()
    }

    fn hosts_of(&self, subject: &Subject) -> Vec<String> {
        let route = RouteKind::named(subject.kind).map(|kind| RouteId { kind, key: subject.key.as_ref().into() });
        let hosts = route.and_then(|id| self.objects.routes.get(&id)).map(|route| route.hostnames().to_vec());
        hosts.unwrap_or_default().into_iter().map(String::from).collect()
    }

    /// The routes and Ingresses that lead to a Service, as far as they can be seen; at most `limit`.
    #[must_use]
    pub fn leading_to(&self, service: &str, limit: usize, unknown: Unknown<'_>) -> Vec<Apart> {
        let routes = self.objects.routes.iter().filter(|(id, route)| route.services(&id.key).contains(service));
        let routes = routes.map(|(id, _)| Kind::of_route(id.kind).subject(&id.key));
        let is_it = |one: &Backend| matches!(&one.target, Target::Service(target) if &*target.service == service);
        let here = self.objects.ingresses.keys().filter(|key| namespace_of(key) == namespace_of(service));
        let ingresses = here.filter(|key| {
            let mut rules = self.rules_of_ingress(key).iter();
            rules.any(|(_, rule)| rule.backends.iter().any(is_it))
        });
        let all = routes.chain(ingresses.map(|key| Kind::Ingress.subject(key)));
        let one = |subject: Subject| {
            let judgement = self.judge(&subject, unknown)?;
            Some(Apart { hosts: self.hosts_of(&subject), subject, judgement })
        };
        all.filter_map(one).take(limit).collect()
    }
}
