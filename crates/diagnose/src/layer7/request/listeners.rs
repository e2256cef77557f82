//! Which listener of a Gateway takes a request: by port, then by server name or host.
//!
//! In: a request, the listeners that are served, and those that are not. Out: a step for each of them, and the chosen one
//! or the answer without one. The order of decisions is that of the gateway: TLS by server name, then the Host.

use std::sync::Arc;

use routing::hosts::{HostMap, covers};
use routing::model::{GatewayConfig, ListenerConfig, ListenerId, ListenerProtocol};
use serde::Serialize;

use super::answer::Answer;
use super::{Layer7, Request};

/// A listener, and whether it takes the request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListenerStep {
    /// Its name, protocol, port and hostname.
    pub listener: String,
    /// The ListenerSet that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<Box<str>>,
    /// Whether it takes the request.
    pub chosen: bool,
    /// Why, or why not.
    pub says: String,
    #[serde(skip)]
    pub(super) id: Option<ListenerId>,
}

/// The listener of a request.
pub(super) struct Choice {
    pub(super) steps: Vec<ListenerStep>,
    pub(super) listener: Result<Arc<ListenerConfig>, Answer>,
}

impl Layer7<'_> {
    pub(super) fn choose_listener(&self, request: &Request, config: &GatewayConfig) -> Choice {
        let on_port: Vec<&Arc<ListenerConfig>> =
            config.listeners.iter().filter(|one| one.port == request.port && is_tcp(one)).collect();
        let listener = choose(request, &on_port);
        let chosen = listener.as_ref().ok().map(|listener| &listener.id);
        let mut steps: Vec<ListenerStep> = Vec::new();
        for one in &config.listeners {
            let says = match chosen == Some(&one.id) {
                true => chosen_text(request, one),
                false => not_chosen(request, one, chosen.is_some()),
            };
            steps.push(self.step(&one.id, chosen == Some(&one.id), says));
        }
        steps.extend(self.not_served_steps(config));
        steps.sort_by_key(|step| !step.chosen);
        Choice { steps, listener }
    }

    fn step(&self, id: &ListenerId, chosen: bool, says: String) -> ListenerStep {
        ListenerStep {
            listener: self.listener_text(id),
            set: id.set.as_deref().map(Into::into),
            chosen,
            says,
            id: Some(id.clone()),
        }
    }

    /// The listeners that are not valid.
    fn not_served_steps(&self, config: &GatewayConfig) -> Vec<ListenerStep> {
        let own = self.cluster.gateway(&config.key).into_iter().flat_map(|state| &state.listeners);
        let sets = self.objects.sets.keys().filter_map(|key| self.cluster.listener_set(key));
        let sets = sets.filter(|set| set.gateway == config.key).flat_map(|set| &set.listeners);
        let is_bad = |id: &ListenerId| !config.listeners.iter().any(|one| one.id == *id);
        let bad = own.chain(sets).filter(|state| is_bad(&state.id));
        bad.map(|state| self.step(&state.id, false, format!("not served: {}", state.programmed.message))).collect()
    }
}

fn is_tcp(listener: &ListenerConfig) -> bool {
    listener.protocol != ListenerProtocol::Udp
}

fn choose(request: &Request, on_port: &[&Arc<ListenerConfig>]) -> Result<Arc<ListenerConfig>, Answer> {
    let Some(first) = on_port.first() else {
        return Err(Answer::refused(format!("no listener has port {}: the connection is refused", request.port)));
    };
    let mut hosts: HostMap<&Arc<ListenerConfig>> = HostMap::default();
    for one in on_port {
        hosts.insert(one.hostname.as_deref(), one);
    }
    match (first.protocol, request.tls) {
        (ListenerProtocol::Tcp | ListenerProtocol::Udp, _) => Ok(Arc::clone(first)),
        (ListenerProtocol::Http, true) => {
            Err(Answer::reset("the listeners of the port speak plain HTTP: the TLS handshake fails; use http://"))
        }
        (ListenerProtocol::Http, false) => hosts
            .find(&request.host)
            .map(|one| Arc::clone(one))
            .ok_or_else(|| Answer::status(404, format!("no listener of the port is for host {}", request.host))),
        (_, false) => {
            Err(Answer::reset("the listeners of the port expect TLS: the connection is closed; use https://"))
        }
        (_, true) => by_server_name(request, &hosts),
    }
}

fn by_server_name(request: &Request, hosts: &HostMap<&Arc<ListenerConfig>>) -> Result<Arc<ListenerConfig>, Answer> {
    let name = request.server_name.as_deref();
    let Some(listener) = hosts.find(name.unwrap_or_default()) else {
        let why = match name {
            Some(name) => format!("no listener of the port is for server name {name}: the connection is reset"),
            None => "no listener of the port is for connections without a server name (SNI): it is reset".to_owned(),
        };
        return Err(Answer::reset(why));
    };
    if listener.protocol != ListenerProtocol::Https {
        return Ok(Arc::clone(listener));
    }
    let by_host = hosts.candidates(&request.host).find(|one| one.protocol == ListenerProtocol::Https);
    match by_host {
        None => Err(Answer::status(404, format!("no HTTPS listener of the port is for host {}", request.host))),
        Some(other) if other.id != listener.id => {
            let (own, other) = (&listener.id.name, &other.id.name);
            let why = format!(
                "the server name chose listener {own}, and host {} belongs to listener {other}: the client has to open \
                 another connection",
                request.host
            );
            Err(Answer::status(421, why))
        }
        Some(_) => Ok(Arc::clone(listener)),
    }
}

fn chosen_text(request: &Request, listener: &ListenerConfig) -> String {
    match (&listener.hostname, listener.protocol) {
        (_, ListenerProtocol::Tcp) => "the port has one listener".to_owned(),
        (None, _) => "it takes all hosts for which no other listener is more specific".to_owned(),
        (Some(name), _) if request.tls => {
            format!("{name} covers server name {}", request.server_name.as_deref().unwrap_or_default())
        }
        (Some(name), _) => format!("{name} covers host {}", request.host),
    }
}

fn not_chosen(request: &Request, listener: &ListenerConfig, any_chosen: bool) -> String {
    if listener.port != request.port {
        return format!("another port: {}", listener.port);
    }
    if !is_tcp(listener) {
        return "it is for UDP".to_owned();
    }
    let (noun, name) = match request.tls {
        true => ("server name", request.server_name.as_deref().unwrap_or_default()),
        false => ("host", &*request.host),
    };
    match &listener.hostname {
        Some(hostname) if !covers(Some(hostname), name) => format!("{hostname} does not cover {noun} {name}"),
        _ if any_chosen => "the hostname of the chosen listener is more specific".to_owned(),
        _ => "see the answer".to_owned(),
    }
}
