//! How many requests a server has, how long they take, and how large their answers are.

use axum::{
    body::HttpBody,
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use metrics::{gauge, histogram};
use tokio::time::Instant;

use super::method;

/// Whose requests they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredServer {
    /// The REST API.
    Api,
    /// The port of the proxies, where it answers once. Streams are counted by what goes over them.
    Proxies,
}

/// Records each request under its route, not its path, so that names of resources do not become labels.
pub async fn measure(
    State(server): State<MeasuredServer>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let handler = route.map_or_else(|| "none".to_owned(), |route| route.as_str().to_owned());
    let method = method(request.method());
    let inflight = RequestInFlight::new(server, &handler);
    let started = Instant::now();
    let response = next.run(request).await;
    drop(inflight);
    let took = started.elapsed().as_secs_f64();
    let code = response.status().as_u16().to_string();
    // What is made while it is sent has no size yet.
    #[expect(clippy::cast_precision_loss, reason = "a histogram has buckets anyway")]
    let size = response.body().size_hint().exact().map(|size| size as f64);
    match server {
        MeasuredServer::Api => {
            let (code, handler) = (code.clone(), handler.clone());
            histogram!("api_server_http_request_duration_seconds", "code" => code, "handler" => handler, "method" => method)
                .record(took);
        }
        MeasuredServer::Proxies => {
            let (code, handler) = (code.clone(), handler.clone());
            histogram!("dp_server_http_request_duration_seconds", "code" => code, "handler" => handler, "method" => method)
                .record(took);
        }
    }
    match (server, size) {
        (_, None) => {}
        (MeasuredServer::Api, Some(size)) => {
            histogram!("api_server_http_response_size_bytes", "code" => code, "handler" => handler, "method" => method)
                .record(size);
        }
        (MeasuredServer::Proxies, Some(size)) => {
            histogram!("dp_server_http_response_size_bytes", "code" => code, "handler" => handler, "method" => method)
                .record(size);
        }
    }
    response
}

/// A request without an answer. It counts until it has one; one that only reads, until its client leaves.
struct RequestInFlight {
    server: MeasuredServer,
    handler: String,
}

impl RequestInFlight {
    fn new(server: MeasuredServer, handler: &str) -> Self {
        let new = Self { server, handler: handler.to_owned() };
        new.count(1.0);
        new
    }

    fn count(&self, more: f64) {
        let handler = self.handler.clone();
        match self.server {
            MeasuredServer::Api => {
                gauge!("api_server_http_requests_inflight", "handler" => handler).increment(more);
            }
            MeasuredServer::Proxies => {
                gauge!("dp_server_http_requests_inflight", "handler" => handler).increment(more);
            }
        }
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.count(-1.0);
    }
}
