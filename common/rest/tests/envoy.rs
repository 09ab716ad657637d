//! Asking the Envoys of proxies.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};

use super::*;
use crate::{
    access::AccessRule,
    envoy_admin::{Ask, AskError},
    model::{Origin, Resource, ResourceKey, kinds::zone_ingress, labels},
    store::{Batch, Write},
};

/// Repeats the question, except to those that are away.
struct Echoing;

#[async_trait]
impl EnvoyAdmin for Echoing {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        match &*proxy.name {
            "away" => Err(AskError::NotConnected(proxy.clone())),
            "leaky" if ask.is_json() => {
                Ok(json!({"initial_metadata": [{"key": "a", "value": "hunter2"}]}).to_string().into())
            }
            "leaky" => Ok("cluster.a.token=hunter2: 1\n".into()),
            "planned" => Ok(json!({"xds": {}, "asked": ask.path()}).to_string().into()),
            "odd" => Ok("initial_metadata: hunter2".into()),
            _ if ask.is_json() => Ok(json!(format!("{proxy} {}", ask.path())).to_string().into()),
            _ => Ok(format!("{proxy} {}", ask.path()).into()),
        }
    }
}

async fn asked(mode: Mode, access: Access) -> TestApi {
    let config = ApiConfig { envoys: Some(Arc::new(Echoing)), access, ..config(mode) };
    let ingress =
        json!({"type": "ZoneIngress", "name": "in-1", "networking": {"address": "10.0.0.1", "port": 1}});
    let documents = [
        mesh("default"),
        dataplane("web-1"),
        dataplane("away"),
        dataplane("leaky"),
        dataplane("odd"),
        dataplane("planned"),
        ingress,
    ];
    TestApi::start(config, &documents).await.unwrap()
}

#[tokio::test]
async fn each_question_has_a_path() {
    let api = asked(Mode::Global, Access::default()).await;
    let check = async |path: &str, expected: &str| {
        let (status, text) = api.send("GET", path, None).await.unwrap();
        assert_eq!((status, text.trim_end()), (200, expected), "{path}");
    };
    let web = "/meshes/default/dataplanes/web-1";
    check(&format!("{web}/xds"), "\"Dataplane default/web-1 /config_dump\"").await;
    check(&format!("{web}/xds?include_eds=true"), "\"Dataplane default/web-1 /config_dump?include_eds\"")
        .await;
    check(&format!("{web}/stats"), "Dataplane default/web-1 /stats?usedonly").await;
    check(
        &format!("{web}/stats?usedonly=false&format=json"),
        "\"Dataplane default/web-1 /stats?format=json\"",
    )
    .await;
    check("/zoneingresses/in-1/clusters", "ZoneIngress in-1 /clusters").await;
    check("/zone-ingresses/in-1/clusters?format=json", "\"ZoneIngress in-1 /clusters?format=json\"").await;
}

#[tokio::test]
async fn what_a_proxy_is_to_run_with_is_asked_of_its_zone() {
    let api = asked(Mode::Global, Access::default()).await;
    let get = async |name: &str, query: &str| {
        api.send("GET", &format!("/meshes/default/dataplanes/{name}/_config{query}"), None).await.unwrap()
    };
    let (status, text) = get("planned", "?shadow=true&include=diff").await;
    assert!(status == 200 && text.contains("/_config?shadow=true&include=diff"), "{text}");
    assert_eq!(get("planned", "?shadow=2").await.0, 400);
    let (status, text) = get("web-1", "").await;
    assert!(
        status == 400 && text.contains("ask its own control plane"),
        "zones of Kuma show something else: {text}"
    );
    assert_eq!(get("nobody", "").await.0, 404);
    let (status, text) = api.send("GET", "/zoneingresses/in-1/_config", None).await.unwrap();
    assert!(status == 400 && text.contains("ask its own control plane"), "{text}");
    assert_eq!(api.send("GET", "/zoneingresses/nobody/_config", None).await.unwrap().0, 404);
}

#[tokio::test]
async fn what_an_envoy_proves_itself_with_is_left_out_whatever_the_zone_sends() {
    let api = asked(Mode::Global, Access::default()).await;
    for what in ["xds", "stats", "stats?format=json", "clusters", "clusters?format=json"] {
        let path = format!("/meshes/default/dataplanes/leaky/{what}");
        let (status, text) = api.send("GET", &path, None).await.unwrap();
        assert_eq!(status, 200, "{text}");
        assert!(text.contains("[redacted]") && !text.contains("hunter2"), "{what}: {text}");
    }
    let (status, text) = api.send("GET", "/meshes/default/dataplanes/odd/xds", None).await.unwrap();
    assert!(status == 400 && text.contains("withheld") && !text.contains("hunter2"), "{text}");
}

/// Never says anything, and is asked so often at once.
#[derive(Default)]
struct Silent(AtomicUsize);

#[async_trait]
impl EnvoyAdmin for Silent {
    async fn ask(&self, _: &ResourceKey, _: Ask) -> Result<Bytes, AskError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn few_envoys_are_asked_at_once_and_nobody_waits_for_long() {
    let silent = Arc::new(Silent::default());
    let config = ApiConfig { envoys: Some(Arc::clone(&silent) as _), ..config(Mode::Global) };
    let api = TestApi::start(config, &[mesh("default"), dataplane("web-1")]).await.unwrap();
    let ask = || Box::pin(api.send("GET", "/meshes/default/dataplanes/web-1/xds", None));
    let asking: FuturesUnordered<_> = (0..20).map(|_| ask()).collect();
    let answered: Vec<_> = asking.take(12).collect().await;
    assert_eq!(silent.0.load(Ordering::Relaxed), 8);
    for answer in answered {
        let (status, text) = answer.unwrap();
        assert!(status == 503 && text.contains("try again"), "{text}");
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_said_with_its_reason() {
    let nobody =
        Access { view_stats: AccessRule { users: [].into(), groups: [].into() }, ..Access::default() };
    let api = asked(Mode::federated_zone("east"), nobody).await;
    let check = async |path: &str, status: u16, part: &str| {
        let (got, body) = ask(&api, "GET", path, None).await;
        assert_eq!(got, status, "{path}: {body}");
        assert!(body["detail"].as_str().unwrap().contains(part), "{path}: {body}");
    };
    let list = "/meshes/default/dataplanes";
    check(&format!("{list}/nobody/stats"), 403, "cannot view the stats of an Envoy").await;
    check(&format!("{list}/nobody/xds"), 404, "Not found").await;
    check("/meshes/none/dataplanes/web-1/xds", 404, "Not found").await;

    let own = |name: &str| {
        let key = ResourceKey::new(&crate::model::kinds::dataplane::KIND, "default", name);
        let index = api.index.current();
        Resource { origin: Origin::Zone("east".into()), ..Resource::clone(index.get(&key).unwrap()) }
    };
    let away = Write::put(own("away"));
    let other = Resource::new(ResourceKey::global(&zone_ingress::KIND, "in-2"), api.env.now());
    let other = Write::put(other.with_label(labels::ZONE, "west"));
    let commit = api.store.transact(Batch::of([away, other])).await.unwrap();
    api.index.wait_for(commit.revision).await.unwrap();
    check(&format!("{list}/away/xds"), 400, "Dataplane default/away is not connected here").await;
    check("/zoneingresses/in-2/xds", 400, "belongs to west: ask there, or on global").await;
}
