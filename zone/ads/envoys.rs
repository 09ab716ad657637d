//! Asks the Envoys that are connected here, through their admin endpoints. Who answers there may be anybody who has
//! taken one over: what is taken of an answer has an end, and so has what is made of it.

mod places;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use common::{
    clip::clip,
    envoy_admin::{Ask, AskError, ConfigOptions, EnvoyAdmin},
    model::{ResourceKey, text::TextLimits},
    proto::{
        envoy::config::{
            core::v3::{address::Address, socket_address::PortSpecifier},
            listener::v3::Listener,
        },
        google::protobuf::Struct,
    },
    redact,
};
use http::{Request, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use prost::Message;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use self::places::{AT_ONCE, AskingPlaces};
use super::{
    admin_authority::AdminAuthority,
    node::{ProxyId, ProxyKind, text},
    preview::{PreviewError, Previews},
    proxies::{Proxies, ProxyView},
};
use crate::generator::{ADMIN, type_url};

/// How long an Envoy may take, and how long others may before it is asked.
const PATIENCE: Duration = Duration::from_secs(7);
/// The longest answer taken from an Envoy.
const LONGEST: usize = TextLimits::DUMP.bytes;
/// Bytes of another name that are shown.
const SHOWN: usize = 256;
/// The longest that says which one it is.
const LONGEST_INFO: usize = 1 << 20;

/// The Envoys of this zone.
pub struct Envoys {
    proxies: Arc<Proxies>,
    /// What they are to run with.
    previews: Option<Previews>,
    /// How to connect to those on other machines.
    tls: Option<TlsConnector>,
    places: AskingPlaces,
}

/// What an Envoy says of itself.
#[derive(Deserialize)]
struct EnvoyInfo {
    node: EnvoyNode,
}

#[derive(Deserialize)]
struct EnvoyNode {
    id: String,
}

impl Envoys {
    /// Those in `proxies`; with `authority` also those on other machines.
    pub fn new(proxies: Arc<Proxies>, authority: Option<&AdminAuthority>) -> Self {
        let tls = authority.map(|authority| authority.client().into());
        Self { proxies, previews: None, tls, places: AskingPlaces::default() }
    }

    /// The same, who say also what they are to run with.
    pub fn with_previews(self, previews: Previews) -> Self {
        Self { previews: Some(previews), ..self }
    }

    /// What a proxy is to run with.
    async fn planned(&self, proxy: &ResourceKey, plan: ConfigOptions) -> Result<Bytes, AskError> {
        let (Some(previews), Some(id)) = (&self.previews, of_key(proxy)) else {
            return Err(AskError::Unplanned(proxy.clone()));
        };
        let closed = |reason: String| AskError::Closed { proxy: proxy.clone(), reason };
        let shown = previews.of_proxy(&id, plan).await.map_err(|error| match error {
            PreviewError::Unknown(_) => AskError::Unknown(proxy.clone()),
            PreviewError::NotConnected(_) => AskError::NotConnected(proxy.clone()),
            error => closed(error.to_string()),
        })?;
        let shown = redact::document(shown).await.map_err(|withheld| closed(withheld.to_string()))?;
        Ok(shown.to_string().into())
    }

    /// Asks the Envoy at the listener made for that, which shows by its certificate that it is the one.
    async fn through_listener(
        &self,
        tls: &TlsConnector,
        at: SocketAddr,
        path: &str,
    ) -> Result<Bytes, String> {
        let name = ServerName::from(at.ip());
        let stream = tls.connect(name, connect(at).await?).await.map_err(|error| error.to_string())?;
        get(stream, path, LONGEST).await
    }
}

/// The proxy whose resource this is.
fn of_key(proxy: &ResourceKey) -> Option<ProxyId> {
    let kinds = [ProxyKind::Dataplane, ProxyKind::Ingress, ProxyKind::Egress];
    let ids = kinds.map(|kind| ProxyId::new(kind, &proxy.mesh, &proxy.name));
    ids.into_iter().find(|id| id.key() == *proxy)
}

/// Where the proxy was told to let this control plane in.
fn listener(view: &ProxyView) -> Option<SocketAddr> {
    let encoded = view.config.as_ref()?.resources().get(type_url::LISTENER, ADMIN)?;
    let address = Listener::decode(&*encoded.value).ok()?.address?.address?;
    let Address::SocketAddress(socket) = address else { return None };
    let Some(PortSpecifier::PortValue(port)) = socket.port_specifier else { return None };
    Some(SocketAddr::new(socket.address.parse().ok()?, port.try_into().ok()?))
}

/// Asks the Envoy beside this process, once it has said that it is the one.
async fn directly(at: SocketAddr, id: &str, path: &str) -> Result<Bytes, String> {
    expect_node(&get(connect(at).await?, "/server_info", LONGEST_INFO).await?, id)?;
    get(connect(at).await?, path, LONGEST).await
}

#[async_trait]
impl EnvoyAdmin for Envoys {
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError> {
        if let Ask::Plan(plan) = ask {
            return self.planned(proxy, plan).await;
        }
        let view = of_key(proxy).and_then(|id| self.proxies.get(&id));
        let view = &view.ok_or_else(|| AskError::NotConnected(proxy.clone()))?;
        let (path, id) = (ask.path(), view.proxy.id.to_string());
        let (at, tls) = match (listener(view), &self.tls) {
            (Some(at), Some(tls)) => (at, Some(tls)),
            _ => {
                let closed =
                    |reason: &str| AskError::Closed { proxy: proxy.clone(), reason: reason.to_owned() };
                (on_this_machine(view).map_err(closed)?, None)
            }
        };
        let asking = async {
            match tls {
                Some(tls) => self.through_listener(tls, at, &path).await,
                None => directly(at, &id, &path).await,
            }
        };
        let failed =
            |reason: String| AskError::Failed { proxy: proxy.clone(), address: at.to_string(), reason };
        let waiting = timeout(PATIENCE, self.places.take(proxy));
        // Kept until what was said is looked through.
        let _place = waiting.await.map_err(|_| AskError::Busy(AT_ONCE))?;
        let answer = match timeout(PATIENCE, asking).await {
            Ok(answer) => answer.map_err(failed)?,
            Err(_) => return Err(AskError::TooLate(PATIENCE)),
        };
        // What an Envoy was given to prove itself with must not leave this process.
        redact::dump(answer, ask.is_json()).await.map_err(|withheld| failed(withheld.to_string()))
    }
}

/// The admin endpoint of a proxy that runs beside this process. One is asked only where the proxy came from
/// a loopback address and has its endpoint on one: then this process can ask nothing that the proxy, which
/// says where to ask, could not ask itself.
fn on_this_machine(view: &ProxyView) -> Result<SocketAddr, &'static str> {
    let admin = endpoint(&view.proxy.metadata)?;
    let is_near = |address: IpAddr| address.to_canonical().is_loopback();
    let peer = |peer: &str| peer.parse::<SocketAddr>().is_ok_and(|peer| is_near(peer.ip()));
    let all_near = !view.streams.is_empty() && view.streams.iter().all(|stream| peer(&stream.peer));
    if all_near && is_near(admin.ip()) {
        return Ok(admin);
    }
    Err(
        "its admin endpoint is on another machine and no listener leads there; networking.address must not be \
         the address of that endpoint, nor networking.admin.port one of its other ports",
    )
}

