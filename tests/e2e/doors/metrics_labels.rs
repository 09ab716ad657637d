//! What a peer makes up never becomes a series: noise is thrown at every port, then `/metrics` is read. Nor does every
//! product of labels become one that strangers can ask for.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    metering::{self, LabelValues},
    proto::kuma::mesh::v1alpha1::kds_sync_service_client::KdsSyncServiceClient,
    registry,
};
use envoy_types::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{
        DeltaDiscoveryRequest, DiscoveryRequest,
        aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
};
use futures::StreamExt as _;
use reqwest::Method;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

use crate::harness::{Global, Options, Zone, control_plane::ControlPlane, eventually, http};

/// How much of each sort of noise.
const NOISE: usize = 60;

async fn noise_at(cp: &ControlPlane) {
    let client = cp.admin();
    for n in 0..NOISE {
        let method = Method::from_bytes(format!("INVENTED{n}").as_bytes()).unwrap();
        let requests = [
            client.request(method, cp.url("/meshes")),
            client.get(cp.url(&format!("/invented{n}"))),
            client.get(cp.url(&format!("/meshes/invented{n}/dataplanes/invented{n}/invented{n}"))),
            client.get(cp.url("/meshes")).header("host", format!("invented{n}")),
            client.get(cp.diagnostics_url(&format!("/invented{n}"))),
        ];
        for request in requests {
            // Whatever it answers, it must not remember.
            let _any = request.send().await;
        }
    }
}

async fn channel(address: String, certificate: &std::path::Path) -> Channel {
    let pem = std::fs::read(certificate).unwrap();
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
    let endpoint = Channel::from_shared(address).unwrap().tls_config(tls).unwrap();
    endpoint.connect().await.unwrap()
}

/// Streams that claim to be zones.
async fn claimed_zones(global: &Global) {
    let address = global.kds_address().replace("grpcs://", "https://");
    let channel = channel(address, &global.certificate()).await;
    for n in 0..NOISE {
        let mut request = tonic::Request::new(futures::stream::pending::<DeltaDiscoveryRequest>());
        request.metadata_mut().insert("client-id", format!("invented{n}").parse().unwrap());
        let refused = KdsSyncServiceClient::new(channel.clone()).global_to_zone_sync(request).await;
        assert!(refused.is_err(), "a zone without a token");
    }
}

/// A proxy that asks for types that do not exist.
async fn unknown_types(zone: &Zone) {
    zone.apply(
        "{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.1, inbound: [{port: 80, \
         tags: {kuma.io/service: web}}]}}",
    );
    let token = zone.proxy_token("default", &["--name", "web-1"]).await;
    let channel = channel(format!("https://{}", zone.dp_server), &zone.certificate()).await;
    let ask = |n: usize| DiscoveryRequest {
        type_url: format!("type.googleapis.com/invented{n}"),
        node: Some(Node { id: "default.web-1".to_owned(), ..Node::default() }),
        ..DiscoveryRequest::default()
    };
    let requests =
        futures::stream::iter((0..NOISE).map(ask).collect::<Vec<_>>()).chain(futures::stream::pending());
    let mut request = tonic::Request::new(requests);
    request.metadata_mut().insert("authorization", token.trim().parse().unwrap());
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let _stream = client.stream_aggregated_resources(request).await.unwrap();
    eventually("they are counted", || async {
        let text = zone.metrics().await;
        let other = text.lines().find(|l| l.starts_with("xds_requests_received") && l.contains("\"other\""));
        let count = other.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default();
        // A server may well end a stream that goes on like this.
        if count >= 10.0 { Ok(()) } else { Err(format!("{count} of {NOISE}")) }
    })
    .await;
}

/// Name and labels of every series.
fn series(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &str| {
        let (name, rest) = line.split_once('{').unwrap_or((line, ""));
        let labels = rest.rsplit_once('}').map_or("", |(labels, _)| labels);
        let pairs = labels.split("\",").filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            pair.split_once("=\"").map(|(n, v)| (n.to_owned(), v.trim_end_matches('"').to_owned()))
        };
        (name.split(' ').next().unwrap_or_default().to_owned(), pairs.filter_map(pair).collect())
    };
    samples.map(parse).collect()
}

