//! The status of clients (CSDS), asked of a zone by an administrator and by others.

use common::proto::envoy::{
    service::status::v3::{
        ClientConfig, ClientStatusRequest, ConfigStatus,
        client_status_discovery_service_client::ClientStatusDiscoveryServiceClient,
    },
    r#type::matcher::v3::{NodeMatcher, StringMatcher, string_matcher::MatchPattern},
};
use tonic::{Code, Request, Status};

use crate::{
    bad_input::ads::dataplane,
    doors::ads_peer::{CDS, channel, join, node},
    harness::{Global, Options, Zone, eventually},
};

/// What a zone says about the clients that are meant to whoever shows this token.
async fn ask(zone: &Zone, token: Option<&str>, exact: &str) -> Result<Vec<ClientConfig>, Status> {
    let pattern = MatchPattern::Exact(exact.to_owned());
    let id = StringMatcher { match_pattern: Some(pattern), ..StringMatcher::default() };
    let matcher = NodeMatcher { node_id: Some(id), ..NodeMatcher::default() };
    let asked = ClientStatusRequest { node_matchers: vec![matcher], ..ClientStatusRequest::default() };
    let mut request = Request::new(asked);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.parse().unwrap());
    }
    let mut client = ClientStatusDiscoveryServiceClient::new(channel(zone).await);
    client.fetch_client_status(request).await.map(|answer| answer.into_inner().config)
}

#[tokio::test]
async fn administrators_see_how_far_each_proxy_is_and_others_do_not() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    for name in ["web-1", "web-2"] {
        zone.apply(&dataplane(name));
    }
    let token = zone.proxy_token("default", &["--name", "web-1"]).await;
    let _stream = join(&zone, node("default.web-1", None), Some(&token)).await.expect("it is served");

    let admin = format!("Bearer {}", zone.admin_token());
    let synced = eventually("the clusters to be taken", || async {
        let clients = ask(&zone, Some(&admin), "default.web-1").await.map_err(|status| status.to_string())?;
        let [client] = &clients[..] else { return Err(format!("{clients:?}")) };
        let mut clusters = client.generic_xds_configs.iter().filter(|of| of.type_url == CDS).peekable();
        let is_synced =
            clusters.peek().is_some() && clusters.all(|of| of.config_status() == ConfigStatus::Synced);
        if is_synced { Ok(client.clone()) } else { Err(format!("{client:?}")) }
    })
    .await;
    assert!(synced.generic_xds_configs.iter().all(|of| of.error_state.is_none()));
    assert!(ask(&zone, Some(&admin), "default.web-2").await.unwrap().is_empty(), "it is not connected");

    for (who, token) in [("nobody", None), ("a proxy", Some(&*token)), ("a liar", Some("Bearer x.y.z"))] {
        let refused = ask(&zone, token, "default.web-1").await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{who}: {refused:?}");
    }
}
