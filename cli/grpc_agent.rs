//! `straitctl grpc-agent`: stands between the gRPC library of an application, which can neither show a token nor believe an
//! authority of its own choice, and the zone.
//!
//! It listens on this machine only, passes every stream on over one connection to the zone, and adds the token of the
//! proxy to each. For mutual TLS it keeps files up to date that the library watches.

mod certificates;
mod upstream;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use common::tls::Trust;
use http_body_util::{Either, Empty};
use hyper::{
    Request, Response, body::Bytes, body::Incoming, header, server::conn::http2, service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};

pub(crate) use certificates::CertificateFiles;
use upstream::ZoneConnection;

use crate::{ConnectionArgs, output};

/// Where an agent listens unless somebody says otherwise.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:15099";

/// What libraries ask for, and this program for their certificates. Nothing else goes out with the token of the proxy.
const PASSED_ON: [&str; 3] = [
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
    "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
];
/// Codes of gRPC.
const UNIMPLEMENTED: &str = "12";
const UNAVAILABLE: &str = "14";

/// Pause after a connection that could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct GrpcAgentArgs {
    /// Address of the zone's server for proxies
    #[arg(long, value_name = "URL", default_value = "https://localhost:5678")]
    cp_address: String,
    /// Where to listen, on this machine
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_LISTEN)]
    listen: SocketAddr,
    /// File with the token of the proxy, read anew for each stream
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Folder to keep certificate, key and authorities in, for mutual TLS
    #[arg(long, value_name = "FOLDER", requires = "name")]
    certificates: Option<PathBuf>,
    /// Name of the resource that describes the application
    #[arg(long)]
    name: Option<String>,
    /// Its mesh
    #[arg(short, long, default_value = "default")]
    mesh: String,
}

/// What is passed back: the answer of the zone, or that there is none.
type PassedBody = Either<Incoming, Empty<Bytes>>;

impl GrpcAgentArgs {
    pub(crate) async fn run(self, connection: &ConnectionArgs) -> anyhow::Result<()> {
        let Self { cp_address, listen, token_file, certificates: folder, name, mesh } = self;
        if !listen.ip().is_loopback() {
            bail!(
                "{listen} is not an address of this machine alone: who connects there is taken for the proxy"
            );
        }
        let trust = Trust::from_settings(connection.ca_cert_file.as_deref(), connection.skip_verify)?;
        let upstream = Arc::new(ZoneConnection::new(&cp_address, &trust, token_file)?);
        let listener = TcpListener::bind(listen).await.with_context(|| format!("listen on {listen}"))?;
        let address = listener.local_addr().context("find out where it listens")?;
        output::line(&format!("listening on {address}"));
        let kept = async {
            match (&folder, &name) {
                (Some(folder), Some(name)) => {
                    certificates::keep(address, &format!("{mesh}.{name}"), folder).await
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            served = serve(&listener, &upstream) => served,
            kept = kept => kept,
        }
    }
}

async fn serve(listener: &TcpListener, upstream: &Arc<ZoneConnection>) -> anyhow::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(converse(stream, Arc::clone(upstream)))),
            // A client that left early, or no file for it now: the others stay connected.
            Err(error) => {
                crate::output::note!("a connection was not accepted: {error}");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// One connection of the application, which may end as it likes.
async fn converse(stream: TcpStream, upstream: Arc<ZoneConnection>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let upstream = Arc::clone(&upstream);
        async move {
            if !PASSED_ON.contains(&request.uri().path()) {
                return Ok(refusal(UNIMPLEMENTED, "the agent passes on streams of configuration alone"));
            }
            let answer = match upstream.pass_on(request).await {
                Ok(answer) => answer.map(Either::Left),
                Err(error) => {
                    crate::output::note!("{error}");
                    refusal(UNAVAILABLE, &error.to_string())
                }
            };
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        crate::output::note!("a connection of the application ended: {error}");
    }
}

/// How a gRPC server says no.
fn refusal(status: &'static str, text: &str) -> Response<PassedBody> {
    let mut answer = Response::new(Either::Right(Empty::new()));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", header::HeaderValue::from_static(status));
    let message = percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
    if let Ok(message) = message.to_string().parse() {
        headers.insert("grpc-message", message);
    }
    answer
}
