//! What another process uses, from `/proc`.

use std::{fs, time::Duration};

/// Processor time the threads of a process have used so far.
pub fn processor(pid: u32) -> Option<Duration> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut nanos = 0;
    for task in tasks.flatten() {
        // In nanoseconds, where `stat` counts hundredths of a second.
        let Ok(line) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        nanos += line.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