/// Where the bootstrap put the admin endpoint.
fn endpoint(metadata: &Struct) -> Result<SocketAddr, &'static str> {
    if text(metadata, "dataplane.admin.socketPath").is_some_and(|path| !path.is_empty()) {
        return Err("its admin endpoint is a socket in its work folder, where nobody else may ask it");
    }
    let port = text(metadata, "dataplane.admin.port").and_then(|port| port.parse().ok());
    let port = port.filter(|port| *port > 0).ok_or(
        "it was started without an admin endpoint; set networking.admin.port and make its bootstrap again",
    )?;
    let address = text(metadata, "dataplane.admin.address").and_then(|address| address.parse().ok());
    let address: IpAddr = address.unwrap_or(Ipv4Addr::LOCALHOST.into());
    // What listens everywhere listens here.
    let address = if address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address };
    Ok(SocketAddr::new(address, port))
}

/// Another proxy may have the port by now.
fn expect_node(server_info: &[u8], id: &str) -> Result<(), String> {
    // Nothing else of it is kept, whatever it is.
    let info: EnvoyInfo =
        serde_json::from_slice(server_info).map_err(|_| "no Envoy answers there".to_owned())?;
    if info.node.id == id {
        return Ok(());
    }
    Err(format!("the Envoy of {:?} answers there", clip(&info.node.id, SHOWN)))
}

async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    TcpStream::connect(address).await.map_err(|error| error.to_string())
}

