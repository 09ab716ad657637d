//! Settings both control planes have.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::{AuditSection, Authn, ConfigError, ConnectionsSection, HistorySection, Interval};
use crate::telemetry::LogFormat;

/// Help for the settings of this file, by path.
pub(super) const HELP: &[(&str, &str)] = &[
    ("store.type", "Where resources live: sqlite, postgres or memory"),
    ("store.sqlite.path", "Database file; empty: strait.db in general.workDir"),
    ("store.postgres.host", "Host of the database, or the folder of its unix socket"),
    ("store.postgres.port", "Port of the database"),
    ("store.postgres.user", "User of the database"),
    ("store.postgres.password", "Password of the database"),
    ("store.postgres.dbName", "Name of the database"),
    ("store.postgres.tls.mode", "Encryption: disable, verifyNone, verifyCa or verifyFull"),
    ("store.postgres.tls.caPath", "Roots the database is checked against, PEM; empty: the machine's"),
    ("apiServer.http.enabled", "Serve REST without TLS"),
    ("apiServer.http.interface", "Address of REST"),
    ("apiServer.http.port", "Port of REST; 0: a free one"),
    ("apiServer.https.enabled", "Serve REST with TLS"),
    ("apiServer.https.interface", "Address of REST with TLS"),
    ("apiServer.https.port", "Port of REST with TLS; 0: a free one"),
    ("apiServer.https.tlsCertFile", "Certificate of REST; empty: the general one"),
    ("apiServer.https.tlsKeyFile", "Key of that certificate"),
    (
        "apiServer.rootUrl",
        "Address of this API for browsers, where they do not say it: https://global.example",
    ),
    (
        "apiServer.readOnly",
        "Refuse writes of resources; tokens, epochs and what else an operator does keep their rights",
    ),
    ("apiServer.gui.enabled", "Serve the page for operators at /gui of the REST API"),
    ("diagnostics.interface", "Address of health, readiness and metrics"),
    ("diagnostics.serverPort", "Port of health, readiness and metrics; 0: a free one"),
    (
        "general.workDir",
        "Folder for the database, the certificate and the administrator's token the process makes",
    ),
    ("general.tlsCertFile", "Certificate of all TLS listeners; empty: a self-signed one in workDir"),
    ("general.tlsKeyFile", "Key of that certificate"),
    ("general.resilientComponentBaseBackoff", "Shortest pause before a broken connection is retried"),
    ("general.resilientComponentMaxBackoff", "Longest pause before a broken connection is retried"),
    ("general.gracefulShutdownTimeout", "Time for streams and requests to end at shutdown"),
    ("general.connections.max", "Connections of all listeners together; 0: what open files allow"),
    (
        "general.connections.unknown",
        "Connections of a listener from clients that have not shown who they are",
    ),
    ("general.connections.unknownPerAddress", "The same from one address; the oldest that waits makes way"),
    ("general.connections.firstRequestTimeout", "Time from a connection to its first request"),
    ("general.connections.requestTimeout", "Longest request of a client that has not shown who it is"),
    ("general.connections.idleTimeout", "How long a connection is kept without a request"),
    ("tracing.openTelemetry.enabled", "Tell a collector of each write, and how it came to zones and proxies"),
    ("tracing.openTelemetry.endpoint", "Where it takes OTLP over gRPC, without TLS"),
    ("logging.format", "Shape of a log line: text or json"),
    ("defaults.skipHostnameGenerators", "Do not create hostname generators"),
];

/// `store`: where resources live.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StoreSection {
    /// Which store.
    #[serde(rename = "type")]
    pub kind: StoreType,
    /// The embedded store.
    pub sqlite: Sqlite,
    /// The shared store.
    pub postgres: Postgres,
    /// What is kept of changes.
    pub history: HistorySection,
    /// Allow deletes that would orphan something: a mesh with dataplanes, a zone that is online.
    pub unsafe_delete: bool,
}

/// Which store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreType {
    /// A file next to the process.
    #[default]
    Sqlite,
    /// A database several replicas may share.
    Postgres,
    /// Nothing survives the process.
    Memory,
}

/// `store.sqlite`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Sqlite {
    /// The database file; empty means `strait.db` in `general.workDir`.
    pub path: String,
}

/// `store.postgres`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Postgres {
    /// Host name, address, or the folder of a unix socket.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Password.
    pub password: String,
    /// Database.
    pub db_name: String,
    /// Encryption.
    pub tls: PostgresTls,
}

/// `store.postgres.tls`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PostgresTls {
    /// How much is checked.
    pub mode: PostgresTlsMode,
    /// Roots the server is checked against, PEM; empty means those of the machine.
    pub ca_path: String,
}

/// `environment`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlatformKind {
    /// The only value a control plane of ours accepts: machines and containers of any make, without Kubernetes.
    #[default]
    Universal,
}

/// `store.postgres.tls.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PostgresTlsMode {
    /// Plain text, as Kuma's default: for a socket or a network nobody else is on.
    #[default]
    Disable,
    /// Encrypted, to whoever answers.
    VerifyNone,
    /// The certificate comes from the roots.
    VerifyCa,
    /// And it names the host.
    VerifyFull,
}

