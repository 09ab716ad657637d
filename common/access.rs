//! Who asks, and what they may do.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::store::history::Author;

const ADMIN: &str = "mesh-system:admin";
const ANONYMOUS: &str = "mesh-system:anonymous";
pub(crate) const AUTHENTICATED: &str = "mesh-system:authenticated";
const OPENID: &str = "mesh-system:openid";
const UNAUTHENTICATED: &str = "mesh-system:unauthenticated";
/// What an anonymous caller can do about it.
pub(crate) const WAY_IN: &str = ": show a user token (straitctl: --token, STRAITCTL_TOKEN). An administrator \
     makes one with `straitctl generate user-token`; the administrator's own is the file admin-user-token in \
     general.workDir of this control plane, where straitctl finds it (--work-dir)";

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

    /// As the history names them.
    pub fn author(&self) -> Author {
        Author::User(self.name.clone())
    }

    /// Whether nobody vouches for this name.
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// Someone for whom a provider vouches, who is not ours to say whom it has accounts for.
    pub fn vouched_for(name: String, mut groups: Vec<String>) -> Self {
        groups.push(OPENID.to_owned());
        Self::authenticated(name, groups)
    }

    /// Whether a control plane gave him what he shows, and no provider.
    pub fn is_ours(&self) -> bool {
        !self.is_anonymous() && !self.groups.iter().any(|group| group == OPENID)
    }

    /// Someone whose token is valid.
    pub fn authenticated(name: String, mut groups: Vec<String>) -> Self {
        groups.push(AUTHENTICATED.to_owned());
        Self { name, groups }
    }
}

/// Somebody may not do something; says who, what, and what to do about it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Denied(String);

impl Denied {
    /// `what` completes "cannot".
    pub fn new(user: &User, what: &str) -> Self {
        let groups = user.groups.join(",");
        let hint = if user.is_anonymous() { WAY_IN } else { "" };
        Self(format!("user \"{}/{groups}\" cannot {what}{hint}", user.name))
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

    /// Everyone who proved who he is.
    pub fn authenticated() -> Self {
        Self { users: BTreeSet::new(), groups: [AUTHENTICATED.to_owned()].into() }
    }

    /// Everyone, whoever he is.
    pub fn everyone() -> Self {
        let mut rule = Self::admins();
        rule.groups.extend([AUTHENTICATED.to_owned(), UNAUTHENTICATED.to_owned()]);
        rule
    }

    /// Whether the rule names `user`, or a group of his.
    pub fn names(&self, user: &User) -> bool {
        self.users.contains(&user.name) || user.groups.iter().any(|g| self.groups.contains(g))
    }
}

/// The rules of one control plane, under Kuma's names.
///
/// The defaults are Kuma's, but for what shows the inside of proxies and of the control plane, which Kuma
/// shows to everyone: the configuration of a proxy is for administrators, since it tells the whole
/// topology and what operators put into it; the rest is for whoever proved who he is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    /// Secrets and global secrets, roles, nodes without a mesh, and the files a zone reads: `/strait/resources`.
    pub admin_resources: AccessRule,
    /// All other resources. Not one of Kuma's, where everybody reads them.
    pub read_resources: AccessRule,
    /// `/tokens/dataplane`.
    pub generate_dp_token: AccessRule,
    /// `/tokens/user`.
    pub generate_user_token: AccessRule,
    /// `/tokens/zone`.
    pub generate_zone_token: AccessRule,
    /// Configuration dump of a proxy, what it should have, and what came of that: `/xds`, `/_config`, `/debug/proxies`,
    /// CSDS.
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
            read_resources: AccessRule::everyone(),
            generate_dp_token: AccessRule::admins(),
            generate_user_token: AccessRule::admins(),
            generate_zone_token: AccessRule::admins(),
            view_config_dump: AccessRule::admins(),
            view_stats: AccessRule::authenticated(),
            view_clusters: AccessRule::authenticated(),
            control_plane_metadata: AccessRule::authenticated(),
        }
    }
}
