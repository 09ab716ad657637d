//! What is wrong on the command line, in the files it names, and in what answers it, and certificates nobody should
//! believe.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    process::Command,
};
use tokio_rustls::TlsAcceptor;

use super::{
    chains::{CHAINS, Chain},
    table::{Answer, Case, Front, all_right, case, run, tally},
};
use crate::harness::{
    Global,
    control_plane::ControlPlane,
    tally::{
        Class::{Callers, Certificates, Content},
        Tally,
    },
};

/// A call of straitctl. In the arguments `{file}` stands for the file, `{api}`, `{tls}` and `{kds}` for
/// addresses.
pub struct Called {
    args: Vec<String>,
    file: Vec<u8>,
    environment: Vec<(&'static str, String)>,
}

const FAILED: &[&str] = &["exit 1"];
/// What clap finds wrong.
const USAGE: &[&str] = &["exit 2"];
const EITHER: &[&str] = &["exit 1", "exit 2"];
const PANIC: &[&str] = &["panicked", "RUST_BACKTRACE"];

fn called(
    what: impl Into<std::borrow::Cow<'static, str>>,
    line: &str,
    file: &[u8],
    verdicts: &'static [&'static str],
    says: &'static [&'static str],
) -> Case<Called> {
    let args = line
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| word.replace("{space}", " ").replace("{nothing}", ""))
        .collect();
    case(Callers, what, Called { args, file: file.to_vec(), environment: Vec::new() }, verdicts, says)
        .hiding(PANIC)
}

/// Documents behind one that is right, with the words that say where and why.
#[rustfmt::skip]
const FILES: &[(&str, &str, &[&str])] = &[
    ("malformed YAML", "type: [Mesh\n", &["document 2", "at line"]),
    ("malformed JSON", "{\"type\": \"Mesh\", \n", &["document 2", "at line"]),
    ("no document", "hello\n", &["document 2", "not an object"]),
    ("no type", "name: x\n", &["document 2", "type: must be set"]),
    ("Kubernetes manifest", "kind: Mesh\nmetadata: {name: x}\n", &["write type, name and mesh at the top instead"]),
    ("unknown kind", "type: MeshNonsense\nname: x\n", &["document 2", "no resource type \"MeshNonsense\""]),
    ("misspelt kind", "type: MeshTimout\nname: x\n", &["did you mean MeshTimeout?"]),
    ("key twice", "type: Mesh\nname: x\nname: y\n", &["document 2", "name"]),
    ("invalid name", "type: Mesh\nname: Not_A_Name\n", &["Mesh Not_A_Name", "name: ", "lower case alphanumeric"]),
    ("number for a name", "type: Mesh\nname: 7\n", &["name: must be a string; quote it in YAML"]),
    ("number for a label", "type: Mesh\nname: x\nlabels: {a: 7}\n", &["labels[\"a\"]: must be a string"]),
    ("spec of a wrong shape", "type: MeshTimeout\nname: x\nspec: {to: 7}\n", &["MeshTimeout default/x", "spec.to"]),
    ("spec that breaks a rule", "type: MeshTimeout\nname: x\nspec: {}\n", &["spec: at least one of"]),
];

#[rustfmt::skip]
fn files() -> Vec<Case<Called>> {
    let mut table: Vec<Case<Called>> = FILES.iter().map(|(what, text, says)| {
        let text = format!("type: Mesh\nname: good\n---\n{text}");
        Case { class: Content, ..called(*what, "apply -f {file}", text.as_bytes(), FAILED, says) }
    }).collect();
    let policy = "type: MeshTimeout\nname: x\nmesh: nowhere\nspec: {to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}\n";
    table.extend([
        called("a file there is not", "apply -f /nowhere.yaml", b"", FAILED, &["read /nowhere.yaml", "No such file"]),
        called("a file that is no text", "apply -f {file}", b"type: Mesh\nname: \xe9\n", FAILED, &["is no text: save it as UTF-8"]),
        called("a mesh there is not", "apply -f {file}", policy.as_bytes(), FAILED, &["there is no mesh \"nowhere\" here; create it on global"]),
        called("a program", "apply -f /bin/true", b"", FAILED, &["no text"]),
        called("an address of nobody", "apply -f http://127.0.0.1:1/x.yaml", b"", FAILED, &["127.0.0.1:1"]),
        called("an address of another sort", "apply -f ftp://127.0.0.1/x.yaml", b"", FAILED, &[]),
        called("a document with a path for a name", "apply -f {file}", b"type: Mesh\nname: ../default\n", FAILED, &["name"]),
        called("a document that colours the screen", "apply -f {file}", b"type: \"\\e[2J\\e[31mMesh\"\nname: x\n", FAILED, &[]).hiding(&["\u{1b}[2J", "panicked"]),
        called("one document too many of one name", "apply -f {file}", b"type: Mesh\nname: Two\n---\ntype: Mesh\nname: Two\n", FAILED, &[]),
    ]);
    table
}

