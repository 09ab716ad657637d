//! Who logged in to which control plane, in the same file.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use anyhow::{Context, bail};

use super::{ApiServerCoordinates, ConfigFile, DEFAULT_NAME, DEFAULT_URL, KnownControlPlane};
use crate::{ConnectionArgs, client::ControlPlaneEndpoint};

/// How such a control plane is told from those with a token that somebody wrote into the file.
pub(super) const TYPE: &str = "openIdConnect";

/// What a provider gave for a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderLogin {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) ca_cert_file: Option<PathBuf>,
    pub(crate) id_token: String,
    pub(crate) refresh_token: Option<String>,
}

impl ProviderLogin {
    fn read(conf: &BTreeMap<String, String>) -> Option<Self> {
        let text = |name: &str| conf.get(name).filter(|text| !text.is_empty()).cloned();
        Some(Self {
            issuer: text("issuer")?,
            client_id: text("clientId")?,
            ca_cert_file: text("issuerCaCertFile").map(PathBuf::from),
            id_token: text("token")?,
            refresh_token: text("refreshToken"),
        })
    }

    fn written(&self) -> BTreeMap<String, String> {
        let ca = self.ca_cert_file.as_ref().map(|path| path.display().to_string());
        let all = [
            ("issuer", Some(self.issuer.clone())),
            ("clientId", Some(self.client_id.clone())),
            ("issuerCaCertFile", ca),
            ("token", Some(self.id_token.clone())),
            ("refreshToken", self.refresh_token.clone()),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

impl ConfigFile {
    /// Holds others up that change the file, until this value goes away.
    pub(crate) fn lock(&self) -> anyhow::Result<File> {
        let beside = self.path.with_extension("lock");
        let shown = || format!("lock {}", beside.display());
        if let Some(folder) = beside.parent() {
            fs::create_dir_all(folder).with_context(shown)?;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&beside);
        let file = file.with_context(shown)?;
        file.lock().with_context(shown)?;
        Ok(file)
    }

    /// The name of the control plane to log in to, which is added where the file does not know it.
    pub(crate) fn place_for_login(
        &mut self,
        name: Option<&str>,
        connection: &ConnectionArgs,
    ) -> anyhow::Result<String> {
        let name = self.name_of(name);
        match (self.find(&name), &connection.address) {
            (Some(known), Some(address)) if known.coordinates.api_server.url != *address => bail!(
                "{name} is at {}, not at {address}; --control-plane gives the one there another name",
                known.coordinates.api_server.url
            ),
            (Some(_), _) => {}
            (None, address) => {
                let address = address.as_deref().unwrap_or(DEFAULT_URL);
                self.add(&name, ApiServerCoordinates::of(connection, address));
            }
        }
        Ok(name)
    }

    /// The one of this name, or the one of the current context.
    pub(crate) fn name_of(&self, name: Option<&str>) -> String {
        let current = &self.content.current_context;
        let context = self.content.contexts.iter().find(|context| context.name == *current);
        let chosen = context.map_or(DEFAULT_NAME, |context| context.control_plane.as_str());
        name.unwrap_or(chosen).to_owned()
    }

    /// Where it is, without anything to show there.
    pub(crate) fn address_of(&self, name: &str) -> anyhow::Result<ControlPlaneEndpoint> {
        let Some(plane) = self.find(name) else {
            bail!("there is no control plane {name:?}; `straitctl config control-planes list` shows them");
        };
        let server = &plane.coordinates.api_server;
        Ok(ControlPlaneEndpoint {
            url: server.url.clone(),
            ca_cert_file: Some(&server.ca_cert_file).filter(|file| !file.is_empty()).map(PathBuf::from),
            skip_verify: server.skip_verify,
            ..ControlPlaneEndpoint::default()
        })
    }

    /// Who logged in there.
    pub(crate) fn login_of(&self, name: &str) -> Option<ProviderLogin> {
        let server = &self.find(name)?.coordinates.api_server;
        (server.auth_type == TYPE).then(|| ProviderLogin::read(&server.auth_conf))?
    }

    /// Keeps a login, and writes the file.
    pub(crate) fn keep_login(&mut self, name: &str, login: &ProviderLogin) -> anyhow::Result<()> {
        let Some(plane) = self.plane(name) else { bail!("there is no control plane {name:?} any more") };
        let server = &mut plane.coordinates.api_server;
        TYPE.clone_into(&mut server.auth_type);
        server.auth_conf = login.written();
        self.save()
    }

    /// Forgets a login, and writes the file.
    pub(crate) fn forget_login(&mut self, name: &str) -> anyhow::Result<()> {
        if let Some(plane) = self.plane(name) {
            let server = &mut plane.coordinates.api_server;
            server.auth_type.clear();
            server.auth_conf.clear();
        }
        self.save()
    }

    fn plane(&mut self, name: &str) -> Option<&mut KnownControlPlane> {
        self.content.control_planes.iter_mut().find(|plane| plane.name == name)
    }
}
