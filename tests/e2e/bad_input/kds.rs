//! A zone that says anything to global.

use bytes::Bytes;
use common::{
    kds::{
        codec::ENVELOPE_URL,
        features::{self, Features},
        headers::KdsCaller,
        mapper,
    },
    model::{Format, Kind, Resource, ResourceKey},
    proto::{
        envoy::{
            config::core::v3::ControlPlane,
            service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource as Item},
        },
        google::protobuf::Any,
        kuma::mesh::v1alpha1::{KumaResource, kuma_resource::Meta},
    },
};
use prost::Message;
use serde_json::json;
use tonic::metadata::MetadataMap;

use super::{
    ads::{Ask, node},
    grpc::{Call, Grpc, framed},
    table::{Answer, Front},
};
use crate::harness::Global;

/// What shows that a stream down is served: everybody gets the meshes.
pub const PROBE: &str = "Mesh";

const DOWN: &str = "/kuma.mesh.v1alpha1.KDSSyncService/GlobalToZoneSync";
const UP: &str = "/kuma.mesh.v1alpha1.KDSSyncService/ZoneToGlobalSync";

/// How a zone introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// As one of Kuma's: what it claims is attributed to it.
    Kumas,
    /// As one of ours: it answers for what it claims.
    Ours,
}

/// A zone with a token that is right.
pub struct Zoned {
    /// Where it calls.
    pub kds: Grpc,
    metadata: Vec<(String, String)>,
}

impl Zoned {
    /// A zone of this make, which global knows once it has called.
    pub fn new(global: &Global, zone: &str, make: Make) -> Self {
        let token = global.straitctl(&["generate", "zone-token", "--zone", zone, "--scope", "cp"]);
        let mut features: Features =
            [features::ZONE_PING_HEALTH, features::HASH_SUFFIX].into_iter().collect();
        if make == Make::Ours {
            features = Features::ours();
        }
        let caller = KdsCaller {
            zone: zone.to_owned(),
            features,
            session: None,
            token: Some(token.trim().to_owned()),
            version: "2.14.3".to_owned(),
            issuing_request: None,
        };
        let mut headers = MetadataMap::new();
        caller.write(&mut headers);
        let headers = headers.into_headers();
        let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
        let metadata = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let certificate = std::fs::read_to_string(global.certificate()).unwrap();
        Self { kds: Grpc::new("global KDS", global.kds, &certificate), metadata }
    }
}

impl Front for Zoned {
    type Input = Call;

    fn name(&self) -> &str {
        "global KDS"
    }

    async fn send(&self, input: &Call) -> Answer {
        let metadata: Vec<_> = self.metadata.iter().chain(&input.metadata).cloned().collect();
        self.kds.call_with(input, &metadata).await
    }
}

/// The first request for a type, for all of it.
pub fn wants(type_url: &str) -> Ask {
    Ask::of(type_url).from(node("zone-1", [])).named(["*".to_owned()])
}

/// A stream down on which `asks` are said without waiting; `served` once the meshes come.
pub fn down(asks: &[Ask]) -> Call {
    raw_down(asks.iter().map(|ask| framed(&ask.delta())).collect())
}

/// The same with anything.
pub fn raw_down(body: Vec<Bytes>) -> Call {
    let until = |message: &[u8]| {
        let response = DeltaDiscoveryResponse::decode(message).ok()?;
        (response.type_url == PROBE).then(|| Answer::new("served", ""))
    };
    Call { path: DOWN, metadata: Vec::new(), body, closes: false, until: Box::new(until) }
}

/// A stream down that asks for `names` of a type: `empty` or `leaked`, with what came.
pub fn leaks(type_url: &'static str, names: &[&str]) -> Call {
    let ask = wants(type_url).named(names.iter().map(|name| (*name).to_owned()));
    let until = move |message: &[u8]| {
        let response = DeltaDiscoveryResponse::decode(message).ok()?;
        if response.type_url != type_url {
            return None;
        }
        let verdict = if response.resources.is_empty() { "empty" } else { "leaked" };
        let came =
            response.resources.iter().map(|item| String::from_utf8_lossy(&item.encode_to_vec()).into_owned());
        Some(Answer::new(verdict, came.collect::<String>()))
    };
    Call { until: Box::new(until), ..down(&[ask]) }
}

