//! Nothing waits for a time. The clock of these tests moves only when everybody waits for it.

use std::time::Duration;

use common::{runtime::Env, store::index::IndexReader, xds::Want};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::ads::{
    insight::ProxyInsights,
    proxies::{Proxies, StreamView},
    push::Push,
};

fn timeout(seconds: usize) -> String {
    format!(
        "{{type: MeshTimeout, mesh: default, name: t, spec: {{targetRef: {{kind: Mesh}}, to: [{{targetRef: {{kind: Mesh}}, \
         default: {{connectionTimeout: {seconds}s}}}}]}}}}"
    )
}

#[tokio::test(start_paused = true)]
async fn a_change_is_published_at_once_and_those_that_came_meanwhile_together() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    let dataplane = "{type: Dataplane, mesh: default, name: p-0, networking: {address: 127.0.0.1, inbound: [{port: 80, \
                     tags: {kuma.io/service: web}}], outbound: [{port: 1, tags: {kuma.io/service: web}}]}}";
    world.put(dataplane, "east");
    let (index, reader) = watch::channel(Arc::clone(&world.index));
    let (_hosts, hosts) = watch::channel(Hosts::default());
    let (env, proxies, stop) = (Env::system("test"), Arc::new(Proxies::default()), CancellationToken::new());
    let insights = Arc::new(ProxyInsights::new(&"east".into(), &env));
    let reader = IndexReader::new(reader);
    let push = Push::new(east(), env, reader, hosts, Arc::clone(&proxies), insights, None);
    let running = tokio::spawn(push.run(stop.clone()));

    let start = Instant::now();
    let mut session = proxies.join(
        Arc::new(proxy(ProxyKind::Dataplane, "p-0")),
        None,
        StreamView::default(),
        Arc::default(),
    );
    session.config.wait_for(Option::is_some).await.unwrap();
    for seconds in 1..4 {
        world.put(&timeout(seconds), "");
        index.send_replace(Arc::clone(&world.index));
        let revision = world.index.revision;
        session.config.wait_for(|c| c.as_ref().is_some_and(|c| c.revision() == revision)).await.unwrap();
    }
    for seconds in 5..50 {
        world.put(&timeout(seconds), "");
        index.send_replace(Arc::clone(&world.index));
    }
    session.config.borrow_and_update();
    session.config.changed().await.unwrap();
    let revision = session.config.borrow().as_ref().map(|config| config.revision());
    assert_eq!(revision, Some(world.index.revision), "what came before a round is one round");
    assert_eq!(start.elapsed(), Duration::ZERO, "nobody waited for more of it to come");
    stop.cancel();
    running.await.unwrap();
}
