//! The server of the proxies: bootstrap, ADS, and everything that follows from a connected proxy.
//!
//! ```text
//!  POST /bootstrap ──► bootstrap
//!  ADS stream ──► service ──► stream ──► auth ──► registration ──► store ──► index
//!                               │ ▲                                            │
//!                    insight ◄──┘ └── proxies ◄── push ◄── mesh + generator ◄──┘
//! ```
//!
//! A stream authenticates, stores the resource its proxy brings along, joins [`proxies`] and from then on
//! sends whatever [`push`] publishes there. **What cannot be generated, or is refused by a proxy, leaves
//! the last good configuration in place.**

pub mod admin_authority;
pub mod auth;
mod availability;
pub mod bootstrap;
pub mod certificate;
pub mod config;
pub mod debug;
pub mod envoys;
mod hosts;
pub(crate) mod inherited;
mod insight;
mod metrics;
pub mod node;
pub mod proxies;
mod push;
mod registration;
mod resource;
mod service;
mod stream;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use common::{
    mode::Mode,
    proto::envoy::service::discovery::v3::aggregated_discovery_service_server::AggregatedDiscoveryServiceServer,
    runtime::{
        Env, Offload, Supervisor,
        http::{Limits, Server},
    },
    store::{Store, index::IndexReader},
    tls::KeyPairPem,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    admin_authority::AdminAuthority,
    auth::{Authenticator, Requirement},
    availability::Availability,
    bootstrap::Bootstraps,
    certificate::ServerCertificate,
    hosts::Resolver,
    insight::Insights,
    proxies::Proxies,
    push::Push,
    registration::Registrar,
    service::Service,
    stream::Streams,
};

/// How the server of the proxies behaves.
#[derive(Clone, Debug)]
pub struct AdsConfig {
    /// Role of this process; a zone.
    pub mode: Mode,
    /// Lets this control plane ask Envoys on other machines; `None` asks none of them.
    pub admin_authority: Option<AdminAuthority>,
    /// Which tokens proxies must show.
    pub requirement: Requirement,
    /// What goes into bootstraps.
    pub bootstrap: bootstrap::Settings,
    /// Port bootstraps name; `None` for that of the listener.
    pub advertised_port: Option<u16>,
    /// Certificate of the listener. `None` serves plaintext, tokens included: only behind something that
    /// encrypts.
    pub certificate: Option<KeyPairPem>,
    /// How long a proxy that registered itself may be away before its resource goes.
    pub deregister_after: Duration,
    /// How often counters of streams are written.
    pub insight_interval: Duration,
    /// How long a proxy may leave a response unanswered.
    pub patience: Duration,
    /// How long a proxy keeps what it had before it is first offered again what it refused.
    pub reconsider_after: Duration,
    /// Streams at once.
    pub streams: usize,
    /// Largest request of a proxy, which it may make the process keep before it is known who it is. The
    /// largest is the list of all names in the state-of-the-world protocol, some hundred bytes each.
    pub message_bytes: usize,
    /// Limits of the listener.
    pub http: Limits,
    /// Whether no other process shares the store, so that subscriptions left open belong to a former
    /// life of this one.
    pub sole_writer: bool,
}

impl AdsConfig {
    /// The defaults for a zone of this mode, behind this certificate.
    pub fn new(mode: Mode, certificate: Option<KeyPairPem>) -> Self {
        Self {
            mode,
            admin_authority: None,
            requirement: Requirement::default(),
            bootstrap: bootstrap::Settings::default(),
            advertised_port: None,
            certificate,
            deregister_after: Duration::from_secs(10),
            insight_interval: Duration::from_secs(10),
            patience: Duration::from_secs(120),
            reconsider_after: Duration::from_secs(10),
            streams: 20_000,
            message_bytes: 4 << 20,
            http: Limits::default().for_connections(20_000),
            sole_writer: true,
        }
    }
}

/// The server, ready to run.
pub struct Ads {
    config: AdsConfig,
    zone: Arc<str>,
    store: Arc<dyn Store>,
    index: IndexReader,
    env: Env,
    proxies: Arc<Proxies>,
}

impl Ads {
    /// A server over this store and the index that follows it.
    pub fn new(config: AdsConfig, store: Arc<dyn Store>, index: IndexReader, env: Env) -> Self {
        let zone = config.mode.zone().unwrap_or_default().into();
        Self { config, zone, store, index, env, proxies: Arc::default() }
    }

    /// Who is connected, for inspection; lives on its own.
    pub fn proxies(&self) -> Arc<Proxies> {
        Arc::clone(&self.proxies)
    }

