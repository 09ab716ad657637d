//! What a relay does not decide: a zone nobody knows is introduced to global, and what zones own is carried there.

use std::time::Duration;

use async_trait::async_trait;
use common::{
    kds::{headers::KdsCaller, outbox::Outbox, serve::Ended},
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
        strait::relay::v1alpha1::RelayIntroductionRequest,
    },
    store::Revision,
};
use futures::{Stream, StreamExt};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::link::RelayLink;
use crate::kds::{Onward, Session, ZoneMessages};

/// Messages of a zone before the connection.
const QUEUE: usize = 16;
/// How long a zone nobody knows waits for global.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long global has to hear that a zone said goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

#[async_trait]
impl Onward for RelayLink {
    async fn introduce(&self, caller: &KdsCaller) -> Result<Revision, Status> {
        let zone = &caller.zone;
        let Ok(Some(uplink)) = timeout(PATIENCE, self.uplink()).await else {
            let text = format!("this relay has no connection to global, and does not know zone {zone}");
            return Err(Status::unavailable(text));
        };
        let request = uplink.request_of(caller, RelayIntroductionRequest {});
        let answer = timeout(PATIENCE, self.client(&uplink).introduce(request)).await;
        let late = |_| Status::unavailable("global does not answer this relay");
        Ok(answer.map_err(late)??.into_inner().revision)
    }

    async fn pass(
        &self,
        session: &Session,
        caller: &KdsCaller,
        mut inbound: ZoneMessages<DeltaDiscoveryResponse>,
        mut outbox: Outbox<DeltaDiscoveryRequest>,
    ) -> Ended {
        let uplink = tokio::select! {
            () = session.stop.cancelled() => return Ended::Stopped,
            uplink = self.uplink() => match uplink {
                Some(uplink) => uplink,
                None => return Ended::Stopped,
            },
            said = inbound.next() => return unasked(said),
        };
        // Dropped after the other half: a stream that is cut says no goodbye in the name of the zone.
        let (wire, queue) = mpsc::channel(QUEUE);
        let request = uplink.request_of(caller, ReceiverStream::new(queue));
        let mut client = self.sync_client(&uplink);
        let opened = tokio::select! {
            () = session.stop.cancelled() => return Ended::Stopped,
            opened = client.zone_to_global_sync(request) => opened,
        };
        let mut requests = match opened {
            Ok(requests) => requests.into_inner(),
            Err(status) => return Ended::Broken(status),
        };
        session.is_passed();
        let ended = tokio::select! {
            () = session.stop.cancelled() => Ended::Stopped,
            ended = carry(&mut inbound, &wire, &mut requests, &mut outbox) => ended,
        };
        // One of which another replica takes over is not gone for good: global waits as for any that was cut off.
        if matches!(ended, Ended::ByPeer) && !session.is_handed_over() {
            drop(wire);
            let _global_has_heard =
                timeout(GOODBYE, async { while let Ok(Some(_)) = requests.message().await {} }).await;
        }
        ended
    }
}

fn ended_by_global(asked: Result<Option<DeltaDiscoveryRequest>, Status>) -> Ended {
    match asked {
        Err(status) => Ended::Broken(status),
        Ok(_) => Ended::Broken(Status::unavailable("global ended the stream")),
    }
}

/// A zone says nothing before it is asked.
fn unasked(said: Option<Result<DeltaDiscoveryResponse, Status>>) -> Ended {
    match said {
        None => Ended::ByPeer,
        Some(Err(status)) => Ended::Broken(status),
        Some(Ok(_)) => Ended::Protocol("the zone answers what it was not asked".to_owned()),
    }
}

/// Carries both ways until one of them ends.
async fn carry(
    inbound: &mut (impl Stream<Item = Result<DeltaDiscoveryResponse, Status>> + Unpin),
    wire: &mpsc::Sender<DeltaDiscoveryResponse>,
    requests: &mut Streaming<DeltaDiscoveryRequest>,
    outbox: &mut Outbox<DeltaDiscoveryRequest>,
) -> Ended {
    loop {
        tokio::select! {
            said = inbound.next() => match said {
                // Both peers go on reading while they send, so this waits for no one who waits for it.
                Some(Ok(response)) => if wire.send(response).await.is_err() {
                    // Why it takes no more stands at the end of the other half.
                    return ended_by_global(requests.message().await);
                },
                Some(Err(status)) => return Ended::Broken(status),
                None => return Ended::ByPeer,
            },
            asked = requests.message() => match asked {
                Ok(Some(request)) => if let Err(error) = outbox.push(request) {
                    return error.into();
                },
                ended => return ended_by_global(ended),
            },
            drained = outbox.drain_one(), if !outbox.is_empty() => if let Err(error) = drained {
                return error.into();
            },
        }
    }
}