/// What a zone sends up in one response.
pub fn response(type_url: &str, nonce: &str, items: Vec<Item>, removed: &[&str]) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse {
        type_url: type_url.to_owned(),
        nonce: nonce.to_owned(),
        resources: items,
        removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
        control_plane: Some(ControlPlane { identifier: "zone-1".to_owned() }),
        ..DeltaDiscoveryResponse::default()
    }
}

/// A stream up on which `responses` are said without waiting: `taken` or `refused` once the last of them is
/// answered.
pub fn up(responses: &[DeltaDiscoveryResponse]) -> Call {
    let last = responses.last().map(|last| last.nonce.clone()).unwrap_or_default();
    raw_up(responses.iter().map(framed).collect(), last)
}

/// The same with anything.
pub fn raw_up(body: Vec<Bytes>, last: String) -> Call {
    let until = move |message: &[u8]| {
        let request = DeltaDiscoveryRequest::decode(message).ok()?;
        if request.response_nonce != last || last.is_empty() {
            return None;
        }
        Some(match request.error_detail {
            None => Answer::new("taken", ""),
            Some(error) => Answer::new("refused", error.message),
        })
    };
    Call { path: UP, metadata: Vec::new(), body, closes: false, until: Box::new(until) }
}

/// An item on its way up, and every part of it that can lie.
#[derive(Clone)]
pub struct Sent {
    /// Name on the wire.
    pub wire: String,
    /// Type of what is on the wire.
    pub envelope: String,
    /// What is in the envelope.
    pub resource: KumaResource,
}

impl Sent {
    /// What `zone` sends for its resource of this name; all of it is right if the spec is.
    pub fn new(zone: &str, kind: &'static Kind, name: &str, spec: Vec<u8>) -> Self {
        let mesh = if kind.is_mesh_scoped() { "default" } else { "" };
        let own = ResourceKey::new(kind, mesh, name);
        let own = Resource::new(own, chrono::DateTime::UNIX_EPOCH).with_spec(self::spec(kind));
        // What no zone sends has no form in which it would.
        let sent = if kind.flow.requested_by_global() { mapper::up(&own, zone, &[]).unwrap() } else { own };
        let url = match kind.format {
            Format::Proto { message } => format!("type.googleapis.com/{message}"),
            Format::Json { .. } => String::new(),
        };
        let meta = Meta {
            name: sent.name().to_owned(),
            mesh: mesh.to_owned(),
            labels: sent.labels.to_map(),
            ..Meta::default()
        };
        Self {
            wire: format!("{}.{mesh}", sent.name()),
            envelope: ENVELOPE_URL.to_owned(),
            resource: KumaResource {
                meta: Some(meta),
                spec: Some(Any { type_url: url, value: spec }),
                status: None,
                strait_signature: String::new(),
            },
        }
    }

    /// The name it is stored under.
    pub fn name(&self) -> String {
        self.resource.meta.as_ref().map(|meta| meta.name.clone()).unwrap_or_default()
    }

    /// With a label.
    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        let meta = self.resource.meta.get_or_insert_default();
        meta.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With a change of its envelope.
    pub fn with(mut self, change: impl FnOnce(&mut KumaResource)) -> Self {
        change(&mut self.resource);
        self
    }

    /// As it travels.
    pub fn item(&self) -> Item {
        Item {
            name: self.wire.clone(),
            version: "1".to_owned(),
            resource: Some(Any { type_url: self.envelope.clone(), value: self.resource.encode_to_vec() }),
            ..Item::default()
        }
    }
}

