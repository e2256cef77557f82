//! The account that sends as fast as it can: each connection sends its next request when the last one was answered.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use client::http::{Client, Method};
use serde_json::json;

use super::attack::Counts;
use super::{CONFIG_MAPS, JSON, SERVICES, config_map};

struct Request {
    method: Method,
    path: String,
    content_type: Option<&'static str>,
    /// Sent in turn, so that each write changes something.
    bodies: [Bytes; 2],
}

/// Sends until the attack is over.
pub(super) async fn send(mut client: Client, number: usize, counts: Arc<Counts>) {
    let Request { method, path, content_type, bodies } = Request::of(number);
    for body in bodies.iter().cycle() {
        if counts.is_over.load(Relaxed) {
            break;
        }
        let (code, _) = client.bytes(method.clone(), &path, content_type, body.clone()).await.expect("an answer");
        match code {
            200 | 201 => counts.answered.fetch_add(1, Relaxed),
            429 => counts.rejected.fetch_add(1, Relaxed),
            _ => panic!("{method} {path}: {code}"),
        };
    }
}

impl Request {
    /// Connections do different things: large lists, small reads, writes, reviews.
    fn of(number: usize) -> Self {
        let read = |path: String| Self { method: Method::GET, path, content_type: None, bodies: Default::default() };
        match number % 4 {
            0 => read(CONFIG_MAPS.to_owned()),
            1 => read(format!("{SERVICES}/service-0")),
            2 => {
                let name = format!("busy-{number}");
                // An apply creates, and then changes, without reading first. JSON is YAML.
                Self {
                    method: Method::PATCH,
                    path: format!("{CONFIG_MAPS}/{name}?fieldManager=flood&force=true"),
                    content_type: Some("application/apply-patch+yaml"),
                    bodies: ["even", "odd"].map(|text| config_map(&name, text).to_string().into()),
                }
            }
            _ => {
                let review: Bytes = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})
                .to_string()
                .into();
                Self {
                    method: Method::POST,
                    path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
                    content_type: Some(JSON),
                    bodies: [review.clone(), review],
                }
            }
        }
    }
}
