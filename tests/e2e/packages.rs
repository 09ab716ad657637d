//! The package for Debian, on a Debian: installed, started by its units under a real systemd, upgraded and removed. It
//! holds the programs of this build, as `make dist` packs others. A second machine takes rights that not everybody has;
//! without them this says so and looks at nothing.

mod booted;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use common::testing::needs;
use serde_json::Value;
use tempfile::TempDir;

use self::booted::{BootedDebian, DESK};
use crate::harness::eventually;

const PROGRAMS: [&str; 4] = ["strait-global", "strait-relay", "strait-zone", "straitctl"];
const UNITS: [&str; 3] = ["strait-global.service", "strait-relay@west.service", "strait-zone@east.service"];
/// What `systemd-analyze security` may say of a unit at most, in tenths: 10 is safe, 100 is not.
const EXPOSURE: &str = "15";
/// What a machine writes by itself, whatever is installed.
const OF_THE_MACHINE: [&str; 7] = [
    "/etc/.pwd.lock",
    "/var/cache/man",
    "/var/cache/ldconfig",
    "/var/lib/dpkg",
    "/var/lib/systemd",
    "/var/log",
    "/var/tmp",
];
const POLICY: &str = "
type: MeshTimeout
name: patient
mesh: default
spec: { targetRef: { kind: Mesh }, to: [ { targetRef: { kind: Mesh }, default: { connectionTimeout: 7s } } ] }
";

/// The programs of this build, without what only a debugger reads.
fn programs() -> TempDir {
    let folder = TempDir::new().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_straitctl")).parent().unwrap();
    for name in PROGRAMS {
        let to = folder.path().join(name);
        let stripped = Command::new("strip").arg("-o").arg(&to).arg(built.join(name)).status();
        assert!(stripped.unwrap().success(), "strip {name}");
    }
    folder
}

/// Packs them as `version`. Gives where.
fn pack(programs: &Path, version: &str, more: &[(&str, &str)]) -> TempDir {
    let out = TempDir::new().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/pack.sh");
    let packed = Command::new(script)
        .args([programs, out.path()])
        .envs([("VERSION", version), ("COMPRESS", "no"), ("SOURCE_DATE_EPOCH", "1767225600")])
        .envs(more.iter().copied())
        .output()
        .unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    out
}

/// The file in `folder` with this extension.
fn only(folder: &Path, extension: &str) -> PathBuf {
    let mut all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.find(|path| path.extension().is_some_and(|e| e == extension)).expect("there is one")
}

#[tokio::test]
async fn a_package_is_installed_run_upgraded_and_removed() {
    let Some(debian) = needs::debian() else { return };
    let programs = programs();
    let first = pack(programs.path(), "1.0.0", &[]);
    let again = pack(programs.path(), "1.0.0", &[("TZ", "Asia/Tokyo"), ("LANG", "tr_TR.UTF-8")]);
    let sums = |packed: &TempDir| fs::read_to_string(packed.path().join("SHA256SUMS")).unwrap();
    assert_eq!(sums(&first), sums(&again), "the same programs give the same packages");
    let second = pack(programs.path(), "1.0.1", &[]);
    lists_what_it_is_made_of(first.path());

    let Some(machine) = BootedDebian::boot(&debian).await else { return };
    for packed in [&first, &second] {
        let deb = only(packed.path(), "deb");
        fs::copy(&deb, machine.path(DESK).join(deb.file_name().unwrap())).unwrap();
    }
    let before = files(&machine);
    let accounts = machine.run("cat /etc/passwd /etc/group");

    let said = machine.run("dpkg --install strait_1.0.0_*.deb");
    assert!(
        said.contains("nothing runs yet") && said.contains("systemctl enable --now strait-global"),
        "{said}"
    );
    is_as_packed(&machine);
    global_runs(&machine).await;
    below_it_run(&machine, &ZONE);
    below_it_run(&machine, &RELAY);
    sees_its_own_state_only(&machine);
    machine.run(&format!("{GLOBAL} wait zones --online 1"));
    fs::write(machine.path(DESK).join("policy.yaml"), POLICY).unwrap();
    machine.run(&format!("cat policy.yaml | {GLOBAL} apply --wait -f -"));
    zone_has_the_policy(&machine);

    let pids = UNITS.map(|unit| pid(&machine, unit));
    machine.run("dpkg --install strait_1.0.1_*.deb");
    for (unit, before) in UNITS.iter().zip(pids) {
        assert_ne!(pid(&machine, unit), before, "{unit} runs the new program");
    }
    machine.run("tail -n1 /etc/strait/global.yaml | grep -Fx '# kept'");
    eventually("the zone is back", || {
        let (ok, _, err) = machine.try_run(&format!("{GLOBAL} wait zones --online 1"));
        async move { if ok { Ok(()) } else { Err(err) } }
    })
    .await;
    zone_has_the_policy(&machine);

    machine.run("dpkg --remove strait");
    for unit in UNITS {
        assert!(
            !machine.try_run(&format!("systemctl is-active {unit}")).0,
            "{unit} runs without its program"
        );
    }
    machine.run("test -s /var/lib/strait/global/strait.db && test -s /etc/strait/global.yaml");
    machine.run("dpkg --purge strait");
    // Who wrote it takes it away.
    machine.run("rm -r /etc/systemd/system/strait-zone@.service.d");
    let left: Vec<_> = files(&machine).difference(&before).cloned().collect();
    assert_eq!(left, Vec::<String>::new(), "purging leaves nothing");
    assert_eq!(machine.run("cat /etc/passwd /etc/group"), accounts);
    machine.power_off().await;
}

