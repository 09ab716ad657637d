//! What a global and a zone process are both made of: store, index, certificate, API and diagnostics
//! listeners, under one supervisor.

mod admin_token;
mod behind;
mod past;
pub mod process;
mod restore;
pub mod role;
mod salvage;
mod sampling;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    mem::ManuallyDrop,
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::Router;
use chrono::{DateTime, Utc};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::{admin_token::AdminToken, sampling::sample};
use crate::{
    audit::AuditLog,
    config::{
        ApiServer, AuditSection, Diagnostics, General, OpenTelemetrySection, StoreSection, StoreType,
        TracingSection,
    },
    diagnostics::{self, Pending, Readiness},
    events::EventBus,
    metering::samples::Sampled,
    oidc::OpenIdProvider,
    rest,
    runtime::{
        Env, OpenFiles, Supervisor, bind,
        http::{Limits, Server},
        service_manager,
    },
    store::{self, Store, StoreHealth, feed::Feed, index::IndexReader},
    telemetry::Metrics,
    tls::KeyPairPem,
    traces::Traces,
};

/// Events a subscriber of the bus may fall behind.
const EVENTS: usize = 1024;
/// Connections of the API, at most; what is left of its share goes unused.
const API_CONNECTIONS: usize = 4096;
/// Listeners of the API: in plain text and with TLS.
const API_LISTENERS: usize = 2;
/// Connections of a port beside the API, for the few programs that ask there.
const BESIDE_CONNECTIONS: usize = 64;
/// Files kept for diagnostics when everything else has taken what there is.
const DIAGNOSTICS_FILES: usize = 8;

/// The store has this long to close, at least.
const CLOSE: Duration = Duration::from_secs(5);

/// The parts every control plane has. Everything is bound and running once it is built.
pub struct ControlPlane {
    /// Clock, randomness, instance id.
    pub env: Env,
    /// Where resources live.
    pub store: Arc<dyn Store>,
    /// What is read.
    pub index: IndexReader,
    /// Where events are told.
    pub bus: EventBus,
    /// Owns every task.
    pub supervisor: Supervisor,
    /// What is still missing before the process is ready.
    pub readiness: Readiness,
    /// Addresses bound so far, by what listens there.
    pub addresses: BTreeMap<&'static str, SocketAddr>,
    /// What is looked up when somebody asks for the metrics.
    pub sampled: Sampled,
    files: OpenFiles,
    general: General,
    interfaces: Vec<IpAddr>,
    // Ready only when everything is bound: a start that fails drops this while diagnostics still answers.
    starting: ManuallyDrop<Pending>,
}

/// Before this was written. A machine without a clock of its own begins in 1970 until somebody tells it.
const EARLIEST: DateTime<Utc> = DateTime::from_timestamp_nanos(1_735_689_600_000_000_000);

