//! The same bad documents at every front that reads documents.

use reqwest::Method;
use serde_json::json;

use super::{
    ads::{self, Ask, node, text},
    documents::{self, Document},
    grpc::Grpc,
    http::{Http, put, request},
    table::{Answer, Case, Front, all_right, run, tally},
};
use crate::harness::{Global, Options, Zone, control_plane::ControlPlane, eventually, tally::Tally};

/// REST.
struct Rest(Http);
/// `straitctl apply`.
struct Files<'a>(&'static str, &'a ControlPlane);
/// The inline resource of a proxy on its stream.
struct Streams(Grpc, String);
/// The inline resource of a proxy that asks for its bootstrap.
struct Bootstraps(Http, String);

/// What a verdict means to the author: both come with reasons, which may be quoted within JSON.
fn judged(verdict: &str, text: &str) -> Answer {
    let verdict = match verdict {
        "200" | "201" | "served" | "exit 0" => "taken",
        "400" | "413" | "422" | "InvalidArgument" | "exit 1" => "refused",
        other => other,
    };
    Answer::new(verdict, text.replace("\\\"", "\""))
}

impl Front for Rest {
    type Input = Document;

    fn name(&self) -> &str {
        self.0.name()
    }

    async fn send(&self, input: &Document) -> Answer {
        let name = percent_encoding::utf8_percent_encode(&input.name, percent_encoding::NON_ALPHANUMERIC);
        let path = match input.collection {
            "meshes" => format!("/meshes/{name}"),
            collection => format!("/meshes/default/{collection}/{name}"),
        };
        let answer = self.0.send(&put(&path, &input.text)).await;
        if answer.verdict.starts_with('2') {
            // What one case leaves behind would decide about the next.
            self.0.send(&request("DELETE", &path, "", "")).await;
        }
        // A name that no path can have is nobody's: it is told so, or that nothing has it.
        let verdict = if answer.verdict == "404" && input.name == ".." { "400" } else { &answer.verdict };
        judged(verdict, &answer.text)
    }
}

impl Front for Files<'_> {
    type Input = Document;

    fn name(&self) -> &str {
        self.0
    }

    async fn send(&self, input: &Document) -> Answer {
        let file = self.1.folder.path().join("bad.yaml");
        std::fs::write(&file, &input.text).unwrap();
        let (ok, err) = self.1.straitctl_within(&["apply", "-f", &file.display().to_string()]).await;
        if ok {
            let kind = if input.collection == "meshes" { "mesh" } else { "dataplane" };
            let _nothing_of_it_is_left = self.1.try_straitctl(&["delete", kind, &input.name]);
        }
        judged(if ok { "exit 0" } else { "exit 1" }, &err)
    }
}

impl Front for Streams {
    type Input = Document;

    fn name(&self) -> &str {
        "ADS"
    }

    async fn send(&self, input: &Document) -> Answer {
        let id = format!("default.{}", input.name);
        let node = node(&id, [("dataplane.resource", text(input.text.as_str()))]);
        let mut call = ads::delta(&[Ask::of(ads::CDS).from(node)]);
        call.metadata.push(("authorization".to_owned(), self.1.clone()));
        let answer = self.0.call(&call).await;
        judged(&answer.verdict, &answer.text)
    }
}

impl Front for Bootstraps {
    type Input = Document;

    fn name(&self) -> &str {
        "bootstrap"
    }

    async fn send(&self, input: &Document) -> Answer {
        let body = json!({"mesh": "default", "name": input.name, "dataplaneToken": self.1,
            "dataplaneResource": input.text});
        let answer = self
            .0
            .send(&request("POST", "/bootstrap", "content-type: application/json\r\n", body.to_string()))
            .await;
        judged(&answer.verdict, &answer.text)
    }
}

/// Those a proxy can bring along: without a text or a name there is nothing to bring.
fn inline() -> Vec<Case<Document>> {
    let all = documents::dataplanes().into_iter().chain(documents::yaml());
    all.filter(|case| !case.input.text.trim().is_empty()).collect()
}

fn files() -> Vec<Case<Document>> {
    let all = documents::dataplanes().into_iter().chain(documents::yaml());
    // A file without any document, or with a null one, holds nothing to apply, which is fine.
    all.filter(|case| !matches!(&*case.what, "nothing" | "only null" | "only a comment" | "only an anchor"))
        .collect()
}

/// What is tried.
pub fn count() -> Tally {
    let mut all = tally(&documents::dataplanes());
    for table in [files(), inline(), inline(), documents::policies(), documents::policies()] {
        all.join(&tally(&table));
    }
    all
}

#[tokio::test]
async fn global_finds_what_is_wrong_in_policies() {
    let global = Global::start().await;
    let rest = Rest(Http::of_admin("global REST", &global));
    let files = Files("straitctl apply on global", &global);
    all_right([
        run(&rest, &documents::policies(), &[&global.process]).await,
        run(&files, &documents::policies(), &[&global.process]).await,
    ]);
    assert_eq!(global.get("/meshes/default").await["name"], "default");
}

#[tokio::test]
async fn a_zone_finds_what_is_wrong_in_dataplanes_wherever_they_come_from() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let certificate = std::fs::read_to_string(zone.certificate()).unwrap();
    let token = zone.proxy_token("default", &[]).await;
    let streams = Streams(Grpc::new("ADS", zone.dp_server, &certificate), token.clone());
    let bootstraps = Bootstraps(Http::tls("bootstrap", zone.dp_server, &certificate), token);
    let rest = Rest(Http::of_admin("zone REST", &zone));
    let by_file = Files("straitctl apply on a zone", &zone);
    all_right([
        run(&rest, &documents::dataplanes(), &[&zone.process]).await,
        run(&by_file, &files(), &[&zone.process]).await,
        run(&streams, &inline(), &[&zone.process]).await,
        run(&bootstraps, &inline(), &[&zone.process]).await,
    ]);
    zone.apply(&ads::dataplane("after"));
    let (status, _) = zone.call(Method::GET, "/meshes/default/dataplanes/after", None).await;
    assert!(status.is_success());
}
