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

pub(crate) mod absence;
mod addresses;
pub mod admin_authority;
mod allowance;
pub mod auth;
mod availability;
pub mod bootstrap;
mod brought;
pub mod certificate;
mod client_status;
pub mod config;
pub mod convergence;
pub mod debug;
pub mod envoys;
mod fetch;
pub mod grant;
pub mod health;
mod hosts;
pub(crate) mod inherited;
mod inquiry;
mod insight;
pub mod introspection;
mod kept;
mod metrics;
mod moment;
pub mod node;
mod nodes;
mod pace;
mod places;
pub mod preview;
pub mod proxies;
mod push;
pub mod push_status;
mod registration;
pub(crate) mod replicas;
mod resource;
mod seat;
mod service;
pub mod signals;
mod size;
mod stream;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
};
use common::{
    access::Access,
    audit::AuditLog,
    metering::{
        requests::{self, MeasuredServer},
        samples::Sampled,
    },
    mode::Mode,
    roles::Rights,
    runtime::{
        Env, Offload, Supervisor,
        http::{Limits, Server},
    },
    store::{Store, index::IndexReader},
    tls::KeyPairPem,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    addresses::Addresses,
    admin_authority::AdminAuthority,
    auth::{Authenticator, Requirement},
    availability::Availability,
    bootstrap::{Bootstraps, Judge},
    certificate::ServerCertificate,
    client_status::StatusDesk,
    health::{CheckSettings, Health},
    hosts::Resolver,
    insight::ProxyInsights,
    kept::KeptArchive,
    nodes::Nodes,
    places::StreamPlaces,
    preview::Previews,
    proxies::Proxies,
    push::Push,
    push_status::PushStatus,
    registration::{Registrar, RegistrationRules},
    service::AdsService,
    stream::{Streams, Turns},
};
use crate::mesh::{AgentSocket, Hosts, Naming, Surroundings};

/// How the server of the proxies behaves.
#[derive(Clone, Debug)]
pub struct AdsConfig {
    /// Role of this process; a zone.
    pub mode: Mode,
    /// Lets this control plane ask Envoys on other machines; `None` asks none of them.
    pub admin_authority: Option<AdminAuthority>,
    /// Which tokens proxies must show.
    pub requirement: Requirement,
    /// Who may see what proxies were sent, without a role.
    pub access: Access,
    /// What goes into bootstraps.
    pub bootstrap: bootstrap::BootstrapSettings,
    /// Port bootstraps name; `None` for that of the listener.
    pub advertised_port: Option<u16>,
    /// Certificate of the listener. `None` serves plaintext, tokens included: only behind something that
    /// encrypts.
    pub certificate: Option<KeyPairPem>,
    /// How long a proxy that registered itself may be away before its resource goes.
    pub deregister_after: Duration,
    /// How often counters of streams are written.
    pub insight_interval: Duration,
    /// How many streams of each proxy are remembered.
    pub subscriptions: usize,
    /// After how long of silence another process may believe that proxies which are said to be here are not.
    pub idle: Duration,
    /// How long a proxy may leave a response unanswered.
    pub patience: Duration,
    /// How long a proxy keeps what it had before it is first offered again what it refused.
    pub reconsider_after: Duration,
    /// How long a proxy keeps endpoints and runtime layers of which it hears nothing, if it knows how; `None` for as
    /// long as it likes.
    pub resource_ttl: Option<Duration>,
    /// Streams at once, of which one token and one address have at most half each.
    pub streams: usize,
    /// How services that are known by their tags are called.
    pub naming: Naming,
    /// Where agents who hand out identities listen, unless a proxy says otherwise.
    pub agent_socket: AgentSocket,
    /// How proxies look whether their workloads serve; `None` where they do not.
    pub health: Option<CheckSettings>,
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
            access: Access::default(),
            bootstrap: bootstrap::BootstrapSettings::default(),
            advertised_port: None,
            certificate,
            deregister_after: Duration::from_secs(10),
            insight_interval: Duration::from_secs(10),
            subscriptions: insight::SUBSCRIPTIONS,
            idle: absence::AbsenceTimeouts::default().idle,
            patience: Duration::from_secs(120),
            reconsider_after: Duration::from_secs(10),
            resource_ttl: None,
            streams: 20_000,
            naming: Naming::default(),
            agent_socket: AgentSocket::default(),
            health: Some(CheckSettings::default()),
            message_bytes: 4 << 20,
            http: Limits { send_buffer: 32 << 10, ..Limits::default() }.for_connections(20_000),
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
    nodes: Arc<Nodes>,
    status: Arc<PushStatus>,
    resolver: Resolver,
    authenticator: Authenticator,
    audit: Arc<AuditLog>,
}

