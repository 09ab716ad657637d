//! What a stream has to know about the messages of either protocol.

use bytes::Bytes;
use common::{
    parts::{self, PartLimits},
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    },
    xds::{Delta, Dialect, Malformed, Repeat, Sotw, Source},
};
use prost::Message;
use tonic::Status;

/// A dialect whose messages can be looked into.
pub(crate) trait Wire: Dialect<Request: Message + Default> + Send {
    /// Name for people.
    const PROTOCOL: &'static str;

    /// Who asks; on the first request only.
    fn node(request: &Self::Request) -> Option<&Node>;
    /// What is asked for.
    fn request_type(request: &Self::Request) -> &str;
    /// Whether the request answers a response.
    fn is_answer(request: &Self::Request) -> bool;
    /// Whether it refuses that response.
    fn is_refusal(request: &Self::Request) -> bool;
}

/// A request that was read.
pub(super) enum ReadRequest<R> {
    /// All of it.
    Request(R),
    /// An answer that lists the names that are known already, which were not read again.
    Repeat(Repeat),
}

/// Reads a request that no other went before, unless it is larger than `source` would keep.
pub(super) fn read_whole<D: Wire>(source: &Source<D>, message: &Bytes) -> Result<D::Request, Status> {
    let outline = source.outline(message).map_err(|error| Status::internal(error.to_string()))?;
    source.admit(&outline).map_err(malformed)?;
    decode(message)
}

/// Reads a request, unless it is larger than `source` would keep.
pub(super) fn read<D: Wire>(source: &Source<D>, message: &Bytes) -> Result<ReadRequest<D::Request>, Status> {
    let outline = source.outline(message).map_err(|error| Status::internal(error.to_string()))?;
    source.admit(&outline).map_err(malformed)?;
    if let Some(repeat) = source.repeat(&outline) {
        return Ok(ReadRequest::Repeat(repeat));
    }
    decode(message).map(ReadRequest::Request)
}

/// Names are counted already; what else a request has is counted here.
fn decode<R: Message + Default>(message: &Bytes) -> Result<R, Status> {
    parts::admit(message, PartLimits::PROXY)
        .map_err(|error| Status::resource_exhausted(error.to_string()))?;
    R::decode(message.clone()).map_err(|error| Status::internal(error.to_string()))
}

/// The end of a stream whose proxy does not speak the protocol.
pub(super) fn malformed(error: Malformed) -> Status {
    let status = if error.is_excess() { Status::resource_exhausted } else { Status::invalid_argument };
    status(error.to_string())
}

impl Wire for Sotw {
    const PROTOCOL: &'static str = "sotw";

    fn node(request: &DiscoveryRequest) -> Option<&Node> {
        request.node.as_ref()
    }

    fn request_type(request: &DiscoveryRequest) -> &str {
        &request.type_url
    }

    fn is_answer(request: &DiscoveryRequest) -> bool {
        !request.response_nonce.is_empty()
    }

    fn is_refusal(request: &DiscoveryRequest) -> bool {
        request.error_detail.is_some()
    }
}

impl Wire for Delta {
    const PROTOCOL: &'static str = "delta";

    fn node(request: &DeltaDiscoveryRequest) -> Option<&Node> {
        request.node.as_ref()
    }

    fn request_type(request: &DeltaDiscoveryRequest) -> &str {
        &request.type_url
    }

    fn is_answer(request: &DeltaDiscoveryRequest) -> bool {
        !request.response_nonce.is_empty()
    }

    fn is_refusal(request: &DeltaDiscoveryRequest) -> bool {
        request.error_detail.is_some()
    }
}