fn assert_closed(text: &str, zones: &[&str]) {
    assert!(!text.to_ascii_lowercase().contains("invented"), "{text}");
    let kinds: BTreeSet<&str> = registry::ALL.iter().map(|kind| kind.name).chain([metering::OTHER]).collect();
    let all = series(text);
    assert!(!all.is_empty());
    for (sample, labels) in all {
        let suffixes = ["_bucket", "_sum", "_count"];
        let base = suffixes.iter().find_map(|suffix| sample.strip_suffix(suffix));
        let of = |name: &str| metering::ALL.iter().find(|metric| metric.name == name);
        let metric =
            base.and_then(of).or_else(|| of(&sample)).unwrap_or_else(|| panic!("{sample} is not declared"));
        for (label, value) in labels {
            if ["zone", "le"].contains(&label.as_str()) {
                continue;
            }
            let declared = metric.labels.iter().find(|(name, _)| *name == label);
            let (_, values) = declared.unwrap_or_else(|| panic!("{sample} has the label {label}"));
            let good = match values {
                LabelValues::These(all) => all.contains(&value.as_str()),
                LabelValues::Methods => {
                    ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", metering::OTHER]
                        .contains(&value.as_str())
                }
                LabelValues::Routes => value == "none" || value.starts_with('/'),
                LabelValues::Statuses => value.parse::<u16>().is_ok_and(|code| (100..600).contains(&code)),
                LabelValues::Kinds => kinds.contains(value.as_str()),
                LabelValues::Meshes => value == "default",
                // Of a process there is one, and none of it is said by somebody else.
                LabelValues::Process => !value.is_empty(),
                LabelValues::Zones => zones.contains(&value.as_str()),
                LabelValues::TypeUrls => {
                    value == metering::OTHER || value.starts_with("type.googleapis.com/envoy.")
                }
                LabelValues::Constants => !value.is_empty() || label == "confirmation",
            };
            assert!(good, "{sample}: {label}={value:?}");
        }
    }
}

#[tokio::test]
async fn invented_names_make_no_series() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    noise_at(&global).await;
    noise_at(&zone).await;
    claimed_zones(&global).await;
    unknown_types(&zone).await;
    for cp in [&global.cp, &zone.cp] {
        let text = cp.metrics().await;
        assert!(text.contains("method=\"other\""), "{text}");
        assert_closed(&text, &["zone-1"]);
        let series = series(&text).len();
        assert!(series < 20 * NOISE, "{series} series");
    }
}

/// What a stranger may ask with.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"];
/// What he may show, and what may be wrong about the rest.
const WRONG: [(Option<&str>, &str); 3] =
    [(None, ""), (None, "?size=invented&offset=-1"), (Some("Bearer invented"), "")];
/// At once.
const STRANGERS: usize = 16;
/// What the two histograms of requests have for one route, method and code.
const OF_ONE: usize = 27;
/// Codes with which a handler answers strangers, other than that they are wrong.
const CODES: usize = 2;
/// What else a control plane says that has just begun.
const BESIDE: usize = 2_000;

/// Every route there is, by its path, with its methods.
async fn routes(cp: &ControlPlane) -> BTreeMap<String, BTreeSet<String>> {
    let document = cp.get("/openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    let methods = |item: &serde_json::Value| {
        let members = item.as_object().unwrap().keys().filter(|name| *name != "parameters");
        members.map(|name| name.to_ascii_uppercase()).collect()
    };
    paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect()
}

#[tokio::test]
async fn strangers_do_not_make_a_series_of_every_route_with_every_method() {
    let global = Global::start().await;
    let routes = routes(&global).await;
    assert!(routes.len() > 100, "{} routes", routes.len());
    let client = http::builder().build().unwrap();
    let asked = routes.keys().flat_map(|path| METHODS.map(|method| (path, method)));
    let asked = asked.flat_map(|(path, method)| WRONG.map(|wrong| (path, method, wrong)));
    let requests: Vec<_> = asked
        .map(|(path, method, (shown, wrong))| {
            let parts = path.split('/').map(|part| if part.starts_with('{') { "invented" } else { part });
            let url = global.url(&(parts.collect::<Vec<_>>().join("/") + wrong));
            let request = client.request(Method::from_bytes(method.as_bytes()).unwrap(), url);
            shown.iter().fold(request, |request, shown| request.header("authorization", *shown))
        })
        .collect();
    let answered = futures::stream::iter(requests).map(|request| async move { request.send().await.is_ok() });
    let answered =
        answered.buffer_unordered(STRANGERS).filter(|is_one| std::future::ready(*is_one)).count().await;
    assert!(answered > routes.len() * METHODS.len(), "{answered} answers");

    let text = global.metrics().await;
    assert_closed(&text, &[]);
    let series = series(&text);
    for (sample, labels) in
        series.iter().filter(|(sample, _)| sample == "api_server_http_request_duration_seconds_count")
    {
        let said = |label: &str| {
            labels.iter().find(|(name, _)| name == label).map_or("", |(_, value)| value.as_str())
        };
        let (handler, method) = (said("handler"), said("method"));
        if handler == "none" {
            assert_eq!(method, metering::OTHER, "{sample} {labels:?}");
        } else if let Some(methods) = routes.get(handler) {
            assert!(methods.contains(method), "{sample} {labels:?}");
        }
    }
    let most = routes.len() * OF_ONE * CODES + BESIDE;
    assert!(series.len() <= most, "{} series of {} routes", series.len(), routes.len());
    assert!(text.len() <= 4 << 20, "{} bytes", text.len());
}