/// The smallest spec of a kind that is right.
pub fn spec(kind: &Kind) -> Vec<u8> {
    let to =
        |default: serde_json::Value| json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": default}]});
    let spec = match kind.name {
        "MeshTimeout" => to(json!({"connectionTimeout": "5s"})),
        "MeshRetry" => to(json!({"tcp": {"maxConnectAttempt": 5}})),
        "MeshCircuitBreaker" => to(json!({"connectionLimits": {"maxConnections": 2}})),
        "MeshTrafficPermission" => {
            json!({"from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]})
        }
        "MeshAccessLog" => to(json!({"backends": []})),
        "MeshFaultInjection" => {
            let abort = json!({"http": [{"abort": {"httpStatus": 500, "percentage": 1}}]});
            json!({"targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]},
                "from": [{"targetRef": {"kind": "Mesh"}, "default": abort}]})
        }
        "MeshHealthCheck" => to(json!({"interval": "10s", "tcp": {}})),
        "MeshLoadBalancingStrategy" => to(json!({"loadBalancer": {"type": "Random"}})),
        "MeshProxyPatch" => json!({"default": {"appendModifications": [
            {"cluster": {"operation": "Add", "value": "name: c"}}]}}),
        "MeshRateLimit" => json!({
            "targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]},
            "from": [{"targetRef": {"kind": "Mesh"}, "default": {"local": {"tcp": {"connectionRate": {"num": 5, "interval": "1s"}}}}}],
        }),
        "MeshTLS" => json!({"rules": [{"default": {"mode": "Strict"}}]}),
        "MeshTrace" => json!({"default": {"backends": []}}),
        "MeshOpenTelemetryBackend" => {
            json!({"endpoint": {"address": "collector", "port": 4317}, "protocol": "grpc"})
        }
        "MeshHTTPRoute" => json!({"to": [{"targetRef": {"kind": "MeshService", "name": "web"}, "rules": [
            {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "default": {}}]}]}),
        "MeshTCPRoute" => json!({"to": [{"targetRef": {"kind": "MeshService", "name": "web"}, "rules": [
            {"default": {"backendRefs": [{"kind": "MeshService", "name": "web"}]}}]}]}),
        "HostnameGenerator" => json!({"selector": {"meshService": {"matchLabels": {"a": "b"}}},
            "template": "{{ .DisplayName }}.svc"}),
        "MeshExternalService" => {
            json!({"match": {"type": "HostnameGenerator", "port": 443, "protocol": "tcp"},
                "endpoints": [{"address": "example.com", "port": 443}]})
        }
        "MeshIdentity" => json!({"selector": {"dataplane": {"matchLabels": {}}}, "provider": {
            "type": "Bundled", "bundled": {"autogenerate": {"enabled": true}}}}),
        "MeshMultiZoneService" => json!({"selector": {"meshService": {"matchLabels": {"a": "b"}}},
            "ports": [{"port": 80, "appProtocol": "http"}]}),
        "MeshService" => json!({"selector": {"dataplaneTags": {"app": "a"}},
            "ports": [{"port": 80, "targetPort": 80, "appProtocol": "http"}]}),
        "MeshTrust" => json!({"trustDomain": "example.com", "caBundles": [{"type": "Pem", "pem": {
            "value": "-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----\n"}}]}),
        "MeshZoneAddress" => json!({"address": "10.0.0.1", "port": 10001}),
        "MeshGateway" => {
            return encoded(
                kind,
                &json!({"selectors": [{"match": {"kuma.io/service": "edge"}}],
                    "conf": {"listeners": [{"port": 80, "protocol": "HTTP"}]}}),
            );
        }
        "Dataplane" => {
            return encoded(
                kind,
                &json!({"networking": {"address": "10.0.0.1", "inbound": [
            {"port": 80, "tags": {"kuma.io/service": "web"}}]}}),
            );
        }
        "ZoneIngress" | "ZoneEgress" => {
            return encoded(kind, &json!({"networking": {"address": "10.0.0.1", "port": 10001}}));
        }
        _ if matches!(kind.format, Format::Json { .. }) => json!({}),
        _ => return Vec::new(),
    };
    spec.to_string().into_bytes()
}

/// A spec in the form it has on the wire.
pub fn encoded(kind: &Kind, spec: &serde_json::Value) -> Vec<u8> {
    common::model::transcode::from_json(kind, spec).unwrap()
}
