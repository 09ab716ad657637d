//! What of the configurations that are sent stands in the way of something else, or would be refused: who, and why, in the
//! form in which Pilot's `push_status` tells such things.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{Extension, Json, Router, extract::State, routing::get};
use common::{
    access::{AccessRule, User},
    redact,
    rest::ApiError,
};
use serde_json::{Value, json};

use super::{metrics, node::ProxyId};
use crate::{
    generator::type_url,
    mesh::{
        Problem,
        problem::{EnvoyResource, Subject},
    },
};

/// Resources of one sort of problem that are told.
const TOLD: usize = 1000;

/// By name and words, somebody who has the problem and how many do.
type ToldSort<'a> = BTreeMap<(Arc<str>, &'a str), (String, usize)>;

/// What is wrong for whom.
#[derive(Default)]
pub struct PushStatus(Mutex<BTreeMap<ProxyId, Arc<[Problem]>>>);

impl PushStatus {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ProxyId, Arc<[Problem]>>> {
        // Every change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong for `proxy` now, in place of what was.
    pub(super) fn note(&self, proxy: &ProxyId, problems: Arc<[Problem]>) {
        let mut all = self.lock();
        let known = all.get(proxy).cloned().unwrap_or_default();
        if known == problems {
            return;
        }
        for problem in known.iter() {
            with_labels(problem, metrics::healed);
        }
        for problem in problems.iter() {
            with_labels(problem, metrics::withheld);
            if !known.contains(problem) {
                with_labels(problem, metrics::newly_withheld);
            }
        }
        match problems.is_empty() {
            true => drop(all.remove(proxy)),
            false => drop(all.insert(proxy.clone(), problems)),
        }
    }

    /// By sort of problem and name of the resource: one proxy that has it, how many do, and what it is.
    fn view(&self) -> Value {
        let mut sorts: BTreeMap<&str, ToldSort<'_>> = BTreeMap::new();
        let all = self.lock();
        for (proxy, problems) in &*all {
            for problem in problems.iter() {
                let Some((sort, resource)) = sort(problem) else { continue };
                let told = sorts.entry(sort).or_default();
                let key = (Arc::clone(&resource.name), problem.reason.as_str());
                if told.len() < TOLD || told.contains_key(&key) {
                    told.entry(key).or_insert_with(|| (proxy.to_string(), 0)).1 += 1;
                }
            }
        }
        let told = sorts.into_iter().map(|(sort, told)| {
            let mut shown = serde_json::Map::new();
            for ((name, message), (proxy, proxies)) in told {
                // The same name may be in the way of something else for others.
                let mut key = name.to_string();
                while shown.contains_key(&key) {
                    key.push('\'');
                }
                shown.insert(key, json!({"proxy": proxy, "message": message, "proxies": proxies}));
            }
            (sort.to_owned(), Value::Object(shown))
        });
        Value::Object(told.collect())
    }
}

/// Pilot's name for a sort of problem where it has one.
fn sort(problem: &Problem) -> Option<(&'static str, &EnvoyResource)> {
    let (resource, refused) = match &problem.subject {
        Subject::Refused(resource) => (resource, true),
        Subject::Contested(resource) => (resource, false),
        Subject::Resource(_) | Subject::Part(_) => return None,
    };
    let sort = match (refused, resource.type_url) {
        (true, type_url::CLUSTER) => "strait_refused_clusters",
        (true, type_url::ENDPOINT) => "strait_refused_endpoints",
        (true, type_url::LISTENER) => "strait_refused_listeners",
        (true, type_url::ROUTE) => "strait_refused_routes",
        (true, type_url::SECRET) => "strait_refused_secrets",
        (true, _) => "strait_refused_resources",
        (false, type_url::CLUSTER) => "pilot_duplicate_envoy_clusters",
        (false, type_url::LISTENER) => "pilot_conflict_inbound_listener",
        (false, _) => "strait_conflict_resources",
    };
    Some((sort, resource))
}

fn with_labels(problem: &Problem, record: fn(&'static str, &'static str)) {
    match &problem.subject {
        Subject::Refused(resource) => record(resource.type_url, "refused"),
        Subject::Contested(resource) => record(resource.type_url, "contested"),
        Subject::Resource(_) | Subject::Part(_) => {}
    }
}

/// Route: `/debug/push_status`, for those whom `rule` names.
pub fn router(status: Arc<PushStatus>, rule: AccessRule) -> Router {
    Router::new().route("/debug/push_status", get(show)).with_state((status, Arc::new(rule)))
}

async fn show(
    State((status, rule)): State<(Arc<PushStatus>, Arc<AccessRule>)>,
    Extension(user): Extension<User>,
) -> Result<Json<Value>, ApiError> {
    rule.check(&user, "view the configuration of proxies")?;
    // Problems quote what somebody wrote.
    Ok(Json(redact::document(status.view()).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ads::node::ProxyKind;

    fn problem(subject: fn(EnvoyResource) -> Subject, of: &'static str, name: &str, reason: &str) -> Problem {
        let resource = EnvoyResource { type_url: of, name: name.into() };
        Problem { subject: subject(resource), reason: reason.to_owned() }
    }

    #[test]
    fn each_problem_is_told_once_with_somebody_who_has_it_until_it_is_over() {
        let status = PushStatus::default();
        let proxy = |name: &str| ProxyId::new(ProxyKind::Dataplane, "default", name);
        let refused = || problem(Subject::Refused, type_url::LISTENER, "in", "why");
        let twice = || problem(Subject::Contested, type_url::CLUSTER, "web", "twice");
        status.note(&proxy("a"), [refused(), twice()].into());
        status.note(&proxy("b"), [refused()].into());
        status.note(&proxy("c"), [problem(Subject::Refused, type_url::LISTENER, "in", "other")].into());
        let told = |proxy: &str, message: &str, proxies: u32| json!({"proxy": format!("default.{proxy}"), "message": message, "proxies": proxies});
        let expected = json!({
            "pilot_duplicate_envoy_clusters": {"web": told("a", "twice", 1)},
            "strait_refused_listeners": {"in": told("c", "other", 1), "in'": told("a", "why", 2)},
        });
        assert_eq!(status.view(), expected);
        for name in ["a", "b", "c"] {
            status.note(&proxy(name), Arc::default());
        }
        assert_eq!(status.view(), json!({}));
    }
}