/// The SBOM beside the packages, against what is known to be in there and what only tests use.
fn lists_what_it_is_made_of(packed: &Path) {
    let bill: Value = serde_json::from_slice(&fs::read(only(packed, "json")).unwrap()).unwrap();
    let listed = bill["components"].as_array().unwrap();
    let names: BTreeSet<_> = listed.iter().map(|part| part["name"].as_str().unwrap()).collect();
    for linked in ["aws-lc-sys", "global", "libsqlite3-sys", "ring", "tokio", "zone"] {
        assert!(names.contains(linked), "{linked}");
    }
    for other in ["load", "proptest", "protox", "serde_derive", "turmoil"] {
        assert!(!names.contains(other), "{other}");
    }
    for part in listed {
        let ours = ["common", "global", "zone"].contains(&part["name"].as_str().unwrap());
        assert!(ours || part["hashes"][0]["content"].is_string(), "{part}");
        assert!(part["licenses"][0]["expression"].is_string(), "{part}");
    }
    let programs = bill["metadata"]["component"]["components"].as_array().unwrap();
    let programs: Vec<_> = programs.iter().map(|program| program["name"].as_str().unwrap()).collect();
    assert_eq!(programs, PROGRAMS);
}

/// Everything there that stays, but for what every machine writes.
fn files(machine: &BootedDebian) -> BTreeSet<String> {
    let all = machine.run("find / -xdev -not -path '/root/*'");
    let kept = |path: &&str| !OF_THE_MACHINE.iter().any(|folder| path.starts_with(folder));
    all.lines().filter(kept).map(str::to_owned).collect()
}

/// Nothing runs, and what was installed is sound.
fn is_as_packed(machine: &BootedDebian) {
    assert_eq!(machine.run("dpkg --verify strait"), "");
    for unit in UNITS {
        assert_eq!(machine.try_run(&format!("systemctl is-enabled {unit}")).1.trim(), "disabled", "{unit}");
        assert_eq!(machine.try_run(&format!("systemctl is-active {unit}")).1.trim(), "inactive", "{unit}");
        machine.run_silently(&format!("systemd-analyze verify {unit}"));
        machine.run(&format!("systemd-analyze security --offline=yes --threshold={EXPOSURE} {unit}"));
    }
    machine.run_silently("cd /usr/share/man/man1 && man --warnings --local-file strait*.gz >/dev/null");
    for name in PROGRAMS {
        machine.run(&format!("man {name} | grep -q SYNOPSIS"));
    }
    machine.run_silently("bash -n /usr/share/bash-completion/completions/straitctl");
    assert_eq!(machine.run("straitctl --version").split(' ').next(), Some("straitctl"));
    assert_eq!(
        machine.run("stat -c '%a %U %G' /etc/strait /etc/strait/global.yaml"),
        "750 root strait\n640 root strait\n"
    );
}

