//! What a control plane makes for itself: on its first start, and with every new mesh.

mod authority;
mod hostnames;
mod mesh;

use std::sync::Arc;

use prost::Message;
use thiserror::Error;

use crate::{
    access::User,
    ca::{self, CaError},
    config::DataplaneDefaults,
    issuing,
    keys::{KeyError, KeyForm, KeyMaker, KeySupply},
    mode::Mode,
    model::{Kind, Resource, ResourceKey, SpecError, kinds, transcode},
    proto::kuma::system::v1alpha1::Config,
    runtime::Env,
    store::{
        Batch, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
    token::{self, Purpose, SigningKey, TokenError, UserClaims},
};

pub use mesh::MeshDefaults;

/// How often a start that raced another replica is tried again.
const ATTEMPTS: usize = 5;
const DEFAULT_MESH: &str = "default";
/// Who asks for keys at a start, when nobody else does.
const MAKER: &str = "control plane";

/// Why the defaults could not be made.
#[derive(Debug, Error)]
pub enum DefaultsError {
    /// The store refused or failed.
    #[error("write default resources: {0}")]
    Store(#[from] StoreError),
    /// A key could not be made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A token could not be made.
    #[error("make the token of the first administrator: {0}")]
    Token(#[from] TokenError),
    /// A certificate authority could not be made.
    #[error("make a certificate authority: {0}")]
    Ca(#[from] CaError),
    /// A built-in body does not fit its kind.
    #[error("build a default resource: {0}")]
    Spec(#[from] SpecError),
}

/// Makes what is missing of the default resources: signing keys, the administrator's token, the mesh
/// `default` with its policies, the identifier of the deployment, hostname generators, and on a zone its
/// own `Zone` and the authority for the admin endpoints of its Envoys. Returns once `index` shows them.
///
/// # Errors
/// [`DefaultsError`]; nothing is half made then.
pub async fn ensure_defaults(
    store: &Arc<dyn Store>,
    index: &IndexReader,
    env: &Env,
    mode: &Mode,
    options: &DataplaneDefaults,
) -> Result<(), DefaultsError> {
    let (maker, mut keys, mut attempt) = (KeyMaker::default(), KeySupply::default(), 0);
    loop {
        keys.begin();
        let writes = Start { index: &index.current(), env, mode, keys: &mut keys }.missing(options)?;
        if !keys.missing().is_empty() {
            maker.fill(&mut keys, MAKER).await?;
            continue;
        }
        if writes.is_empty() {
            break;
        }
        attempt += 1;
        let names: Vec<String> = writes.iter().map(|w| w.key().to_string()).collect();
        match store.transact(Batch::of(writes)).await {
            Ok(commit) => {
                tracing::info!(created = names.join(", "), "made default resources");
                index.wait_long_for(commit.revision).await;
                break;
            }
            // Another replica starts at the same moment; what it made need not be made again.
            Err(StoreError::AlreadyExists { .. }) if attempt < ATTEMPTS => {
                let head = *store.watch_head().borrow();
                index.wait_long_for(head).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A start of a control plane.
struct Start<'a> {
    index: &'a Index,
    env: &'a Env,
    mode: &'a Mode,
    keys: &'a mut KeySupply,
}

impl Start<'_> {
    fn missing(&mut self, options: &DataplaneDefaults) -> Result<Vec<Write>, DefaultsError> {
        let mut writes = Vec::new();
        self.user_tokens(options, &mut writes)?;
        if let Some(zone) = self.mode.zone() {
            self.put_absent(self.resource(&kinds::zone::KIND, "", zone), &mut writes);
            let place = ResourceKey::global(&kinds::secret::GLOBAL_SECRET, ca::ADMIN_SECRET);
            if self.index.get(&place).is_none() {
                self.put_secret(&place, &ca::create_admin_root(self.env.now())?, &mut writes);
            }
            let place = ResourceKey::global(&kinds::secret::GLOBAL_SECRET, issuing::KEY_SECRET);
            if self.index.get(&place).is_none()
                && let Some(key) = self.keys.draw(KeyForm::P256)
            {
                self.put_secret(&place, key.pem(), &mut writes);
            }
        }
        if self.mode.owns_meshes() {
            if !Purpose::Zone.has_key(self.index)
                && let Some(key) = self.keys.draw(KeyForm::TOKEN)
            {
                self.put_secret(&Purpose::Zone.key(1), key.pem(), &mut writes);
            }
            let cluster = Config { config: self.env.entropy.uuid().to_string() };
            let config = self.resource(&kinds::config::KIND, "", kinds::config::CLUSTER_ID);
            self.put_absent(config.with_spec(cluster.encode_to_vec()), &mut writes);
            if !options.skip_mesh_creation {
                self.default_mesh(&mut writes)?;
            }
        }
        if !options.skip_hostname_generators {
            for (name, spec) in hostnames::generators(self.mode) {
                let kind = &kinds::destinations::HOSTNAME_GENERATOR;
                let spec = transcode::from_json(kind, &spec)?;
                self.put_absent(self.resource(kind, "", name).with_spec(spec), &mut writes);
            }
        }
        Ok(writes)
    }

    /// The key that signs user tokens here, and the token of the first administrator.
    fn user_tokens(
        &mut self,
        options: &DataplaneDefaults,
        writes: &mut Vec<Write>,
    ) -> Result<(), DefaultsError> {
        let key = if Purpose::User.has_key(self.index) {
            Purpose::User.newest_key(self.index)?
        } else {
            let Some(key) = self.keys.draw(KeyForm::TOKEN) else { return Ok(()) };
            let place = Purpose::User.key(1);
            self.put_secret(&place, key.pem(), writes);
            let pem = key.pem().as_bytes().to_vec();
            SigningKey { name: place.name.to_string(), kid: "1".to_owned(), pem }
        };
        let place = ResourceKey::global(&kinds::secret::GLOBAL_SECRET, token::ADMIN_USER_TOKEN);
        if !options.skip_admin_token && self.index.get(&place).is_none() {
            let admin = User::admin().name;
            let claims = UserClaims { name: admin.clone(), groups: vec![admin] };
            let token = token::sign(&key, &claims, token::TEN_YEARS, self.env.now(), &self.env.entropy)?;
            self.put_secret(&place, &token, writes);
        }
        Ok(())
    }

    fn default_mesh(&mut self, writes: &mut Vec<Write>) -> Result<(), DefaultsError> {
        // A deployment whose operator deleted or never had this mesh is left alone.
        if self.index.list(&kinds::mesh::KIND).next().is_some() {
            return Ok(());
        }
        let mut mesh = self.resource(&kinds::mesh::KIND, "", DEFAULT_MESH);
        mesh::choose_issuing(&mut mesh, None, self.mode);
        let with_it = mesh::for_new_mesh(&mesh, self.index, self.env, self.mode, self.keys)?;
        self.put_absent(mesh, writes);
        writes.extend(with_it);
        Ok(())
    }

    fn resource(&self, kind: &'static Kind, mesh: &str, name: &str) -> Resource {
        let mut resource = Resource::new(ResourceKey::new(kind, mesh, name), self.env.now());
        resource.origin = self.mode.origin_of(kind);
        self.mode.label(&mut resource);
        resource
    }

    fn put_secret(&self, place: &ResourceKey, data: &str, writes: &mut Vec<Write>) {
        let secret = self.resource(place.kind, &place.mesh, &place.name);
        self.put_absent(secret.with_spec(token::secret_spec(data)), writes);
    }

    fn put_absent(&self, resource: Resource, writes: &mut Vec<Write>) {
        if self.index.get(&resource.key).is_none() {
            writes.push(Write::put_when(resource, Precondition::Absent));
        }
    }
}

#[cfg(test)]
mod tests;
