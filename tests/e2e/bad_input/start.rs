//! What is wrong when a process starts: its database, its certificates, its settings, its files.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use common::tls::KeyPairPem;
use sqlx::Connection;
use tempfile::TempDir;

use super::table::{Answer, Case, Front, all_right, case, run, tally};
use crate::{
    faults::{clock, machine::SmallDisk},
    harness::{
        Global, addresses, eventually,
        process::Process,
        tally::{Class::Startup, Tally},
    },
};

/// Which process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Global,
    Zone,
}

use Program::{Global as OfGlobal, Zone as OfZone};

/// A start. `{dir}` in a setting stands for its folder.
pub struct Start {
    program: Program,
    settings: Vec<(String, String)>,
    /// The text of `{dir}/config.yaml`, which is named when there is any.
    config: Option<Vec<u8>>,
    /// What is done to its folder before; the other path is a database that is right.
    prepare: fn(&Path, &Path),
    machine: Machine,
}

/// What is wrong with the machine itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Machine {
    Sound,
    /// No room is left where the folder is.
    FullDisk,
    /// Nobody has set the clock.
    ClockOf1970,
}

const FAILED: &[&str] = &["exit 1"];
const USAGE: &[&str] = &["exit 1", "exit 2"];
const PANIC: &[&str] = &["panicked", "RUST_BACKTRACE"];

fn nothing(_: &Path, _: &Path) {}

fn start(
    program: Program,
    what: &'static str,
    settings: &[(&str, &str)],
    prepare: fn(&Path, &Path),
    verdicts: &'static [&'static str],
    says: &'static [&'static str],
) -> Case<Start> {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let input = Start { program, settings, config: None, prepare, machine: Machine::Sound };
    case(Startup, what, input, verdicts, says).hiding(PANIC)
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    fs::write(folder.join(name), bytes).unwrap();
}

/// Databases that are none, or are somebody else's.
#[rustfmt::skip]
fn databases() -> Vec<Case<Start>> {
    let row = |what, prepare, says| start(OfGlobal, what, &[], prepare, FAILED, says);
    /// A database that is right but for some of its bytes.
    fn damaged(folder: &Path, template: &Path, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(template).unwrap();
        damage(&mut bytes);
        write(folder, "strait.db", bytes);
    }
    vec![
        row("a diary", |dir, _| write(dir, "strait.db", "this is no database, but somebody's diary"), &["strait.db is not a database: name another file, or move this one away"]),
        row("a folder for a database", |dir, _| fs::create_dir(dir.join("strait.db")).unwrap(), &["strait.db: name another file, or make this one readable"]),
        row("a database of noise", |dir, _| write(dir, "strait.db", [0xa5; 8192]), &["strait.db"]),
        row("the beginning of a database", |dir, template| damaged(dir, template, |bytes| bytes.truncate(100)), &["strait.db"]),
        row("a database with half its pages", |dir, template| damaged(dir, template, |bytes| bytes.truncate(bytes.len() / 2)), &["strait.db"]),
        row("a database with its schema wiped", |dir, template| damaged(dir, template, |bytes| bytes[100..4096].fill(0)), &["strait.db"]),
        row("a database of another page size", |dir, template| damaged(dir, template, |bytes| bytes[16..18].copy_from_slice(&[0, 3])), &["strait.db"]),
        row("a database of a later format", |dir, template| damaged(dir, template, |bytes| bytes[18..20].fill(9)), &["strait.db"]),
        start(OfZone, "the database of global", &[], |dir, template| { fs::copy(template, dir.join("strait.db")).unwrap(); }, FAILED,
            &["the store belongs to global, and this is zone", "give this one a store of its own (setting general.workDir"]),
        start(OfGlobal, "an empty file for a database", &[], |dir, _| write(dir, "strait.db", ""), &["starts"], &[]),
        start(OfGlobal, "a database in a folder there is not", &[("store.sqlite.path", "{dir}/nowhere/strait.db")], nothing, &["exit 1", "starts"], &[]),
        start(OfGlobal, "a database that is a device", &[("store.sqlite.path", "/dev/null")], nothing, FAILED, &["/dev/null"]),
        start(OfGlobal, "a database that is full", &[("store.sqlite.path", "/dev/full")], nothing, FAILED, &["/dev/full"]),
        start(OfGlobal, "a server of databases there is not", &[("store.type", "postgres"), ("store.postgres.port", "1")], nothing, FAILED, &["open the store"]),
        start(OfGlobal, "a server with roots there are not", &[("store.type", "postgres"), ("store.postgres.port", "1"), ("store.postgres.tls.mode", "verifyFull"), ("store.postgres.tls.caPath", "/nowhere.crt")], nothing, FAILED, &[]),
        start(OfGlobal, "a folder that is a file", &[("general.workDir", "{dir}/file")], |dir, _| write(dir, "file", "x"), FAILED, &["general.workDir"]),
        start(OfGlobal, "a folder nobody can make", &[("general.workDir", "/proc/nowhere")], nothing, FAILED, &["general.workDir"]),
        start(OfGlobal, "a folder that is no name", &[("general.workDir", "{dir}/\u{1}/../\u{1}")], nothing, &["exit 1", "starts"], &[]),
    ]
}

