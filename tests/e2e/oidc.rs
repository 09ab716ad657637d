//! People log in through a real provider of OpenID Connect: on the page in a real browser, and with straitctl.

mod cli;
mod page;
mod private;

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Global, RealProvider};

/// Makes whoever is in the group `platform` administrator, as far as settings go, and lets the group `everybody` write timeouts.
async fn global(provider: &RealProvider, folder: &Path) -> Global {
    let options = provider
        .options(folder, "strait-cli")
        .with("access.static.adminResources.groups", "mesh-system:admin,platform")
        .with("access.static.viewConfigDump.groups", "mesh-system:admin,platform");
    let global = Global::start_with(options).await;
    global.apply(
        "type: AccessRole\nname: timeouts\nspec: {rules: [{verbs: [write, delete], kinds: [MeshTimeout], names: [\"by-*\"]}]}\n---\n\
         type: AccessRoleBinding\nname: timeouts\nspec: {subjects: [{type: Group, name: everybody}], roles: [timeouts]}\n",
    );
    global
}

fn timeout(name: &str) -> String {
    format!(
        "type: MeshTimeout\nmesh: default\nname: {name}\nspec:\n  targetRef: {{kind: Mesh}}\n  to:\n  \
         - targetRef: {{kind: Mesh}}\n    default: {{http: {{requestTimeout: 7s}}}}\n"
    )
}

/// What the audit log of a control plane says of somebody.
async fn audited(global: &Global, user: &str) -> Vec<Value> {
    let log = global.get(&format!("/audit?user={user}")).await;
    log["items"].as_array().cloned().unwrap_or_default()
}

fn has(log: &[Value], method: &str, path: &str, outcome: &str) -> bool {
    log.iter().any(|one| one["method"] == method && one["path"] == path && one["outcome"] == outcome)
}

/// What everybody is told of the ways to log in.
fn ways(issuer: &str) -> Value {
    json!({ "tokens": true, "openIdConnect": {
        "issuer": issuer, "cliClientId": "strait-cli", "scopes": ["openid", "profile", "email"], "page": true } })
}