impl ControlPlane {
    /// Opens the store, loads the index and serves diagnostics. `label` is the zone in metrics.
    ///
    /// # Errors
    /// When the store is not usable or the diagnostics port is taken.
    pub async fn start(
        env: Env,
        label: &str,
        general: &General,
        store: &StoreSection,
        diagnostics: &Diagnostics,
    ) -> anyhow::Result<Self> {
        let now = env.now();
        anyhow::ensure!(
            now >= EARLIEST,
            "the clock of this machine says {}, which is long over: set it first, since certificates and tokens made \
             by it would be out of date at once",
            now.format("%Y-%m-%d")
        );
        let work_dir = Path::new(&general.work_dir);
        make(work_dir).with_context(|| format!("create {} (setting general.workDir)", work_dir.display()))?;
        let mut supervisor = Supervisor::new();
        let readiness = Readiness::new(Arc::clone(&env.clock));
        readiness.name("store");
        readiness.name("index");
        let starting = ManuallyDrop::new(readiness.pending("start"));
        let mut addresses = BTreeMap::new();

        let metrics = Metrics::install(label).ok();
        // What nobody asks for is never looked up.
        let sampled = metrics.as_ref().map(|metrics| metrics.sampled().clone()).unwrap_or_default();
        let files = OpenFiles::raise(general.connections.max);
        let listener = bind("diagnostics.serverPort", diagnostics.interface, diagnostics.server_port)?;
        addresses.insert("diagnostics", listener.local_addr()?);
        let router = diagnostics::router(readiness.clone(), metrics.clone());
        let shutdown = supervisor.shutdown();
        let limits = Limits { streams: 16, ..limits(general, files.diagnostics) };
        let server = Server::new("diagnostics", limits).with_spare_files(DIAGNOSTICS_FILES);
        supervisor.spawn("diagnostics", server.serve(listener, router, shutdown));
        if let Some(metrics) = metrics {
            let shutdown = supervisor.shutdown();
            supervisor.spawn("metrics upkeep", async move {
                metrics.upkeep(shutdown).await;
                Ok(())
            });
        }

        let section = store;
        let store = store::open(&store_url(section, work_dir)).await.context("open the store")?;
        let bus = EventBus::new(EVENTS);
        let feed = Feed::load(Arc::clone(&store)).await.context("load the index")?.telling(bus.clone());
        let (index, last_read) = (feed.reader(), feed.last_read());
        let behind = behind::tell(store.watch_head(), index.clone(), last_read, readiness.clone());
        let shutdown = supervisor.shutdown();
        supervisor.spawn("index", async move {
            shutdown.run_until_cancelled(behind).await;
            Ok(())
        });
        let shutdown = supervisor.shutdown();
        supervisor.spawn("feed", async move { Ok(feed.run(shutdown).await?) });
        let (kept, shutdown) = (Arc::clone(&store), supervisor.shutdown());
        supervisor.spawn("history", past::keep(kept, section.history.limits(), shutdown));
        let (health, shutdown) = (store.health(), supervisor.shutdown());
        supervisor.spawn("store health", tell(health, readiness.clone(), shutdown));
        sample(&sampled, &env, &store, &index);
        Ok(Self {
            env,
            store,
            index,
            bus,
            supervisor,
            readiness,
            addresses,
            sampled,
            files,
            general: general.clone(),
            interfaces: vec![diagnostics.interface],
            starting,
        })
    }

    /// Names an address that clients will use, so that a certificate made here covers it.
    pub fn reached_at(&mut self, interface: IpAddr) {
        self.interfaces.push(interface);
    }

