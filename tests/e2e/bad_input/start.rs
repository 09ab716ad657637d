//! What is wrong when a process starts: its ports, its database, its settings, its name.

use std::{net::TcpListener, path::Path};

use tempfile::TempDir;

use crate::harness::{Global, addresses, control_plane::write, process::Process};

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
async fn a_foreign_or_unreadable_database_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("strait.db");
    let diary = b"this is no database, but somebody's diary";
    std::fs::write(&database, diary).unwrap();
    let log = refused_to_start_on(folder.path()).await;
    assert!(log.contains("strait.db is not a database: name another file, or move this one away"), "{log}");
    assert_eq!(std::fs::read(&database).unwrap(), diary, "the file is untouched");

    // A folder stands for what even an administrator cannot read as a file.
    std::fs::remove_file(&database).unwrap();
    std::fs::create_dir(&database).unwrap();
    let log = refused_to_start_on(folder.path()).await;
    assert!(log.contains("strait.db: name another file, or make this one readable"), "{log}");
    assert_eq!(log.matches("Is a directory").count(), 1, "told once: {log}");
}

#[tokio::test]
async fn a_second_process_on_one_database_is_refused() {
    let global = Global::start().await;
    let log = refused_to_start_on(global.folder.path()).await;
    assert!(log.contains("strait.db is in use by process"), "{log}");
    assert!(log.contains("stop that one, or give this one its own file"), "{log}");
    global.get("/meshes/default").await;
}

/// A database is foreign as well when it belongs to the other sort of control plane.
#[tokio::test]
async fn a_zone_does_not_run_on_the_store_of_a_global() {
    let mut global = Global::start().await;
    assert!(global.process.stop().await.success());
    let log = refused_to_start(
        env!("CARGO_BIN_EXE_strait-zone"),
        &[
            ("general.workDir", &global.folder.path().display().to_string()),
            ("multizone.zone.name", "zone-1"),
            ("diagnostics.serverPort", "0"),
        ],
    )
    .await;
    assert!(log.contains("the store belongs to global, and this is zone zone-1"), "{log}");
    assert!(log.contains("give this one a store of its own (setting general.workDir"), "{log}");
    global.start_again().await;
    global.get("/meshes/default").await;
}

/// Starts a process that must not come up, and gives its log.
async fn refused_to_start(program: &str, settings: &[(&str, &str)]) -> String {
    let args = settings.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]);
    let mut process = Process::start("refused", program.as_ref(), args);
    assert!(!process.ended().await.success(), "{}", process.log());
    process.log()
}

/// Settings that are wrong, and the words that name them.
#[rustfmt::skip]
const SETTINGS: &[(&str, &str, &[&str])] = &[
    ("apiServer.http.port", "banana", &["--apiServer.http.port", "not a whole number"]),
    ("apiServer.http.port", "99999", &["setting apiServer.http.port", "99999"]),
    ("store.type", "mongo", &["setting store.type", "mongo", "`sqlite`, `postgres`, `memory`"]),
    ("multizone.zone.name", "Zone_1", &["setting multizone.zone.name", "up to 63 of a-z, 0-9 and -"]),
    ("multizone.zone.globalAddress", "http://x", &["setting multizone.zone.globalAddress", "must start with grpcs://"]),
];

#[tokio::test]
async fn a_setting_that_is_wrong_is_named() {
    let zone = env!("CARGO_BIN_EXE_strait-zone");
    for (setting, value, says) in SETTINGS {
        let log = refused_to_start(zone, &[(setting, value)]).await;
        assert!(says.iter().all(|words| log.contains(words)), "{setting}={value}: {log}");
    }
    let folder = TempDir::new().unwrap();
    for (text, says) in [
        ("apiServer: { htttp: { port: 1 } }\n", "config.yaml: unknown field: found `htttp`"),
        ("apiServer: { http: { port: x } }\n", "setting apiServer.http.port in "),
        ("apiServer: [\n", "config.yaml"),
    ] {
        let file = write(folder.path(), "config.yaml", text).display().to_string();
        let log = refused_to_start(zone, &[("config-file", &file)]).await;
        assert!(log.contains(says), "{text}: {log}");
    }
    let log = refused_to_start(zone, &[("config-file", "/nowhere.yaml")]).await;
    assert!(log.contains("config file /nowhere.yaml does not exist"), "{log}");
}
