//! A small service for the demo and the end-to-end tests: answers HTTP/1.1 and HTTP/2 (also without
//! TLS) with what it saw, or echoes bytes with `--tcp`.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, sync::Arc};

use anyhow::Context;
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

/// Answers with what it saw.
#[derive(Parser)]
struct Args {
    /// Address to listen on.
    #[arg(long)]
    listen: SocketAddr,
    /// Name to answer with.
    #[arg(long)]
    name: String,
    /// Send every byte back, after a line with the name.
    #[arg(long)]
    tcp: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("bind {}", args.listen))?;
    println!("listening on {}", listener.local_addr()?);
    let name: Arc<str> = args.name.into();
    loop {
        let (stream, _) = listener.accept().await?;
        let name = Arc::clone(&name);
        tokio::spawn(async move {
            let _peer_gone = if args.tcp { tcp(stream, &name).await } else { http(stream, name).await };
        });
    }
}

async fn tcp(mut stream: TcpStream, name: &str) -> anyhow::Result<()> {
    stream.write_all(format!("{name}\n").as_bytes()).await?;
    let (mut read, mut write) = stream.split();
    tokio::io::copy(&mut read, &mut write).await?;
    Ok(())
}

async fn http(stream: TcpStream, name: Arc<str>) -> anyhow::Result<()> {
    let service = service_fn(move |request| answer(request, Arc::clone(&name)));
    let served =
        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
    served.map_err(|e| anyhow::anyhow!(e))
}

/// `/status/<code>` answers with that code; `/delay/<ms>` answers later; anything else at once.
async fn answer(
    request: Request<Incoming>,
    name: Arc<str>,
) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let number = |prefix: &str| path.strip_prefix(prefix).and_then(|n| n.parse::<u64>().ok());
    let status = number("/status/").and_then(|n| u16::try_from(n).ok()).unwrap_or(200);
    if let Some(millis) = number("/delay/") {
        tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
    }
    let headers: BTreeMap<String, String> = request
        .headers()
        .iter()
        .map(|(k, v)| (k.to_string(), String::from_utf8_lossy(v.as_bytes()).into_owned()))
        .collect();
    let seen = serde_json::json!({
        "service": *name,
        "method": request.method().as_str(),
        "path": path,
        "version": format!("{:?}", request.version()),
        "headers": headers,
    });
    let _body = request.into_body().collect().await;
    let mut response = Response::new(Full::from(format!("{seen}\n")));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::OK);
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    Ok(response)
}