    /// The certificate for a listener: its own files, else those of `general`, else a pair made once and
    /// kept in the work folder as `strait.crt` and `strait.key`.
    ///
    /// # Errors
    /// When a file is missing or broken.
    pub fn certificate(&self, certificate: &str, key: &str) -> anyhow::Result<KeyPairPem> {
        for (certificate, key) in
            [(certificate, key), (&*self.general.tls_cert_file, &*self.general.tls_key_file)]
        {
            if !certificate.is_empty() {
                return Ok(KeyPairPem::read(Path::new(certificate), Path::new(key))?);
            }
        }
        let mut hosts = vec![host_name(), "localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        hosts.extend(self.interfaces.iter().filter(|ip| !ip.is_unspecified()).map(ToString::to_string));
        hosts.extend(
            self.addresses
                .values()
                .map(|a| a.ip())
                .filter(|ip| !ip.is_unspecified())
                .map(|ip| ip.to_string()),
        );
        hosts.sort();
        hosts.dedup();
        Ok(KeyPairPem::kept_in(Path::new(&self.general.work_dir), "strait", &hosts)?)
    }

    /// Binds a port and remembers its address under `name`.
    ///
    /// # Errors
    /// When it is taken.
    pub fn bind(
        &mut self,
        name: &'static str,
        setting: &'static str,
        interface: IpAddr,
        port: u16,
    ) -> anyhow::Result<TcpListener> {
        let listener = bind(setting, interface, port)?;
        self.addresses.insert(name, listener.local_addr()?);
        Ok(listener)
    }

    /// The limits of the listener that zones or proxies connect to: at least half of all connections are for it, and
    /// what the API leaves.
    pub fn main_limits(&self) -> Limits {
        let connections = self.files.connections - API_LISTENERS * self.api_connections();
        let connections = connections.saturating_sub(BESIDE_CONNECTIONS).max(1);
        // Gateways carry the streams of many clients over one connection.
        let limits = Limits { streams: 1000, ..limits(&self.general, connections) };
        limits.keeping_room_for_the_known()
    }

    /// Connections of one listener of the API.
    fn api_connections(&self) -> usize {
        (self.files.connections / (2 * API_LISTENERS)).clamp(1, API_CONNECTIONS)
    }

    /// Where requests are taken down, which is written as long as the process runs.
    ///
    /// # Errors
    /// When the file in the settings cannot be used.
    pub fn audit(&mut self, settings: &ApiServer) -> anyhow::Result<Arc<AuditLog>> {
        let AuditSection { file, max_bytes } = &settings.audit;
        if file.is_empty() {
            return Ok(Arc::default());
        }
        let (log, file) = AuditLog::to(file, *max_bytes)?;
        self.supervisor.spawn("audit log", file.run());
        Ok(Arc::new(log))
    }

    /// Who vouches for people besides this control plane, if the settings name somebody; looked at as long as the process
    /// runs.
    ///
    /// # Errors
    /// When what the settings say cannot be used.
    pub fn open_id(&mut self, settings: &ApiServer) -> anyhow::Result<Option<Arc<OpenIdProvider>>> {
        let section = &settings.authn.open_id_connect;
        if !section.is_on() {
            return Ok(None);
        }
        let provider = Arc::new(OpenIdProvider::new(section)?);
        let looking = Arc::clone(&provider).run(self.env.entropy.clone(), self.supervisor.shutdown());
        self.supervisor.spawn("keys of OpenID Connect", async move {
            looking.await;
            Ok(())
        });
        Ok(Some(provider))
    }

    /// What hears of writes, of which `service` tells, if the settings name somebody; spans are sent as long as the process
    /// runs.
    ///
    /// # Errors
    /// When the address is none.
    pub fn traces(
        &mut self,
        settings: &TracingSection,
        service: &str,
        zone: Option<&str>,
    ) -> anyhow::Result<Traces> {
        let OpenTelemetrySection { enabled, endpoint } = &settings.open_telemetry;
        if !enabled {
            return Ok(Traces::default());
        }
        let instance = Arc::clone(&self.env.instance_id);
        let known = [("service.instance.id", &*instance), ("service.version", env!("CARGO_PKG_VERSION"))];
        let attributes = Vec::from_iter(known.into_iter().chain(zone.map(|zone| ("strait.zone", zone))));
        let (traces, export) =
            Traces::to(endpoint, service, &attributes).context("setting tracing.openTelemetry.endpoint")?;
        let shutdown = self.supervisor.shutdown();
        self.supervisor.spawn("spans", async move {
            export.run(shutdown).await;
            Ok(())
        });
        Ok(traces)
    }

    /// Serves the REST API as configured, and keeps the token of its administrator.
    ///
    /// # Errors
    /// When a port is taken or the certificate is not usable.
    pub fn serve_api(&mut self, settings: &ApiServer, router: Router) -> anyhow::Result<()> {
        if settings.authn.anonymous_may_write {
            tracing::warn!("{}", rest::ANONYMOUS_MAY_WRITE);
        }
        if settings.authn.localhost_is_admin {
            tracing::warn!("{}", rest::LOCALHOST_IS_ADMIN);
        }
        let mut ports = BTreeSet::new();
        let limits = limits(&self.general, self.api_connections());
        let limits = Limits { streams: 32, ..limits };
        if settings.http.enabled {
            let http = &settings.http;
            let listener = self.bind("api", "apiServer.http.port", http.interface, http.port)?;
            ports.insert(listener.local_addr()?.port());
            let server = Server::new("api", limits.clone());
            self.supervisor.spawn("api", server.serve(listener, router.clone(), self.supervisor.shutdown()));
        }
        if settings.https.enabled {
            let https = &settings.https;
            let listener = self.bind("apiTls", "apiServer.https.port", https.interface, https.port)?;
            ports.insert(listener.local_addr()?.port());
            let pair = self.certificate(&https.tls_cert_file, &https.tls_key_file)?;
            let acceptor = TlsAcceptor::from(Arc::new(pair.server_config(&["h2", "http/1.1"])?));
            let server = Server::new("api_tls", limits).with_tls(Some(acceptor));
            let serving = server.serve(listener, router, self.supervisor.shutdown());
            self.supervisor.spawn("api with TLS", serving);
        }
        self.keep_admin_token(settings, ports);
        Ok(())
    }

    /// Serves `router` on a port of its own, which shares what connections the API may have.
    ///
    /// # Errors
    /// When the port is taken or the certificate is not usable.
    pub fn serve_beside(
        &mut self,
        name: &'static str,
        setting: &'static str,
        (interface, port): (IpAddr, u16),
        pair: Option<KeyPairPem>,
        router: Router,
    ) -> anyhow::Result<()> {
        let listener = self.bind(name, setting, interface, port)?;
        let tls = pair.map(|pair| pair.server_config(&["h2", "http/1.1"])).transpose()?;
        let limits = Limits { streams: 32, ..limits(&self.general, BESIDE_CONNECTIONS) };
        let server = Server::new(name, limits).with_tls(tls.map(|tls| TlsAcceptor::from(Arc::new(tls))));
        self.supervisor.spawn(name, server.serve(listener, router, self.supervisor.shutdown()));
        Ok(())
    }

    /// Once the process is ready, the token is there. A start does not fail for it: what needs no administrator
    /// goes on.
    fn keep_admin_token(&mut self, settings: &ApiServer, ports: BTreeSet<u16>) {
        let work_dir = Path::new(&self.general.work_dir);
        if !settings.authn.tokens.bootstrap_admin_token {
            return AdminToken::forget(work_dir);
        }
        let mut token = AdminToken::new(work_dir, ports, self.index.clone(), self.env.clone());
        token.look();
        let (events, shutdown) = (self.bus.subscribe("admin_token"), self.supervisor.shutdown());
        self.supervisor.spawn("token of the administrator", token.run(events, shutdown));
    }

    /// Everything is bound: ready. Runs until `stop` or until a task ends, then stops in order: no new
    /// connections, streams end, the store closes last.
    ///
    /// # Errors
    /// When a task ended before `stop`.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Self { store, mut supervisor, starting, readiness, addresses, general, .. } = self;
        supervisor.spawn("signs of life", service_manager::show_life(supervisor.shutdown()));
        let listening: Vec<String> = addresses.iter().map(|(name, at)| format!("{name}={at}")).collect();
        tracing::info!(addresses = listening.join(" "), "ready");
        drop(ManuallyDrop::into_inner(starting));
        service_manager::tell_started();
        let stop = async {
            stop.await;
            service_manager::tell_stopping();
            // Whoever routes by readiness stops sending before connections end.
            std::mem::forget(readiness.pending("stopping"));
        };
        let grace = general.graceful_shutdown_timeout.0;
        let ended = supervisor.run(stop, grace).await;
        // What was acknowledged is durable: a disk or a server that does not answer keeps no process from ending.
        if timeout(grace.max(CLOSE), store.close()).await.is_err() {
            tracing::warn!("the store did not close in time, leaving it");
        }
        ended
    }
}

