//! `straitctl auth`: who the control plane takes one for, and what one may do there.

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{
    client::ApiClient,
    kinds,
    output::{self, Output},
};

#[derive(Args)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    action: AuthAction,
}

#[derive(Subcommand)]
enum AuthAction {
    /// Says whether something is allowed, and if not, why; ends with code 1 then
    CanI(CanI),
    /// Shows name and groups of the one whose token is sent
    Whoami {
        /// Form of the answer
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
}

#[derive(Args)]
struct CanI {
    /// What: read, write, delete, view-secrets, tokens, generate-dataplane-token, generate-zone-token,
    /// generate-user-token, config-dump, view-config-dump, view-stats, view-clusters, settings, audit, backup, operate,
    /// admin, view-history
    verb: String,
    /// To this type
    r#type: Option<String>,
    /// To the resource of this name
    name: Option<String>,
    /// In this mesh
    #[arg(short, long, default_value = "default")]
    mesh: String,
    /// In this zone, or a token of it
    #[arg(short, long)]
    zone: Option<String>,
    /// For a token of a zone with these scopes
    #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
    scope: Vec<String>,
    /// For this user, if you are an administrator
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// As a member of these groups
    #[arg(long, value_name = "GROUPS", value_delimiter = ',', requires = "user")]
    as_groups: Vec<String>,
}

impl AuthArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        match self.action {
            AuthAction::CanI(asked) => asked.run(client).await,
            AuthAction::Whoami { output } => {
                let who: Value = client.get("/who-am-i").await?;
                output.print(&who, || {
                    let groups = who["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
                    let groups: Vec<&str> = groups.collect();
                    output::line(&format!("{} ({})", who["name"].as_str().unwrap_or("-"), groups.join(", ")));
                })
            }
        }
    }
}

impl CanI {
    async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let mut query = vec![("verb", self.verb), ("mesh", self.mesh)];
        if let Some(word) = &self.r#type {
            query.push(("kind", kinds::find(word)?.name.to_owned()));
        }
        query.extend(self.name.map(|name| ("name", name)));
        query.extend(self.zone.map(|zone| ("zone", zone)));
        if !self.scope.is_empty() {
            query.push(("scope", self.scope.join(",")));
        }
        query.extend(self.user.map(|user| ("user", user)));
        if !self.as_groups.is_empty() {
            query.push(("groups", self.as_groups.join(",")));
        }
        let answer: Value = client.get(&format!("/access/can-i{}", kinds::query(&query))).await?;
        if answer["allowed"] == true {
            output::line("yes");
            return Ok(());
        }
        output::line("no");
        bail!("{}", answer["reason"].as_str().unwrap_or("it is not allowed"))
    }
}
