//! How many requests a server has, how long they take, and how large their answers are.

use axum::{
    body::HttpBody,
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};
use metrics::{gauge, histogram};
use tokio::time::Instant;

use super::{OTHER, method};

/// Stands for the route of what was refused.
const NONE: &str = "none";

/// Whose requests they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredServer {
    /// The REST API.
    Api,
    /// The port of the proxies, where it answers once. Streams are counted by what goes over them.
    Proxies,
}

/// A handler answered, on a route with this method.
#[derive(Clone, Copy)]
struct Handled(&'static str);

/// Says that `answer` is that of a handler, on a route with this method, and counts as such.
#[must_use]
pub(crate) fn handled(method: &'static str, mut answer: Response) -> Response {
    answer.extensions_mut().insert(Handled(method));
    answer
}

impl MeasuredServer {
    /// The method of the route whose handler answered, if one did.
    fn handled(self, asked: &Method, answer: &Response) -> Option<&'static str> {
        match self {
            Self::Api => answer.extensions().get::<Handled>().map(|handled| handled.0),
            // All its routes are posted to, and their handlers look who asks themselves.
            Self::Proxies => (asked == Method::POST).then(|| method(asked)),
        }
    }
}

/// Records each request under its route, not its path, so that names of resources do not become labels. What no handler
/// answered, since its caller or its method was refused, has no route either, nor has a stranger's error: he could make
/// a series of every route with every method and every way to be refused. `HEAD` counts as the `GET` that answers it.
pub async fn measure(
    State(server): State<MeasuredServer>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let handler = route.map_or_else(|| NONE.to_owned(), |route| route.as_str().to_owned());
    let asked = request.method().clone();
    let inflight = RequestInFlight::new(server, &handler);
    let started = Instant::now();
    let response = next.run(request).await;
    drop(inflight);
    let took = started.elapsed().as_secs_f64();
    let code = response.status().as_u16().to_string();
    let (handler, method) = match server.handled(&asked, &response) {
        Some(method) => (handler, method),
        None => (NONE.to_owned(), OTHER),
    };
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
