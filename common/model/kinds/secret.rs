//! Secrets of a mesh and of the control plane.

use crate::{
    model::{Kind, MessageSpec, Violations},
    proto::kuma::system::v1alpha1::Secret,
};

/// A secret that belongs to one mesh.
pub static SECRET: Kind = Kind::proto("Secret", "secrets", "kuma.system.v1alpha1.Secret")
    .flow(25)
    .named("secret", "")
    .admin_only()
    .keeps_name()
    .typed::<Secret>();

/// A secret of the control plane, outside every mesh.
pub static GLOBAL_SECRET: Kind = Kind::proto("GlobalSecret", "globalsecrets", "kuma.system.v1alpha1.Secret")
    .global()
    .flow(25)
    .named("global-secret", "")
    .alias("global-secrets")
    .admin_only()
    .keeps_name()
    .typed::<Secret>();

impl MessageSpec for Secret {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        violations.check(self.data.is_none(), "data".into(), "must be set, encoded as base64");
        violations
    }
}