impl Ads {
    /// A server over this store and the index that follows it.
    pub fn new(config: AdsConfig, store: Arc<dyn Store>, index: IndexReader, env: Env) -> Self {
        let zone = config.mode.zone().unwrap_or_default().into();
        let authenticator = Authenticator::new(config.requirement, Arc::clone(&zone), env.clone());
        let resolver = Resolver::new(Arc::clone(&zone), index.clone());
        let proxies: Arc<Proxies> = Arc::default();
        let nodes = Arc::new(Nodes::new(config.requirement, Arc::clone(proxies.convergence())));
        let status = Arc::default();
        let audit = Arc::default();
        Self { config, zone, store, index, env, proxies, nodes, status, resolver, authenticator, audit }
    }

    /// The same which takes down there who looks at what proxies were sent.
    #[must_use]
    pub fn with_audit(self, audit: Arc<AuditLog>) -> Self {
        Self { audit, ..self }
    }

    /// What makes configurations that nobody is sent; lives on its own.
    pub fn previews(&self) -> Previews {
        let (zone, hosts) = (Arc::clone(&self.zone), self.resolver.subscribe());
        let previews = Previews::new(zone, self.proxies(), self.index.clone(), hosts, self.env.clone());
        previews.with_naming(self.config.naming.clone()).with_agent_socket(self.config.agent_socket.clone())
    }

    /// Who is connected, for inspection; lives on its own.
    pub fn proxies(&self) -> Arc<Proxies> {
        Arc::clone(&self.proxies)
    }

    /// The same of nodes that belong to no mesh.
    pub fn nodes(&self) -> Arc<Proxies> {
        Arc::clone(self.nodes.connected())
    }

    /// What is wrong with what they are sent; lives on its own.
    pub fn push_status(&self) -> Arc<PushStatus> {
        Arc::clone(&self.status)
    }

    /// Who judges the tokens of proxies.
    pub fn authenticator(&self) -> Authenticator {
        self.authenticator.clone()
    }

    /// Starts everything under `supervisor`, serving on `listener`, which the caller bound.
    ///
    /// # Errors
    /// When the certificate cannot be used or the listener has no address.
    pub fn spawn(
        self,
        supervisor: &mut Supervisor,
        listener: TcpListener,
        sampled: &Sampled,
    ) -> anyhow::Result<()> {
        let shutdown = supervisor.shutdown();
        let certificate = self.config.certificate.as_ref().map(ServerCertificate::of).transpose();
        let certificate = certificate.context("use the certificate of the dataplane server")?.map(Arc::new);
        if certificate.is_none() {
            tracing::warn!("the server of the proxies runs without TLS");
        }
        let address = listener.local_addr().context("read the address of the dataplane server")?;

        let hosts = self.resolver.subscribe();
        let sign_of_life =
            (!self.config.sole_writer).then_some((self.config.idle / 2).max(Duration::from_secs(1)));
        let insights =
            ProxyInsights::new(&self.zone, &self.env).with(self.config.subscriptions, sign_of_life);
        let insights = Arc::new(insights);
        let shown = Arc::clone(&insights);
        sampled.add(move |samples| shown.sample(samples));
        let streams = self.streams(&insights, &shutdown);
        let tasks = TaskTracker::new();
        let health = self.health(&streams, &hosts);
        let router = self.router(&streams, &tasks, health.clone(), certificate.clone(), address);
        if let Some(health) = health {
            let stop = shutdown.clone();
            supervisor.spawn("health", endless(async move { health.run(stop).await }));
        }
        let tls = certificate.map(|c| TlsAcceptor::from(c.tls()));

        let naming = self.config.naming.clone();
        let push = Push::new(
            Surroundings {
                zone: Arc::clone(&self.zone),
                naming: naming.clone(),
                agent_socket: self.config.agent_socket.clone(),
                ..Surroundings::default()
            },
            self.env.clone(),
            self.index.clone(),
            hosts.clone(),
            Arc::clone(&self.proxies),
            Arc::clone(&insights),
            self.config.admin_authority.clone(),
        );
        let archive =
            Arc::new(KeptArchive::new(Arc::clone(&self.store), self.env.clone(), !self.config.sole_writer));
        let push = push.with_status(Arc::clone(&self.status)).with_archive(Arc::clone(&archive));
        let stop = shutdown.clone();
        supervisor.spawn("kept resources", endless(async move { archive.run(stop).await }));
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
        let (store, env) = (Arc::clone(&self.store), self.env.clone());
        let addresses = Addresses::new(Arc::clone(&self.zone), naming, store, env, self.index.clone());
        let stop = shutdown.clone();
        supervisor.spawn("virtual addresses", endless(async move { addresses.run(stop).await }));
        let (grants, index, stop) = (Arc::clone(&streams.grants), self.index.clone(), shutdown.clone());
        supervisor.spawn("grants", endless(async move { grants.run(index, stop).await }));
        let (nodes, index, stop) = (Arc::clone(&streams.nodes), self.index.clone(), shutdown.clone());
        supervisor.spawn("nodes", endless(async move { nodes.run(index, stop).await }));
        let (proxies, stop) = (Arc::clone(&self.proxies), shutdown.clone());
        supervisor
            .spawn("deregistration", endless(async move { streams.registrar.run(&proxies, stop).await }));
        self.spawn_insights(supervisor, insights, tasks);
        let (resolver, stop) = (self.resolver, shutdown.clone());
        supervisor.spawn("host names", endless(async move { resolver.run(stop).await }));
        let server = Server::new("dp_server", self.config.http).with_tls(tls);
        supervisor.spawn("dataplane server", server.serve(listener, router, shutdown));
        Ok(())
    }