    /// Starts everything under `supervisor`, serving on `listener`, which the caller bound.
    ///
    /// # Errors
    /// When the certificate cannot be used or the listener has no address.
    pub fn spawn(self, supervisor: &mut Supervisor, listener: TcpListener) -> anyhow::Result<()> {
        let shutdown = supervisor.shutdown();
        let certificate = self.config.certificate.as_ref().map(ServerCertificate::of).transpose();
        let certificate = certificate.context("use the certificate of the dataplane server")?.map(Arc::new);
        if certificate.is_none() {
            tracing::warn!("the server of the proxies runs without TLS");
        }
        let address = listener.local_addr().context("read the address of the dataplane server")?;

        let resolver = Resolver::new(self.index.clone());
        let hosts = resolver.subscribe();
        let insights = Arc::new(Insights::new(&self.zone, &self.env));
        let streams = self.streams(&insights, &shutdown);
        let tasks = TaskTracker::new();
        let router = self.router(&streams, &tasks, certificate.clone(), address);
        let tls = certificate.map(|c| TlsAcceptor::from(c.tls()));

        let stop = shutdown.clone();
        supervisor.spawn("host names", endless(async move { resolver.run(stop).await }));
        let push = Push::new(
            Arc::clone(&self.zone),
            self.env.clone(),
            self.index.clone(),
            hosts.clone(),
            Arc::clone(&self.proxies),
            Arc::clone(&insights),
            self.config.admin_authority.clone(),
        );
        let stop = shutdown.clone();
        supervisor.spawn("push", endless(async move { push.run(stop).await }));
        let availability = Availability::new(
            Arc::clone(&self.zone),
            Arc::clone(&self.store),
            self.env.clone(),
            self.index.clone(),
            hosts,
        );
        let stop = shutdown.clone();
        supervisor.spawn("available services", endless(async move { availability.run(stop).await }));
        let (proxies, stop) = (Arc::clone(&self.proxies), shutdown.clone());
        supervisor
            .spawn("deregistration", endless(async move { streams.registrar.run(&proxies, stop).await }));
        self.spawn_insights(supervisor, insights, tasks);
        let server = Server::new("dp_server", self.config.http).with_tls(tls);
        supervisor.spawn("dataplane server", server.serve(listener, router, shutdown));
        Ok(())
    }

    fn streams(&self, insights: &Arc<Insights>, shutdown: &CancellationToken) -> Arc<Streams> {
        let identity = serde_json::json!({"identifier": &*self.env.instance_id, "zone": &*self.zone});
        let (store, index, env) = (Arc::clone(&self.store), self.index.clone(), self.env.clone());
        Arc::new(Streams {
            proxies: Arc::clone(&self.proxies),
            insights: Arc::clone(insights),
            registrar: Registrar::new(store, index, self.config.mode.clone(), env.clone()),
            authenticator: Authenticator::new(self.config.requirement, Arc::clone(&self.zone), env),
            index: self.index.clone(),
            slots: Semaphore::new(self.config.streams),
            screeners: Offload::default(),
            judges: Offload::default(),
            readers: Offload::default(),
            identifier: identity.to_string(),
            patience: self.config.patience,
            reconsider_after: self.config.reconsider_after,
            deregister_after: self.config.deregister_after,
            shutdown: shutdown.clone(),
        })
    }

    fn router(
        &self,
        streams: &Arc<Streams>,
        tasks: &TaskTracker,
        certificate: Option<Arc<ServerCertificate>>,
        address: SocketAddr,
    ) -> Router {
        let service = Service { streams: Arc::clone(streams), tasks: tasks.clone() };
        let service = AggregatedDiscoveryServiceServer::new(service)
            .max_decoding_message_size(self.config.message_bytes);
        let bootstraps = Bootstraps {
            settings: self.config.bootstrap.clone(),
            requirement: self.config.requirement,
            certificate,
            port: self.config.advertised_port.unwrap_or(address.port()),
            ipv4_only: address.is_ipv4(),
        };
        tonic::service::Routes::new(service)
            .into_axum_router()
            .merge(bootstrap::handler::router(bootstraps, streams.authenticator.clone(), self.index.clone()))
            .fallback(nothing_here)
    }

    fn spawn_insights(&self, supervisor: &mut Supervisor, insights: Arc<Insights>, tasks: TaskTracker) {
        let (store, index, shutdown) = (Arc::clone(&self.store), self.index.clone(), supervisor.shutdown());
        let (every, sole_writer) = (self.config.insight_interval, self.config.sole_writer);
        supervisor.spawn("insights", async move {
            if sole_writer {
                insights.close_left_over(store.as_ref(), &index.current()).await;
            }
            let drained = async {
                tasks.close();
                tasks.wait().await;
            };
            insights.run(store, index, every, shutdown, drained).await;
            Ok(())
        });
    }
}

/// A task that cannot fail, in the form the supervisor takes.
async fn endless(task: impl Future<Output = ()>) -> anyhow::Result<()> {
    task.await;
    Ok(())
}

/// A client that came to the wrong port is told so in its own language.
async fn nothing_here(headers: HeaderMap) -> Response {
    let grpc =
        headers.get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"application/grpc"));
    if grpc {
        return tonic::Status::unimplemented("this port serves ADS only").into_http();
    }
    (StatusCode::NOT_FOUND, "404: Page Not Found").into_response()
}
