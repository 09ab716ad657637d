//! A Debian that boots beside this machine: a folder, a systemd in it, and a network of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use common::testing::needs;
use tempfile::TempDir;

use crate::harness::{eventually, process::Process};

/// Where what the test needs there lies.
pub const DESK: &str = "/root";

/// It ends with this value.
pub struct BootedDebian {
    machine: Process,
    /// Its first process, as this machine counts.
    init: u32,
    folder: TempDir,
}

impl BootedDebian {
    /// A copy of the one at `origin`, up and running. Nothing where that cannot be had, which it says: none of what is
    /// tested has a part in this.
    pub async fn boot(origin: &Path) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let root = folder.path().join("root");
        let copied = Command::new("cp").args(["-a", "--reflink=auto"]).arg(origin).arg(&root).status();
        assert!(copied.unwrap().success(), "a copy of {}", origin.display());
        let args = [
            "--quiet",
            "--directory",
            &root.display().to_string(),
            "--machine",
            &format!("strait-{}", std::process::id()),
            "--hostname=machine",
            // As its own, without asking a systemd of this machine.
            "--register=no",
            "--keep-unit",
            "--private-network",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--boot",
        ]
        .map(str::to_owned);
        let mut machine = Process::start("machine", Path::new("systemd-nspawn"), &args);
        let up = eventually("the machine is up", || {
            let init = first_child(machine.id());
            let state = init.map(|init| inside(init, "systemctl is-system-running"));
            let ended = !machine.runs();
            async move {
                match state {
                    _ if ended => Ok(None),
                    // Something of Debian's own may not work in here.
                    Some((_, out, _)) if ["running", "degraded"].contains(&out.trim()) => Ok(init),
                    other => Err(format!("{other:?}")),
                }
            }
        })
        .await;
        let Some(init) = up else {
            needs::left_out(&format!("no Debian boots here, so no package is installed: {}", machine.log()));
            return None;
        };
        let booted = Self { machine, init, folder };
        // What every machine has, and a bare Debian lacks.
        fs::write(booted.path("/etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        Some(booted)
    }

    /// Where a file there is on this machine.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join("root").join(inside.trim_start_matches('/'))
    }

    /// Runs a line of shell there, as root. Gives success, standard output, standard error.
    pub fn try_run(&self, line: &str) -> (bool, String, String) {
        inside(self.init, line)
    }

    /// The same, and panics when it fails. Gives its standard output.
    pub fn run(&self, line: &str) -> String {
        let (ok, out, err) = self.try_run(line);
        assert!(ok, "{line}:\n{out}\n{err}\n{}", self.journal());
        out
    }

    /// The same, and panics when it complains too.
    pub fn run_silently(&self, line: &str) -> String {
        let (ok, out, err) = self.try_run(line);
        assert!(ok && err.is_empty(), "{line}:\n{out}\n{err}");
        out
    }

    fn journal(&self) -> String {
        self.try_run("journalctl --no-pager -n 60 -u 'strait*'").1
    }

    /// Ends it in order, so that it leaves nothing on this machine.
    pub async fn power_off(mut self) {
        let _goes_down_meanwhile = self.try_run("systemctl poweroff");
        self.machine.ended().await;
    }
}

/// What systemd-nspawn started, once that is the systemd there.
fn first_child(parent: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let child: u32 = children.split_whitespace().next()?.parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
    (name.trim() == "systemd").then_some(child)
}

fn inside(init: u32, line: &str) -> (bool, String, String) {
    let output = Command::new("nsenter")
        .args([
            "--all",
            "--target",
            &init.to_string(),
            "/bin/bash",
            "-c",
            &format!("cd {DESK} && {{ {line}\n}}"),
        ])
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .expect("nsenter runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}
