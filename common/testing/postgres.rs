//! A private Postgres server from the system's package, for tests: its own folder, its own port, gone
//! with the value.

mod standby;

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Mutex,
};

use tempfile::TempDir;
use thiserror::Error;
use tokio::task::spawn_blocking;

/// Where Debian puts each version.
const PACKAGES: &str = "/usr/lib/postgresql";
/// The account of the package. The server refuses to run as root, so root becomes this one.
const ACCOUNT: &str = "postgres";

/// Why no server runs.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The package is missing.
    #[error("no PostgreSQL server below {PACKAGES}: apt-get install postgresql")]
    Missing,
    /// A tool of the package failed.
    #[error("{tool}: {output}")]
    Tool {
        /// Which tool.
        tool: String,
        /// What it said.
        output: String,
    },
    /// The system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// The cause.
        source: io::Error,
    },
}

/// How to reach one database.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The loopback address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The superuser.
    pub user: String,
    /// Its password; every connection is trusted, so any works.
    pub password: String,
    /// The database, made for this connection.
    pub database: String,
}

impl Connection {
    /// As a URL.
    pub fn url(&self) -> String {
        let Self { host, port, user, password, database } = self;
        format!("postgres://{user}:{password}@{host}:{port}/{database}")
    }
}

/// Where a server writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places<'a> {
    /// Its data goes below this folder instead of the usual one.
    pub data: Option<&'a Path>,
    /// Its journal stays in the usual place when the data goes elsewhere.
    pub journal_apart: bool,
}

/// A running server.
pub struct Cluster {
    binaries: PathBuf,
    folder: TempDir,
    /// Where the journal is, when it is not with the data.
    journal: Option<TempDir>,
    port: u16,
    server: Mutex<Option<Child>>,
}

impl Cluster {
    /// Makes and starts a server.
    ///
    /// # Errors
    /// When the package is missing or its tools fail.
    pub async fn start() -> Result<Self, ClusterError> {
        Self::start_in(Places::default()).await
    }