fn pair(folder: &Path) -> KeyPairPem {
    let pair = KeyPairPem::self_signed(&["localhost".to_owned()]).unwrap();
    write(folder, "own.crt", &pair.certificate);
    write(folder, "own.key", &pair.key);
    fs::set_permissions(folder.join("own.key"), fs::Permissions::from_mode(0o600)).unwrap();
    pair
}

/// Certificates and keys that do not fit.
#[rustfmt::skip]
fn certificates() -> Vec<Case<Start>> {
    const OWN: &[(&str, &str)] = &[("general.tlsCertFile", "{dir}/own.crt"), ("general.tlsKeyFile", "{dir}/own.key")];
    let row = |what, prepare, says| start(OfGlobal, what, OWN, prepare, FAILED, says);
    vec![
        row("no certificate", nothing, &["own.crt"]),
        row("no key", |dir, _| { pair(dir); fs::remove_file(dir.join("own.key")).unwrap(); }, &["own.key"]),
        row("an empty certificate", |dir, _| { pair(dir); write(dir, "own.crt", ""); }, &["certificate"]),
        row("an empty key", |dir, _| { pair(dir); write(dir, "own.key", ""); }, &["key"]),
        row("a certificate that is no PEM", |dir, _| { pair(dir); write(dir, "own.crt", [0x30, 0x82, 0, 0]); }, &["own.crt"]),
        row("a certificate that is a key", |dir, _| { let pair = pair(dir); write(dir, "own.crt", pair.key); }, &["certificate"]),
        row("a key that is a certificate", |dir, _| { let pair = pair(dir); write(dir, "own.key", pair.certificate); }, &["key"]),
        row("the key of another certificate", |dir, _| { pair(dir); write(dir, "own.key", KeyPairPem::self_signed(&[]).unwrap().key); }, &["set up TLS"]),
        row("half a certificate", |dir, _| { let pair = pair(dir); write(dir, "own.crt", &pair.certificate[..pair.certificate.len() / 4]); }, &["certificate"]),
        row("a key under a password", |dir, _| { pair(dir); write(dir, "own.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n"); }, &["key"]),
        start(OfGlobal, "a certificate without a key", &[("general.tlsCertFile", "{dir}/own.crt")], |dir, _| { pair(dir); }, USAGE, &["general.tls"]),
        start(OfGlobal, "a key without a certificate", &[("general.tlsKeyFile", "{dir}/own.key")], |dir, _| { pair(dir); }, USAGE, &["general.tls"]),
        start(OfGlobal, "certificates that are folders", &[("general.tlsCertFile", "{dir}"), ("general.tlsKeyFile", "{dir}")], nothing, FAILED, &[]),
        start(OfGlobal, "a kept certificate that is none", &[], |dir, _| { write(dir, "strait.crt", "x"); write(dir, "strait.key", "y"); }, FAILED, &["certificate"]),
        start(OfZone, "an authority there is not", &[("multizone.zone.globalAddress", "grpcs://127.0.0.1:1"), ("multizone.zone.kds.rootCaFile", "/nowhere.crt")], nothing, FAILED, &["/nowhere.crt"]),
        start(OfZone, "an authority that is none", &[("multizone.zone.globalAddress", "grpcs://127.0.0.1:1"), ("multizone.zone.kds.rootCaFile", "{dir}/ca.crt")], |dir, _| write(dir, "ca.crt", "x"), FAILED, &["certificate"]),
    ]
}

