#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use common::{
    document::Document,
    store::{Batch, Store, Write, feed::Feed, memory::MemoryStore},
};

use super::*;

fn dataplane(name: &str, host: &str) -> Resource {
    let yaml = format!(
        "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: {host}, inbound: [{{port: 80, \
         tags: {{kuma.io/service: web}}}}]}}}}"
    );
    let document = Document::parse(&serde_norway::from_str(&yaml).unwrap()).unwrap();
    let resource = document.into_resource(chrono::DateTime::UNIX_EPOCH);
    Resource { origin: Origin::Zone("east".into()), ..resource }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_never_ends_holds_back_no_other() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
    let feed = Feed::load(Arc::clone(&store)).await.unwrap();
    let resolver = Resolver::new("east".into(), feed.reader());
    let stop = CancellationToken::new();
    let following = tokio::spawn(feed.run(stop.clone()));
    let mut hosts = resolver.subscribe();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let look_up = move |name: String| {
        noted.lock().unwrap().push(name.clone());
        async move {
            match name.as_str() {
                "dead" => std::future::pending().await,
                _ => Some("10.0.0.7".parse().unwrap()),
            }
        }
    };
    let running = tokio::spawn(resolver.run_with(look_up, stop.clone()));
    let put = |resource: Resource| {
        let store = Arc::clone(&store);
        async move { store.transact(Batch::of([Write::put(resource)])).await.unwrap() }
    };
    put(dataplane("stuck", "dead")).await;
    put(dataplane("web", "web.local")).await;
    hosts.wait_for(|hosts| hosts.0.contains_key("web.local")).await.unwrap();
    put(dataplane("api", "api.local")).await;
    hosts.wait_for(|hosts| hosts.0.contains_key("api.local")).await.unwrap();
    assert_eq!(asked.lock().unwrap().iter().filter(|name| *name == "dead").count(), 1);
    assert!(!hosts.borrow().0.contains_key("dead"));
    stop.cancel();
    running.await.unwrap();
    following.await.unwrap().unwrap();
}
