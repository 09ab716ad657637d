//! One child process.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{panics, wait};

/// Lines of output in the report of a failed test.
const REPORTED: usize = 400;

/// A child process that ends with this value.
pub struct Process {
    name: String,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    written: Arc<AtomicUsize>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Process {
    /// Starts `program`.
    pub fn start<A: AsRef<OsStr>>(name: &str, program: &Path, args: impl IntoIterator<Item = A>) -> Self {
        Self::start_in(name, program, args, &[])
    }

    /// Starts `program` with more variables in its environment.
    pub fn start_in<A: AsRef<OsStr>>(
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = A>,
        environment: &[(String, String)],
    ) -> Self {
        panics::are_told_at_once();
        let mut child = Command::new(program)
            .args(args)
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("start {}: {e}", program.display()));
        let (log, written) = (Arc::default(), Arc::default());
        let stdout = follow(child.stdout.take().expect("stdout is piped"), &log, &written);
        let stderr = follow(child.stderr.take().expect("stderr is piped"), &log, &written);
        Self { name: name.to_owned(), child, log, written, readers: vec![stdout, stderr] }
    }

    /// SIGKILL: no goodbye.
    pub fn kill(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// SIGTERM, and waits for the end.
    pub async fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }

    /// Its number. What starts it replaces itself by it, so this is also the number of what was asked for.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|s| s.success()), "signal {} with {signal}", self.name);
    }

    /// Waits for the end, and for the last of its output.
    pub async fn ended(&mut self) -> ExitStatus {
        let name = self.name.clone();
        let child = &mut self.child;
        let status = wait::eventually(&format!("end of {name}"), || {
            let status = child.try_wait().expect("a child can be waited for");
            async move { status.ok_or("still running") }
        })
        .await;
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader does not panic");
        }
        status
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Memory it has in use, in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a process has a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a running process");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        kib * 1024
    }

    /// What it is called in a report.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of output it has written so far.
    pub fn log_bytes(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// The end of its output so far.
    pub fn log(&self) -> String {
        let lines = self.log.lock().expect("no reader panics");
        lines[lines.len().saturating_sub(REPORTED)..].join("\n")
    }

    /// All of its output so far.
    pub fn whole_log(&self) -> String {
        self.log.lock().expect("no reader panics").join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("--- log of {} ---\n{}\n", self.name, self.log());
        }
    }
}

fn follow(
    output: impl Read + Send + 'static,
    log: &Arc<Mutex<Vec<String>>>,
    written: &Arc<AtomicUsize>,
) -> thread::JoinHandle<()> {
    let (log, written) = (Arc::clone(log), Arc::clone(written));
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            written.fetch_add(line.len() + 1, Ordering::Relaxed);
            log.lock().expect("no reader panics").push(line);
        }
    })
}