/// Settings that are wrong, and the words that name them.
#[rustfmt::skip]
fn settings() -> Vec<Case<Start>> {
    let zone = |what, name: &str, value: &str, says| start(OfZone, what, &[(name, value)], nothing, USAGE, says);
    let global = |what, name: &str, value: &str, says| start(OfGlobal, what, &[(name, value)], nothing, USAGE, says);
    vec![
        zone("a port of words", "apiServer.http.port", "banana", &["--apiServer.http.port", "not a whole number"]),
        zone("a port there is not", "apiServer.http.port", "99999", &["setting apiServer.http.port", "99999"]),
        zone("a port below nothing", "dpServer.port", "-1", &["dpServer.port"]),
        zone("an interface of words", "apiServer.http.interface", "everywhere", &["apiServer.http.interface"]),
        zone("an interface of another machine", "apiServer.http.interface", "192.0.2.1", &["192.0.2.1"]),
        zone("a store there is not", "store.type", "mongo", &["setting store.type", "mongo", "`sqlite`, `postgres`, `memory`"]),
        zone("a name that is none", "multizone.zone.name", "Zone_1", &["setting multizone.zone.name", "up to 63 of a-z, 0-9 and -"]),
        zone("a name of 64 letters", "multizone.zone.name", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", &["setting multizone.zone.name"]),
        zone("a name that looks like another", "multizone.zone.name", "zоne-1", &["setting multizone.zone.name"]),
        zone("no name", "multizone.zone.name", "", &["setting multizone.zone.name"]),
        zone("an address of another sort", "multizone.zone.globalAddress", "http://x", &["setting multizone.zone.globalAddress", "must start with grpcs://"]),
        zone("an address without a host", "multizone.zone.globalAddress", "grpcs://", &["is not the address of a global: use grpcs://host:port"]),
        zone("a mode of another process", "mode", "global", &["mode"]),
        zone("a time below nothing", "xdsServer.dataplaneDeregistrationDelay", "-1s", &["xdsServer.dataplaneDeregistrationDelay"]),
        zone("a time of words", "general.gracefulShutdownTimeout", "soon", &["general.gracefulShutdownTimeout"]),
        zone("a switch of words", "apiServer.https.enabled", "perhaps", &["apiServer.https.enabled"]),
        zone("a proof there is not", "dpServer.authn.dpProxy.type", "trust", &["dpServer.authn.dpProxy.type"]),
        zone("a setting there is not", "apiServer.htttp.port", "1", &["apiServer.htttp.port"]),
        global("a proof of zones there is not", "multizone.global.kds.auth", "trust", &["multizone.global.kds.auth"]),
        global("a time-out before the first ping", "multizone.global.kds.zoneHealthCheck.timeout", "1s", &["multizone.global.kds.zoneHealthCheck.timeout"]),
        global("a form of logs there is not", "logging.format", "xml", &["logging.format"]),
        global("a mode of another process for global", "mode", "zone", &["mode"]),
        global("a limit below nothing", "multizone.global.kds.maxMsgSize", "-1", &["multizone.global.kds.maxMsgSize"]),
        start(OfZone, "a configuration file there is not", &[("config-file", "/nowhere.yaml")], nothing, USAGE, &["config file /nowhere.yaml does not exist"]),
        start(OfZone, "a configuration file that is a folder", &[("config-file", "{dir}")], nothing, USAGE, &[]),
    ]
}

/// Files with settings.
#[rustfmt::skip]
fn files() -> Vec<Case<Start>> {
    let row = |what: &'static str, text: &[u8], says| {
        let mut case = start(OfZone, what, &[], nothing, USAGE, says);
        case.input.config = Some(text.to_vec());
        case
    };
    let deep = format!("apiServer: {}", "{a: ".repeat(2_000));
    vec![
        row("a member there is not", b"apiServer: { htttp: { port: 1 } }\n", &["config.yaml: unknown field: found `htttp`"]),
        row("a port of words in a file", b"apiServer: { http: { port: x } }\n", &["setting apiServer.http.port in "]),
        row("no YAML", b"apiServer: [\n", &["config.yaml"]),
        row("a list of settings", b"[]\n", &["config.yaml"]),
        row("settings that are text", b"xdsServer: x\n", &["xdsServer"]),
        row("settings that are no text", b"\xff\xfe\x00", &[]),
        row("settings 2,000 deep", deep.as_bytes(), &[]),
        row("a section that stands twice", b"apiServer: { readOnly: true }\nstore: { type: memory }\napiServer: { http: { port: 1 } }\n",
            &["duplicate mapping key: apiServer", "line 3", "config.yaml"]),
        row("a setting that stands twice", b"apiServer:\n  readOnly: true\n  readOnly: false\n", &["duplicate mapping key: readOnly", "config.yaml"]),
        row("the settings of global", b"multizone: { global: { kds: { grpcPort: 1 } } }\n", &["config.yaml"]),
    ]
}