impl PostgresTlsMode {
    /// The same in the words of Postgres' `sslmode`.
    pub fn sslmode(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::VerifyNone => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

impl Default for Postgres {
    fn default() -> Self {
        let kuma = || "kuma".to_owned();
        Self {
            host: "127.0.0.1".to_owned(),
            port: 15432,
            user: kuma(),
            password: kuma(),
            db_name: kuma(),
            tls: PostgresTls::default(),
        }
    }
}

/// `apiServer`: REST.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ApiServer {
    /// Plain listener.
    pub http: HttpListener,
    /// TLS listener.
    pub https: HttpsListener,
    /// Who a caller is.
    pub authn: Authn,
    /// Address under which browsers reach it; empty means that they say it.
    pub root_url: String,
    /// Refuse every write.
    pub read_only: bool,
    /// Where requests are taken down.
    pub audit: AuditSection,
    /// The page for operators.
    pub gui: GuiSection,
}

/// `apiServer.gui`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GuiSection {
    /// Whether it is served.
    pub enabled: bool,
}

impl Default for GuiSection {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// `apiServer.http`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HttpListener {
    /// Whether it listens.
    pub enabled: bool,
    /// On which address.
    pub interface: IpAddr,
    /// On which port; 0 takes a free one.
    pub port: u16,
}

impl Default for HttpListener {
    fn default() -> Self {
        Self { enabled: true, interface: Ipv4Addr::UNSPECIFIED.into(), port: 5681 }
    }
}

/// `apiServer.https`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HttpsListener {
    /// Whether it listens.
    pub enabled: bool,
    /// On which address.
    pub interface: IpAddr,
    /// On which port; 0 takes a free one.
    pub port: u16,
    /// Certificate; empty means the one of `general`.
    pub tls_cert_file: String,
    /// Its key.
    pub tls_key_file: String,
}

impl Default for HttpsListener {
    fn default() -> Self {
        Self {
            enabled: true,
            interface: Ipv4Addr::UNSPECIFIED.into(),
            port: 5682,
            tls_cert_file: String::new(),
            tls_key_file: String::new(),
        }
    }
}

/// `diagnostics`: health, readiness, metrics.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Diagnostics {
    /// On which address.
    pub interface: IpAddr,
    /// On which port; 0 takes a free one.
    pub server_port: u16,
}

impl Default for Diagnostics {
    fn default() -> Self {
        Self { interface: Ipv4Addr::UNSPECIFIED.into(), server_port: 5680 }
    }
}

/// `general`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct General {
    /// Folder for what the process makes for itself: the database, its certificate, the token of its
    /// administrator.
    pub work_dir: String,
    /// Certificate of every TLS listener without one of its own; empty means a self-signed one.
    pub tls_cert_file: String,
    /// Its key.
    pub tls_key_file: String,
    /// Shortest pause before a broken connection is tried again.
    pub resilient_component_base_backoff: Interval,
    /// Longest pause.
    pub resilient_component_max_backoff: Interval,
    /// How long streams and requests may take to end at shutdown.
    pub graceful_shutdown_timeout: Interval,
    /// Who may connect.
    pub connections: ConnectionsSection,
}

impl Default for General {
    fn default() -> Self {
        Self {
            work_dir: ".strait".to_owned(),
            tls_cert_file: String::new(),
            tls_key_file: String::new(),
            resilient_component_base_backoff: Interval::seconds(1),
            resilient_component_max_backoff: Interval::seconds(30),
            graceful_shutdown_timeout: Interval::seconds(5),
            connections: ConnectionsSection::default(),
        }
    }
}

impl DataplaneDefaults {
    /// The same with what the settings of the API say about them.
    pub fn with_api(&self, api: &ApiServer) -> Self {
        Self { skip_admin_token: !api.authn.tokens.bootstrap_admin_token, ..self.clone() }
    }
}

impl General {
    /// Certificate and key go together, and somebody may connect.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] naming the setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.connections.validate()?;
        both("general.tlsCertFile", &self.tls_cert_file, "general.tlsKeyFile", &self.tls_key_file)
    }
}

/// Two settings that only make sense together.
fn both(a: &str, a_value: &str, b: &str, b_value: &str) -> Result<(), ConfigError> {
    match (a_value.is_empty(), b_value.is_empty()) {
        (false, true) => Err(ConfigError::rule(b, format!("must be set, because {a} is"))),
        (true, false) => Err(ConfigError::rule(a, format!("must be set, because {b} is"))),
        _ => Ok(()),
    }
}

/// `logging`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Logging {
    /// Shape of a log line; what is logged is set by `RUST_LOG`.
    pub format: LogFormat,
}

/// `defaults`: what a fresh control plane makes for itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DataplaneDefaults {
    /// Do not create the mesh `default`.
    pub skip_mesh_creation: bool,
    /// Do not create hostname generators.
    pub skip_hostname_generators: bool,
    /// Do not create the token of the first administrator as a secret; set in `apiServer.authn.tokens`.
    #[serde(skip)]
    pub skip_admin_token: bool,
}

/// `v1` of a sync connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KdsV1 {
    /// Whether it is spoken.
    pub enabled: bool,
}

/// `labels` of a sync connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SyncLabels {
    /// Labels with these prefixes are not sent.
    pub skip_prefixes: Vec<String>,
}
