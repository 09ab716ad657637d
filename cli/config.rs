//! `straitctl config`: the file with control planes and contexts, in kumactl's format.

mod logins;

pub(crate) use logins::ProviderLogin;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use common::model::text::{self, TextLimits, to_yaml};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ConnectionArgs,
    client::{ApiClient, ControlPlaneEndpoint},
    output, table,
};

const DEFAULT_NAME: &str = "local";
const DEFAULT_URL: &str = "http://localhost:5681";

#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Known control planes
    #[command(subcommand)]
    ControlPlanes(ControlPlanes),
    /// Prints the file, without tokens and values of headers
    View {
        /// With them
        #[arg(long)]
        show_tokens: bool,
    },
}

#[derive(Subcommand)]
enum ControlPlanes {
    /// Adds a control plane and chooses it. Takes --address, --token, --ca-cert-file, --skip-verify
    Add {
        /// Name for it
        #[arg(long)]
        name: String,
        /// How to show who asks, in kumactl's words: tokens, with --auth-conf token=TOKEN
        #[arg(long, value_name = "TYPE", requires = "auth_conf", value_parser = ["tokens"])]
        auth_type: Option<String>,
        /// See --auth-type
        #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
        auth_conf: Vec<(String, String)>,
        /// A header to send with every request; may be repeated
        #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
        headers: Vec<(String, String)>,
        /// Replace one of the same name
        #[arg(long)]
        overwrite: bool,
        /// Do not ask it who it is
        #[arg(long)]
        skip_check: bool,
    },
    /// Lists them
    List,
    /// Chooses one
    #[command(alias = "switch")]
    Use(ControlPlaneName),
    /// Forgets one
    Remove(ControlPlaneName),
}

/// A known control plane.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct ControlPlaneName {
    /// Its name
    name: Option<String>,
    /// The same, as kumactl takes it
    #[arg(long = "name", value_name = "NAME")]
    flag: Option<String>,
}

