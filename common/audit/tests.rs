#![allow(clippy::unwrap_used)]

use super::*;

fn entry(n: i64, user: &str) -> AuditEntry {
    AuditEntry {
        at: DateTime::from_timestamp(1_700_000_000 + n, 0).unwrap(),
        user: user.to_owned(),
        groups: vec![crate::access::AUTHENTICATED.to_owned()],
        from: "10.0.0.1".to_owned(),
        method: "PUT".to_owned(),
        path: format!("/meshes/{n}"),
        kind: Some("Mesh".to_owned()),
        outcome: AuditOutcome::of(if n % 2 == 0 { 200 } else { 403 }),
        status: 200,
        revision: n.try_into().ok(),
        left_out: 0,
        changed: n % 2 == 0,
    }
}

#[test]
fn strangers_crowd_out_nobody() {
    let log = AuditLog::default();
    log.record(entry(0, "ann"), true);
    for n in 1..5_000 {
        log.record(entry(n, "nobody"), false);
    }
    let of = |user: &str| AuditQuery { user: Some(user.to_owned()), ..AuditQuery::default() };
    assert_eq!(log.search(&of("ann"), 10), [entry(0, "ann")]);
    assert_eq!(log.search(&of("nobody"), usize::MAX).len(), KEPT_OF_STRANGERS);
    assert_eq!(log.search(&AuditQuery::default(), 1), [entry(4_999, "nobody")]);
}

#[test]
fn entries_are_found_by_what_is_known_of_them() {
    let log = AuditLog::default();
    (0..10).for_each(|n| log.record(entry(n, "ann"), true));
    let times = |query: AuditQuery| -> Vec<String> {
        log.search(&query, 3).into_iter().map(|entry| entry.path.replace("/meshes/", "")).collect()
    };
    let all = AuditQuery::default;
    assert_eq!(times(all()), ["9", "8", "7"]);
    assert_eq!(times(AuditQuery { outcome: Some(AuditOutcome::Done), ..all() }), ["8", "6", "4"]);
    assert_eq!(times(AuditQuery { since: Some(entry(8, "").at), ..all() }), ["9", "8"]);
    assert_eq!(times(AuditQuery { kind: Some("Secret".to_owned()), ..all() }), [""; 0]);
}

#[tokio::test]
async fn a_file_is_begun_anew_when_it_is_long_and_read_again() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("audit.log");
    let target = path.to_str().unwrap();
    let length = serde_json::to_string(&entry(0, "ann")).unwrap().len() as u64 + 1;
    for round in 0..6 {
        let (log, file) = AuditLog::to(target, length * 2).unwrap();
        log.record(entry(round * 2, "ann"), true);
        log.record(entry(round * 2 + 1, "ann"), true);
        drop(log);
        file.run().await.unwrap();
    }
    let mut names: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3", "audit.log.4"]);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let (log, _file) = AuditLog::to(target, length * 2).unwrap();
    let found = log.search(&AuditQuery::default(), 100);
    assert_eq!(found.len(), 4, "of the newest two files: {found:?}");
    assert_eq!(found[0].revision, Some(11));
    assert!(AuditLog::to("/nowhere/audit.log", 1).is_err());
}

#[test]
fn no_user_crowds_out_the_others() {
    let log = AuditLog::default();
    (0..100).for_each(|n| log.record(entry(n, "ann"), true));
    for n in 100..50_000 {
        log.record(entry(n, "mallory"), true);
    }
    let of = |user: &str| AuditQuery { user: Some(user.to_owned()), ..AuditQuery::default() };
    let found = log.search(&AuditQuery::default(), usize::MAX);
    assert_eq!(found.len(), KEPT);
    assert_eq!(log.search(&of("ann"), usize::MAX).len(), 100, "there is room for a few while one asks much");
    // Who has less than his share takes the place of the oldest, whosever that is.
    for user in 0..KEPT {
        log.record(entry(60_000, &user.to_string()), true);
    }
    assert_eq!(log.search(&of("ann"), usize::MAX).len(), 0);
}