    /// The same with what it writes in other places.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_in(places: Places<'_>) -> Result<Self, ClusterError> {
        let (data, journal_apart) = (places.data.map(Path::to_owned), places.journal_apart);
        blocking(move || {
            let cluster = Self::create(data.as_deref(), journal_apart)?;
            cluster.serve()?;
            Ok(cluster)
        })
        .await
    }

    /// A folder and a port, with nothing in the one and nobody at the other.
    fn place(binaries: PathBuf, folder: TempDir, journal: Option<TempDir>) -> Result<Self, ClusterError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io_error("find a free port"))?;
        let port = listener.local_addr().map_err(io_error("find a free port"))?.port();
        Ok(Self { binaries, folder, journal, port, server: Mutex::new(None) })
    }

    fn create(data: Option<&Path>, journal_apart: bool) -> Result<Self, ClusterError> {
        let journal = if journal_apart { Some(folder(None)?) } else { None };
        let cluster = Self::place(binaries()?, folder(data)?, journal)?;
        let mut initdb = cluster.tool("initdb")?;
        initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--username", ACCOUNT]);
        // Small, so that a small disk is full soon.
        initdb.arg("--wal-segsize=1");
        if let Some(journal) = &cluster.journal {
            initdb.arg("--waldir").arg(journal.path().join("wal"));
        }
        run(initdb.arg("-D").arg(cluster.data()))?;
        Ok(cluster)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A tool of the package, to run as its account.
    fn tool(&self, name: &str) -> Result<Command, ClusterError> {
        let path = self.binaries.join(name);
        let mut command = if is_root()? {
            let mut command = Command::new("setpriv");
            command.arg("--reuid").arg(ACCOUNT).arg("--regid").arg(ACCOUNT).arg("--init-groups").arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir(self.folder.path());
        Ok(command)
    }

    fn serve(&self) -> Result<(), ClusterError> {
        // Durability across a power cut is not what tests of this kind are about; speed is.
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories={} -c fsync=off \
             -c min_wal_size=2MB",
            self.port,
            self.folder.path().display(),
        );
        let mut start = self.tool("pg_ctl")?;
        start.arg("start").arg("--wait").arg("-D").arg(self.data()).arg("-o").arg(options);
        start.arg("-l").arg(self.folder.path().join("log"));
        run(&mut start).map_err(|error| self.with_log(error))?;
        let mut server = lock(&self.server);
        if server.is_none() {
            *server = Some(self.guard()?);
        }
        Ok(())
    }

    fn with_log(&self, error: ClusterError) -> ClusterError {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        match error {
            ClusterError::Tool { tool, output } => ClusterError::Tool { tool, output: output + &log },
            other => other,
        }
    }

    /// A shell that waits for its input to end, which it does when this process ends however it ends,
    /// and then stops the server and removes its folder.
    fn guard(&self) -> Result<Child, ClusterError> {
        let mut guard = Command::new("sh");
        let script = "read -r stay; test \"$stay\" = stay || { \"$@\"; rm -rf \"$0\"; }";
        guard.current_dir("/").arg("-c").arg(script).arg(self.folder.path());
        let stop = self.stop_command()?;
        guard.arg(stop.get_program()).args(stop.get_args());
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        guard.spawn().map_err(io_error("start the guard of the server"))
    }

    fn stop_command(&self) -> Result<Command, ClusterError> {
        let mut stop = self.tool("pg_ctl")?;
        stop.args(["stop", "--wait", "-m", "immediate", "-D"]).arg(self.data());
        Ok(stop)
    }

    fn halt(&self) -> Result<(), ClusterError> {
        let Some(mut guard) = lock(&self.server).take() else { return Ok(()) };
        run(&mut self.stop_command()?)?;
        if let Some(mut input) = guard.stdin.take() {
            // The guard may be gone already, which is as good.
            let _ = io::Write::write_all(&mut input, b"stay\n");
        }
        guard.wait().map_err(io_error("wait for the guard of the server"))?;
        Ok(())
    }

    /// Kills the server as a crash would: connections break, what was not committed is gone.
    ///
    /// # Errors
    /// When the tools fail.
    pub fn stop(&self) -> Result<(), ClusterError> {
        self.halt()
    }

    /// Starts the server again, on the same port.
    ///
    /// # Errors
    /// When the tools fail.
    pub fn start_again(&self) -> Result<(), ClusterError> {
        self.serve()
    }

    /// Starts the server again if it ended by itself.
    ///
    /// # Errors
    /// When the tools fail, also because it is just about to end.
    pub fn revive(&self) -> Result<(), ClusterError> {
        let mut status = self.tool("pg_ctl")?;
        if run(status.arg("status").arg("-D").arg(self.data())).is_ok() {
            return Ok(());
        }
        self.serve()
    }

    /// Kills every process of the server at once, with SIGKILL: nothing of it can do anything any more.
    ///
    /// # Errors
    /// When there is no server, or the tools fail.
    pub fn crash(&self) -> Result<(), ClusterError> {
        let pids = std::fs::read_to_string(self.data().join("postmaster.pid"));
        let pids = pids.map_err(io_error("read who the server is"))?;
        let server = pids.lines().next().unwrap_or_default();
        // One that ended meanwhile is as good as killed.
        let script = "all=\"$0 $(pgrep -P \"$0\")\"; kill -KILL $all || true";
        run(Command::new("sh").args(["-c", script, server]))?;
        Ok(())
    }

    /// Sends a signal, by name, to every process of the server.
    ///
    /// # Errors
    /// When there is no server, or the tools fail.
    pub fn signal(&self, signal: &str) -> Result<(), ClusterError> {
        let pids = std::fs::read_to_string(self.data().join("postmaster.pid"));
        let pids = pids.map_err(io_error("read who the server is"))?;
        let server = pids.lines().next().unwrap_or_default();
        let signal = format!("-{signal}");
        run(Command::new("kill").args([&signal, server]))?;
        run(Command::new("pkill").args([&signal, "-P", server]))?;
        Ok(())
    }

    /// Where it listens, at the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes the database when it is not there and says how to reach it.
    pub fn connection(&self, database: &str) -> Connection {
        let create = self.tool("createdb").and_then(|mut create| {
            let port = self.port.to_string();
            run(create.args(["-h", "127.0.0.1", "-p", &port, "-U", ACCOUNT, database]))
        });
        if let Err(ClusterError::Tool { output, .. }) = &create
            && !output.contains("already exists")
        {
            panic!("createdb {database}: {output}");
        }
        Connection {
            host: Ipv4Addr::LOCALHOST.to_string(),
            port: self.port,
            user: ACCOUNT.to_owned(),
            password: "any".to_owned(),
            database: database.to_owned(),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.halt() {
            tracing::warn!(%error, "cannot stop the test server");
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ClusterError> + Send + 'static,
) -> Result<T, ClusterError> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| io_error("start the server")(io::Error::other(error)))?
}

fn lock(server: &Mutex<Option<Child>>) -> std::sync::MutexGuard<'_, Option<Child>> {
    server.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A folder of the account of the server, below the usual one or below this.
fn folder(below: Option<&Path>) -> Result<TempDir, ClusterError> {
    let mut builder = tempfile::Builder::new();
    let made = match below {
        Some(below) => builder.prefix("pg-").tempdir_in(below),
        None => builder.prefix("pg-").tempdir(),
    };
    let folder = made.map_err(io_error("make a folder"))?;
    if is_root()? {
        run(Command::new("chown").arg(ACCOUNT).arg(folder.path()))?;
    }
    Ok(folder)
}

/// The newest version installed.
fn binaries() -> Result<PathBuf, ClusterError> {
    let versions = std::fs::read_dir(PACKAGES).map_err(|_| ClusterError::Missing)?;
    let number = |path: &Path| path.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<u32>().ok());
    let newest = versions
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.join("bin/postgres").exists())
        .max_by_key(|path| number(path));
    Ok(newest.ok_or(ClusterError::Missing)?.join("bin"))
}

fn is_root() -> Result<bool, ClusterError> {
    let output = run(Command::new("id").arg("-u"))?;
    Ok(output.stdout.trim_ascii() == b"0")
}

fn run(command: &mut Command) -> Result<Output, ClusterError> {
    let tool = command.get_program().display().to_string();
    // `pg_ctl` leaves the server behind, which must not keep a pipe of ours open.
    let output = match command.get_args().any(|a| a == "start") {
        true => {
            let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.map(|status| Output { status, stdout: Vec::new(), stderr: Vec::new() })
        }
        false => command.stdin(Stdio::null()).output(),
    };
    let output = output.map_err(io_error(&format!("run {tool}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    Err(ClusterError::Tool { tool, output: String::from_utf8_lossy(&said).trim().to_owned() })
}

fn io_error(doing: &str) -> impl FnOnce(io::Error) -> ClusterError {
    let doing = doing.to_owned();
    move |source| ClusterError::Io { doing, source }
}
