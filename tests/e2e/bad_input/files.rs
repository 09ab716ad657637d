//! What is wrong in the files straitctl is given, and with the control plane it is pointed at.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use reqwest::{Method, StatusCode};

use crate::harness::{Global, control_plane::write};

/// Documents that must not be applied, and the words that say where and why.
#[rustfmt::skip]
const FILES: &[(&str, &str, &[&str])] = &[
    ("malformed YAML", "type: [Mesh\n", &["document 2", "at line"]),
    ("malformed JSON", "{\"type\": \"Mesh\", \n", &["document 2", "at line"]),
    ("no document", "hello\n", &["document 2", "not an object"]),
    ("no type", "name: x\n", &["document 2", "type: must be set"]),
    ("Kubernetes manifest", "kind: Mesh\nmetadata: {name: x}\n", &["write type, name and mesh at the top instead"]),
    ("unknown kind", "type: MeshNonsense\nname: x\n", &["document 2", "no resource type \"MeshNonsense\""]),
    ("misspelt kind", "type: MeshTimout\nname: x\n", &["did you mean MeshTimeout?"]),
    ("key twice", "type: Mesh\nname: x\nname: y\n", &["document 2", "duplicate", "name"]),
    ("invalid name", "type: Mesh\nname: Not_A_Name\n", &["Mesh Not_A_Name", "name: ", "lower case alphanumeric"]),
    ("number for a name", "type: Mesh\nname: 7\n", &["name: must be a string; quote it in YAML"]),
    ("number for a label", "type: Mesh\nname: x\nlabels: {a: 7}\n", &["labels[\"a\"]: must be a string"]),
    ("spec of a wrong shape", "type: MeshTimeout\nname: x\nspec: {to: 7}\n", &["MeshTimeout default/x", "spec.to"]),
    ("spec that breaks a rule", "type: MeshTimeout\nname: x\nspec: {}\n", &["spec: at least one of"]),
];

#[tokio::test]
async fn straitctl_names_file_document_and_field_before_it_sends_anything() {
    let global = Global::start().await;
    let folder = global.folder.path();
    for (class, text, says) in FILES {
        let file = write(folder, "bad.yaml", &format!("type: Mesh\nname: good\n---\n{text}"));
        let (ok, _, err) = global.try_straitctl(&["apply", "-f", &file.display().to_string()]);
        assert!(!ok && err.contains("bad.yaml was not applied"), "{class}: {err}");
        for words in *says {
            assert!(err.contains(words), "{class} does not say {words:?}: {err}");
        }
    }
    let (status, _) = global.call(Method::GET, "/meshes/good", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "the good document before each bad one was not sent");

    let policy = "type: MeshTimeout\nname: x\nmesh: nowhere\nspec: {to: [{targetRef: {kind: Mesh}, default: \
                  {connectionTimeout: 1s}}]}\n";
    let wrong_mesh = write(folder, "mesh.yaml", policy).display().to_string();
    let latin = folder.join("latin.yaml");
    std::fs::write(&latin, b"type: Mesh\nname: \xe9\n").unwrap();
    for (file, says) in [
        ("/nowhere.yaml", "read /nowhere.yaml: No such file"),
        (&latin.display().to_string(), "is no text: save it as UTF-8"),
        (&wrong_mesh, "there is no mesh \"nowhere\" here; create it on global"),
    ] {
        let (ok, _, err) = global.try_straitctl(&["apply", "-f", file]);
        assert!(!ok && err.contains(says), "{file}: {err}");
    }
}

#[tokio::test]
async fn straitctl_says_what_is_wrong_with_the_address() {
    let global = Global::start().await;
    let api = global.url("");
    let tls = api.replace("http://", "https://");
    let kds = global.kds_address().replace("grpcs://", "http://");
    for (address, says) in [
        ("http://127.0.0.1:1", "is it running? --address names another one"),
        ("ftp://x", "starts with http:// or https://"),
        (&tls, "does not speak TLS: name it with http://"),
        (&kds, "is it the API of a control plane"),
    ] {
        let mut asking = Command::new(env!("CARGO_BIN_EXE_straitctl"));
        let asked =
            asking.args(["--address", address, "get", "meshes"]).env("HOME", global.folder.path()).output();
        let err = String::from_utf8_lossy(&asked.unwrap().stderr).into_owned();
        assert!(err.starts_with("Error: ") && err.contains(says), "{address}: {err}");
    }
}

/// `straitctl ... | head -1`.
#[tokio::test]
async fn a_reader_that_leaves_early_breaks_nothing() {
    let global = Global::start().await;
    let mut listing = Command::new(env!("CARGO_BIN_EXE_straitctl"))
        .args(["--address", &global.url(""), "get", "meshes"])
        .env("HOME", global.folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(listing.stdout.take());
    let mut err = String::new();
    listing.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(listing.wait().unwrap().success() && err.is_empty(), "{err}");
}