/// `straitctl` of the administrator of global.
const GLOBAL: &str = "runuser -u strait -- straitctl --work-dir /var/lib/strait/global";

/// What runs below global, by the name of its instance.
struct Below {
    kind: &'static str,
    name: &'static str,
    scope: &'static str,
    /// Replaces the ports of the example, which global has.
    ports: &'static str,
    /// How it gets its token.
    token: &'static str,
}

const ZONE: Below = Below {
    kind: "zone",
    name: "east",
    scope: "cp",
    ports: "s/ort: 5/ort: 15/",
    // Root's alone.
    token: "install -D -m 644 /usr/share/doc/strait/examples/credentials.conf \
            /etc/systemd/system/strait-zone@.service.d/credentials.conf && systemctl daemon-reload",
};

const RELAY: Below = Below {
    kind: "relay",
    name: "west",
    scope: "relay",
    ports: "s/ort: 5/ort: 25/",
    token: "chgrp strait /etc/strait/relay-west.token && chmod 640 /etc/strait/relay-west.token",
};

async fn global_runs(machine: &BootedDebian) {
    machine.run("echo '# kept' >>/etc/strait/global.yaml");
    // Succeeds once it says that it is ready.
    machine.run("systemctl enable --now strait-global");
    is_ready(machine, 5680).await;
    is_confined(machine, UNITS[0]);
    machine.run("install -m 644 /var/lib/strait/global/strait.crt /etc/strait/global.crt");
}

fn below_it_run(machine: &BootedDebian, below: &Below) {
    let Below { kind, name, scope, ports, token } = below;
    let file = format!("/etc/strait/{kind}-{name}");
    machine.run(&format!(
        "umask 077 && {GLOBAL} generate zone-token --zone {name} --scope {scope} >{file}.token && {token}"
    ));
    machine.run(&format!(
        "sed -e 's/global.example/localhost/' -e 's/NAME/{name}/' -e '{ports}' \
         /usr/share/doc/strait/examples/{kind}.yaml >{file}.yaml && systemd-tmpfiles --create strait.conf"
    ));
    let unit = format!("strait-{kind}@{name}.service");
    machine.run(&format!("systemctl enable --now {unit}"));
    is_confined(machine, &unit);
}

async fn is_ready(machine: &BootedDebian, port: u16) {
    let ask = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET /ready HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
    );
    eventually(&format!("port {port} says it is ready"), || {
        let (_, out, err) = machine.try_run(&ask);
        async move { if out.contains(" 200 OK") { Ok(()) } else { Err([out, err].concat()) } }
    })
    .await;
}

fn pid(machine: &BootedDebian, unit: &str) -> String {
    let pid = machine.run(&format!("systemctl show --property MainPID --value {unit}")).trim().to_owned();
    assert_ne!(pid, "0", "{unit} runs");
    pid
}

/// What the unit forbids is forbidden, and as whom it runs.
fn is_confined(machine: &BootedDebian, unit: &str) {
    let pid = pid(machine, unit);
    let status = machine.run(&format!("cat /proc/{pid}/status"));
    let user = machine.run("id -u strait");
    let says = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
    };
    assert_eq!(says("Uid"), user.trim(), "{unit}");
    assert_eq!([says("NoNewPrivs"), says("Seccomp")], ["1", "2"], "{unit}");
    assert_eq!([says("CapEff"), says("CapBnd")], ["0000000000000000"; 2], "{unit}");
}

/// Neither the keys of the others nor the files that are root's.
fn sees_its_own_state_only(machine: &BootedDebian) {
    let pid = pid(machine, UNITS[2]);
    assert_eq!(machine.run(&format!("ls /proc/{pid}/root/var/lib/strait")), "zone-east\n");
    assert_eq!(machine.run("stat -c '%a %U' /etc/strait/zone-east.token"), "600 root\n");
    assert_eq!(machine.run("stat -c '%a %U' /var/lib/strait/zone-east"), "700 strait\n");
}

fn zone_has_the_policy(machine: &BootedDebian) {
    let zone = "runuser -u strait -- straitctl --work-dir /var/lib/strait/zone-east --address http://localhost:15681";
    let policies = machine.run(&format!("{zone} get meshtimeouts"));
    assert!(policies.contains("patient"), "{policies}");
}
