//! What a stream has to know about the messages of either protocol.

use common::{
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        },
    },
    xds::{Delta, Dialect, Sotw},
};
use prost::Message;

/// A dialect whose messages can be looked into.
pub(crate) trait Wire: Dialect<Request: Send + Sync, Response: Send> + Send {
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
    /// What is answered.
    fn type_url(response: &Self::Response) -> &str;
    /// At which version.
    fn version(response: &Self::Response) -> &str;
    /// Bytes on the wire.
    fn size(response: &Self::Response) -> usize;
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

    fn type_url(response: &DiscoveryResponse) -> &str {
        &response.type_url
    }

    fn version(response: &DiscoveryResponse) -> &str {
        &response.version_info
    }

    fn size(response: &DiscoveryResponse) -> usize {
        response.encoded_len()
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

    fn type_url(response: &DeltaDiscoveryResponse) -> &str {
        &response.type_url
    }

    fn version(response: &DeltaDiscoveryResponse) -> &str {
        &response.system_version_info
    }

    fn size(response: &DeltaDiscoveryResponse) -> usize {
        response.encoded_len()
    }
}