/// Machines that are not ready, and files of another time or with the wrong permissions.
#[rustfmt::skip]
fn machines() -> Vec<Case<Start>> {
    const OWN: &[(&str, &str)] = &[("general.tlsCertFile", "{dir}/own.crt"), ("general.tlsKeyFile", "{dir}/own.key")];
    let on = |machine, mut case: Case<Start>| { case.input.machine = machine; case };
    fn readable(path: PathBuf) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    vec![
        on(Machine::FullDisk, start(OfGlobal, "a full disk, and nothing on it", &[], nothing, FAILED, &["strait.db", "disk"])),
        on(Machine::FullDisk, start(OfZone, "a full disk, and nothing of a zone on it", &[], nothing, FAILED, &["strait.db", "disk"])),
        on(Machine::FullDisk, start(OfGlobal, "a full disk with a database that is right", &[],
            |dir, template| { fs::copy(template, dir.join("strait.db")).unwrap(); }, FAILED, &["strait.db", "disk"])),
        on(Machine::ClockOf1970, start(OfGlobal, "a clock that nobody has set", &[], nothing, FAILED, &["the clock of this machine says 1970"])),
        on(Machine::ClockOf1970, start(OfZone, "a clock that nobody has set for a zone", &[], nothing, FAILED, &["the clock of this machine says 1970"])),
        start(OfGlobal, "a key that everybody may read", OWN, |dir, _| { pair(dir); readable(dir.join("own.key")); },
            &["starts"], &["own.key", "everybody on this machine may read"]),
        start(OfGlobal, "a database that everybody may read", &[],
            |dir, template| { fs::copy(template, dir.join("strait.db")).unwrap(); readable(dir.join("strait.db")); },
            &["starts"], &["strait.db", "everybody on this machine may read"]),
        start(OfZone, "a zone token that everybody may read",
            &[("multizone.zone.globalAddress", "grpcs://127.0.0.1:1"), ("multizone.zone.kds.tokenFile", "{dir}/token")],
            |dir, _| { write(dir, "token", "x"); readable(dir.join("token")); }, &["starts"], &["token", "everybody on this machine may read"]),
        start(OfGlobal, "a database of the version before", &[], older, &["starts"], &[]),
        start(OfGlobal, "a database of the version before, with what that one never wrote", &[], |dir, template| {
            older(dir, template);
            statements(&dir.join("strait.db"), &["UPDATE meta SET store_id = 'nobody'"]);
        }, FAILED, &["strait.db"]),
        start(OfGlobal, "a database with a row that was changed by hand", &[], |dir, template| {
            fs::copy(template, dir.join("strait.db")).unwrap();
            statements(&dir.join("strait.db"), &["UPDATE resources SET display_name = 'by hand' WHERE kind = 'Mesh'"]);
        }, FAILED, &["strait.db", "resource/Mesh//default", "`salvage list`"]),
        start(OfGlobal, "a database without its tables", &[], |dir, template| {
            fs::copy(template, dir.join("strait.db")).unwrap();
            statements(&dir.join("strait.db"), &["DROP TABLE resources"]);
        }, FAILED, &["strait.db"]),
    ]
}

/// What the first version wrote: no checksums and no history, and no word of them.
fn older(folder: &Path, template: &Path) {
    let path = folder.join("strait.db");
    fs::copy(template, &path).unwrap();
    statements(
        &path,
        &[
            "ALTER TABLE resources DROP COLUMN checksum",
            "ALTER TABLE changes DROP COLUMN checksum",
            "ALTER TABLE changes DROP COLUMN commit_id",
            "ALTER TABLE sessions DROP COLUMN checksum",
            "ALTER TABLE meta DROP COLUMN checksum",
            "DROP TABLE history",
            "DROP TABLE history_floor",
            "DELETE FROM _sqlx_migrations WHERE version > 1",
        ],
    );
}

