//! A zone in one process: memory store, index, ADS server behind TLS on a port of its own.

use std::{
    net::SocketAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use chrono::TimeDelta;
use common::{
    access::Access,
    audit::AuditLog,
    ca,
    document::Document,
    keys::{KeyForm, PrivateKey},
    metering::samples::Sampled,
    mode::Mode,
    model::{
        Resource, ResourceKey,
        kinds::{dataplane_insight, secret},
    },
    proto::kuma::mesh::v1alpha1 as proto,
    roles::Rights,
    runtime::{Env, Supervisor},
    store::{
        Batch, Precondition, Store, Write,
        feed::Feed,
        index::{Index, IndexReader},
        memory::MemoryStore,
    },
    tls::KeyPairPem,
    token::{self, DataplaneClaims, Purpose, ZoneClaims},
};
use prost::Message;
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::ads::{
    Ads, AdsConfig, auth::Authenticator, preview::Previews, proxies::Proxies, push_status::PushStatus,
};

/// Long enough for a busy machine; no test waits for it to pass.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const ZONE: &str = "east";

/// Making keys takes longer than anything else here, so all tests share them.
static TOKEN_KEY: LazyLock<PrivateKey> = LazyLock::new(|| token::new_signing_key().unwrap());
static ZONE_KEY: LazyLock<PrivateKey> = LazyLock::new(|| token::new_signing_key().unwrap());
static ROOT: LazyLock<KeyPairPem> = LazyLock::new(|| {
    let key = PrivateKey::generate(KeyForm::P256).unwrap();
    ca::create_root("default", &key, TimeDelta::days(1), Env::system("t").now()).unwrap()
});

pub(super) struct Zone {
    pub(super) store: Arc<MemoryStore>,
    pub(super) index: IndexReader,
    pub(super) env: Env,
    pub(super) address: SocketAddr,
    pub(super) certificate: String,
    pub(super) proxies: Arc<Proxies>,
    pub(super) nodes: Arc<Proxies>,
    pub(super) status: Arc<PushStatus>,
    pub(super) previews: Previews,
    pub(super) authenticator: Authenticator,
    pub(super) audit: Arc<AuditLog>,
    pub(super) stop: CancellationToken,
    pub(super) running: JoinHandle<anyhow::Result<()>>,
}

impl Zone {
    pub(super) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// With a mesh `default` and keys for tokens.
    pub(super) async fn start_with(adjust: impl FnOnce(&mut AdsConfig)) -> Self {
        Self::start_as("test", adjust).await
    }

    /// The same as another replica.
    pub(super) async fn start_as(instance: &str, adjust: impl FnOnce(&mut AdsConfig)) -> Self {
        let store = Arc::new(MemoryStore::new(uuid::Uuid::from_u128(1)));
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let (index, env) = (feed.reader(), Env::system(instance));
        let pair = KeyPairPem::self_signed(&["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = pair.certificate.clone();
        let mut config = AdsConfig::new(Mode::federated_zone(ZONE), Some(pair));
        config.insight_interval = Duration::from_millis(20);
        // Longer than any test that does not ask for less.
        config.reconsider_after = Duration::from_secs(3600);
        adjust(&mut config);
        let audit: Arc<AuditLog> = Arc::default();
        let ads = Ads::new(config, Arc::clone(&store) as Arc<dyn Store>, index.clone(), env.clone())
            .with_audit(Arc::clone(&audit));
        let (proxies, nodes, status) = (ads.proxies(), ads.nodes(), ads.push_status());
        let (previews, authenticator) = (ads.previews(), ads.authenticator());

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut supervisor = Supervisor::new();
        let shutdown = supervisor.shutdown();
        supervisor.spawn("feed", async move { Ok(feed.run(shutdown).await?) });
        ads.spawn(&mut supervisor, listener, &Sampled::default()).unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let running = tokio::spawn(supervisor.run(stopped, PATIENCE));
        let zone = Self {
            store,
            index,
            env,
            address,
            certificate,
            proxies,
            nodes,
            status,
            previews,
            authenticator,
            audit,
            stop,
            running,
        };
        zone.put("{type: Mesh, name: default}").await;
        let key = Purpose::Dataplane { mesh: "default" }.key(1);
        zone.secret(key, TOKEN_KEY.pem().as_bytes()).await;
        zone.secret(Purpose::Zone.key(1), ZONE_KEY.pem().as_bytes()).await;
        zone
    }

    /// What the settings allow if nobody changes them.
    pub(super) fn rights(&self) -> Arc<Rights> {
        Arc::new(Rights::new(Access::default(), Some(ZONE), self.index.clone()))
    }

    pub(super) async fn secret(&self, key: ResourceKey, data: &[u8]) {
        let resource = Resource::new(key, self.env.now()).with_spec(token::secret_spec(data));
        self.write(Write::put(resource)).await;
    }

    /// Turns mutual TLS of mesh `default` on, with this more in its backend.
    pub(super) async fn mtls(&self, backend: &str) {
        let secret = |name: String| ResourceKey::new(&secret::SECRET, "default", &name);
        self.secret(secret(ca::certificate_secret("default", "ca-1")), ROOT.certificate.as_bytes()).await;
        self.secret(secret(ca::key_secret("default", "ca-1")), ROOT.key.as_bytes()).await;
        let mesh = format!(
            "{{type: Mesh, name: default, mtls: {{enabledBackend: ca-1, backends: [{{name: ca-1, type: builtin{backend}}}]}}}}"
        );
        self.put(&mesh).await;
    }

    /// Stores a document as the API of the zone would.
    pub(super) async fn put(&self, yaml: &str) {
        let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
        let mut resource = document.into_resource(self.env.now());
        resource.spec = resource.kind().normalize(&resource.spec).unwrap().into();
        let mode = Mode::federated_zone(ZONE);
        mode.label(&mut resource);
        resource.origin = mode.origin_of(resource.kind());
        self.write(Write::put(resource)).await;
    }

    pub(super) async fn delete(&self, key: ResourceKey) {
        self.write(Write::delete_when(key, Precondition::Exists)).await;
    }

    async fn write(&self, write: Write) {
        let commit = self.store.transact(Batch::of([write])).await.unwrap();
        self.index.wait_for(commit.revision).await.unwrap();
    }

    /// Waits until the index looks like this, and shows what is there.
    pub(super) async fn until<T>(&self, found: impl Fn(&Index) -> Option<T>) -> T {
        let mut reader = self.index.clone();
        let waiting = async {
            loop {
                if let Some(found) = found(&reader.latest()) {
                    return found;
                }
                assert!(reader.changed().await);
            }
        };
        timeout(PATIENCE, waiting).await.expect("the index gets there")
    }

    /// Waits until the insight of a dataplane looks like this.
    pub(super) async fn insight(
        &self,
        name: &str,
        is: impl Fn(&proto::DataplaneInsight) -> bool,
    ) -> proto::DataplaneInsight {
        let key = ResourceKey::new(&dataplane_insight::KIND, "default", name);
        self.until(|index| {
            let insight = proto::DataplaneInsight::decode(&index.get(&key)?.spec[..]).unwrap();
            is(&insight).then_some(insight)
        })
        .await
    }

    pub(super) fn dataplane_token(&self, claims: DataplaneClaims) -> String {
        self.dataplane_token_for(claims, Duration::from_secs(3600))
    }

    pub(super) fn dataplane_token_for(&self, claims: DataplaneClaims, valid: Duration) -> String {
        let purpose = Purpose::Dataplane { mesh: "default" };
        token::issue(&self.index.current(), purpose, &claims, valid, &self.env).unwrap()
    }

    pub(super) fn token_for(&self, name: &str) -> String {
        self.dataplane_token(DataplaneClaims {
            name: name.to_owned(),
            mesh: "default".to_owned(),
            ..DataplaneClaims::default()
        })
    }

    pub(super) fn zone_token(&self, scope: &str) -> String {
        let claims = ZoneClaims { zone: ZONE.to_owned(), scope: vec![scope.to_owned()], carries: Vec::new() };
        let valid = Duration::from_secs(3600);
        token::issue(&self.index.current(), Purpose::Zone, &claims, valid, &self.env).unwrap()
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.running).await.expect("the server stops").unwrap().unwrap();
    }
}

/// A dataplane of mesh `default` on a loopback address, serving `service` over HTTP and dialling `uses`.
pub(super) fn dataplane(name: &str, address: &str, service: &str, uses: &[&str]) -> String {
    let outbounds: Vec<String> = uses
        .iter()
        .enumerate()
        .map(|(i, used)| format!("{{port: {}, tags: {{kuma.io/service: {used}}}}}", 20_000 + i))
        .collect();
    format!(
        "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: {address}, inbound: \
         [{{port: 10080, servicePort: 18080, serviceAddress: 127.0.0.1, tags: {{kuma.io/service: {service}, \
         kuma.io/protocol: http}}}}], outbound: [{}]}}}}",
        outbounds.join(", ")
    )
}
