//! One damaged row, no backup, and the way on: by hand, with the row kept in a file.

use std::{path::Path, process::Command, sync::Arc};

use common::testing::postgres::Cluster;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use sqlx::Connection;

use super::{
    damage::{Start, start},
    writers::{Book, Writers, put_one, say},
};
use crate::{
    harness::{ControlPlane, Global, eventually},
    postgres::on,
};

const ROW: &str = "resource/MeshTimeout/default/broken";
const PATH: &str = "/meshes/default/meshtimeouts/broken";

/// Runs the program of `cp` with its settings; gives success and everything it said.
fn salvage(cp: &ControlPlane, words: &[&str]) -> (bool, String) {
    let (program, settings) = cp.command();
    let output = Command::new(program).arg("salvage").args(words).args(settings).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// What is refused and what is done; gives what was kept.
fn removed(cp: &ControlPlane, folder: &Path) -> Value {
    let (ok, said) = salvage(cp, &["list"]);
    assert!(ok && said.contains(ROW) && said.contains("1 damaged"), "{said}");
    let file = folder.join("broken.json").display().to_string();
    let (ok, said) = salvage(cp, &["remove", "resource/MeshTimeout/default/sound", "--backup", &file]);
    assert!(!ok && said.contains("no damaged row is called"), "{said}");
    let (ok, said) = salvage(cp, &["accept", ROW, "--backup", &file]);
    assert!(!ok && said.contains("cannot be taken as it is"), "{said}");
    let (ok, said) = salvage(cp, &["remove", ROW, "--backup", &file]);
    assert!(ok && said.contains(&file), "{said}");
    let (ok, said) = salvage(cp, &["list"]);
    assert!(ok && said == "no damaged rows\n", "{said}");
    serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap()
}

async fn written(global: &Global) -> Arc<Book> {
    let book = Arc::new(Book::default());
    let writers = Writers::on(global, &book, 0);
    writers.more(20).await;
    writers.end().await;
    assert!(put_one(global, "broken").await.is_success());
    book
}

#[tokio::test]
async fn a_damaged_row_of_a_file_is_taken_out_and_everything_else_is_there() {
    let mut global = Global::start().await;
    let book = written(&global).await;
    assert!(global.process.stop().await.success());
    let url = format!("sqlite:{}", global.folder.path().join("strait.db").display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("UPDATE resources SET spec = 'not JSON' WHERE name = 'broken'")
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    let Start::Refused(told) = start(&mut global, &book).await else { panic!("it starts on a damaged row") };
    assert!(told.contains(ROW) && told.contains("`salvage list`"), "it names the row and the way on: {told}");
    let kept = removed(&global, global.folder.path());
    assert_eq!(kept["columns"]["spec"], "not JSON", "{kept}");
    global.start_again().await;
    book.check(&global).await;
    assert_eq!(global.call(Method::GET, PATH, None).await.0, StatusCode::NOT_FOUND);
    assert!(put_one(&global, "broken").await.is_success());
    say("damaged row of a file: named, kept, taken out");
}

#[tokio::test]
async fn a_damaged_row_of_a_server_is_taken_out_under_the_running_process() {
    let cluster = Cluster::start().await.unwrap();
    let mut global = Global::start_with(on(&cluster, "global")).await;
    let book = written(&global).await;
    let mut connection = sqlx::PgConnection::connect(&cluster.connection("global").url()).await.unwrap();
    for statement in [
        "ALTER TABLE resources DISABLE TRIGGER forget_old_checksum",
        "UPDATE resources SET spec = 'not JSON' WHERE name = 'broken'",
        "ALTER TABLE resources ENABLE TRIGGER forget_old_checksum",
    ] {
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    }
    // Whoever writes to the row finds it.
    assert_eq!(put_one(&global, "broken").await, StatusCode::SERVICE_UNAVAILABLE);
    let told = eventually("not ready", || async { global.not_ready().await.ok_or("ready") }).await;
    assert!(told.contains(ROW) && told.contains("`salvage list`"), "it names the row and the way on: {told}");
    assert_eq!(put_one(&global, "sound").await, StatusCode::SERVICE_UNAVAILABLE);
    book.check(&global).await;
    removed(&global, global.folder.path());
    global.ready().await;
    assert!(put_one(&global, "broken").await.is_success());
    let metrics = global.metrics().await;
    assert!(metrics.lines().any(|l| l.starts_with("store_damaged{") && l.ends_with(" 0")), "{metrics}");
    book.check(&global).await;
    assert!(global.process.runs());
    global.process.kill();
    global.start_again().await;
    book.check(&global).await;
    say("damaged row of Postgres: named, kept, taken out, healed without a restart");
}
