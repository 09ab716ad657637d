//! What this process uses, as the system tells.

use std::fs;

use chrono::{DateTime, Utc};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

use super::Samples;

/// What this process uses.
pub(crate) struct ProcessUse {
    started: DateTime<Utc>,
}

impl ProcessUse {
    /// Of the process that started at `started`.
    pub(crate) fn since(started: DateTime<Utc>) -> Self {
        Self { started }
    }

    /// Looks. What the system does not tell is left out.
    // Whole numbers that a float cannot tell apart are nothing anybody would want to tell apart here.
    #[expect(clippy::cast_precision_loss)]
    pub(crate) fn sample(&self, samples: &mut Samples) {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        samples.add("process_cpu_seconds_total", &[], cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
        samples.add("process_start_time_seconds", &[], self.started.timestamp_millis() as f64 / 1e3);
        if let Some(most) = getrlimit(Resource::Nofile).current {
            samples.add("process_max_fds", &[], most as f64);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them reads the folder.
            samples.add("process_open_fds", &[], open.count().saturating_sub(1) as f64);
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let told = |what: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        if let Some(kibibytes) = told("VmRSS") {
            samples.add("process_resident_memory_bytes", &[], kibibytes * 1024.0);
        }
        if let Some(kibibytes) = told("VmSize") {
            samples.add("process_virtual_memory_bytes", &[], kibibytes * 1024.0);
        }
        if let Some(threads) = told("Threads") {
            samples.add("process_threads", &[], threads);
        }
    }
}