#[rustfmt::skip]
fn arguments() -> Vec<Case<Called>> {
    let plain = |what: &'static str, line: &str, verdicts, says| called(what, line, b"", verdicts, says);
    vec![
        plain("nothing", "", USAGE, &[]),
        plain("a command there is not", "destroy", USAGE, &[]),
        plain("a flag there is not", "get meshes --nonsense", USAGE, &["--nonsense"]),
        plain("a kind there is not", "get nonsense", EITHER, &["nonsense"]),
        plain("a kind with a path", "get ../secrets", EITHER, &[]),
        plain("a name with a path", "get mesh ../global-secrets", FAILED, &[]),
        plain("a name with a query", "get mesh default?size=1", FAILED, &[]),
        plain("a name with a newline", "get mesh a\nb", FAILED, &[]),
        plain("a mesh with a path", "get dataplanes -m ../default", FAILED, &[]),
        plain("a form there is not", "get meshes -o nonsense", USAGE, &["nonsense"]),
        plain("a size below nothing", "get meshes --size=-1", EITHER, &[]),
        plain("a size beyond numbers", "get meshes --size=99999999999999999999", EITHER, &[]),
        plain("an offset of words", "get meshes --offset=abc", EITHER, &[]),
        plain("deletes what is not there", "delete mesh nowhere", FAILED, &["nowhere"]),
        plain("deletes with a path", "delete mesh ../default", FAILED, &[]),
        plain("deletes a kind there is not", "delete nonsense x", EITHER, &[]),
        plain("a token for a time below nothing", "generate dataplane-token --valid-for=-1h", EITHER, &[]),
        plain("a token for a time of words", "generate zone-token --zone a --valid-for soon", EITHER, &[]),
        plain("a token of a mesh there is not", "generate dataplane-token --mesh nowhere", FAILED, &[]),
        plain("a token of a scope there is not", "generate zone-token --zone a --scope everything", EITHER, &[]),
        plain("a token with a tag without a value", "generate dataplane-token --tag team", EITHER, &[]),
        plain("a user's token without a time", "generate user-token --name a", EITHER, &[]),
        plain("a proxy there is not", "inspect dataplane nobody --type config-dump", FAILED, &[]),
        plain("a dump there is not", "inspect dataplane nobody --type shutdown", USAGE, &[]),
        plain("a wait without an end", "wait zones --timeout=-1s", EITHER, &[]),
        plain("a time of words", "get meshes --api-timeout soon", USAGE, &["--api-timeout"]),
        plain("a time below nothing", "get meshes --api-timeout=-1s", EITHER, &[]),
        plain("a token with a newline", "get meshes --token a\nb", FAILED, &["is not text"]),
        plain("an authority there is not", "get meshes --ca-cert-file /nowhere.crt", FAILED, &["/nowhere.crt"]),
        called("an authority that is none", "get meshes --ca-cert-file {file}", b"nonsense", EITHER, &[]),
        called("a bootstrap with a token file there is not", "bootstrap --name x --token-file /nowhere", b"", FAILED, &["/nowhere"]),
    ]
}

