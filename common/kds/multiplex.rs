//! KDS v1: both directions of the sync over one stream, each message the whole state of a type.
//!
//! Each end runs a half in server role and one in client role over that stream; requests go to the former, responses to
//! the latter. The server half speaks the [state-of-the-world dialect](crate::xds::Sotw) itself. The client half is the
//! one that follows differences: what it hears and says is translated by [`Differences`].

use std::sync::{Mutex, PoisonError};

use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{
    features::{DIGESTS, INGRESS_INSIGHTS, RESUME, ROLES},
    metadata::Peer,
    outbox::{Outbox, OutboxError},
    serve::Ended,
};
use crate::{
    model::Kind,
    proto::{
        envoy::service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        },
        kuma::mesh::v1alpha1::{Message, message::Value},
    },
};

mod differences;
#[cfg(test)]
mod tests;

pub use differences::{DifferenceError, Differences};

/// How status pages call the protocol.
pub const PROTOCOL: &str = "KDS v1";

/// Requests between a half and the stream. One per type is on its way at most.
const QUEUE: usize = 64;
/// Responses that wait for the half in client role, which may be storing the one before.
const RESPONSES: usize = 2;
/// Messages of a half that may wait before its queue.
const OUTBOX: usize = 128;

/// What a half reads.
pub type HalfInbound<T> = ReceiverStream<Result<T, Status>>;

/// What the two halves are connected to.
pub struct Halves {
    /// What the peer asks of the half in server role.
    pub requests: HalfInbound<DiscoveryRequest>,
    /// What that answers.
    pub answers: Outbox<DiscoveryResponse>,
    /// What the peer tells the half in client role.
    pub responses: HalfInbound<DeltaDiscoveryResponse>,
    /// What that asks.
    pub questions: Outbox<DeltaDiscoveryRequest>,
}

/// The one stream, as seen from the halves.
pub struct Multiplexer {
    differences: Mutex<Differences>,
    requests: mpsc::Sender<Result<DiscoveryRequest, Status>>,
    responses: mpsc::Sender<Result<DeltaDiscoveryResponse, Status>>,
    answers: mpsc::Receiver<Box<DiscoveryResponse>>,
    questions: mpsc::Receiver<Box<DeltaDiscoveryRequest>>,
}

impl Multiplexer {
    /// A stream on which this side asks for `kinds`.
    pub fn new(kinds: impl IntoIterator<Item = &'static Kind>) -> (Self, Halves) {
        let (requests, asked) = mpsc::channel(QUEUE);
        let (responses, told) = mpsc::channel(RESPONSES);
        let (answer, answers) = mpsc::channel(QUEUE);
        let (question, questions) = mpsc::channel(QUEUE);
        let differences = Mutex::new(Differences::new(kinds));
        let halves = Halves {
            requests: ReceiverStream::new(asked),
            answers: Outbox::new(answer, OUTBOX),
            responses: ReceiverStream::new(told),
            questions: Outbox::new(question, OUTBOX),
        };
        (Self { differences, requests, responses, answers, questions }, halves)
    }

    /// Carries what comes from `inbound` to the halves, and what they say to `wire`, beside them: until the first of all
    /// ends.
    pub async fn carry(
        self,
        inbound: impl Stream<Item = Result<Message, Status>> + Unpin,
        wire: mpsc::Sender<Box<Message>>,
        serving: impl Future<Output = Ended>,
        following: impl Future<Output = Ended>,
    ) -> Ended {
        let Self { differences, requests, responses, answers, questions } = self;
        tokio::select! {
            // Why a half ended says more than that it is gone.
            biased;
            ended = serving => ended,
            ended = following => ended,
            ended = hand_in(inbound, &requests, &responses, &differences) => ended,
            ended = hand_out(answers, questions, &wire, &differences) => ended,
        }
    }
}

/// Hands each half what is for it.
async fn hand_in(
    mut inbound: impl Stream<Item = Result<Message, Status>> + Unpin,
    requests: &mpsc::Sender<Result<DiscoveryRequest, Status>>,
    responses: &mpsc::Sender<Result<DeltaDiscoveryResponse, Status>>,
    differences: &Mutex<Differences>,
) -> Ended {
    loop {
        let message = match inbound.next().await {
            None => return Ended::ByPeer,
            Some(Err(status)) => return Ended::Broken(status),
            Some(Ok(message)) => message,
        };
        let is_gone = match message.value {
            Some(Value::Request(request)) => requests.send(Ok(request)).await.is_err(),
            Some(Value::Response(response)) => {
                // It is changed as a whole, or a panic has ended the stream.
                let read = differences.lock().unwrap_or_else(PoisonError::into_inner).read(response);
                match read {
                    Ok(response) => responses.send(Ok(response)).await.is_err(),
                    Err(error) => return Ended::Protocol(error.to_string()),
                }
            }
            None => {
                let text = "a message holds neither a request nor a response of version 3 of Envoy's interface; say \
                            kds-version: v3";
                return Ended::Protocol(text.to_owned());
            }
        };
        if is_gone {
            return Ended::Stopped;
        }
    }
}

/// Hands what the halves say to `wire`.
async fn hand_out(
    mut answers: mpsc::Receiver<Box<DiscoveryResponse>>,
    mut questions: mpsc::Receiver<Box<DeltaDiscoveryRequest>>,
    wire: &mpsc::Sender<Box<Message>>,
    differences: &Mutex<Differences>,
) -> Ended {
    loop {
        let value = tokio::select! {
            Some(answer) = answers.recv() => Value::Response(*answer),
            Some(question) = questions.recv() => {
                let mut differences = differences.lock().unwrap_or_else(PoisonError::into_inner);
                Value::Request(differences.write(*question))
            }
            else => return Ended::Stopped,
        };
        if wire.send(Box::new(Message { value: Some(value) })).await.is_err() {
            return OutboxError::Closed.into();
        }
    }
}

/// What a side says about itself where nothing but whole states is sent.
pub fn introduction(ours: Peer) -> Peer {
    let features = ours.features.without(RESUME).without(DIGESTS).without(INGRESS_INSIGHTS).without(ROLES);
    Peer { features, ..ours }
}
