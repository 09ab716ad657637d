//! What bad input may cost a process: memory, log, and never its life.

use std::fs;

use super::process::Process;

/// Limits for one batch of bad input.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Growth of resident memory, in bytes.
    pub memory: u64,
    /// Bytes of log.
    pub log: usize,
}

/// A process before it is treated badly.
pub struct Before<'a> {
    process: &'a Process,
    memory: u64,
    logged: usize,
}

impl<'a> Before<'a> {
    /// Remembers how it is now.
    pub fn of(process: &'a Process) -> Self {
        Self { process, memory: process.resident(), logged: process.log_bytes() }
    }

    /// What it took, in words; or what it broke.
    pub fn spent(&self, budget: Budget) -> Result<String, String> {
        let name = self.process.name();
        if !is_alive(self.process) {
            return Err(format!("{name} is dead:\n{}", self.process.log()));
        }
        let memory = self.process.resident().saturating_sub(self.memory);
        let log = self.process.log_bytes() - self.logged;
        let said = format!("{name} +{} KiB memory, {} KiB log", memory >> 10, log >> 10);
        if memory > budget.memory || log > budget.log {
            return Err(format!(
                "{said}, and was allowed {} and {} KiB",
                budget.memory >> 10,
                budget.log >> 10
            ));
        }
        Ok(said)
    }
}

/// Whether it runs; one that ended and was not waited for is a zombie.
fn is_alive(process: &Process) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap_or_default();
    // The state stands behind the name, which is in parentheses.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}
