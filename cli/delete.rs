//! `straitctl delete`.

use anyhow::{Context, bail};
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::{client::ApiClient, kinds, output, rollout::Begin, sync::WaitFor};

#[derive(Args)]
#[command(after_help = kinds::help())]
pub(crate) struct Delete {
    /// Type: argument, path, type name or short name
    r#type: String,
    /// Name
    name: String,
    /// Mesh
    #[arg(short, long, default_value = "default")]
    mesh: String,
    /// Delete it in the waves of this rollout
    #[arg(long, value_name = "NAME")]
    rollout: Option<String>,
    #[command(flatten)]
    wait: WaitFor,
}

impl Delete {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let kind = kinds::find(&self.r#type)?;
        let title = kinds::title(kind, &self.mesh, &self.name);
        if let Some(rollout) = &self.rollout {
            let mesh = if kind.is_mesh_scoped() { self.mesh.as_str() } else { "" };
            let deletes = vec![json!({ "type": kind.name, "mesh": mesh, "name": self.name })];
            let begin = Begin { rollout, resources: Vec::new(), deletes, dry_run: false };
            return begin.run(client, &self.wait).await;
        }
        let path = kinds::item(kind, &self.mesh, &self.name);
        let answer = client.send(Method::DELETE, &path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            bail!("there is no {title}; `straitctl get {}` lists what there is", kind.path);
        }
        let revision = answer.success().with_context(|| title.clone())?.revision;
        let done = format!("{title} deleted");
        output::line(&done);
        self.wait.wait(client, revision, &done).await
    }
}
