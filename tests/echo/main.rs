//! A small service for the demo and the end-to-end tests: answers HTTP/1.1 and HTTP/2 (also without
//! TLS) with what it saw, or echoes bytes with `--tcp`.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

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
    let echo = Arc::new(Echo { name: args.name, requests: Mutex::default() });
    loop {
        let (stream, _) = listener.accept().await?;
        let echo = Arc::clone(&echo);
        tokio::spawn(async move {
            let _peer_gone = if args.tcp { tcp(stream, &echo.name).await } else { http(stream, echo).await };
        });
    }
}

/// The service, over all connections.
struct Echo {
    name: String,
    /// How often each path was asked for.
    requests: Mutex<BTreeMap<String, u64>>,
}

impl Echo {
    fn count(&self, path: &str) -> u64 {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let count = requests.entry(path.to_owned()).or_default();
        *count += 1;
        *count
    }
}

async fn tcp(mut stream: TcpStream, name: &str) -> anyhow::Result<()> {
    stream.write_all(format!("{name}\n").as_bytes()).await?;
    let (mut read, mut write) = stream.split();
    tokio::io::copy(&mut read, &mut write).await?;
    Ok(())
}

async fn http(stream: TcpStream, echo: Arc<Echo>) -> anyhow::Result<()> {
    let service = service_fn(move |request| answer(request, Arc::clone(&echo)));
    let served =
        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
    served.map_err(|e| anyhow::anyhow!(e))
}

/// `/status/<code>` answers with that code; `/delay/<ms>` answers later; `/fails/<n>/<key>` answers 503 to
/// the first n requests; anything else at once.
async fn answer(
    request: Request<Incoming>,
    echo: Arc<Echo>,
) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let number = |prefix: &str| path.strip_prefix(prefix).and_then(|n| n.parse::<u64>().ok());
    let attempt = echo.count(&path);
    let failures = path.strip_prefix("/fails/").and_then(|rest| rest.split('/').next()?.parse::<u64>().ok());
    let status = match failures {
        Some(failures) => Some(if attempt <= failures { 503 } else { 200 }),
        None => number("/status/").and_then(|n| u16::try_from(n).ok()),
    };
    if let Some(millis) = number("/delay/") {
        tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
    }
    let headers: BTreeMap<String, String> = request
        .headers()
        .iter()
        .map(|(k, v)| (k.to_string(), String::from_utf8_lossy(v.as_bytes()).into_owned()))
        .collect();
    let seen = serde_json::json!({
        "service": echo.name,
        "attempt": attempt,
        "method": request.method().as_str(),
        "path": path,
        "version": format!("{:?}", request.version()),
        "headers": headers,
    });
    let _body = request.into_body().collect().await;
    let mut response = Response::new(Full::from(format!("{seen}\n")));
    *response.status_mut() = status.and_then(|s| http::StatusCode::from_u16(s).ok()).unwrap_or_default();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    Ok(response)
}