#[rustfmt::skip]
fn addresses() -> Vec<Case<Called>> {
    let at = |what: &'static str, address: &str, says| called(what, &format!("--address {address} get meshes"), b"", EITHER, says);
    let mut table = vec![
        at("nobody there", "http://127.0.0.1:1", &["is it running? --address names another one"]),
        at("another scheme", "ftp://x", &["starts with http:// or https://"]),
        at("TLS where there is none", "{tls}", &["does not speak TLS: name it with http://"]),
        at("the sync port", "{kds}", &["is it the API of a control plane"]),
        at("no address", "{nothing}", &[]),
        at("no host", "http://", &[]),
        at("half an address", "http://[::1", &[]),
        at("a port there is not", "http://127.0.0.1:99999", &[]),
        at("a script", "javascript:alert(1)", &[]),
        at("a file", "file:///etc/passwd", &["starts with http:// or https://"]),
        at("a host with a newline", "http://a\nb", &[]),
        at("another page", "{api}/nowhere", &[]),
    ];
    let configured = |what: &'static str, file: &str, says| called(what, "--config-file {file} get meshes", file.as_bytes(), EITHER, says);
    table.extend([
        configured("a configuration that is no YAML", "contexts: [", &[]),
        configured("a configuration that is a list", "[]", &[]),
        configured("a context of nobody", "currentContext: x\ncontexts: [{name: x, controlPlane: nobody}]\ncontrolPlanes: []\n", &[]),
        configured("a context there is not", "currentContext: nowhere\ncontexts: []\ncontrolPlanes: []\n", &[]),
        configured("an address that is a list", "currentContext: x\ncontexts: [{name: x, controlPlane: x}]\ncontrolPlanes: [{name: x, coordinates: {apiServer: {url: []}}}]\n", &[]),
        configured("a configuration of laughs", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\ncurrentContext: nowhere\n", &[]),
    ]);
    table
}

/// Runs straitctl.
struct Straitctl<'a> {
    global: &'a Global,
}

impl Front for Straitctl<'_> {
    type Input = Called;

    fn name(&self) -> &str {
        "straitctl"
    }

    async fn send(&self, input: &Called) -> Answer {
        let folder = self.global.folder.path();
        let file = folder.join("given");
        std::fs::write(&file, &input.file).unwrap();
        let api = self.global.url("");
        let known = [
            ("{file}", file.display().to_string()),
            ("{tls}", api.replace("http://", "https://")),
            ("{kds}", self.global.kds_address().replace("grpcs://", "http://")),
            ("{api}", api.clone()),
        ];
        let fill =
            |arg: &String| known.iter().fold(arg.clone(), |arg, (name, value)| arg.replace(name, value));
        let args: Vec<String> = input.args.iter().map(fill).collect();
        let mut environment = input.environment.clone();
        if !args.iter().any(|arg| arg == "--address" || arg == "--config-file") {
            environment.push(("STRAITCTL_ADDRESS", api));
        }
        straitctl(self.global, &args, &environment).await
    }
}

async fn straitctl(cp: &ControlPlane, args: &[String], environment: &[(&str, String)]) -> Answer {
    let running = Command::new(env!("CARGO_BIN_EXE_straitctl"))
        .args(args)
        .env("HOME", cp.folder.path())
        .env("STRAIT_GENERAL_WORK_DIR", cp.folder.path())
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .kill_on_drop(true)
        .output();
    let output = running.await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    let verdict = output.status.code().map_or("killed".to_owned(), |code| format!("exit {code}"));
    Answer::new(verdict, String::from_utf8_lossy(&text))
}

/// An answer of something that is no control plane, or one that has been taken over.
type Said = fn() -> Vec<u8>;

