//! Serves one request of the endpoint, up to the response or upgrade.

use http::header::{self, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use jiff::Timestamp;
use std::sync::Arc;

use super::Agent;
use super::body::{Body, Log};
use super::reports::NoReport;
use super::request::{self, AgentRequest, HttpError};
use super::upgrade::{self, Protocol};
use crate::streams::status::Outcome;
use crate::workloads::{Attach, ContainerId, LogFiles, LogOptions, Refusal, Running};

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves a request.
pub(super) async fn handle(agent: &Arc<Agent>, mut request: Request<Incoming>) -> Response<Body> {
    let on_upgrade = hyper::upgrade::on(&mut request);
    let uri = request.uri();
    let ask = request::parse(request.method(), uri.path(), uri.query().unwrap_or_default(), Timestamp::now());
    let answer = match ask {
        Ok(ask) => answer(agent, ask, request.headers(), on_upgrade).await,
        Err(no) => Err(no),
    };
    answer.unwrap_or_else(|(code, text)| {
        tracing::debug!(%code, text, "request failed");
        let text = if text.ends_with('\n') { text } else { text + "\n" };
        with(code, TEXT, text)
    })
}

fn with(code: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Some(text.into())));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

async fn answer(
    agent: &Arc<Agent>,
    ask: AgentRequest,
    headers: &HeaderMap,
    on_upgrade: OnUpgrade,
) -> Result<Response<Body>, HttpError> {
    match ask {
        AgentRequest::Health => Ok(with(StatusCode::OK, TEXT, "ok".to_owned())),
        AgentRequest::Pods => Ok(with(StatusCode::OK, "application/json", agent.workloads.pods().to_string())),
        AgentRequest::Metrics => Ok(with(StatusCode::OK, METRICS, agent.workloads.metrics())),
        AgentRequest::LogFiles { path } => log_files(agent, &path).await,
        AgentRequest::Report { service, is_tried } => {
            let report = agent.reports.report(service, is_tried).await.map_err(silent)?;
            Ok(with(StatusCode::OK, "application/json", report))
        }
        AgentRequest::Rules { service } => {
            Ok(with(StatusCode::OK, TEXT, agent.reports.rules(service).await.map_err(silent)?))
        }
        AgentRequest::Logs { of, options, limit } => logs(agent, &of, &options, limit).await,
        AgentRequest::Exec { of, how } => {
            let protocol = Protocol::of_command(headers)?;
            let command = how.command.clone();
            let streams = Attach { stdin: how.stdin, stdout: how.stdout, stderr: how.stderr, tty: how.tty };
            let running = started(agent.workloads.exec(&of, how).await)?;
            let outcome = move |exit| Outcome::of_exec(&command, exit);
            upgrade::command(agent, headers, on_upgrade, protocol, streams, running, outcome)
        }
        AgentRequest::Attach { of, how } => {
            let protocol = Protocol::of_command(headers)?;
            let running = started(agent.workloads.attach(&of, how).await)?;
            upgrade::command(agent, headers, on_upgrade, protocol, how, running, Outcome::of_attach)
        }
        AgentRequest::Forward { pod, ports } => {
            if !has_pod(&agent.workloads.pods(), &pod.namespace, &pod.name) {
                return Err(refused(&Refusal::NoPod));
            }
            upgrade::forward(agent, headers, on_upgrade, pod, ports)
        }
    }
}

/// The response when there is no report.
fn silent(why: NoReport) -> HttpError {
    (StatusCode::SERVICE_UNAVAILABLE, why.0)
}

/// A command that could not be started is reported on the error stream; an invalid request with a status code.
fn started(done: Result<Running, Refusal>) -> Result<Result<Running, Outcome>, HttpError> {
    match done {
        Ok(running) => Ok(Ok(running)),
        Err(failed @ Refusal::Failed(_)) => Ok(Err(Outcome::not_started(&failed))),
        Err(other) => Err(refused(&other)),
    }
}

fn refused(refusal: &Refusal) -> HttpError {
    let code = match refusal {
        Refusal::NoPod | Refusal::NoContainer { .. } => StatusCode::NOT_FOUND,
        Refusal::NotRunning { .. } | Refusal::Bad(_) => StatusCode::BAD_REQUEST,
        Refusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (code, refusal.to_string())
}

fn has_pod(list: &serde_json::Value, namespace: &str, name: &str) -> bool {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().any(|pod| pod["metadata"]["namespace"] == namespace && pod["metadata"]["name"] == name)
}

async fn logs(
    agent: &Agent,
    of: &ContainerId,
    options: &LogOptions,
    limit: Option<u64>,
) -> Result<Response<Body>, HttpError> {
    let permit = agent.session_permit()?;
    let reader = agent.workloads.logs(of, options).await.map_err(|refusal| no_log(of, options, &refusal))?;
    let mut response = Response::new(Body::Log(Log { reader, left: limit.unwrap_or(u64::MAX), _permit: permit }));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

async fn log_files(agent: &Agent, path: &[String]) -> Result<Response<Body>, HttpError> {
    let permit = agent.session_permit()?;
    match agent.workloads.log_files(path).await {
        None => Err((StatusCode::NOT_FOUND, "404 page not found".to_owned())),
        Some(LogFiles::Directory(names)) => Ok(with(StatusCode::OK, HTML, listing(&names))),
        Some(LogFiles::File(reader)) => {
            let mut response = Response::new(Body::Log(Log { reader, left: u64::MAX, _permit: permit }));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT));
            // Containers write logs: a browser must not interpret them as anything else.
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            Ok(response)
        }
    }
}

/// The page of a directory. Names that would need escapes are left out: the API allows none.
fn listing(names: &[String]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    let names = names.iter().filter(|name| name.bytes().all(is_plain));
    let links: String = names.map(|name| format!("<a href=\"{name}\">{name}</a>\n")).collect();
    format!("<!doctype html>\n<pre>\n{links}</pre>\n")
}

/// The error messages of the kubelet for logs.
fn no_log(of: &ContainerId, options: &LogOptions, refusal: &Refusal) -> HttpError {
    let (container, pod) = (&of.container, &of.pod.name);
    let (code, text) = refused(refusal);
    let text = match refusal {
        Refusal::NoPod => format!("pod {pod:?} does not exist"),
        Refusal::NoContainer { .. } => format!("container {container:?} not found in pod {pod:?}"),
        Refusal::NotRunning { .. } if options.previous => {
            format!("previous terminated container {container:?} in pod {pod:?} not found")
        }
        Refusal::NotRunning { why, .. } => format!("container {container:?} in pod {pod:?} is waiting to start: {why}"),
        Refusal::Bad(_) | Refusal::Failed(_) => text,
    };
    (code, text)
}
