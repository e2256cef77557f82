//! Configurations of nginx, HAProxy and Envoy that do what the Gateway does.
//!
//! All have as many threads or processes as there are cores, keep connections to the pod, add `X-Forwarded-*`, write no access log, and have the
//! same certificate. The listener for gRPC sends HTTP/2 to the pod, the others HTTP/1.1.

use serde_json::{Value, json};

use super::contender::PORTS;
use crate::lb::stage::{HOST, Stage};

/// Idle connections that are kept to the pod: more than clients have.
const KEPT: usize = 1024;

/// `nginx.conf`.
#[must_use]
pub fn nginx(stage: &Stage) -> String {
    let (home, web, grpc) = (stage.file("").display().to_string(), stage.target(), stage.grpc_target());
    let [plain, tls, h2c, calls] = PORTS;
    let forwarded = |set: &str| {
        format!(
            "{set} X-Forwarded-For $proxy_add_x_forwarded_for; {set} X-Forwarded-Port $server_port; \
             {set} X-Forwarded-Proto $scheme;"
        )
    };
    let (to_web, to_grpc) = (forwarded("proxy_set_header"), forwarded("grpc_set_header"));
    format!(
        "daemon off;\nworker_processes auto;\nworker_rlimit_nofile 65536;\npid {home}/nginx.pid;\nerror_log {home}/nginx.log;\n\
         events {{ worker_connections 16384; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 100000000;\n  ssl_session_cache off;\n  ssl_session_tickets on;\n\
         client_body_temp_path {home}/nb;\n  proxy_temp_path {home}/np;\n  fastcgi_temp_path {home}/nf;\n  uwsgi_temp_path {home}/nu;\n  scgi_temp_path {home}/ns;\n\
         upstream web {{ server {web}; keepalive {KEPT}; keepalive_requests 100000000; }}\n\
         upstream calls {{ server {grpc}; keepalive {KEPT}; keepalive_requests 100000000; }}\n\
         server {{\n    listen {plain};\n    listen {tls} ssl http2;\n    listen {h2c} http2;\n    server_name {HOST};\n\
         ssl_certificate {home}/web.crt;\n    ssl_certificate_key {home}/web.key;\n\
         location / {{\n      proxy_pass http://web;\n      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n\
         proxy_set_header Host $host;\n      {to_web}\n    }}\n  }}\n\
         server {{\n    listen {calls} http2;\n    location / {{ grpc_pass grpc://calls; {to_grpc} }}\n  }}\n}}\n"
    )
}

/// `haproxy.cfg`.
#[must_use]
pub fn haproxy(stage: &Stage) -> String {
    let (pem, web, grpc) = (stage.file("web.pem").display().to_string(), stage.target(), stage.grpc_target());
    let [plain, tls, h2c, calls] = PORTS;
    let forwarded = "http-request set-header X-Forwarded-Port %[dst_port]\n  http-request set-header X-Forwarded-Proto https if { ssl_fc }\n  \
                     http-request set-header X-Forwarded-Proto http if !{ ssl_fc }";
    format!(
        "global\n  maxconn 8192\ndefaults\n  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 3s\n\
         option forwardfor\n  http-reuse always\n\
         frontend web\n  bind :{plain}\n  bind :{tls} ssl crt {pem} alpn h2,http/1.1\n  bind :{h2c} proto h2\n  {forwarded}\n  default_backend web\n\
         frontend calls\n  bind :{calls} proto h2\n  {forwarded}\n  default_backend calls\n\
         backend web\n  server pod {web} pool-max-conn {KEPT}\n\
         backend calls\n  server pod {grpc} proto h2 pool-max-conn {KEPT}\n"
    )
}

/// Envoy's static configuration.
///
/// # Errors
/// When the certificate cannot be read.
pub fn envoy(stage: &Stage) -> anyhow::Result<Value> {
    let [plain, tls, h2c, calls] = PORTS;
    let kind = |name: &str| format!("type.googleapis.com/envoy.{name}");
    let socket = |address: &str, port: u16| json!({"socket_address": {"address": address, "port_value": port}});
    let manager = |cluster: &str| {
        json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": {
            "@type": kind("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": cluster, "codec_type": "AUTO", "use_remote_address": true, "generate_request_id": false,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": cluster, "timeout": "0s"}},
            ]}]},
            "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
                "@type": kind("extensions.filters.http.router.v3.Router"),
            }}],
        }})
    };
    let listener = |port: u16, cluster: &str| json!({"name": format!("on-{port}"), "address": socket("0.0.0.0", port), "filter_chains": [{"filters": [manager(cluster)]}]});
    let mut secure = listener(tls, "web");
    secure["filter_chains"][0]["transport_socket"] = json!({"name": "envoy.transport_sockets.tls", "typed_config": {
        "@type": kind("extensions.transport_sockets.tls.v3.DownstreamTlsContext"),
        "common_tls_context": {"alpn_protocols": ["h2", "http/1.1"], "tls_certificates": [{
            "certificate_chain": {"inline_string": stage.read("web.crt")?}, "private_key": {"inline_string": stage.read("web.key")?},
        }]},
    }});
    let cluster = |name: &str, to: std::net::SocketAddr| {
        json!({"name": name, "type": "STATIC", "connect_timeout": "3s", "load_assignment": {"cluster_name": name, "endpoints": [
            {"lb_endpoints": [{"endpoint": {"address": socket(&to.ip().to_string(), to.port())}}]},
        ]}})
    };
    let mut h2 = cluster("calls", stage.grpc_target());
    h2["typed_extension_protocol_options"] = json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": kind("extensions.upstreams.http.v3.HttpProtocolOptions"),
        "explicit_http_config": {"http2_protocol_options": {}},
    }});
    Ok(json!({"static_resources": {
        "listeners": [listener(plain, "web"), secure, listener(h2c, "web"), listener(calls, "calls")],
        "clusters": [cluster("web", stage.target()), h2],
    }}))
}