/// Runs statements on a database that nobody has open.
fn statements(path: &Path, statements: &[&'static str]) {
    let url = format!("sqlite:{}", path.display());
    let work = async {
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        for statement in statements {
            sqlx::query(*statement).execute(&mut connection).await.unwrap();
        }
        connection.close().await.unwrap();
    };
    // A test is in a runtime already, which cannot be waited in.
    std::thread::scope(|scope| {
        let alone =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
        scope.spawn(alone).join().unwrap();
    });
}

fn table() -> Vec<Case<Start>> {
    let machines = machines();
    databases().into_iter().chain(certificates()).chain(settings()).chain(files()).chain(machines).collect()
}

/// What is tried.
pub fn count() -> Tally {
    tally(&table())
}

/// Starts processes, each on a folder of its own.
struct Starts {
    /// A database of a global that is right.
    template: PathBuf,
}

impl Front for Starts {
    type Input = Start;

    fn name(&self) -> &str {
        "starting processes"
    }

    /// A start makes keys and a database, which takes a machine with other things to do a while.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn send(&self, input: &Start) -> Answer {
        let folder = TempDir::new().unwrap();
        let disk = (input.machine == Machine::FullDisk).then(|| SmallDisk::mount(4));
        let dir = disk.as_ref().map_or(folder.path(), SmallDisk::path);
        (input.prepare)(dir, &self.template);
        if let Some(disk) = &disk {
            disk.fill();
        }
        let dir = dir.display().to_string();
        let address = addresses::loopback();
        let diagnostics = addresses::free_port(address).to_string();
        let interface = address.to_string();
        let mut usual = vec![
            ("general.workDir", dir.as_str()),
            // On an address of its own nobody else's port 0 becomes the one that was found free.
            ("apiServer.http.interface", interface.as_str()),
            ("apiServer.http.port", "0"),
            ("apiServer.https.enabled", "false"),
            ("diagnostics.interface", interface.as_str()),
            ("diagnostics.serverPort", &diagnostics),
        ];
        let (program, more) = match input.program {
            OfGlobal => (
                env!("CARGO_BIN_EXE_strait-global"),
                vec![
                    ("multizone.global.kds.interface", interface.as_str()),
                    ("multizone.global.kds.grpcPort", "0"),
                ],
            ),
            OfZone => (
                env!("CARGO_BIN_EXE_strait-zone"),
                vec![
                    ("dpServer.interface", interface.as_str()),
                    ("dpServer.port", "0"),
                    ("monitoringAssignmentServer.interface", interface.as_str()),
                    ("monitoringAssignmentServer.port", "0"),
                ],
            ),
        };
        usual.extend(more);
        let file = folder.path().join("config.yaml");
        let file = file.display().to_string();
        if let Some(text) = &input.config {
            write(folder.path(), "config.yaml", text);
            usual.retain(|(name, _)| !name.starts_with("apiServer.http."));
            usual.push(("config-file", &file));
        }
        // A flag may be given once, so what a case sets stands instead of what is usual.
        usual.retain(|(name, _)| input.settings.iter().all(|(set, _)| set != name));
        let set = input.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let args = usual
            .into_iter()
            .chain(set)
            .flat_map(|(name, value)| [format!("--{name}={}", value.replace("{dir}", &dir))]);
        let environment = match input.machine {
            Machine::ClockOf1970 => vec![
                ("LD_PRELOAD".to_owned(), clock::library().display().to_string()),
                ("FAKETIME".to_owned(), "@1970-01-01 00:01:00".to_owned()),
                ("FAKETIME_DONT_FAKE_MONOTONIC".to_owned(), "1".to_owned()),
            ],
            _ => Vec::new(),
        };
        let mut process = Process::start_in("refused", program.as_ref(), args, &environment);
        let ready = format!("http://{address}:{diagnostics}/ready");
        let answer = ended_or_ready(&mut process, &ready).await;
        within_budget(&process, answer)
    }
}

/// What a start may write, and take of memory while it lives.
const LOG: usize = 16 << 10;
const MEMORY: u64 = 256 << 20;

fn within_budget(process: &Process, answer: Answer) -> Answer {
    let log = process.log_bytes();
    if log > LOG {
        return Answer::new(format!("{log} bytes of log"), answer.text);
    }
    answer
}

