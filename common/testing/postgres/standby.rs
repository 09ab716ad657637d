//! A second server that takes over from the first, and connections that the server ends.

use std::{process::Command, time::Duration};

use tokio::time::{Instant, sleep};

use super::{ACCOUNT, Cluster, ClusterError, blocking, folder, run};

/// How long a standby may take to follow.
const PATIENCE: Duration = Duration::from_secs(30);

impl Cluster {
    /// A server that follows this one and has every commit before that is answered, so that it may take over.
    ///
    /// # Errors
    /// When the tools fail.
    pub async fn standby(&self) -> Result<Self, ClusterError> {
        let (binaries, port) = (self.binaries.clone(), self.port.to_string());
        let standby = blocking(move || {
            let standby = Self::place(binaries, folder(None)?, None)?;
            let mut copy = standby.tool("pg_basebackup")?;
            copy.args([
                "-h",
                "127.0.0.1",
                "-p",
                &port,
                "-U",
                ACCOUNT,
                "--checkpoint=fast",
                "-X",
                "stream",
                "-R",
            ]);
            // What it has not got yet stays, however much is written.
            copy.args(["--create-slot", "--slot", "standby"]);
            run(copy.arg("--no-sync").arg("-D").arg(standby.data()))?;
            standby.serve()?;
            Ok(standby)
        })
        .await?;
        // From now on a commit waits for it. One that is promoted waits for nobody.
        run(self.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")?.arg("--quiet"))?;
        run(self.tool("pg_ctl")?.arg("reload").arg("-D").arg(self.data()))?;
        let followed = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let patience = Instant::now() + PATIENCE;
        loop {
            let asked = run(self.ask(followed)?.args(["--tuples-only", "--no-align"]))?;
            if asked.stdout.trim_ascii() == b"1" {
                return Ok(standby);
            }
            if Instant::now() > patience {
                let output = "no standby has followed".to_owned();
                return Err(ClusterError::Tool { tool: "pg_stat_replication".to_owned(), output });
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Lets a standby take over.
    ///
    /// # Errors
    /// When the tools fail.
    pub fn promote(&self) -> Result<(), ClusterError> {
        run(self.tool("pg_ctl")?.args(["promote", "--wait", "-D"]).arg(self.data()))?;
        Ok(())
    }

    /// Ends every connection of a client, as an administrator does.
    ///
    /// # Errors
    /// When the tools fail.
    pub fn end_connections(&self) -> Result<(), ClusterError> {
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                      WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        run(self.ask(others)?.arg("--quiet"))?;
        Ok(())
    }

    fn ask(&self, statement: &str) -> Result<Command, ClusterError> {
        let mut psql = self.tool("psql")?;
        psql.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", ACCOUNT, "-c", statement]);
        Ok(psql)
    }
}