#[tokio::test]
async fn a_user_who_may_not_fills_no_file_and_keeps_nobody_out_of_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("audit.log");
    let (log, file) = AuditLog::to(path.to_str().unwrap(), 1 << 20).unwrap();
    let refused =
        |n: i64| AuditEntry { outcome: AuditOutcome::Refused, changed: false, ..entry(n, "mallory") };
    // More than the queue holds.
    for _ in 0..20_000 {
        log.record(refused(1), true);
    }
    log.record(entry(2, "ann"), true);
    // Nor does one who may, while the disk is slow.
    for _ in 0..20_000 {
        log.record(entry(4, "mallory"), true);
    }
    log.record(entry(6, "ann"), true);
    drop(log);
    file.run().await.unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    let of = |text: &str| written.lines().filter(|line| line.contains(text)).count();
    assert_eq!(of("\"user\":\"ann\""), 2);
    assert_eq!(of("\"outcome\":\"refused\""), 100);
    assert_eq!(of("\"user\":\"mallory\""), QUEUE_OF_USER);
    assert!(written.contains("\"leftOut\":19900"), "the next one says how many are missing");
}

#[tokio::test]
async fn strangers_fill_no_file_and_keep_nobody_out_of_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("audit.log");
    let (log, file) = AuditLog::to(path.to_str().unwrap(), 64 << 10).unwrap();
    log.record(entry(0, "ann"), true);
    // More than the queue and all files hold.
    for _ in 0..20_000 {
        log.record(AuditEntry { groups: Vec::new(), ..entry(1, "nobody") }, false);
    }
    log.record(entry(2, "ann"), true);
    log.record(AuditEntry { groups: Vec::new(), ..entry(3, "nobody") }, false);
    drop(log);
    file.run().await.unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    let of =
        |user: &str| written.lines().filter(|line| line.contains(&format!("\"user\":\"{user}\""))).count();
    assert_eq!((of("ann"), of("nobody")), (2, 101));
    assert!(written.lines().last().unwrap().contains("\"leftOut\":19900"), "{written}");
}

#[tokio::test]
async fn who_may_change_nothing_pushes_no_change_out_of_the_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("audit.log");
    let target = path.to_str().unwrap();
    let made = |path: &str, method: &str, revision: Option<u64>, changed: bool| AuditEntry {
        path: path.to_owned(),
        method: method.to_owned(),
        revision,
        changed,
        outcome: AuditOutcome::Done,
        at: entry(0, "").at,
        ..entry(0, "ann")
    };
    let length = serde_json::to_string(&made("/history/undo", "POST", None, false)).unwrap().len() as u64 + 1;
    let (log, file) = AuditLog::to(target, length * 100).unwrap();
    let writing = tokio::spawn(file.run());
    log.record(made("/meshes/a", "PUT", Some(7), true), true);
    log.record(made("/tokens/user", "POST", None, true), true);
    for n in 0..5_000 {
        let (path, method, revision) = match n % 3 {
            0 => ("/config", "GET", None),
            1 => ("/history/undo", "POST", None),
            // As it was before, and told with the revision of that.
            _ => ("/meshes/same", "PUT", Some(7)),
        };
        log.record(made(path, method, revision, false), true);
    }
    // Changes are never too many.
    (0..200).for_each(|n| log.record(made("/meshes/b", "PUT", Some(n), true), true));
    drop(log);
    writing.await.unwrap().unwrap();
    let lines = || {
        (0..5).flat_map(|n| {
            let name = if n == 0 { path.clone() } else { folder.path().join(format!("audit.log.{n}")) };
            std::fs::read_to_string(name).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>()
        })
    };
    let count = |part: &str| lines().filter(|line| line.contains(part)).count();
    assert_eq!((count("/meshes/a"), count("/tokens/user"), count("/meshes/b")), (1, 1, 200));
    assert_eq!(count("/config") + count("/history/undo") + count("/meshes/same"), 100);
    assert_eq!(count("\"leftOut\":4900"), 1, "the next one tells of them");
}