/// Waits until a process has ended, or says that it is ready. What it wrote is whole only when it has ended, so
/// whoever is ready is told to.
async fn ended_or_ready(process: &mut Process, ready: &str) -> Answer {
    let is_ready = eventually("a start that ends or is ready", || async {
        let answer = reqwest::get(ready).await.map_err(|error| error.to_string())?;
        if answer.status().is_success() { Ok(()) } else { Err(answer.status().to_string()) }
    });
    let code = |status: ExitStatus| status.code().map_or("killed".to_owned(), |code| format!("exit {code}"));
    let ended = tokio::select! {
        status = process.ended() => Some(code(status)),
        () = is_ready => None,
    };
    let verdict = match ended {
        Some(code) => code,
        None if process.resident() > MEMORY => "starts with too much memory".to_owned(),
        None => match process.stop().await {
            status if status.success() => "starts".to_owned(),
            status => format!("starts, and {} when told to stop", code(status)),
        },
    };
    Answer::new(verdict, process.log())
}

#[tokio::test]
async fn a_process_that_cannot_start_says_why_and_ends() {
    let mut global = Global::start().await;
    assert!(global.process.stop().await.success());
    let template = global.folder.path().join("strait.db");
    let untouched = fs::read(&template).unwrap();
    let starts = Starts { template: template.clone() };
    all_right([run(&starts, &table(), &[]).await]);
    assert_eq!(fs::read(&template).unwrap(), untouched);
    global.start_again().await;
    global.get("/meshes/default").await;
}

#[tokio::test]
async fn a_foreign_file_in_the_place_of_the_database_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let diary = b"this is no database, but somebody's diary";
    write(folder.path(), "strait.db", diary);
    let log = refused_to_start_on(folder.path()).await;
    assert_eq!(fs::read(folder.path().join("strait.db")).unwrap(), diary, "the file is untouched");
    assert!(log.contains("is not a database"), "{log}");

    fs::remove_file(folder.path().join("strait.db")).unwrap();
    fs::create_dir(folder.path().join("strait.db")).unwrap();
    let log = refused_to_start_on(folder.path()).await;
    assert_eq!(log.matches("Is a directory").count(), 1, "told once: {log}");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let address = addresses::loopback();
    let taken = TcpListener::bind((address, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let interface = address.to_string();
    let global = env!("CARGO_BIN_EXE_strait-global");
    let zone = env!("CARGO_BIN_EXE_strait-zone");
    for (program, interface_flag, setting) in [
        (global, "apiServer.http.interface", "apiServer.http.port"),
        (global, "diagnostics.interface", "diagnostics.serverPort"),
        (global, "multizone.global.kds.interface", "multizone.global.kds.grpcPort"),
        (zone, "dpServer.interface", "dpServer.port"),
        (zone, "monitoringAssignmentServer.interface", "monitoringAssignmentServer.port"),
    ] {
        let folder = TempDir::new().unwrap();
        let settings = [
            ("general.workDir", folder.path().to_str().unwrap()),
            ("apiServer.http.port", "0"),
            ("apiServer.https.enabled", "false"),
            ("diagnostics.serverPort", "0"),
            (interface_flag, interface.as_str()),
        ];
        // The last one of a name would be refused as a second one, so the port in question replaces its default.
        let mut args: Vec<String> = settings
            .iter()
            .filter(|(name, _)| *name != setting)
            .flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()])
            .collect();
        if program == zone && setting != "monitoringAssignmentServer.port" {
            args.extend(["--monitoringAssignmentServer.port", "0"].map(str::to_owned));
        }
        args.extend([format!("--{setting}"), port.clone()]);
        let mut process = Process::start(setting, program.as_ref(), &args);
        assert!(!process.ended().await.success());
        let log = process.log();
        assert!(log.contains(&format!("{interface}:{port}")) && log.contains(setting), "{log}");
        assert!(log.contains("choose another port"), "it says what to do: {log}");
    }
}

/// Starts a global on `folder`, which must not work, and gives its log.
async fn refused_to_start_on(folder: &Path) -> String {
    let work_dir = folder.display().to_string();
    let args =
        ["--general.workDir", &work_dir, "--apiServer.http.port", "0", "--diagnostics.serverPort", "0"];
    let mut process = Process::start("global", env!("CARGO_BIN_EXE_strait-global").as_ref(), args);
    assert!(!process.ended().await.success());
    process.log()
}

#[tokio::test]
async fn a_second_process_on_one_database_is_refused() {
    let global = Global::start().await;
    let log = refused_to_start_on(global.folder.path()).await;
    assert!(log.contains("strait.db is in use by process"), "{log}");
    assert!(log.contains("stop that one, or give this one its own file"), "{log}");
    global.get("/meshes/default").await;
}
