//! Who is on the machine is not who may administrate: a proxy there speaks for strangers and does not say so.

use std::{fs, net::SocketAddr, os::unix::fs::MetadataExt, path::Path, process::Command};

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::harness::{Global, Options, Zone, addresses, control_plane::ControlPlane, eventually, http};

/// How a proxy passes on what it gets.
#[derive(Clone, Copy, Debug)]
enum Passing {
    /// Byte for byte, as `ssh -R` or a proxy of TCP.
    Bytes,
    /// Request by request, as a proxy of HTTP that adds nothing and names the host it dials.
    Requests,
}

/// A proxy on this machine, which strangers reach.
async fn proxy(to: SocketAddr, passing: Passing) -> SocketAddr {
    let listener = TcpListener::bind((addresses::loopback(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let far = TcpStream::connect(to).await.unwrap();
                let _either_may_hang_up = match passing {
                    Passing::Bytes => pass_bytes(near, far).await,
                    Passing::Requests => pass_requests(near, far, to).await,
                };
            });
        }
    });
    address
}

async fn pass_bytes(mut near: TcpStream, mut far: TcpStream) -> std::io::Result<()> {
    copy_bidirectional(&mut near, &mut far).await.map(|_| ())
}

/// One request a connection, with the host rewritten.
async fn pass_requests(near: TcpStream, far: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    let ((near, mut back), (mut far, mut forth)) = (near.into_split(), far.into_split());
    let mut near = BufReader::new(near);
    let mut line = String::new();
    while near.read_line(&mut line).await? > 2 {
        let is_host = line.to_ascii_lowercase().starts_with("host:");
        let line =
            if is_host { format!("host: {to}\r\nconnection: close\r\n") } else { std::mem::take(&mut line) };
        forth.write_all(line.as_bytes()).await?;
    }
    forth.write_all(b"\r\n").await?;
    tokio::try_join!(copy(&mut near, &mut forth), copy(&mut far, &mut back)).map(|_| ())
}

