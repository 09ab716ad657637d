//! Calls to global: what each of them bears, and streams it need not answer first.

use common::kds::headers::KdsCaller;
use futures::{Stream, TryStreamExt, stream};
use tonic::{Request, Status};

/// A call of this zone.
pub(super) fn with_headers<T>(message: T, caller: &KdsCaller) -> Request<T> {
    let mut request = Request::new(message);
    caller.write(request.metadata_mut());
    request
}

/// The inbound half of a call that may not be answered before this side has spoken.
pub(super) fn opened<T>(
    call: impl Future<Output = Result<tonic::Response<tonic::Streaming<T>>, Status>>,
) -> impl Stream<Item = Result<T, Status>> {
    stream::once(async move { call.await.map(tonic::Response::into_inner) }).try_flatten()
}
