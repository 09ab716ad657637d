//! Meshes and services: how many of their dataplanes are there.

use serde_json::Value;

use crate::table;

pub(super) fn print(meshes: &[Value], insights: &[Value]) {
    let row = |insight: &Value| {
        let mesh = meshes.iter().find(|mesh| mesh["name"] == insight["name"]).unwrap_or(&Value::Null);
        let count = |name: &str| insight["dataplanes"][name].as_u64().unwrap_or_default().to_string();
        vec![
            table::text(&insight["name"]),
            table::text(&mesh["mtls"]["enabledBackend"]),
            format!("{}/{}", count("online"), count("total")),
            count("partiallyDegraded"),
            count("offline"),
            insight["services"]["total"].as_u64().unwrap_or_default().to_string(),
        ]
    };
    let headings = ["NAME", "MTLS", "DATAPLANES ONLINE", "DEGRADED", "OFFLINE", "SERVICES"];
    table::print(&headings, insights.iter().map(row).collect());
}

pub(super) fn print_services(services: &[Value]) {
    let row = |service: &Value| {
        let count = |name: &str| service["dataplanes"][name].as_u64().unwrap_or_default();
        let zones = service["zones"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let zones: Vec<&str> = zones.collect();
        vec![
            table::text(&service["name"]),
            service["status"].as_str().unwrap_or("-").replace('_', " "),
            format!("{}/{}", count("online"), count("total")),
            service["serviceType"].as_str().unwrap_or("internal").replace('_', " "),
            if zones.is_empty() { "-".to_owned() } else { zones.join(", ") },
        ]
    };
    let headings = ["NAME", "STATUS", "DATAPLANES ONLINE", "TYPE", "ZONES"];
    table::print(&headings, services.iter().map(row).collect());
}