impl ControlPlaneName {
    fn get(self) -> String {
        self.name.or(self.flag).unwrap_or_default()
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl ConfigArgs {
    pub(crate) async fn run(self, file: ConfigFile, connection: &ConnectionArgs) -> anyhow::Result<()> {
        match self.what {
            ConfigCommand::View { show_tokens } => output::text(&file.shown(show_tokens)?),
            ConfigCommand::ControlPlanes(ControlPlanes::List) => file.print(),
            ConfigCommand::ControlPlanes(ControlPlanes::Use(name)) => {
                let name = name.get();
                file.change(|file| file.choose(&name))?;
                output::line(&format!("using {name}"));
            }
            ConfigCommand::ControlPlanes(ControlPlanes::Remove(name)) => {
                let name = name.get();
                file.change(|file| file.remove(&name))?;
                output::line(&format!("forgot {name}"));
            }
            ConfigCommand::ControlPlanes(ControlPlanes::Add {
                name,
                auth_type: _,
                auth_conf,
                headers,
                overwrite,
                skip_check,
            }) => {
                if file.find(&name).is_some() && !overwrite {
                    bail!("there is a control plane {name:?} already; --overwrite replaces it");
                }
                let Some(address) = &connection.address else {
                    bail!("which one? name its address with --address");
                };
                if !skip_check {
                    check(connection, address).await?;
                }
                let mut server = ApiServerCoordinates::of(connection, address);
                for (key, value) in auth_conf {
                    "tokens".clone_into(&mut server.auth_type);
                    server.auth_conf.insert(key, value);
                }
                server.headers =
                    headers.into_iter().map(|(key, value)| ApiServerHeader { key, value }).collect();
                file.change(|file| {
                    file.add(&name, server);
                    Ok(())
                })?;
                output::line(&format!("added {name} and using it"));
            }
        }
        Ok(())
    }
}

/// Fails unless a control plane answers there.
async fn check(connection: &ConnectionArgs, address: &str) -> anyhow::Result<()> {
    let endpoint = ControlPlaneEndpoint {
        url: address.to_owned(),
        ca_cert_file: connection.ca_cert_file.clone(),
        skip_verify: connection.skip_verify,
        ..ControlPlaneEndpoint::default()
    };
    let index: Value = ApiClient::new(endpoint, connection.api_timeout)?.get("/").await?;
    if index["product"] != "Kuma" {
        bail!("what answers at {address} is not a control plane; --skip-check adds it anyway");
    }
    Ok(())
}

/// The file, and where it is.
pub(crate) struct ConfigFile {
    path: PathBuf,
    content: ConfigDocument,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigDocument {
    contexts: Vec<ConfigContext>,
    control_planes: Vec<KnownControlPlane>,
    current_context: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigContext {
    control_plane: String,
    name: String,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct KnownControlPlane {
    coordinates: Coordinates,
    name: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Coordinates {
    api_server: ApiServerCoordinates,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiServerCoordinates {
    url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    ca_cert_file: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    skip_verify: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    headers: Vec<ApiServerHeader>,
    #[serde(skip_serializing_if = "String::is_empty")]
    auth_type: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    auth_conf: BTreeMap<String, String>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ApiServerHeader {
    key: String,
    value: String,
}

impl ApiServerCoordinates {
    /// The one at `address`, to be asked as the flags say.
    fn of(connection: &ConnectionArgs, address: &str) -> Self {
        let ca = connection.ca_cert_file.as_deref();
        let ca = ca.map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
        let mut server = Self {
            url: address.to_owned(),
            ca_cert_file: ca.map(|path| path.display().to_string()).unwrap_or_default(),
            skip_verify: connection.skip_verify,
            ..Self::default()
        };
        if let Some(token) = &connection.token {
            "tokens".clone_into(&mut server.auth_type);
            server.auth_conf.insert("token".to_owned(), token.clone());
        }
        server
    }
}

impl ConfigFile {
    /// Reads the file; without one, the control plane on this machine is meant.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => std::env::home_dir().unwrap_or_default().join(".straitctl").join("config"),
        };
        let content = match fs::read_to_string(&path) {
            Ok(text) => text::yaml(&text, TextLimits::BODY)
                .map_err(anyhow::Error::from)
                .and_then(|content| Ok(serde_json::from_value(content)?))
                .with_context(|| format!("{} is not a config file", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => ConfigDocument::default(),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        Ok(Self { path, content })
    }

    fn save(&self) -> anyhow::Result<()> {
        let shown = || format!("write {}", self.path.display());
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).with_context(shown)?;
        }
        let text = to_yaml(&self.content)?;
        // Written beside and moved over it, so that a full disk does not lose the old one. It may hold tokens.
        let beside = self.path.with_extension("new");
        let mut options = fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create(true).truncate(true), 0o600);
        let mut file = options.open(&beside).with_context(shown)?;
        std::io::Write::write_all(&mut file, text.as_bytes()).with_context(shown)?;
        fs::rename(&beside, &self.path).with_context(shown)
    }

    /// The control plane of the current context.
    pub(crate) fn current(&self) -> anyhow::Result<ControlPlaneEndpoint> {
        let chosen = &self.content.current_context;
        if chosen.is_empty() {
            return Ok(ControlPlaneEndpoint {
                url: DEFAULT_URL.to_owned(),
                ..ControlPlaneEndpoint::default()
            });
        }
        let context = self.content.contexts.iter().find(|c| c.name == *chosen);
        let plane = context.and_then(|c| self.find(&c.control_plane));
        let Some(plane) = plane else {
            bail!("{}: the current context {chosen:?} names no control plane", self.path.display());
        };
        let server = plane.coordinates.api_server.clone();
        Ok(ControlPlaneEndpoint {
            url: server.url,
            token: server.auth_conf.get("token").cloned(),
            headers: server.headers.into_iter().map(|h| (h.key, h.value)).collect(),
            ca_cert_file: (!server.ca_cert_file.is_empty()).then(|| server.ca_cert_file.into()),
            skip_verify: server.skip_verify,
            logs_in: server.auth_type == logins::TYPE,
            found: None,
        })
    }

    fn find(&self, name: &str) -> Option<&KnownControlPlane> {
        self.content.control_planes.iter().find(|plane| plane.name == name)
    }

    fn add(&mut self, name: &str, server: ApiServerCoordinates) {
        let content = &mut self.content;
        content.control_planes.retain(|plane| plane.name != name);
        content.contexts.retain(|context| context.name != name);
        let coordinates = Coordinates { api_server: server };
        content.control_planes.push(KnownControlPlane { coordinates, name: name.to_owned() });
        content.contexts.push(ConfigContext {
            control_plane: name.to_owned(),
            name: name.to_owned(),
            other: BTreeMap::new(),
        });
        name.clone_into(&mut content.current_context);
    }

    fn choose(&mut self, name: &str) -> anyhow::Result<()> {
        if !self.content.contexts.iter().any(|context| context.name == name) {
            bail!("there is no control plane {name:?}; `straitctl config control-planes list` shows them");
        }
        name.clone_into(&mut self.content.current_context);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        if self.find(name).is_none() {
            bail!("there is no control plane {name:?}; `straitctl config control-planes list` shows them");
        }
        let content = &mut self.content;
        content.control_planes.retain(|plane| plane.name != name);
        content.contexts.retain(|context| context.control_plane != name);
        if !content.contexts.iter().any(|context| context.name == content.current_context) {
            content.current_context.clear();
        }
        Ok(())
    }

    fn print(&self) {
        let row = |name: &str, url: &str| {
            let chosen = self.content.current_context == name
                || (self.content.current_context.is_empty() && name == DEFAULT_NAME);
            vec![if chosen { "*" } else { "" }.to_owned(), name.to_owned(), url.to_owned()]
        };
        let mut rows: Vec<Vec<String>> =
            self.content.control_planes.iter().map(|p| row(&p.name, &p.coordinates.api_server.url)).collect();
        if rows.is_empty() {
            rows.push(row(DEFAULT_NAME, DEFAULT_URL));
        }
        table::print(&["ACTIVE", "NAME", "ADDRESS"], rows);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A file as kumactl writes it.
    const KUMACTL: &str = "
contexts:
- controlPlane: prod
  defaults: {mesh: shop}
  name: prod
controlPlanes:
- coordinates:
    apiServer:
      authConf: {token: abc}
      authType: tokens
      clientCertFile: /c.pem
      headers: [{key: x-tenant, value: a}]
      url: https://global.example:5682
  name: prod
currentContext: prod
";

    #[test]
    fn kumactls_file_is_understood_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, KUMACTL).unwrap();
        let mut file = ConfigFile::open(Some(&path)).unwrap();
        let endpoint = file.current().unwrap();
        assert_eq!(endpoint.url, "https://global.example:5682");
        assert_eq!(endpoint.token.as_deref(), Some("abc"));
        assert_eq!(endpoint.headers, [("x-tenant".to_owned(), "a".to_owned())]);
        file.choose("prod").unwrap();
        file.save().unwrap();
        let read = |text: &str| -> Value { serde_norway::from_str(text).unwrap() };
        assert_eq!(read(&fs::read_to_string(&path).unwrap()), read(KUMACTL));
        assert!(file.choose("none").is_err());
    }

    #[test]
    fn what_stands_twice_in_the_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, format!("{KUMACTL}currentContext: test\n")).unwrap();
        let refused = format!("{:#}", ConfigFile::open(Some(&path)).err().unwrap());
        assert!(refused.contains("duplicate") && refused.contains("currentContext"), "{refused}");
    }

    #[test]
    fn without_a_file_this_machine_is_meant() {
        let file = ConfigFile::open(Some(Path::new("/nowhere/config"))).unwrap();
        assert_eq!(file.current().unwrap().url, DEFAULT_URL);
    }
}
