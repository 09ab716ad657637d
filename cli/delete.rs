//! `straitctl delete`.

use anyhow::{Context, bail};
use clap::Args;
use reqwest::{Method, StatusCode};

use crate::{client::Client, kinds, output};

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
}

impl Delete {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let kind = kinds::find(&self.r#type)?;
        let title = kinds::title(kind, &self.mesh, &self.name);
        let path = kinds::item(kind, &self.mesh, &self.name);
        let answer = client.send(Method::DELETE, &path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            bail!("there is no {title}; `straitctl get {}` lists what there is", kind.path);
        }
        answer.success().with_context(|| title.clone())?;
        output::line(&format!("{title} deleted"));
        Ok(())
    }
}
