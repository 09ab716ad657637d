//! `straitctl delete`.

use anyhow::{Context, bail};
use clap::Args;
use reqwest::{Method, StatusCode};

use crate::{client::ApiClient, kinds, output, sync::WaitFor};

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
    #[command(flatten)]
    wait: WaitFor,
}

impl Delete {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let kind = kinds::find(&self.r#type)?;
        let title = kinds::title(kind, &self.mesh, &self.name);
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
