//! The limit of open files: raised as far as the system allows, and divided before it is reached.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files a process may open when the system sets no limit at all.
const UNLIMITED: u64 = 1 << 20;
/// Connections nobody needs more of; a higher limit of open files does not raise it.
const MOST: usize = 65_536;
/// Connections kept for diagnostics.
const DIAGNOSTICS: usize = 128;

/// How the files this process may open are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// What the system allows.
    pub limit: usize,
    /// Connections to diagnostics.
    pub diagnostics: usize,
    /// Connections to all other listeners together.
    pub connections: usize,
}

impl OpenFiles {
    /// Raises the limit of this process to the highest it may set, and divides it. `most` connections are
    /// served at once; 0 leaves it to the limit.
    pub fn raise(most: usize) -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let (soft, hard) = (current.unwrap_or(UNLIMITED), maximum.unwrap_or(UNLIMITED));
        let raised = Rlimit { current: Some(hard), maximum };
        let limit = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => hard,
            Err(error) => {
                tracing::warn!(%error, soft, hard, "cannot raise the limit of open files");
                soft
            }
        };
        let files = Self::divide(usize::try_from(limit).unwrap_or(usize::MAX), most);
        if files.connections < 256 {
            tracing::warn!(
                limit,
                connections = files.connections,
                "few files may be open, so few connections are served: raise the limit (ulimit -n)"
            );
        }
        files
    }

    /// What is left for connections once the database, connections this process opens and diagnostics have
    /// theirs.
    fn divide(limit: usize, most: usize) -> Self {
        let reserve = (limit / 8).clamp(24, 1024);
        let diagnostics = (limit / 8).clamp(4, DIAGNOSTICS);
        let left = limit.saturating_sub(reserve + diagnostics).clamp(4, MOST);
        Self { limit, diagnostics, connections: if most == 0 { left } else { left.min(most) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_away_fits_the_limit() {
        for limit in [64, 256, 1024, 20_000, 1 << 20] {
            let files = OpenFiles::divide(limit, 0);
            let given = files.diagnostics + files.connections;
            assert!(given + 24 <= limit, "{files:?}");
            assert!(given >= limit / 2 || files.connections == MOST, "{files:?}");
        }
        assert_eq!(OpenFiles::divide(20_000, 300).connections, 300);
        assert_eq!(OpenFiles::divide(16, 0).connections, 4, "a hopeless limit still starts");
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let files = OpenFiles::raise(0);
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, Some(maximum.unwrap_or(UNLIMITED)));
        assert!(files.connections > 0);
    }
}
