//! Whoever collects metrics learns from a zone whose: a real Prometheus, and a client that asks as `kuma_sd_configs` does,
//! which Debian's Prometheus was built without.

use std::{net::Ipv4Addr, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    harness::{Options, addresses, control_plane::write, eventually, http, process::Process},
    mesh::{ALLOW_ALL, Member, Shape, federation_with},
};

/// A Prometheus with this in its `scrape_configs`, and where it answers.
pub fn prometheus(folder: &Path, jobs: &str) -> (Process, String) {
    let config = format!("global: {{ scrape_interval: 1s }}\nscrape_configs:\n{jobs}");
    let config = write(folder, "prometheus.yaml", &config).display().to_string();
    let address = addresses::loopback();
    let at = format!("{address}:{}", addresses::free_port(address));
    let args = [
        format!("--config.file={config}"),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        format!("--web.listen-address={at}"),
    ];
    (Process::start("prometheus", Path::new("prometheus"), args), format!("http://{at}"))
}

/// The labels of all series that tell that somebody was asked and answered.
async fn up(prometheus: &str, job: &str) -> Result<Vec<Value>, String> {
    let query = format!("{prometheus}/api/v1/query?query=up%7Bjob%3D%22{job}%22%7D%3D%3D1");
    let answer = reqwest::get(query).await.map_err(|e| e.to_string())?;
    let answer: Value = answer.json().await.map_err(|e| e.to_string())?;
    let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
    Ok(series.into_iter().map(|one| one["metric"].clone()).collect())
}

/// Asks as a Prometheus does that knows Kuma, and gives status and answer.
async fn assignments(server: &str, version: &str, timeout: &str) -> (u16, Value) {
    let url = format!("{server}/v3/discovery:monitoringassignments?fetch-timeout={timeout}");
    let type_url = "type.googleapis.com/kuma.observability.v1.MonitoringAssignment";
    let asked = serde_json::json!({ "version_info": version, "node": { "id": "prometheus" },
        "resource_names": [], "type_url": type_url, "response_nonce": "" });
    let answer = http::client().post(url).json(&asked).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

#[tokio::test]
async fn a_prometheus_finds_dataplanes_and_collects_their_metrics() {
    let address = addresses::loopback();
    let port = addresses::free_port(address).to_string();
    let options = Options::default()
        .with("monitoringAssignmentServer.enabled", "true")
        .with("monitoringAssignmentServer.interface", &address.to_string())
        .with("monitoringAssignmentServer.port", &port);
    let (global, zones) = federation_with(1, Options::default(), options).await;
    global.apply(ALLOW_ALL);
    let backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let Ok(ip) = backend.inbound.ip().to_string().parse::<Ipv4Addr>() else { panic!("it is of IPv4") };
    let folder = TempDir::new().unwrap();
    let jobs = format!(
        "
- job_name: http
  http_sd_configs: [{{ url: 'http://{address}:{port}/monitoring/targets', refresh_interval: 1s }}]
  relabel_configs: [{{ source_labels: [__meta_kuma_service], target_label: service }}]
"
    );
    let (_running, prometheus) = prometheus(folder.path(), &jobs);
    let metrics = addresses::free_port(ip);
    global.apply(&format!(
        "
type: MeshMetric
name: everybody
mesh: default
spec:
  default: {{ backends: [{{ type: Prometheus, prometheus: {{ port: {metrics}, path: /stats }} }}] }}
"
    ));
    let (prometheus, server) = (&prometheus, format!("http://{address}:{port}"));
    eventually("metrics of the Envoy", || async move {
        let told = up(prometheus, "http").await?;
        let is_it = |one: &Value| one["instance"] == "backend-1" && one["service"] == "backend";
        if told.iter().any(is_it) { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    let (status, first) = assignments(&server, "", "10s").await;
    assert_eq!(status, 200, "{first}");
    let target = &first["resources"][0]["targets"][0];
    assert_eq!(target["address"], format!("{ip}:{metrics}"), "{first}");
    let version = first["version_info"].as_str().unwrap().to_owned();
    assert_eq!(assignments(&server, &version, "0s").await.0, 304);
    // Nobody answers any more, so nobody is asked: who waits is told at once.
    let waits = tokio::spawn(async move { assignments(&server, &version, "60s").await });
    global.straitctl(&["delete", "meshmetric", "everybody"]);
    let (status, second) = waits.await.unwrap();
    assert!(status == 200 && second["resources"] == serde_json::json!([]), "{second}");
    eventually("nobody to collect from", || async move {
        let told = up(prometheus, "http").await?;
        if told.is_empty() { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
}
