//! The lines of the audit log: in a file that is begun anew when it has become long, or on standard output.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use thiserror::Error;
use tokio::sync::mpsc;

use super::{AuditEntry, QUEUE_OF_USER, WaitingLines};

/// In place of a file.
pub(super) const STDOUT: &str = "stdout";
/// Files that are kept beside the one that is written.
const OLDER: u32 = 4;
/// Lines that are written together.
const TOGETHER: usize = 256;

/// Why the file cannot be used.
#[derive(Debug, Error)]
#[error("write the audit log to {} (setting apiServer.audit.file): {source}", path.display())]
pub struct AuditFileError {
    path: PathBuf,
    source: io::Error,
}

/// A line that waits to be written.
#[derive(Debug)]
pub(super) struct AuditLine {
    text: String,
    whose: String,
    waiting: Arc<WaitingLines>,
}

impl AuditLine {
    /// One of these, unless too many of the same wait.
    pub(super) fn new(text: String, whose: &str, waiting: &Arc<WaitingLines>) -> Option<Self> {
        let mut lines = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = lines.entry(whose.to_owned()).or_default();
        if *count >= QUEUE_OF_USER {
            return None;
        }
        *count += 1;
        Some(Self { text, whose: whose.to_owned(), waiting: Arc::clone(waiting) })
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        let mut lines = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = lines.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                lines.remove(&self.whose);
            }
        }
    }
}

/// Where lines go.
pub struct AuditFile {
    target: AuditTarget,
    waiting: mpsc::Receiver<AuditLine>,
}

enum AuditTarget {
    Stdout,
    File { path: PathBuf, longest: u64, open: Option<(File, u64)> },
}

impl AuditFile {
    pub(super) fn open(
        target: &str,
        longest: u64,
        waiting: mpsc::Receiver<AuditLine>,
    ) -> Result<Self, AuditFileError> {
        if target == STDOUT {
            return Ok(Self { target: AuditTarget::Stdout, waiting });
        }
        let path = PathBuf::from(target);
        let open = open(&path).map_err(|source| AuditFileError { path: path.clone(), source })?;
        Ok(Self { target: AuditTarget::File { path, longest, open: Some(open) }, waiting })
    }

    /// Writes what comes until nobody is left who asks: what is answered while the process stops is written as well.
    /// A disk that fails holds nobody up.
    ///
    /// # Errors
    /// When the process has no threads left.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self { mut target, mut waiting } = self;
        loop {
            let mut lines = Vec::new();
            if waiting.recv_many(&mut lines, TOGETHER).await == 0 {
                return Ok(());
            }
            let written = tokio::task::spawn_blocking(move || {
                let outcome = target.write(&lines);
                (target, lines.len(), outcome)
            });
            let (back, lines, outcome) = written.await?;
            target = back;
            if let Err(error) = outcome {
                metrics::counter!("audit_lines_lost_total").increment(lines as u64);
                tracing::warn!(%error, lines, "entries of the audit log were not written");
            }
        }
    }
}

impl AuditTarget {
    fn write(&mut self, lines: &[AuditLine]) -> io::Result<()> {
        let mut text = String::with_capacity(lines.iter().map(|line| line.text.len() + 1).sum());
        for line in lines {
            text.push_str(&line.text);
            text.push('\n');
        }
        match self {
            Self::Stdout => io::stdout().lock().write_all(text.as_bytes()),
            Self::File { path, longest, open: current } => {
                // One that failed is not trusted again: a line may stand there in part.
                let (mut file, mut length) = match current.take() {
                    Some(current) => current,
                    None => open(path)?,
                };
                if length > 0 && length + text.len() as u64 > *longest {
                    file.sync_all()?;
                    shift(path)?;
                    (file, length) = open(path)?;
                }
                file.write_all(text.as_bytes())?;
                *current = Some((file, length + text.len() as u64));
                Ok(())
            }
        }
    }
}

/// For the account of the process only.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn older(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    PathBuf::from(name)
}

/// Each file takes the name of the next older one; the oldest goes.
fn shift(path: &Path) -> io::Result<()> {
    for n in (1..OLDER).rev() {
        match fs::rename(older(path, n), older(path, n + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, older(path, 1))
}

/// What the files hold, oldest first. What is no entry is passed over: a crash leaves part of a line.
pub(super) fn entries(path: &Path) -> Vec<AuditEntry> {
    let mut found = Vec::new();
    for path in [older(path, 1), path.to_owned()] {
        let Ok(file) = File::open(path) else { continue };
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        found.extend(lines.filter_map(|line| serde_json::from_str::<AuditEntry>(&line).ok()));
    }
    found
}
