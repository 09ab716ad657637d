//! Endpoints: as the Envoy sees them, or as they were sent.

use clap::Args;
use serde_json::Value;

use super::{ConfigTable, address, documents, or_dash};
use crate::proxy::{ProxyDump, text};

/// Which endpoints are meant.
#[derive(Args, Debug, Default)]
pub(super) struct EndpointFilter {
    /// Only those at this address
    #[arg(long = "ip", value_name = "ADDRESS")]
    ip: Option<String>,
    /// Only those on this port
    #[arg(long)]
    port: Option<u32>,
    /// Only those of this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Only those in this state: healthy, unhealthy, degraded, draining, timeout or unknown
    #[arg(long)]
    status: Option<String>,
}

/// One endpoint of one cluster.
struct EndpointRow<'a> {
    address: String,
    port: String,
    status: &'a str,
    outlier: &'static str,
    cluster: &'a str,
    value: &'a Value,
}

impl EndpointFilter {
    fn admits(&self, row: &EndpointRow<'_>) -> bool {
        self.ip.as_ref().is_none_or(|wanted| *wanted == row.address)
            && self.port.is_none_or(|wanted| wanted.to_string() == row.port)
            && self.cluster.as_ref().is_none_or(|wanted| wanted == row.cluster)
            && self.status.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(row.status))
    }
}

/// The endpoints that are meant.
pub(super) fn shown(dump: &ProxyDump, filter: &EndpointFilter) -> ConfigTable {
    let mut rows: Vec<EndpointRow<'_>> = match &dump.statuses {
        Some(clusters) => clusters.iter().flat_map(seen).collect(),
        None => dump.endpoints.iter().flat_map(|item| sent(&item.name, &item.value)).collect(),
    };
    rows.retain(|row| filter.admits(row));
    rows.sort_by(|a, b| (a.cluster, &a.address, &a.port).cmp(&(b.cluster, &b.address, &b.port)));
    let document = documents(rows.iter().map(|row| row.value));
    let row = |row: &EndpointRow<'_>| {
        let at = if row.port == "0" { row.address.clone() } else { format!("{}:{}", row.address, row.port) };
        vec![or_dash(&at), row.status.to_owned(), row.outlier.to_owned(), row.cluster.to_owned()]
    };
    let headings = vec!["ENDPOINT", "STATUS", "OUTLIER CHECK", "CLUSTER"];
    ConfigTable { headings, rows: rows.iter().map(row).collect(), document }
}

/// Those of a cluster, as the Envoy sees them.
fn seen<'a>(cluster: &'a Value) -> Vec<EndpointRow<'a>> {
    let hosts = cluster["hostStatuses"].as_array().into_iter().flatten();
    let row = |host: &'a Value| {
        let health = &host["healthStatus"];
        let (address, port) = address(&host["address"]);
        let is_failing = health["failedActiveHealthCheck"] == true;
        let told = text(&health["edsHealthStatus"]);
        let status = match told {
            _ if is_failing => "UNHEALTHY",
            "" | "UNKNOWN" => "HEALTHY",
            told => told,
        };
        let outlier = if health["failedOutlierCheck"] == true { "FAILED" } else { "OK" };
        EndpointRow { address, port, status, outlier, cluster: text(&cluster["name"]), value: host }
    };
    hosts.map(row).collect()
}

/// Those of a cluster, as they were sent: nobody has looked whether they are well.
fn sent<'a>(cluster: &'a str, assignment: &'a Value) -> Vec<EndpointRow<'a>> {
    let localities = assignment["endpoints"].as_array().into_iter().flatten();
    let all = localities.flat_map(|locality| locality["lbEndpoints"].as_array().into_iter().flatten());
    let row = |endpoint: &'a Value| {
        let (address, port) = address(&endpoint["endpoint"]["address"]);
        let told = text(&endpoint["healthStatus"]);
        let status = if matches!(told, "" | "UNKNOWN") { "HEALTHY" } else { told };
        EndpointRow { address, port, status, outlier: "-", cluster, value: endpoint }
    };
    all.map(row).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn what_envoy_found_out_is_shown_where_it_is_known() {
        let at =
            |last: u8| json!({ "socket_address": { "address": format!("10.0.0.{last}"), "port_value": 80 } });
        let statuses = json!({ "cluster_statuses": [{ "name": "web", "host_statuses": [
            { "address": at(2), "health_status": { "eds_health_status": "HEALTHY", "failed_outlier_check": true } },
            { "address": at(1), "health_status": { "eds_health_status": "HEALTHY" } },
            { "address": at(3), "health_status": { "failed_active_health_check": true } },
        ] }] });
        let seen = ProxyDump::of_envoy(&statuses).unwrap();
        let all = shown(&seen, &EndpointFilter::default()).rows;
        let rows = [
            ["10.0.0.1:80", "HEALTHY", "OK", "web"],
            ["10.0.0.2:80", "HEALTHY", "FAILED", "web"],
            ["10.0.0.3:80", "UNHEALTHY", "OK", "web"],
        ];
        assert_eq!(all, rows);
        let unwell = EndpointFilter { status: Some("unhealthy".to_owned()), ..Default::default() };
        assert_eq!(shown(&seen, &unwell).rows, [rows[2]]);
        let other = EndpointFilter { cluster: Some("api".to_owned()), ..Default::default() };
        assert!(shown(&seen, &other).rows.is_empty());

        let endpoint = json!({ "endpoint": { "address": at(1) }, "health_status": "DRAINING" });
        let sent = json!({ "configs": [{
            "@type": "x/envoy.admin.v3.EndpointsConfigDump",
            "dynamic_endpoint_configs": [{ "endpoint_config": {
                "cluster_name": "web", "endpoints": [{ "lb_endpoints": [endpoint] }] } }],
        }] });
        let sent = ProxyDump::of_envoy(&sent).unwrap();
        let rows = shown(&sent, &EndpointFilter { port: Some(80), ..Default::default() }).rows;
        assert_eq!(rows, [["10.0.0.1:80", "DRAINING", "-", "web"]]);
    }
}