/// One request on a connection of its own, and so much of the answer at most.
async fn get(io: impl AsyncRead + AsyncWrite + Unpin, path: &str, longest: usize) -> Result<Bytes, String> {
    let request = Request::get(path).header(header::HOST, "envoy").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let opened = hyper::client::conn::http1::handshake(TokioIo::new(io)).await;
    let (mut sender, connection) = opened.map_err(|error| error.to_string())?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), longest).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(format!("it answers {status}")) }
    };
    // What goes wrong with the connection, the exchange notices.
    let (answer, _connection) = tokio::join!(exchange, connection);
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::{Json, Router, routing::get};
    use common::proto::google::protobuf::{Value as Member, value::Kind};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;
    use crate::ads::{
        node::Proxy,
        proxies::{ProxySession, StreamView},
    };

    const NEAR: &str = "127.0.0.1:40000";

    fn join(proxies: &Arc<Proxies>, peer: &str, members: &[(&str, &str)]) -> ProxySession {
        let id = ProxyId::new(ProxyKind::Dataplane, "default", "web-1");
        let member = |(key, value): &(&str, &str)| {
            ((*key).to_owned(), Member { kind: Some(Kind::StringValue((*value).to_owned())) })
        };
        let metadata = Arc::new(Struct { fields: members.iter().map(member).collect() });
        let view = StreamView { peer: peer.to_owned(), ..StreamView::default() };
        proxies.join(
            Arc::new(Proxy { id, cluster: Arc::default(), metadata, user_agent: String::new() }),
            None,
            view,
            Arc::default(),
        )
    }

    async fn asked(peer: &str, members: &[(&str, &str)]) -> Result<Bytes, AskError> {
        let proxies = Arc::new(Proxies::default());
        let session = join(&proxies, peer, members);
        let answer =
            Envoys::new(proxies, None).ask(&session.id().key(), Ask::ConfigDump { include_eds: true }).await;
        drop(session);
        answer
    }

    /// An admin endpoint that says it belongs to this node.
    async fn admin(node: &'static str) -> String {
        let info = get(async move || Json(json!({"node": {"id": node}})));
        let dump = get(async |uri: http::Uri| {
            Json(
                json!({"of": uri.to_string(), "initial_metadata": [{"key": "authorization", "value": "hunter2"}]}),
            )
        });
        serve(Router::new().route("/server_info", info).route("/config_dump", dump)).await
    }

    async fn serve(router: Router) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, router).await });
        port.to_string()
    }

    #[tokio::test]
    async fn an_envoy_beside_us_is_asked() {
        let port = admin("default.web-1").await;
        let answer = asked(NEAR, &[("dataplane.admin.port", &port)]).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["of"], "/config_dump?include_eds");
        assert_eq!(answer["initial_metadata"][0]["value"], "[redacted]", "it keeps its token");
    }

    #[tokio::test]
    async fn an_envoy_that_says_more_than_is_looked_through_is_not_heard() {
        let (long, says) = (TextLimits::DUMP, "{\"\":0},");
        for (repeated, part) in [
            (long.values / 3 + 1, "more in it than is looked through"),
            (long.bytes / says.len() + 1, "length limit exceeded"),
        ] {
            let info = get(async || Json(json!({"node": {"id": "default.web-1", "extensions": [{}]}})));
            let dump = get(async move || format!("[{}0]", says.repeat(repeated)));
            let port = serve(Router::new().route("/server_info", info).route("/config_dump", dump)).await;
            let error = asked(NEAR, &[("dataplane.admin.port", &port)]).await.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let endless = get(async || "[".repeat(LONGEST_INFO + 1));
        let port = serve(Router::new().route("/server_info", endless)).await;
        let error = asked(NEAR, &[("dataplane.admin.port", &port)]).await.unwrap_err().to_string();
        assert!(error.contains("length limit exceeded"), "{error}");
    }

    #[tokio::test]
    async fn only_the_envoy_that_is_meant_and_that_may_be_asked() {
        let refused = async |peer: &str, members: &[(&str, &str)], part: &str| {
            let error = asked(peer, members).await.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert!(error.contains("Dataplane default/web-1"), "{error}");
        };
        refused(NEAR, &[], "set networking.admin.port").await;
        let port = &*admin("default.web-1").await;
        refused("10.0.0.7:1", &[("dataplane.admin.port", port)], "another machine").await;
        let elsewhere = [("dataplane.admin.port", port), ("dataplane.admin.address", "10.0.0.7")];
        refused(NEAR, &elsewhere, "another machine").await;
        let socket = [("dataplane.admin.port", port), ("dataplane.admin.socketPath", "/tmp/a.sock")];
        refused(NEAR, &socket, "a socket in its work folder").await;
        let other = &*admin("default.web-2").await;
        refused(NEAR, &[("dataplane.admin.port", other)], "the Envoy of \"default.web-2\" answers").await;

        let proxy = ProxyId::new(ProxyKind::Dataplane, "default", "web-1").key();
        let nobody =
            Envoys::new(Arc::default(), None).ask(&proxy, Ask::ConfigDump { include_eds: false }).await;
        assert_eq!(nobody, Err(AskError::NotConnected(proxy)));
    }
}
