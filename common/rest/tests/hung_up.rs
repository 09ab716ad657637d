//! Writes whose client hangs up: what is done is taken down, and done to its end.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    audit::{AuditEntry, AuditOutcome, AuditQuery},
    runtime::http::{Client, Limits, Server, Unattended},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for what is taken down of `path`.
async fn taken_down(audit: &AuditLog, path: &str) -> AuditEntry {
    let found = async {
        loop {
            if let Some(entry) = audit.search(&AuditQuery::default(), 10).into_iter().find(|e| e.path == path)
            {
                return entry;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("nobody took down {path}"))
}

#[tokio::test]
async fn a_write_whose_client_hangs_up_is_done_to_its_end_and_taken_down() {
    let (audit, begun, steps) =
        (Arc::<AuditLog>::default(), Arc::new(Notify::new()), Arc::<AtomicU64>::default());
    let told = Arc::<AtomicU64>::default();
    let (traces, _export) = Traces::to("http://127.0.0.1:1", "test", &[]).unwrap();
    let hears = Arc::clone(&told);
    let written: Arc<dyn Fn(Revision) + Send + Sync> =
        Arc::new(move |revision| hears.store(revision, Ordering::Relaxed));
    let config =
        ApiConfig { audit: Arc::clone(&audit), traces, written: Some(written), ..config(Mode::Global) };
    let (first, done) = (Arc::clone(&begun), Arc::clone(&steps));
    // Two steps, between which the client goes.
    let raise = move |client: Client| async move {
        done.fetch_add(1, Ordering::Relaxed);
        first.notify_one();
        while client.network().is_some() {
            tokio::task::yield_now().await;
        }
        done.fetch_add(1, Ordering::Relaxed);
        sync::Preference::Usual.answer(StatusCode::OK, json!({}), 7)
    };
    let extra =
        |_: &IndexReader, _: &Env| Mounted::new().on(const { routes::post("/strait/epoch") }, raise, &());
    let api = TestApi::start_with(config, &[], extra).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let server =
        tokio::spawn(Server::new("test", Limits::default()).serve(listener, api.router(), stop.clone()));

    let mut client = TcpStream::connect(address).await.unwrap();
    let asked = b"POST /strait/epoch HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    client.write_all(asked).await.unwrap();
    timeout(PATIENCE, begun.notified()).await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    let entry = taken_down(&audit, "/strait/epoch").await;
    assert_eq!((entry.outcome, entry.method.as_str(), entry.revision), (AuditOutcome::Done, "POST", Some(7)));
    assert_eq!(steps.load(Ordering::Relaxed), 2);

    // Half a document is no document, and nothing comes of it but that it was tried.
    let mut client = TcpStream::connect(address).await.unwrap();
    let half =
        b"PUT /meshes/half HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{\"type\": \"Mesh\",";
    client.write_all(half).await.unwrap();
    drop(client);
    assert_eq!(taken_down(&audit, "/meshes/half").await.outcome, AuditOutcome::Failed);
    assert_eq!(ask(&api, "GET", "/meshes/half", None).await.0, 404);

    stop.cancel();
    server.await.unwrap().unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 7, "who follows writes was told");
}

#[tokio::test]
async fn what_there_is_no_leave_for_is_refused_and_taken_down() {
    let audit = Arc::<AuditLog>::default();
    let config = ApiConfig { audit: Arc::clone(&audit), ..config(Mode::Global) };
    let api = TestApi::start(config, &[]).await.unwrap();
    let mut request = Request::put("/meshes/m1").header("host", "localhost").body(Body::empty()).unwrap();
    request.extensions_mut().insert(Unattended);
    let (status, said) = api.send_from([127, 0, 0, 1], request).await.unwrap();
    assert_eq!(status, 503);
    assert!(said.contains("has hung up"), "{said}");
    assert_eq!(taken_down(&audit, "/meshes/m1").await.status, 503);
}
