//! What Envoys say of the workloads beside them.

use std::time::Duration;

use common::{
    model::{ResourceKey, kinds::dataplane},
    proto::{
        envoy::{
            config::core::v3::{HealthStatus, Node},
            service::health::v3::{
                ClusterEndpointsHealth, EndpointHealth, EndpointHealthResponse, HealthCheckRequest,
                HealthCheckRequestOrEndpointHealthResponse, HealthCheckSpecifier, LocalityEndpointsHealth,
                health_check_request_or_endpoint_health_response::RequestType,
            },
        },
        kuma::mesh::v1alpha1::{Dataplane, dataplane::networking::inbound::State},
    },
    store::Store,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, client::Grpc};
use tonic_prost::ProstCodec;

use super::{client::channel, harness::Zone};
use crate::ads::{health::CheckSettings, health::PATH};

const WEB: &str = "{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.2, inbound: [{port: 80, \
                   servicePort: 8080, serviceProbe: {tcp: {}}, tags: {kuma.io/service: web}}]}}";

type Said = HealthCheckRequestOrEndpointHealthResponse;

fn report(status: HealthStatus) -> Said {
    let endpoints_health = vec![EndpointHealth { health_status: status.into(), ..EndpointHealth::default() }];
    let locality = LocalityEndpointsHealth { endpoints_health, ..LocalityEndpointsHealth::default() };
    let cluster = ClusterEndpointsHealth {
        cluster_name: "localhost:8080".to_owned(),
        locality_endpoints_health: vec![locality],
    };
    let report = EndpointHealthResponse {
        cluster_endpoints_health: vec![cluster],
        ..EndpointHealthResponse::default()
    };
    Said { request_type: Some(RequestType::EndpointHealthResponse(report)) }
}

#[tokio::test]
async fn a_workload_that_is_well_and_sick_in_turn_is_written_now_and_then() {
    let report_interval = Duration::from_secs(1);
    let zone = Zone::start_with(|config| {
        config.health = Some(CheckSettings { report_interval, ..CheckSettings::default() });
    })
    .await;
    zone.put(WEB).await;
    let token = zone.token_for("web-1");
    let mut grpc = Grpc::new(channel(&zone).await);
    grpc.ready().await.unwrap();
    let (says, said) = mpsc::channel::<Said>(16);
    let node = Node { id: "default.web-1".to_owned(), ..Node::default() };
    let hello = HealthCheckRequest { node: Some(node), ..HealthCheckRequest::default() };
    says.send(Said { request_type: Some(RequestType::HealthCheckRequest(hello)) }).await.unwrap();
    let mut request = Request::new(ReceiverStream::new(said));
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let codec = ProstCodec::<Said, HealthCheckSpecifier>::default();
    let mut told = grpc.streaming(request, PATH.parse().unwrap(), codec).await.unwrap().into_inner();
    assert_eq!(told.message().await.unwrap().unwrap().cluster_health_checks.len(), 1);

    let before = *zone.store.watch_head().borrow();
    let begun = tokio::time::Instant::now();
    for _ in 0..500 {
        says.send(report(HealthStatus::Unhealthy)).await.unwrap();
        says.send(report(HealthStatus::Healthy)).await.unwrap();
    }
    // What comes too soon is written later.
    let key = ResourceKey::new(&dataplane::KIND, "default", "web-1");
    for (status, state) in [
        (HealthStatus::Unhealthy, State::NotReady),
        (HealthStatus::Healthy, State::Ready),
        (HealthStatus::Unhealthy, State::NotReady),
    ] {
        says.send(report(status)).await.unwrap();
        zone.until(|index| {
            let networking = index.get(&key)?.spec::<Dataplane>().unwrap().networking?;
            (networking.inbound[0].state() == state).then_some(())
        })
        .await;
    }
    let (written, allowed) = (*zone.store.watch_head().borrow() - before, 3 + begun.elapsed().as_secs());
    assert!(written <= allowed, "{written} revisions");
    zone.stop().await;
}
