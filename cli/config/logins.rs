//! Who logged in to which control plane, in the same file.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use anyhow::{Context, bail};
use common::model::text::to_yaml;

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

/// Stands for what is not shown.
const HIDDEN: &str = "***";
/// What of a login is no secret.
const PLAIN: [&str; 3] = ["issuer", "clientId", "issuerCaCertFile"];

impl ConfigFile {
    /// The file, with tokens or with something in their place.
    pub(super) fn shown(&self, with_tokens: bool) -> anyhow::Result<String> {
        let mut content = self.content.clone();
        let servers = content.control_planes.iter_mut().map(|plane| &mut plane.coordinates.api_server);
        for server in servers.filter(|_| !with_tokens) {
            let secret = server.auth_conf.iter_mut().filter(|(name, _)| !PLAIN.contains(&name.as_str()));
            secret.for_each(|(_, value)| HIDDEN.clone_into(value));
            server.headers.iter_mut().for_each(|header| HIDDEN.clone_into(&mut header.value));
        }
        Ok(to_yaml(&content)?)
    }

    /// Changes the file as it is now, while nobody else does: another program may have renewed a login meanwhile.
    pub(super) fn change(self, change: impl FnOnce(&mut Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let _alone = self.lock()?;
        let mut now = Self::open(Some(&self.path))?;
        change(&mut now)?;
        now.save()
    }

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

    /// Another control plane at which the tokens of `login`, which is for `name`, would be good as well.
    pub(crate) fn other_with_client_of(&self, name: &str, login: &ProviderLogin) -> Option<&str> {
        let url = |plane: &KnownControlPlane| plane.coordinates.api_server.url.clone();
        let here = self.find(name).map(url);
        let mut others = self.content.control_planes.iter().filter(|plane| Some(url(plane)) != here);
        let is_same =
            |other: &ProviderLogin| (&other.issuer, &other.client_id) == (&login.issuer, &login.client_id);
        let other = others.find(|plane| self.login_of(&plane.name).as_ref().is_some_and(is_same));
        other.map(|plane| plane.name.as_str())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn login(issuer: &str, client_id: &str) -> ProviderLogin {
        let (issuer, client_id, id_token) = (issuer.to_owned(), client_id.to_owned(), "t".to_owned());
        ProviderLogin {
            issuer,
            client_id,
            id_token,
            refresh_token: Some("r".to_owned()),
            ..ProviderLogin::default()
        }
    }

    #[test]
    fn a_control_plane_that_names_the_client_of_another_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let mut file = ConfigFile::open(Some(&path)).unwrap();
        for (name, url) in
            [("global", "https://global"), ("alias", "https://global"), ("east", "https://east")]
        {
            file.add(name, ApiServerCoordinates { url: url.to_owned(), ..ApiServerCoordinates::default() });
        }
        file.keep_login("global", &login("https://login", "cli")).unwrap();
        let other = |name: &str, issuer: &str, client: &str| {
            file.other_with_client_of(name, &login(issuer, client)).map(str::to_owned)
        };
        assert_eq!(other("east", "https://login", "cli").as_deref(), Some("global"));
        assert_eq!(other("east", "https://login", "cli-of-east"), None);
        assert_eq!(other("east", "https://elsewhere", "cli"), None);
        assert_eq!(other("global", "https://login", "cli"), None);
        assert_eq!(other("alias", "https://login", "cli"), None, "it is the same one");
    }

    #[test]
    fn what_is_shown_of_the_file_holds_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let mut file = ConfigFile::open(Some(&path)).unwrap();
        file.add("global", ApiServerCoordinates::default());
        file.keep_login("global", &login("https://login", "cli")).unwrap();
        let shown = file.shown(false).unwrap();
        assert!(shown.contains("issuer: https://login") && shown.contains("clientId: cli"), "{shown}");
        assert!(shown.contains("token: '***'") && shown.contains("refreshToken: '***'"), "{shown}");
        let whole = file.shown(true).unwrap();
        assert!(whole.contains("token: t") && whole.contains("refreshToken: r"), "{whole}");
    }
}