/// What a stranger gets through the proxy.
async fn ask(proxy: SocketAddr, method: Method, path: &str, body: &Value) -> (StatusCode, String) {
    let client = Client::builder().pool_max_idle_per_host(0).build().unwrap();
    let request = client.request(method, format!("http://{proxy}{path}"));
    let request = if body.is_null() { request } else { request.json(body) };
    let answer = request.send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

async fn may_not_write(proxy: SocketAddr) {
    let admin = json!({ "name": "a", "groups": ["mesh-system:admin"], "validFor": "1h" });
    for (method, path, body) in [
        (Method::PUT, "/meshes/taken", json!({ "type": "Mesh", "name": "taken" })),
        (Method::DELETE, "/meshes/default", Value::Null),
        (Method::DELETE, "/zones/zone-1", Value::Null),
        (Method::PUT, "/global-secrets/a", json!({})),
        (Method::POST, "/tokens/user", admin),
        (Method::POST, "/tokens/zone", json!({ "scope": ["cp"] })),
        (Method::POST, "/tokens/dataplane", json!({ "mesh": "default" })),
        (Method::POST, "/strait/link/approve", Value::Null),
    ] {
        let (status, said) = ask(proxy, method.clone(), path, &body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {said}");
        assert!(
            said.contains("admin-user-token") && said.contains("general.workDir"),
            "where it lies: {said}"
        );
    }
}

#[tokio::test]
async fn a_stranger_behind_a_proxy_on_the_machine_is_a_stranger() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    for cp in [&global.cp, &zone.cp] {
        for passing in [Passing::Bytes, Passing::Requests] {
            let proxy = proxy(cp.api, passing).await;
            may_not_write(proxy).await;
            for path in ["/", "/meshes", "/zones/_overview", "/meshtimeouts"] {
                let (status, said) = ask(proxy, Method::GET, path, &Value::Null).await;
                assert_eq!(status, StatusCode::OK, "{passing:?} {path}: {said}");
            }
            for path in ["/config", "/secrets", "/global-secrets", "/global-secrets/admin-user-token"] {
                let (status, said) = ask(proxy, Method::GET, path, &Value::Null).await;
                assert_eq!(status, StatusCode::FORBIDDEN, "{passing:?} {path}: {said}");
                assert!(!said.contains("eyJ") && !said.contains("PRIVATE"), "{path}: {said}");
            }
            let (_, who) = ask(proxy, Method::GET, "/who-am-i", &Value::Null).await;
            assert!(who.contains("mesh-system:anonymous"), "{passing:?}: {who}");
        }
    }
    assert_eq!(global.get("/who-am-i").await["name"], "mesh-system:admin", "its token gets through");
}

#[tokio::test]
async fn kumas_way_makes_them_administrators_and_is_warned_of() {
    let trusting = Options::default().with("apiServer.authn.localhostIsAdmin", "true");
    let global = Global::start_with(trusting).await;
    for passing in [Passing::Bytes, Passing::Requests] {
        let address = proxy(global.api, passing).await;
        // What copies bytes also hands on the name that was called, as long as that is this machine.
        let (_, who) = ask(address, Method::GET, "/who-am-i", &Value::Null).await;
        assert!(who.contains("mesh-system:admin"), "{passing:?}: {who}");
    }
    let warning = "apiServer.authn.localhostIsAdmin is true";
    assert!(global.process.log().contains(warning), "{}", global.process.log());
    let (_, index) = ask(global.api, Method::GET, "/", &Value::Null).await;
    assert!(index.contains(warning), "{index}");
}

/// straitctl of somebody whose home and folder are these.
async fn straitctl(folder: &Path, environment: &[(&str, &str)], args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straitctl"));
    command.args(args).env("HOME", folder).current_dir(folder).envs(environment.iter().copied());
    for unset in ["STRAIT_GENERAL_WORK_DIR", "STRAITCTL_TOKEN", "STRAITCTL_ADDRESS"] {
        if environment.iter().all(|(name, _)| *name != unset) {
            command.env_remove(unset);
        }
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// A user that runs nothing here.
const SOMEBODY: u32 = 65_531;

/// Whether straitctl is the administrator there.
async fn administrates(folder: &Path, args: &[&str]) -> (bool, String) {
    straitctl(folder, &[], &[&["get", "globalsecrets"], args].concat()).await
}

#[tokio::test]
async fn straitctl_on_the_machine_is_administrator_by_the_file() {
    let home = TempDir::new().unwrap();
    let work_dir = home.path().join("own").join(".strait");
    let options = Options::default().with("general.workDir", &work_dir.display().to_string());
    let mut global = Global::start_with(options).await;
    let (file, address) = (work_dir.join("admin-user-token"), global.url(""));
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&file), mode(&work_dir)), (0o600, 0o700));
    assert!(global.process.log().contains(&file.display().to_string()), "the log says where it is");

    // Where the process was started, and with the same settings: no flag. Elsewhere: one.
    let (here, at) = (work_dir.parent().unwrap(), ["--address", &address]);
    let (ok, said) = administrates(here, &at).await;
    assert!(ok && said.contains("user-token-signing-key-1"), "{said}");
    let folder = work_dir.display().to_string();
    let set = [("STRAIT_GENERAL_WORK_DIR", folder.as_str()), ("STRAITCTL_ADDRESS", address.as_str())];
    assert!(straitctl(home.path(), &set, &["get", "globalsecrets"]).await.0);
    assert!(administrates(home.path(), &["--address", &address, "--work-dir", &folder]).await.0);
    let (ok, said) = administrates(home.path(), &at).await;
    assert!(!ok && said.contains("--work-dir") && said.contains("Access Denied"), "{said}");
    assert!(
        straitctl(home.path(), &[], &["get", "meshes", "--address", &address]).await.0,
        "reading goes on"
    );

    // What is named wins.
    let (ok, said) = administrates(here, &["--address", &address, "--token", "a.b.c"]).await;
    assert!(!ok && said.contains("the token is not valid"), "{said}");

    // Gone, while it runs and while it does not.
    let first = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let again = async || {
        eventually("the file", || async { fs::read_to_string(&file).map_err(|e| e.to_string()) }).await
    };
    assert_ne!(again().await, first);
    assert!(global.process.stop().await.success());
    fs::write(&file, "edited").unwrap();
    global.start_again().await;
    assert_eq!(mode(&file), 0o600);
    assert!(administrates(here, &at).await.0);

    // Opened to others: not used, and soon replaced.
    global.process.stop().await;
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (ok, said) = straitctl(here, &[], &["get", "meshes", "--address", &address]).await;
    assert!(!ok && said.contains("mode 644"), "{said}");
    // Somebody else's: not used either, though only he can read it.
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let owner = fs::metadata(&file).unwrap().uid();
    std::os::unix::fs::chown(&file, Some(SOMEBODY), None)
        .expect("tests of the machine need the rights of root");
    let (ok, said) = straitctl(here, &[], &["get", "meshes", "--address", &address]).await;
    assert!(!ok && said.contains(&format!("belongs to user {SOMEBODY}")), "{said}");
    std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
    global.start_again().await;
    assert!(administrates(here, &at).await.0);
}

#[tokio::test]
async fn a_new_key_and_a_revocation_make_a_new_token() {
    let global = Global::start().await;
    let replaced = async |before: String| {
        eventually("another token", || async {
            let now = global.admin_token();
            if now == before { Err("the same") } else { Ok(now) }
        })
        .await
    };
    let first = global.admin_token();
    let key = global.straitctl(&["generate", "signing-key", "--format", "pem"]);
    secret(&global, "user-token-signing-key-2", &key).await;
    let second = replaced(first.clone()).await;
    assert_eq!(global.call(Method::DELETE, "/global-secrets/user-token-signing-key-1", None).await.0, 200);
    assert_eq!(who(&global, &first).await, StatusCode::UNAUTHORIZED);
    assert_eq!(who(&global, &second).await, StatusCode::OK);

    let claims: Value = claims_of(&second);
    secret(&global, "user-token-revocations", claims["jti"].as_str().unwrap()).await;
    let third = replaced(second.clone()).await;
    assert_eq!(who(&global, &second).await, StatusCode::UNAUTHORIZED);
    assert_eq!(who(&global, &third).await, StatusCode::OK);
}

