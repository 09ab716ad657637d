//! Who asks, and what they may do.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ApiError;

const ADMIN: &str = "mesh-system:admin";
const ANONYMOUS: &str = "mesh-system:anonymous";
const AUTHENTICATED: &str = "mesh-system:authenticated";
const UNAUTHENTICATED: &str = "mesh-system:unauthenticated";

/// The author of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    /// Name.
    pub name: String,
    /// Groups.
    pub groups: Vec<String>,
}

impl User {
    /// Someone who showed nothing.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()] }
    }

    /// The administrator.
    pub fn admin() -> Self {
        Self { name: ADMIN.to_owned(), groups: vec![ADMIN.to_owned(), AUTHENTICATED.to_owned()] }
    }

    /// Someone whose token is valid.
    pub fn authenticated(name: String, mut groups: Vec<String>) -> Self {
        groups.push(AUTHENTICATED.to_owned());
        Self { name, groups }
    }
}

/// Users and groups that may do one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessRule {
    /// By name.
    pub users: BTreeSet<String>,
    /// By membership.
    pub groups: BTreeSet<String>,
}

impl Default for AccessRule {
    fn default() -> Self {
        Self::admins()
    }
}

impl AccessRule {
    /// Administrators only.
    pub fn admins() -> Self {
        Self { users: [ADMIN.to_owned()].into(), groups: [ADMIN.to_owned()].into() }
    }

    /// Everyone.
    pub fn everyone() -> Self {
        Self { users: BTreeSet::new(), groups: [UNAUTHENTICATED.to_owned(), AUTHENTICATED.to_owned()].into() }
    }

    /// Refuses `user` unless the rule names them; `what` completes "cannot".
    ///
    /// # Errors
    /// 403 that names user and groups.
    pub fn check(&self, user: &User, what: &str) -> Result<(), ApiError> {
        if self.users.contains(&user.name) || user.groups.iter().any(|g| self.groups.contains(g)) {
            return Ok(());
        }
        let groups = user.groups.join(",");
        Err(ApiError::forbidden(format!("user \"{}/{groups}\" cannot {what}", user.name)))
    }
}

/// The rules of one control plane, with Kuma's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    /// Secrets and global secrets.
    pub admin_resources: AccessRule,
    /// `/tokens/dataplane`.
    pub generate_dp_token: AccessRule,
    /// `/tokens/user`.
    pub generate_user_token: AccessRule,
    /// `/tokens/zone`.
    pub generate_zone_token: AccessRule,
    /// Configuration dump of a proxy.
    pub view_config_dump: AccessRule,
    /// Statistics of a proxy.
    pub view_stats: AccessRule,
    /// Clusters of a proxy.
    pub view_clusters: AccessRule,
    /// `/config`.
    pub control_plane_metadata: AccessRule,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            admin_resources: AccessRule::admins(),
            generate_dp_token: AccessRule::admins(),
            generate_user_token: AccessRule::admins(),
            generate_zone_token: AccessRule::admins(),
            view_config_dump: AccessRule::everyone(),
            view_stats: AccessRule::everyone(),
            view_clusters: AccessRule::everyone(),
            control_plane_metadata: AccessRule::everyone(),
        }
    }
}
