//! What administrators are told about the clients.

use std::{collections::BTreeMap, time::Duration};

use common::{
    audit::AuditQuery,
    proto::envoy::{
        config::cluster::v3::Cluster,
        service::status::v3::{
            ClientConfig, ClientStatusRequest, ClientStatusResponse,
            ConfigStatus::{self, Error, NotSent, Stale, Synced},
            client_status_discovery_service_client::ClientStatusDiscoveryServiceClient,
        },
        r#type::matcher::v3::{NodeMatcher, StringMatcher, string_matcher::MatchPattern},
    },
    token::{self, NODE_GROUP, Purpose, UserClaims},
};
use prost::Message;
use tonic::{Code, Request, Status, transport::Channel};

use super::{
    client::{BOTH, CDS, Client, EDS, LDS, Protocol, SDS, Who, channel},
    harness::{Zone, dataplane},
};
use crate::ads::auth::Credential;

/// Who asks for clients.
struct Operator {
    stub: ClientStatusDiscoveryServiceClient<Channel>,
    token: Option<String>,
}

impl Operator {
    async fn of(zone: &Zone, groups: &[&str]) -> Self {
        let key = token::new_signing_key().unwrap();
        zone.secret(Purpose::User.key(1), key.pem().as_bytes()).await;
        let claims = UserClaims {
            name: "operator".to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        };
        let valid = Duration::from_secs(3600);
        let token = token::issue(&zone.index.current(), Purpose::User, &claims, valid, &zone.env).unwrap();
        let stub = ClientStatusDiscoveryServiceClient::new(channel(zone).await);
        Self { stub, token: Some(format!("Bearer {token}")) }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.parse().unwrap());
        }
        request
    }

    async fn ask(&self, asked: ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
        let request = self.request(asked);
        self.stub.clone().fetch_client_status(request).await.map(tonic::Response::into_inner)
    }

    /// What is said about the one client there is.
    async fn one(&self) -> ClientConfig {
        let mut answer = self.ask(ClientStatusRequest::default()).await.unwrap();
        assert_eq!(answer.config.len(), 1, "{answer:?}");
        answer.config.remove(0)
    }
}

/// How far a client is with each resource of a type.
fn standing(client: &ClientConfig, type_url: &str) -> BTreeMap<String, ConfigStatus> {
    let of_type = client.generic_xds_configs.iter().filter(|of| of.type_url == type_url);
    of_type.map(|of| (of.name.clone(), of.config_status())).collect()
}

fn named(pattern: MatchPattern) -> ClientStatusRequest {
    let node_id = Some(StringMatcher { match_pattern: Some(pattern), ..StringMatcher::default() });
    let matcher = NodeMatcher { node_id, ..NodeMatcher::default() };
    ClientStatusRequest { node_matchers: vec![matcher], ..ClientStatusRequest::default() }
}

#[tokio::test]
async fn each_resource_is_shown_with_what_the_proxy_said_to_it() {
    let zone = Zone::start().await;
    zone.mtls("").await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &["backend"])).await;
    zone.put(&dataplane("backend-1", "127.0.0.3", "backend", &[])).await;
    let operator = Operator::of(&zone, &["mesh-system:admin"]).await;
    let token = zone.token_for("web-1");
    for protocol in BOTH {
        let mut client = Client::connect(&zone, protocol, Who::known("default.web-1", &token)).await;
        client.subscribe(CDS, &[]).await;
        let clusters = client.expect(CDS).await;
        let shown = operator.one().await;
        assert_eq!(shown.node.as_ref().map(|node| node.id.as_str()), Some("default.web-1"));
        assert!(standing(&shown, CDS).values().all(|status| *status == Stale), "{protocol:?}: unanswered");
        assert!(
            standing(&shown, LDS).values().all(|status| *status == NotSent),
            "{protocol:?}: not asked for"
        );

        client.accept(&clusters).await;
        client.subscribe(EDS, &["backend"]).await;
        client.take(EDS).await;
        client.subscribe(LDS, &[]).await;
        let listeners = client.expect(LDS).await;
        client.refuse(&listeners, "no room").await;
        // What is heard after that was said after that.
        client.subscribe(SDS, &["missing"]).await;
        client.take(SDS).await;

        let shown = operator.one().await;
        assert!(standing(&shown, CDS).values().all(|status| *status == Synced), "{protocol:?}: {shown:?}");
        assert_eq!(standing(&shown, EDS)["backend"], Synced, "{protocol:?}");
        assert!(standing(&shown, LDS).values().all(|status| *status == Error), "{protocol:?}");
        assert!(
            standing(&shown, SDS).values().all(|status| *status == NotSent),
            "{protocol:?}: of other names"
        );
        for of in &shown.generic_xds_configs {
            let details = of.error_state.as_ref().map(|state| state.details.as_str());
            assert_eq!(details, (of.type_url == LDS).then_some("no room"), "{protocol:?} {}", of.name);
            let contents = of.xds_config.as_ref();
            assert_eq!(contents.is_some(), of.type_url != SDS, "{protocol:?}: secrets are not shown");
            if of.type_url == CDS {
                assert_eq!(Cluster::decode(&contents.unwrap().value[..]).unwrap().name, of.name);
                let of_response = of.version_info == clusters.version;
                assert_eq!(of_response, protocol == Protocol::Sotw, "{protocol:?}: {}", of.version_info);
            }
        }
        assert!(!standing(&shown, SDS).is_empty());
    }
    zone.stop().await;
}