/// Builds a control plane and runs it until `stop`, which may come before everything is there.
///
/// # Errors
/// When it cannot be built, or a task ended before `stop`.
pub async fn run(
    building: impl Future<Output = anyhow::Result<ControlPlane>>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut stop = pin!(stop);
    let built = tokio::select! {
        () = &mut stop => return Ok(()),
        built = building => built?,
    };
    built.run(stop).await
}

/// The limits of a listener with this share of the connections.
fn limits(general: &General, connections: usize) -> Limits {
    Limits { drain: general.graceful_shutdown_timeout.0, ..general.connections.limits(connections) }
}

/// Not ready while the store takes no writes or is damaged. Whatever needs no write goes on: reading, the
/// configuration of proxies, the sync as far as it only sends.
async fn tell(
    mut health: watch::Receiver<StoreHealth>,
    readiness: Readiness,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut told: Option<Pending> = None;
    loop {
        let trouble = health.borrow_and_update().trouble().cloned();
        match (trouble, &told) {
            (Some(why), Some(told)) => told.because(why),
            (Some(why), None) => told = Some(readiness.failing("store", why)),
            (None, _) => told = None,
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            changed = health.changed() => if changed.is_err() {
                // A store that cannot fail tells nothing.
                shutdown.cancelled().await;
            },
        }
    }
}