async fn who(cp: &ControlPlane, token: &str) -> StatusCode {
    http::client().get(cp.url("/who-am-i")).bearer_auth(token).send().await.unwrap().status()
}

async fn secret(cp: &ControlPlane, name: &str, data: &str) {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let body = json!({ "type": "GlobalSecret", "name": name, "data": BASE64_STANDARD.encode(data) });
    let (status, said) = cp.call(Method::PUT, &format!("/global-secrets/{name}"), Some(body)).await;
    assert!(status.is_success(), "{said}");
}

fn claims_of(token: &str) -> Value {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

/// Something that is no control plane: what it is asked comes out of the receiver, and this is its answer.
async fn listening(at: SocketAddr, answer: String) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind(at).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, hear) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (read, mut write) = stream.split();
            let (mut lines, mut request) = (BufReader::new(read), String::new());
            while lines.read_line(&mut request).await.is_ok_and(|read| read > 2) {}
            let _hung_up = write.write_all(answer.as_bytes()).await;
            let _test_is_over = heard.send(request);
        }
    });
    (address, hear)
}

/// Refuses whoever shows nothing, so that one who has something would show it.
fn refusal() -> String {
    "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
}

#[tokio::test]
async fn the_token_is_shown_to_nobody_else() {
    let mut global = Global::start().await;
    let (folder, token) = (global.folder.path().to_owned(), global.admin_token());
    let folder = folder.as_path();
    let set = [("STRAIT_GENERAL_WORK_DIR", folder.to_str().unwrap())];
    let got = async |heard: &mut mpsc::UnboundedReceiver<String>, what: &str| {
        let request = heard.recv().await.unwrap_or_else(|| panic!("{what}: it was asked"));
        assert!(request.contains(" /"), "{what}: {request}");
        assert!(!request.contains(&token) && !request.to_lowercase().contains("authorization"), "{what}");
    };

    // Another port of this machine, as a tunnel to another control plane would be.
    let (other, mut heard) = listening((addresses::loopback(), 0).into(), refusal()).await;
    let (ok, said) =
        straitctl(folder, &set, &["get", "meshes", "--address", &format!("http://{other}")]).await;
    assert!(!ok && said.contains(&global.api.port().to_string()), "{said}");
    got(&mut heard, "another port").await;

    // The same port at an address of this machine that others reach.
    if let Some(own) = own_address() {
        let (shared, mut heard) = listening((own, global.api.port()).into(), refusal()).await;
        straitctl(folder, &set, &["get", "meshes", "--address", &format!("http://{shared}")]).await;
        got(&mut heard, "an address of the network").await;
    }

    // A proxy that the environment names is not asked at all, and a redirect is not followed.
    let (proxy, mut heard) = listening((addresses::loopback(), 0).into(), refusal()).await;
    let through = format!("http://{proxy}");
    let by_proxy =
        [&set[..], &[("http_proxy", &through), ("HTTP_PROXY", &through), ("ALL_PROXY", &through)]].concat();
    let address = global.url("");
    let (ok, said) = straitctl(folder, &by_proxy, &["get", "globalsecrets", "--address", &address]).await;
    assert!(ok && heard.try_recv().is_err(), "{said}");
    global.process.stop().await;
    let to = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {through}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    let (_, mut asked) = listening(global.api, to).await;
    let (ok, _) = straitctl(folder, &set, &["get", "meshes", "--address", &address]).await;
    assert!(
        !ok && asked.recv().await.unwrap().contains(&token),
        "who has the port of the control plane is asked"
    );
    assert!(heard.try_recv().is_err(), "and nobody it points to");
}

/// An address of this machine beside loopback, if it is on a network.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: this asks which address would be used.
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .map(|address| address.ip())
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_opens_no_other_way() {
    let folder = TempDir::new().unwrap();
    let work_dir = folder.path().join("work");
    fs::create_dir_all(work_dir.join("admin-user-token")).unwrap();
    let options = Options::default()
        .with("general.workDir", &work_dir.display().to_string())
        .with("store.type", "memory");
    let global = Global::start_with(options).await;
    let log = global.process.log();
    assert!(
        log.contains("there is no token of the administrator") && log.contains("general.workDir"),
        "{log}"
    );
    may_not_write(global.api).await;
    fs::remove_dir(work_dir.join("admin-user-token")).unwrap();
    let at = ["--address", &global.url(""), "--work-dir", work_dir.to_str().unwrap()];
    eventually("an administrator", || async {
        let (ok, said) = administrates(folder.path(), &at).await;
        if ok { Ok(()) } else { Err(said) }
    })
    .await;
}
