//! Keeps the token of the administrator in the work folder: who reads the files of this process may
//! administrate it, and nobody because of an address.

use std::{collections::BTreeSet, path::Path, time::Duration};

use thiserror::Error;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{
    access::User,
    events::{Event, Subscriber},
    runtime::Env,
    store::index::IndexReader,
    token::{self, AdminClaims, AdminFileError, AdminTokenFile, Purpose, TokenError},
};

/// How often the file is looked at: somebody may delete it.
const LOOK: Duration = Duration::from_secs(5);

/// Why there is no good token in the file.
#[derive(Debug, Error)]
enum AdminTokenError {
    /// None can be made.
    #[error("{0}. A control plane without a key for user tokens makes one when it starts")]
    Token(#[from] TokenError),
    /// It cannot be written.
    #[error("{0}. Let this process write in general.workDir; it tries again until it can")]
    File(#[from] AdminFileError),
}

/// The file, and what belongs into it.
pub(super) struct AdminToken {
    file: AdminTokenFile,
    claims: AdminClaims,
    index: IndexReader,
    env: Env,
    /// The last trouble, which is told once.
    told: Option<String>,
}

impl AdminToken {
    /// The token of the administrator of an API that listens on these ports.
    pub(super) fn new(work_dir: &Path, ports: BTreeSet<u16>, index: IndexReader, env: Env) -> Self {
        let User { name, .. } = User::admin();
        let claims = AdminClaims { groups: vec![name.clone()], name, ports };
        Self { file: AdminTokenFile::in_folder(work_dir), claims, index, env, told: None }
    }

    /// Removes the token of a former start, when none is wanted any more.
    pub(super) fn forget(work_dir: &Path) {
        if let Err(error) = AdminTokenFile::in_folder(work_dir).remove() {
            tracing::error!(%error, "the token of the administrator is still there");
        }
    }

    /// Looks at the file now and then, and whenever the keys or the revoked tokens change.
    pub(super) async fn run(
        mut self,
        mut events: Subscriber,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                _ = look.tick() => {}
                event = events.next() => if event.is_ok_and(|event| !concerns(&event)) { continue },
            }
            // A disk may take its time.
            self = tokio::task::spawn_blocking(move || {
                self.look();
                self
            })
            .await?;
        }
    }

    /// Writes the token unless a good one is there.
    pub(super) fn look(&mut self) {
        let file = self.file.path().display();
        match self.keep() {
            Ok(None) => self.told = None,
            Ok(Some(reason)) => {
                self.told = None;
                tracing::info!(%file, reason, "wrote a token of the administrator");
            }
            Err(error) => {
                let trouble = error.to_string();
                if self.told.as_ref() != Some(&trouble) {
                    tracing::error!(%error, "there is no token of the administrator");
                    self.told = Some(trouble);
                }
            }
        }
    }

    /// Why the token was written, if it was.
    fn keep(&self) -> Result<Option<String>, AdminTokenError> {
        let index = self.index.current();
        let reason = match self.file.read() {
            Ok(token) => token::outdated(&index, &token, &self.claims, self.env.now()),
            Err(error) => {
                if matches!(error, AdminFileError::Mode { .. }) {
                    tracing::warn!(
                        "{error}; whoever copied that token is administrator until it runs out, or until the global \
                         secrets user-token-signing-key-<n> it may be signed with are replaced"
                    );
                }
                Some(error.to_string())
            }
        };
        if reason.is_some() {
            self.file.write(&token::issue_admin(&index, &self.claims, &self.env)?)?;
        }
        Ok(reason)
    }
}

/// Whether a token may be good no longer after this.
fn concerns(event: &Event) -> bool {
    match event {
        Event::ResourcesChanged(changes) => {
            changes.iter().any(|change| Purpose::User.depends_on(&change.key))
        }
        Event::IndexReplaced { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