/// Makes the work folder, which nobody else may look into: keys and a token will be in it. One that is there
/// stays as its owner wants it.
fn make(work_dir: &Path) -> std::io::Result<()> {
    if let Some(parent) = work_dir.parent() {
        fs::create_dir_all(parent)?;
    }
    // Recursive, so that one that is there is no error.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(work_dir)?;
    let mode = fs::metadata(work_dir)?.mode();
    if mode & 0o022 != 0 {
        let folder = work_dir.display();
        tracing::warn!(
            "others than its owner may write in {folder} (general.workDir), and so exchange what this process \
             keeps there: chmod go-w {folder}"
        );
    }
    Ok(())
}

/// Name of this machine; `localhost` where it has none.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// Where the settings put the store.
pub(crate) fn store_url(store: &StoreSection, work_dir: &Path) -> String {
    match store.kind {
        StoreType::Memory => "memory:".to_owned(),
        StoreType::Sqlite if store.sqlite.path.is_empty() => {
            format!("sqlite:{}", work_dir.join("strait.db").display())
        }
        StoreType::Sqlite => format!("sqlite:{}", PathBuf::from(&store.sqlite.path).display()),
        StoreType::Postgres => {
            let at = &store.postgres;
            let safe = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            let (user, password, database) = (safe(&at.user), safe(&at.password), safe(&at.db_name));
            // A folder as host means the unix socket in it.
            let (host, folder) = match at.host.strip_prefix('/') {
                Some(_) => ("localhost", format!("&host={}", safe(&at.host))),
                None => (at.host.as_str(), String::new()),
            };
            let roots = match at.tls.ca_path.as_str() {
                "" => String::new(),
                path => format!("&sslrootcert={}", safe(path)),
            };
            let (port, mode) = (at.port, at.tls.mode.sslmode());
            format!("postgres://{user}:{password}@{host}:{port}/{database}?sslmode={mode}{folder}{roots}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Postgres, PostgresTls, PostgresTlsMode};

    #[test]
    fn store_settings_become_urls() {
        let work_dir = Path::new("/var/lib/strait");
        let mut section = StoreSection::default();
        assert_eq!(store_url(&section, work_dir), "sqlite:/var/lib/strait/strait.db");
        section.kind = StoreType::Postgres;
        section.postgres = Postgres {
            host: "/run/pg".into(),
            port: 5432,
            user: "a b".into(),
            password: "p@ss/word".into(),
            db_name: "db".into(),
            tls: PostgresTls { mode: PostgresTlsMode::VerifyCa, ca_path: "/ca.pem".into() },
        };
        assert_eq!(
            store_url(&section, work_dir),
            "postgres://a%20b:p%40ss%2Fword@localhost:5432/db\
             ?sslmode=verify-ca&host=%2Frun%2Fpg&sslrootcert=%2Fca%2Epem"
        );
    }
}
