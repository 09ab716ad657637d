//! One child process.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use super::wait;

/// Lines of output kept for the report of a failed test.
const KEPT: usize = 400;

/// A child process that ends with this value.
pub struct Process {
    name: String,
    child: Child,
    log: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Process {
    /// Starts `program`.
    pub fn start<A: AsRef<OsStr>>(name: &str, program: &Path, args: impl IntoIterator<Item = A>) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("start {}: {e}", program.display()));
        let log = Arc::default();
        let stdout = follow(child.stdout.take().expect("stdout is piped"), &log);
        let stderr = follow(child.stderr.take().expect("stderr is piped"), &log);
        Self { name: name.to_owned(), child, log, readers: vec![stdout, stderr] }
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

    /// Its output so far.
    pub fn log(&self) -> String {
        let lines = self.log.lock().expect("no reader panics");
        lines.iter().cloned().collect::<Vec<_>>().join("\n")
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

fn follow(output: impl Read + Send + 'static, log: &Arc<Mutex<VecDeque<String>>>) -> thread::JoinHandle<()> {
    let log = Arc::clone(log);
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let mut lines = log.lock().expect("no reader panics");
            if lines.len() == KEPT {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    })
}