#[tokio::test]
async fn clients_are_found_by_matchers_and_contents_left_out() {
    let zone = Zone::start().await;
    let operator = Operator::of(&zone, &["mesh-system:admin"]).await;
    let mut clients = Vec::new();
    for name in ["web-1", "web-2", "db-1"] {
        zone.put(&dataplane(name, "127.0.0.2", "web", &[])).await;
        let (id, token) = (format!("default.{name}"), zone.token_for(name));
        let mut client = Client::begin(&zone, Protocol::Delta, Who::known(&id, &token)).await;
        client.take(CDS).await;
        clients.push(client);
    }
    let found = |answer: ClientStatusResponse| -> Vec<String> {
        answer.config.into_iter().filter_map(|client| Some(client.node?.id)).collect()
    };
    for (asked, ids) in [
        (ClientStatusRequest::default(), &["default.db-1", "default.web-1", "default.web-2"][..]),
        (named(MatchPattern::Exact("default.web-2".to_owned())), &["default.web-2"]),
        (named(MatchPattern::Prefix("default.web".to_owned())), &["default.web-1", "default.web-2"]),
        (named(MatchPattern::Suffix("-1".to_owned())), &["default.db-1", "default.web-1"]),
        (named(MatchPattern::Exact("default.nobody".to_owned())), &[]),
    ] {
        assert_eq!(found(operator.ask(asked.clone()).await.unwrap()), ids, "{asked:?}");
    }
    let bare = ClientStatusRequest { exclude_resource_contents: true, ..ClientStatusRequest::default() };
    let answer = operator.ask(bare).await.unwrap();
    let all = || answer.config.iter().flat_map(|client| &client.generic_xds_configs);
    assert!(all().count() > 0 && all().all(|of| of.xds_config.is_none()));

    // A stream answers each request.
    let asked = [named(MatchPattern::Contains("db".to_owned())), ClientStatusRequest::default()];
    let requests = operator.request(tokio_stream::iter(asked));
    let mut answers = operator.stub.clone().stream_client_status(requests).await.unwrap().into_inner();
    assert_eq!(found(answers.message().await.unwrap().unwrap()), ["default.db-1"]);
    assert_eq!(found(answers.message().await.unwrap().unwrap()).len(), 3);
    assert!(answers.message().await.unwrap().is_none());
    zone.stop().await;
}

#[tokio::test]
async fn nodes_without_a_mesh_are_clients_too() {
    let zone = Zone::start_with(|config| config.requirement.node = Credential::None).await;
    let operator = Operator::of(&zone, &["mesh-system:admin"]).await;
    zone.put("{type: EnvoyConfig, name: e, spec: {nodes: [{id: edge}], clusters: [{name: a}, {name: b}]}}")
        .await;
    let node = Who { id: "edge", kind: "", resource: None, token: None };
    let mut client = Client::begin(&zone, Protocol::Delta, node).await;
    client.take(CDS).await;
    client.take(LDS).await;
    // What is heard after that was said after that.
    client.subscribe(SDS, &["missing"]).await;
    client.take(SDS).await;
    let shown = operator.one().await;
    assert_eq!(shown.node.as_ref().map(|node| node.id.as_str()), Some("edge"));
    let expected = ["a", "b"].map(|name| (name.to_owned(), Synced));
    assert_eq!(standing(&shown, CDS), expected.into());
    zone.stop().await;
}

#[tokio::test]
async fn only_administrators_are_told() {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let mut operator = Operator::of(&zone, &["mesh-system:admin"]).await;
    let custom = named(MatchPattern::Custom(Default::default()));
    let mut many = named(MatchPattern::Exact("web".to_owned()));
    many.node_matchers = vec![many.node_matchers[0].clone(); 1001];
    for (asked, code) in [
        (ClientStatusRequest::default(), Code::Ok),
        (custom, Code::InvalidArgument),
        (many, Code::InvalidArgument),
        (named(MatchPattern::Exact("x".repeat(100 << 10))), Code::OutOfRange),
    ] {
        let answer = operator.ask(asked).await.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(answer, code);
    }
    // Who looked is taken down as who looked at a dump by the API is.
    let taken_down = |user: &str| {
        let query = AuditQuery { user: Some(user.to_owned()), ..AuditQuery::default() };
        let found = zone.audit.search(&query, 100).into_iter();
        found.map(|entry| (entry.path, entry.status)).collect::<Vec<_>>()
    };
    let call = |method: &str| format!("/envoy.service.status.v3.ClientStatusDiscoveryService/{method}");
    let expected = [400, 400, 200].map(|status| (call("FetchClientStatus"), status));
    assert_eq!(taken_down("operator"), expected, "the newest first");
    // It says which node its bearer is, whatever else is in it.
    operator.token = Operator::of(&zone, &["mesh-system:admin", NODE_GROUP]).await.token;
    let refused = operator.ask(ClientStatusRequest::default()).await.unwrap_err();
    assert!(refused.code() == Code::Unauthenticated && refused.message().contains("node"), "{refused:?}");
    let anybody = Operator::of(&zone, &["team-a"]).await.token;
    for (token, code) in [
        (None, Code::Unauthenticated),
        (Some("nonsense".to_owned()), Code::Unauthenticated),
        (Some(zone.token_for("web-1")), Code::Unauthenticated),
        (anybody, Code::PermissionDenied),
    ] {
        operator.token = token;
        let refused = operator.ask(ClientStatusRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
        // Before it says anything.
        let silent = operator.request(tokio_stream::pending());
        let refused = operator.stub.clone().stream_client_status(silent).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
    }
    let expected = ["StreamClientStatus", "FetchClientStatus"].map(|method| (call(method), 403));
    assert_eq!(taken_down("operator")[..2], expected);
    assert_eq!(taken_down("mesh-system:anonymous").len(), 7, "of a node, and of three who are nobody, twice");
    zone.stop().await;
}
