//! A Service: its addresses, its ports, and the endpoints of each.

use api::value::ValueExt as _;
use serde_json::Value;

use super::sheet::{Sheet, conditions, in_one_line};

pub(super) fn describe(service: &Value, slices: &[Value], sheet: &mut Sheet) {
    let spec = service.at("spec");
    sheet.metadata(service);
    sheet.field("Selector", in_one_line(spec.at("selector")));
    sheet.field("Type", spec.text("type"));
    sheet.some("IP Family Policy", spec.text("ipFamilyPolicy"));
    sheet.some("IP Families", spec.texts("ipFamilies").join(","));
    sheet.field("IP", spec.text("clusterIP"));
    sheet.field("IPs", spec.texts("clusterIPs").join(","));
    sheet.some("External IPs", spec.texts("externalIPs").join(","));
    sheet.some("External Name", spec.text("externalName"));
    sheet.some("Desired LoadBalancer IP", spec.text("loadBalancerIP"));
    let ingress = service.items("status.loadBalancer.ingress").iter();
    let ingress: Vec<&str> =
        ingress.flat_map(|one| [one.text("ip"), one.text("hostname")]).filter(|one| !one.is_empty()).collect();
    sheet.some("LoadBalancer Ingress", ingress.join(", "));
    for port in spec.items("ports") {
        let name = if port.text("name").is_empty() { "<unset>" } else { port.text("name") };
        let protocol = port.text("protocol");
        sheet.field("Port", format!("{name}  {}/{protocol}", port.int("port")));
        sheet.field("TargetPort", format!("{}/{protocol}", plain(port.at("targetPort"))));
        if port.int("nodePort") > 0 {
            sheet.field("NodePort", format!("{name}  {}/{protocol}", port.int("nodePort")));
        }
        if spec.text("type") != "ExternalName" {
            let (ready, others) = endpoints(slices, port);
            sheet.field("Endpoints", ready.join(","));
            sheet.some("Not Ready", others.join(","));
        }
    }
    sheet.field("Session Affinity", spec.text("sessionAffinity"));
    sheet.some("External Traffic Policy", spec.text("externalTrafficPolicy"));
    sheet.some("Internal Traffic Policy", spec.text("internalTrafficPolicy"));
    sheet.some("Traffic Distribution", spec.text("trafficDistribution"));
    if spec.int("healthCheckNodePort") > 0 {
        sheet.field("HealthCheck NodePort", spec.int("healthCheckNodePort").to_string());
    }
    sheet.some("LoadBalancer Source Ranges", spec.texts("loadBalancerSourceRanges").join(","));
    conditions(service, sheet);
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The ready and the other endpoints of a port.
fn endpoints(slices: &[Value], port: &Value) -> (Vec<String>, Vec<String>) {
    let (mut ready, mut others) = (Vec::new(), Vec::new());
    for slice in slices {
        let fits =
            |one: &&Value| one.text("name") == port.text("name") && one.text("protocol") == port.text("protocol");
        let Some(number) = slice.items("ports").iter().find(fits).map(|one| one.int("port")) else { continue };
        for endpoint in slice.items("endpoints") {
            let is_ready = endpoint.at("conditions.ready").as_bool().unwrap_or(true);
            let list = if is_ready { &mut ready } else { &mut others };
            list.extend(endpoint.texts("addresses").into_iter().map(|address| match address.contains(':') {
                true => format!("[{address}]:{number}"),
                false => format!("{address}:{number}"),
            }));
        }
    }
    (ready, others)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_of_a_port_are_listed_by_readiness() {
        let service = json!({"metadata": {"name": "web"}, "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.9",
            "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}]}});
        let slices = [
            json!({"ports": [{"name": "http", "protocol": "TCP", "port": 8080}], "endpoints": [
            {"addresses": ["10.244.0.2"], "conditions": {"ready": true}},
            {"addresses": ["fd00::2"], "conditions": {"ready": false}}]}),
            json!({"ports": [{"name": "other", "protocol": "TCP", "port": 1}], "endpoints": [{"addresses": ["10.244.0.3"]}]}),
        ];
        let mut sheet = Sheet::default();
        describe(&service, &slices, &mut sheet);
        let text = sheet.text();
        for line in [
            "Endpoints:         10.244.0.2:8080\n",
            "Not Ready:         [fd00::2]:8080\n",
            "TargetPort:        web/TCP\n",
        ] {
            assert!(text.contains(line), "no {line:?} in\n{text}");
        }
    }
}
