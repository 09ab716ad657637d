//! The certificate authorities a mesh asks for with builtin mTLS backends.

use chrono::Duration;

use super::DefaultsError;
use crate::{
    ca::{self, RootOptions},
    keys::{KeyForm, KeySupply},
    model::{
        Resource, ResourceKey,
        kinds::{
            mesh::{CA_BUILTIN, parse_validity},
            secret,
        },
    },
    proto::{
        google::protobuf::{Struct, Value, value},
        kuma::mesh::v1alpha1::{CertificateAuthorityBackend, Mesh},
    },
    runtime::Env,
    store::index::Index,
};

/// The secrets that are missing for the builtin backends of `mesh`: where each belongs, and what it holds.
/// A backend whose key is not in `keys` yet is left out.
pub(super) fn missing(
    mesh: &Resource,
    index: &Index,
    env: &Env,
    keys: &mut KeySupply,
) -> Result<Vec<(ResourceKey, String)>, DefaultsError> {
    let backends = mesh.spec::<Mesh>()?.mtls.map(|mtls| mtls.backends).unwrap_or_default();
    let mut secrets = Vec::new();
    for backend in backends.iter().filter(|backend| backend.r#type == CA_BUILTIN) {
        let place = |name: String| ResourceKey::new(&secret::SECRET, mesh.name(), &name);
        let certificate = place(ca::certificate_secret(mesh.name(), &backend.name));
        let key = place(ca::key_secret(mesh.name(), &backend.name));
        // One without the other is of no use, so a lost half means a new pair.
        if index.get(&certificate).is_some() && index.get(&key).is_some() {
            continue;
        }
        let options = options(backend);
        let Some(made) = keys.draw(options.key) else { continue };
        let root = ca::create_root(mesh.name(), &made, options.valid_for, env.now())?;
        secrets.extend([(certificate, root.certificate), (key, root.key)]);
    }
    Ok(secrets)
}

/// What the backend says about its root; the rest as everywhere.
fn options(backend: &CertificateAuthorityBackend) -> RootOptions {
    let mut options = RootOptions::default();
    let Some(value::Kind::StructValue(conf)) = member(backend.conf.as_ref(), "caCert") else {
        return options;
    };
    if let Some(value::Kind::NumberValue(bits)) = member(Some(conf), "RSAbits") {
        // Validation admits three lengths, all of them whole and small.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let asked = KeyForm::rsa(*bits as u64);
        options.key = asked.unwrap_or(options.key);
    }
    if let Some(value::Kind::StringValue(expiration)) = member(Some(conf), "expiration")
        && let Some(seconds) = parse_validity(expiration).and_then(|s| i64::try_from(s).ok())
        && let Some(valid_for) = Duration::try_seconds(seconds)
    {
        options.valid_for = valid_for;
    }
    options
}

fn member<'a>(conf: Option<&'a Struct>, name: &str) -> Option<&'a value::Kind> {
    let Value { kind } = conf?.fields.get(name)?;
    kind.as_ref()
}