#[rustfmt::skip]
fn answers() -> Vec<Case<Said>> {
    let row = |what: &'static str, said: Said, verdicts| case(Callers, what, said, verdicts, &[]).hiding(PANIC);
    vec![
        row("hangs up", Vec::new, FAILED),
        row("an answer that is no HTTP", || b"220 mail ESMTP\r\n".to_vec(), FAILED),
        row("an answer of nothing", || ok("application/json", b""), FAILED),
        row("a page", || ok("text/html", b"<html>"), FAILED),
        row("half a document", || ok("application/json", b"{\"items\": ["), FAILED),
        row("items that are none", || ok("application/json", b"{\"items\": {\"a\": 1}}"), FAILED),
        row("items of other types", || ok("application/json", b"{\"items\": [1, null, \"x\", []], \"total\": -1}"), &["exit 0", "exit 1"]),
        row("a list 10,000 deep", || ok("application/json", &[b"[".repeat(10_000), b"]".repeat(10_000)].concat()), FAILED),
        row("a promise of more than comes", || b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{".to_vec(), FAILED),
        row("a way to a file", || b"HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n".to_vec(), FAILED),
        row("a way round and round", || b"HTTP/1.1 302 Found\r\nlocation: /meshes\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(), FAILED),
        row("a reason of 1 MiB", || refusal(&"no ".repeat(350_000)), FAILED),
        row("a reason that clears the screen", || refusal("\\u001b[2J\\u001b[31mdone"), FAILED),
        row("a header of 1 MiB", || [b"HTTP/1.1 200 OK\r\nx: ".to_vec(), b"y".repeat(1 << 20), b"\r\n\r\n".to_vec()].concat(), FAILED),
    ]
}

fn ok(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn refusal(detail: &str) -> Vec<u8> {
    let body = format!("{{\"status\":400,\"title\":\"No\",\"detail\":\"{detail}\"}}");
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    format!("{head}{body}").into_bytes()
}

/// Asks something that answers so.
struct Impostor<'a>(&'a Global);

impl Front for Impostor<'_> {
    type Input = Said;

    fn name(&self) -> &str {
        "straitctl before an impostor"
    }

    async fn send(&self, input: &Said) -> Answer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let said = input();
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut heard = [0; 4096];
                let _ended = stream.read(&mut heard).await;
                let _ended = stream.write_all(&said).await;
                let _ended = stream.shutdown().await;
            }
        });
        let args = ["--api-timeout", "5s", "--address"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("http://{address}")]);
        let args: Vec<String> = args.chain(["get".to_owned(), "meshes".to_owned()]).collect();
        let answer = straitctl(self.0, &args, &[]).await;
        serving.abort();
        answer
    }
}

fn chains() -> Vec<Case<&'static Chain>> {
    let says: &[&str] = &["nobody here vouches for", "--ca-cert-file"];
    CHAINS.iter().map(|chain| case(Certificates, chain.what, chain, FAILED, says).hiding(PANIC)).collect()
}

/// Asks a control plane that shows such a certificate.
struct Shown<'a>(&'a Global);

impl Front for Shown<'_> {
    type Input = &'static Chain;

    fn name(&self) -> &str {
        "straitctl over TLS"
    }

    async fn send(&self, input: &&'static Chain) -> Answer {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listener, pair) = (TcpListener::bind(address).await.unwrap(), input.made());
        let address = listener.local_addr().unwrap();
        let file = self.0.folder.path().join("authority.crt");
        std::fs::write(&file, &pair.authority).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(pair.server_config(&["http/1.1"])));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let mut heard = [0; 4096];
                    let _ended = stream.read(&mut heard).await;
                    let _ended = stream
                        .write_all(&ok("application/json", b"{\"items\":[],\"total\":0,\"next\":null}"))
                        .await;
                    let _ended = stream.shutdown().await;
                }
            }
        });
        let file = file.display().to_string();
        let address = format!("https://{address}");
        let args = ["--ca-cert-file", &file, "--address", &address, "get", "meshes"].map(str::to_owned);
        let answer = straitctl(self.0, &args, &[]).await;
        serving.abort();
        answer
    }
}

fn calls() -> Vec<Case<Called>> {
    files().into_iter().chain(arguments()).chain(addresses()).collect()
}

/// What is tried.
pub fn count() -> Tally {
    let mut all = tally(&calls());
    all.join(&tally(&answers()));
    all.join(&tally(&chains()));
    all
}

#[tokio::test]
async fn straitctl_says_what_is_wrong_and_sends_nothing_of_it() {
    let global = Global::start().await;
    all_right([
        run(&Straitctl { global: &global }, &calls(), &[&global.process]).await,
        run(&Impostor(&global), &answers(), &[]).await,
        run(&Shown(&global), &chains(), &[]).await,
    ]);
    assert_eq!(
        Shown(&global).send(&&super::chains::RIGHT).await.verdict,
        "exit 0",
        "a certificate that is right is believed"
    );
    assert_eq!(global.get("/meshes").await["total"], 1, "the good document before each bad one was not sent");
}

/// `straitctl ... | head -1`.
#[tokio::test]
async fn a_reader_that_leaves_early_breaks_nothing() {
    let global = Global::start().await;
    let mut listing = std::process::Command::new(env!("CARGO_BIN_EXE_straitctl"))
        .args(["--address", &global.url(""), "get", "meshes"])
        .env("HOME", global.folder.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(listing.stdout.take());
    let mut err = String::new();
    std::io::Read::read_to_string(&mut listing.stderr.take().unwrap(), &mut err).unwrap();
    assert!(listing.wait().unwrap().success() && err.is_empty(), "{err}");
}
