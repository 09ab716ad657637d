//! A provider with a certificate of its own.

use std::process::Stdio;

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use crate::harness::{Global, RealProvider, eventually};

/// straitctl at home, with more arguments after these.
fn login(global: &Global, home: &TempDir, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straitctl"));
    command.args(["login", "--address", &global.url("")]).args(more).env("HOME", home.path());
    command.current_dir(home.path()).stdin(Stdio::null()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn a_private_provider_is_believed_by_its_roots_alone() {
    let Some(mut provider) = RealProvider::private(3600) else { return };
    let folder = TempDir::new().unwrap();
    provider.start(&[]).await;
    let options = provider.options(folder.path(), "strait-cli");
    let trusting = options.clone().with("apiServer.authn.openIdConnect.caFile", &provider.roots());
    let (trusting, other) = (Global::start_with(trusting).await, Global::start_with(options).await);
    for (global, outcome) in [(&trusting, "done"), (&other, "failed")] {
        eventually(&format!("a look at the provider that is {outcome}"), || async {
            let metrics = global.metrics().await;
            let outcome = format!("outcome=\"{outcome}\"");
            let mut looks = metrics.lines().filter(|line| line.starts_with("openid_fetches_total"));
            if looks.any(|line| line.contains(&outcome)) { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
    eventually("a word about the certificate", || async {
        let log = other.process.log();
        if log.contains("could not be fetched") && log.contains("certificate") { Ok(()) } else { Err(log) }
    })
    .await;

    // straitctl learns of the provider from the control plane, and checks it by itself.
    let home = TempDir::new().unwrap();
    let refused = login(&trusting, &home, &[]).output().await.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("certificate"), "{said}");
    let roots = provider.roots();
    let mut asking = login(&trusting, &home, &["--provider-ca-cert-file", &roots]);
    let mut asking = asking.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(asking.stderr.take().unwrap()).lines();
    let client = said.next_line().await.unwrap().expect("it says what it asks for");
    assert!(client.contains("for the client \"strait-cli\" of"), "{client}");
    let line = said.next_line().await.unwrap().expect("it says where to log in");
    assert!(line.starts_with(&format!("Open {}/device?user_code=", provider.issuer())), "{line}");
    assert!(!home.path().join(".straitctl/config").exists(), "nobody has logged in yet");
}