    fn streams(&self, insights: &Arc<ProxyInsights>, shutdown: &CancellationToken) -> Arc<Streams> {
        let identity = serde_json::json!({"identifier": &*self.env.instance_id, "zone": &*self.zone});
        let (store, index) = (Arc::clone(&self.store), self.index.clone());
        let rules = RegistrationRules::new(self.config.mode.clone(), self.env.clone());
        Arc::new(Streams {
            proxies: Arc::clone(&self.proxies),
            nodes: Arc::clone(&self.nodes),
            insights: Arc::clone(insights),
            registrar: Registrar::new(store, index, rules, self.config.streams),
            authenticator: self.authenticator.clone(),
            grants: Arc::default(),
            names: Arc::default(),
            index: self.index.clone(),
            env: self.env.clone(),
            places: StreamPlaces::new(self.config.streams),
            screeners: Offload::default(),
            judges: Offload::default(),
            readers: Offload::default(),
            identifier: identity.to_string(),
            resource_ttl: self.config.resource_ttl,
            patience: self.config.patience,
            reconsider_after: self.config.reconsider_after,
            deregister_after: self.config.deregister_after,
            turns: Turns::new(),
            shutdown: shutdown.clone(),
        })
    }

    fn health(&self, streams: &Arc<Streams>, hosts: &watch::Receiver<Hosts>) -> Option<Arc<Health>> {
        let settings = self.config.health.clone()?;
        let (store, env) = (Arc::clone(&self.store), self.env.clone());
        let (streams, proxies) = (Arc::clone(streams), self.config.streams);
        Some(Arc::new(Health::new(streams, store, env, hosts.clone(), settings, proxies)))
    }

    fn router(
        &self,
        streams: &Arc<Streams>,
        tasks: &TaskTracker,
        health: Option<Arc<Health>>,
        certificate: Option<Arc<ServerCertificate>>,
        address: SocketAddr,
    ) -> Router {
        let message_bytes = self.config.message_bytes;
        let settings =
            bootstrap::BootstrapSettings { health: health.is_some(), ..self.config.bootstrap.clone() };
        let service = AdsService {
            streams: Arc::clone(streams),
            tasks: tasks.clone(),
            message_bytes,
            incoming: service::incoming(message_bytes),
            health,
        };
        let bootstraps = Bootstraps {
            settings,
            requirement: self.config.requirement,
            certificate,
            port: self.config.advertised_port.unwrap_or(address.port()),
            ipv4_only: address.is_ipv4(),
        };
        let judge = Judge::new(streams.authenticator.clone(), self.config.mode.clone(), self.env.clone());
        let single = fetch::router(streams, message_bytes, tasks)
            .merge(bootstrap::handler::router(bootstraps, judge, self.index.clone()))
            .layer(middleware::from_fn_with_state(MeasuredServer::Proxies, requests::measure));
        service
            .router()
            .merge(single)
            .merge(client_status::router(self.status_desk(streams)))
            .fallback(nothing_here)
    }

    fn status_desk(&self, streams: &Streams) -> StatusDesk {
        StatusDesk {
            clients: [Arc::clone(&self.proxies), Arc::clone(streams.nodes.connected())],
            index: self.index.clone(),
            env: self.env.clone(),
            audit: Arc::clone(&self.audit),
            rights: Rights::new(self.config.access.clone(), self.config.mode.zone(), self.index.clone()),
            judges: Offload::default(),
            making: Offload::default(),
            shutdown: streams.shutdown.clone(),
        }
    }

    fn spawn_insights(&self, supervisor: &mut Supervisor, insights: Arc<ProxyInsights>, tasks: TaskTracker) {
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
        return tonic::Status::unimplemented("this port serves ADS and health discovery only").into_http();
    }
    (StatusCode::NOT_FOUND, "404: Page Not Found").into_response()
}
