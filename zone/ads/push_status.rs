//! What of the configurations that are sent stands in the way of something else, or would be refused: who, and why, in the
//! form in which Pilot's `push_status` tells such things.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use imbl::OrdMap;
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
type ToldSort<'a> = BTreeMap<(Arc<str>, &'a str), (&'a ProxyId, usize)>;

/// What is wrong, by sort of problem: the names of resources, each with what is wrong with it and for whom.
pub(super) type ToldStatus = BTreeMap<String, Vec<(String, Value)>>;

/// What is wrong for whom.
#[derive(Default)]
pub struct PushStatus(Mutex<OrdMap<ProxyId, Arc<[Problem]>>>);

impl PushStatus {
    fn lock(&self) -> MutexGuard<'_, OrdMap<ProxyId, Arc<[Problem]>>> {
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
        let before: BTreeSet<&Problem> = known.iter().collect();
        for problem in problems.iter() {
            with_labels(problem, metrics::withheld);
            if !before.contains(problem) {
                with_labels(problem, metrics::newly_withheld);
            }
        }
        match problems.is_empty() {
            true => drop(all.remove(proxy)),
            false => drop(all.insert(proxy.clone(), problems)),
        }
    }

    /// By sort of problem and name of the resource: one proxy that has it, how many do, and what it is. Nobody who pushes
    /// waits for it.
    pub(super) fn view(&self) -> ToldStatus {
        let all = self.lock().clone();
        let mut sorts: BTreeMap<&str, ToldSort<'_>> = BTreeMap::new();
        for (proxy, problems) in &all {
            for problem in problems.iter() {
                let Some((sort, resource)) = sort(problem) else { continue };
                let told = sorts.entry(sort).or_default();
                let key = (Arc::clone(&resource.name), problem.reason.as_str());
                if told.len() < TOLD || told.contains_key(&key) {
                    told.entry(key).or_insert((proxy, 0)).1 += 1;
                }
            }
        }
        sorts.into_iter().map(|(sort, told)| (sort.to_owned(), shown(told))).collect()
    }
}

/// Each under a name of its own: the same may be in the way of something else for others.
fn shown(told: ToldSort<'_>) -> Vec<(String, Value)> {
    let (mut shown, mut before, mut times) = (Vec::new(), None, 1);
    for ((name, message), (proxy, proxies)) in told {
        times = if before.as_ref() == Some(&name) { times + 1 } else { 1 };
        let key = if times == 1 { name.to_string() } else { format!("{name} ({times})") };
        shown.push((key, json!({"proxy": proxy.to_string(), "message": message, "proxies": proxies})));
        before = Some(name);
    }
    shown
}

/// Pilot's name for a sort of problem where it has one.
fn sort(problem: &Problem) -> Option<(&'static str, &EnvoyResource)> {
    let (resource, refused) = match &problem.subject {
        Subject::Refused(resource) => (resource, true),
        Subject::Contested(resource) | Subject::Displaced(resource) => (resource, false),
        Subject::Resource(_) | Subject::Part(_) | Subject::ServerName(_) => return None,
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
        Subject::Contested(resource) | Subject::Displaced(resource) => {
            record(resource.type_url, "contested");
        }
        Subject::Resource(_) | Subject::Part(_) | Subject::ServerName(_) => {}
    }
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
        let expected = ToldStatus::from([
            ("pilot_duplicate_envoy_clusters".to_owned(), vec![("web".to_owned(), told("a", "twice", 1))]),
            (
                "strait_refused_listeners".to_owned(),
                vec![("in".to_owned(), told("c", "other", 1)), ("in (2)".to_owned(), told("a", "why", 2))],
            ),
        ]);
        assert_eq!(status.view(), expected);
        for name in ["a", "b", "c"] {
            status.note(&proxy(name), Arc::default());
        }
        assert_eq!(status.view(), ToldStatus::new());
    }
}
