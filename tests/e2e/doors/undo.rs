//! Taking back much at once: it is made in turn, off the threads that serve everybody, and has a bound.

use std::time::Duration;

use futures::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    answers::Peak,
    stage::{Door, Stage, Watching},
};
use crate::harness::{Global, control_plane::ControlPlane, http};

/// Policies, each of a third of a megabyte.
const POLICIES: usize = 40;
/// How many of them are few enough to be taken back together.
const SOME: usize = 15;
/// Who asks at once.
const AT_ONCE: usize = 6;
/// What is still there afterwards, most of it the allocator's.
const LEFT: u64 = 192;

/// Writes all of the policies, and returns the revision of each.
async fn write(cp: &ControlPlane, seconds: usize) -> Vec<u64> {
    let target = json!({"kind": "MeshService", "name": "x".repeat(4000)});
    let timeout = format!("{seconds}s");
    let rule = json!({"targetRef": target, "default": {"idleTimeout": timeout}});
    let mut revisions = Vec::new();
    for n in 0..POLICIES {
        let name = format!("large-{n}");
        let policy = json!({"type": "MeshTimeout", "mesh": "default", "name": name,
            "spec": {"to": vec![rule.clone(); 80]}});
        let path = format!("/meshes/default/meshtimeouts/{name}");
        let (status, answer) = cp.call(Method::PUT, &path, Some(policy)).await;
        assert!(status.is_success(), "{answer}");
        let newest = cp.get("/history?size=1").await;
        revisions.push(newest["items"][0]["revision"].as_u64().expect("a revision"));
    }
    revisions
}

/// Tries to take back everything since a revision, several times at once.
async fn try_at_once(cp: &ControlPlane, since: u64) -> Vec<(StatusCode, Value)> {
    let tried = json!({"since": since, "dryRun": true});
    join_all((0..AT_ONCE).map(|_| cp.call(Method::POST, "/history/undo", Some(tried.clone())))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_takes_much_back_holds_up_nobody() {
    let mut stage = Stage::set(&[("apiServer.authn.localhostIsAdmin", "true")]).await;
    let first = write(&stage.global, 1).await;
    let second = write(&stage.global, 2).await;
    let doors: Vec<Door> = stage.doors().into_iter().filter(|door| door.of == "global").collect();
    let before = stage.cost();
    let watching = Watching::start(&doors);
    let mut peak = Peak::watch(stage.global.process.id());

    for (status, answer) in try_at_once(&stage.global, first[POLICIES - 1]).await {
        assert_eq!(status, StatusCode::BAD_REQUEST, "{}", answer["detail"]);
        assert!(answer["detail"].to_string().contains("smaller steps"), "{}", answer["detail"]);
    }
    let since = second[POLICIES - 1 - SOME];
    let mut given = 0;
    for (status, answer) in try_at_once(&stage.global, since).await {
        match status {
            StatusCode::OK => {
                given += 1;
                assert_eq!(answer["steps"].as_array().map(Vec::len), Some(SOME));
            }
            // As it is told to come again.
            status => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer["detail"]),
        }
    }
    assert!(given > 0);
    let (status, done) =
        stage.global.call(Method::POST, "/history/undo", Some(json!({"since": since}))).await;
    assert_eq!(
        (status, done["steps"].as_array().map(Vec::len)),
        (StatusCode::OK, Some(SOME)),
        "{}",
        done["detail"]
    );
    for (n, expected) in [(POLICIES - 1, "1s"), (0, "2s")] {
        let policy = stage.global.get(&format!("/meshes/default/meshtimeouts/large-{n}")).await;
        assert_eq!(policy["spec"]["to"][0]["default"]["idleTimeout"], expected);
    }

    peak.ends("undo").await;
    watching.was_served().await;
    stage.stands(before, LEFT, 96 << 10).await;
}

/// Bindings, and users that each of them names.
const BINDINGS: (usize, usize) = (300, 50);
/// What somebody would take back who may take nothing back.
const CHANGES: usize = 500;
/// Longest that others wait for an answer meanwhile: a busy machine, and not as long as all bindings are read in.
const SOON: Duration = Duration::from_secs(5);

/// Gives one role to many.
fn bindings() -> String {
    let role = "type: AccessRole\nname: few\nspec: { rules: [{ verbs: [write], kinds: [MeshRetry], names: [none] }] }";
    let binding = |n: usize| {
        let subjects = (0..BINDINGS.1).map(|m| format!("{{ type: User, name: user-{n}-{m} }}"));
        let subjects = subjects.collect::<Vec<_>>().join(", ");
        format!("type: AccessRoleBinding\nname: few-{n}\nspec: {{ roles: [few], subjects: [{subjects}] }}")
    };
    std::iter::once(role.to_owned()).chain((0..BINDINGS.0).map(binding)).collect::<Vec<_>>().join("\n---\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_may_take_nothing_back_has_nobody_wait_for_his_roles() {
    let global = Global::start().await;
    global.apply(&bindings());
    let newest = global.get("/history?size=1").await;
    let since = newest["items"][0]["revision"].as_u64().expect("a revision");
    let policy = |n: usize| {
        format!(
            "{{type: MeshTimeout, mesh: default, name: t-{n}, spec: {{to: [{{targetRef: {{kind: Mesh}}, default: \
             {{connectionTimeout: 1s}}}}]}}}}"
        )
    };
    global.apply(&(0..CHANGES).map(policy).collect::<Vec<_>>().join("\n---\n"));
    let bob = global.straitctl(&["generate", "user-token", "--name", "bob", "--valid-for", "1h"]);
    let asked = json!({"since": since, "dryRun": true});
    let undo = async || {
        let request = http::client().post(global.url("/history/undo")).bearer_auth(bob.trim()).json(&asked);
        let answer = request.send().await.expect("an answer");
        (answer.status(), answer.json::<Value>().await.expect("JSON"))
    };
    let mut asking = Box::pin(join_all((0..AT_ONCE).map(|_| undo())));
    let client = http::client();
    let (mut longest, mut answered) = (Duration::ZERO, 0);
    let answers = loop {
        let begin = Instant::now();
        let answers = tokio::select! {
            answers = &mut asking => Some(answers),
            answer = client.get(global.diagnostics_url("/healthy")).send() => {
                assert!(answer.expect("an answer").status().is_success());
                answered += 1;
                None
            }
        };
        longest = longest.max(begin.elapsed());
        if let Some(answers) = answers {
            break answers;
        }
    };
    println!("{answered} others were answered meanwhile, the longest took {longest:?}");
    assert!(longest < SOON, "{longest:?}");
    let mut given = 0;
    for (status, plan) in answers {
        match status {
            StatusCode::OK => {
                given += 1;
                assert_eq!(plan["steps"], json!([]));
                let left = plan["left"].as_array().into_iter().flatten();
                let his = left.filter(|item| item["reason"].to_string().contains("this user has no role"));
                assert_eq!(his.count(), CHANGES, "{}", plan["left"][0]);
            }
            status => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{}", plan["detail"]),
        }
    }
    assert!(given > 0);
}
