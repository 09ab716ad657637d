//! What lets a finished resource through to Envoys, or notes that they would refuse it: one that is refused would cost a
//! proxy everything that is sent with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use common::{
    clip::clipped,
    envoy_rules::{self, ListenAddress},
};

use crate::{
    generator::{Encoded, ResourceCollection, SharedResources, type_url},
    mesh::{Problem, problem::Subject},
    policy::Patches,
};

/// Broken rules of one resource that its problem tells.
const TOLD: usize = 3;
/// Bytes of what it tells.
const LONGEST: usize = 1024;

/// `encoded`, unless Envoys would refuse it.
pub(super) fn admitted(encoded: Arc<Encoded>, problems: &mut BTreeSet<Problem>) -> Option<Arc<Encoded>> {
    caused(encoded, || None, problems)
}

/// What is shared as patches leave it, unless Envoys would refuse that. What it breaks by when that was no patch, `blame`
/// tells.
pub(super) fn patched(
    encoded: Arc<Encoded>,
    patches: &Patches,
    blame: impl FnOnce() -> Option<String>,
    problems: &mut BTreeSet<Problem>,
) -> Option<Arc<Encoded>> {
    let finished = patches.shared(Arc::clone(&encoded), problems)?;
    caused(finished, || patches.cause(&encoded).or_else(blame), problems)
}

/// What of `own` Envoys would not refuse. It was patched, and was `before` that. What one of them breaks by when that was no
/// patch, `blame` tells.
pub(super) fn admitted_own(
    mut own: ResourceCollection,
    before: &ResourceCollection,
    patches: &Patches,
    blame: impl Fn(&Encoded) -> Option<String>,
    problems: &mut BTreeSet<Problem>,
) -> ResourceCollection {
    for of_type in type_url::ALL {
        let all: Vec<Arc<Encoded>> = own.of_type(of_type).cloned().collect();
        for encoded in all {
            let name = Arc::clone(&encoded.name);
            let own_one = Arc::clone(&encoded);
            let cause = || {
                let of_patches = patches.cause_of_own(&own_one, before.get(of_type, &name));
                of_patches.or_else(|| blame(&own_one))
            };
            if caused(encoded, cause, problems).is_none() {
                own.remove(of_type, &name);
            }
        }
    }
    own
}

/// The same where nothing is patched.
pub(super) fn admitted_whole(
    own: ResourceCollection,
    problems: &mut BTreeSet<Problem>,
) -> ResourceCollection {
    admitted_own(own, &ResourceCollection::default(), &Patches::default(), |_| None, problems)
}

/// `encoded`, unless Envoys would refuse it; what it breaks by, `cause` tells.
pub(super) fn caused(
    encoded: Arc<Encoded>,
    cause: impl FnOnce() -> Option<String>,
    problems: &mut BTreeSet<Problem>,
) -> Option<Arc<Encoded>> {
    let broken = encoded.broken_rules();
    if broken.is_empty() {
        return Some(encoded);
    }
    let mut rules: Vec<String> =
        broken.iter().take(TOLD).map(|rule| format!("{} {}", rule.field, rule.reason)).collect();
    if broken.len() > TOLD {
        rules.push(format!("and {} more", broken.len() - TOLD));
    }
    let cause =
        cause().map_or_else(|| format!("made for {}", encoded.origin), |cause| format!("since {cause}"));
    let rules = clipped(rules.join("; "), LONGEST);
    let reason =
        format!("Envoy would refuse it ({cause}), so an earlier one stays where there is one: {rules}");
    problems.insert(Problem { subject: Subject::Refused(encoded.place()), reason });
    None
}

/// Takes out of `own` what policies put where something else listens: an Envoy takes the first one only. What was `made`
/// comes first, then who has the smaller name; what `calls` takes is shared, and comes before all that is added.
pub(super) fn leave_out_contested(
    own: &mut ResourceCollection,
    made: &ResourceCollection,
    calls: &impl Fn(IpAddr, u32) -> bool,
    problems: &mut BTreeSet<Problem>,
) {
    let is_new = |listener: &Encoded| {
        let known = made.get(type_url::LISTENER, &listener.name);
        known.is_none_or(|known| known.version != listener.version)
    };
    let all = own.of_type(type_url::LISTENER).cloned();
    let (new, known): (Vec<Arc<Encoded>>, Vec<Arc<Encoded>>) = all.partition(|listener| is_new(listener));
    if new.is_empty() {
        return;
    }
    let mut taken: BTreeMap<ListenAddress, Arc<str>> = BTreeMap::new();
    for listener in known {
        let at = envoy_rules::listens_at(&listener.value).into_iter();
        taken.extend(at.map(|at| (at, Arc::clone(&listener.name))));
    }
    for listener in new {
        let at = envoy_rules::listens_at(&listener.value);
        let holder = at.iter().find_map(|at| {
            let shared = || calls(at.ip, at.port).then(|| "what it calls there".into());
            taken.get(at).cloned().or_else(shared).map(|holder: Arc<str>| (at, holder))
        });
        if let Some((at, holder)) = holder {
            let (ip, port) = (at.ip, at.port);
            let reason = format!("is left out ({}): {ip} {port} is taken by {holder}", listener.origin);
            problems.insert(contested(&listener, reason));
            own.remove(type_url::LISTENER, &listener.name);
        } else {
            taken.extend(at.into_iter().map(|at| (at, Arc::clone(&listener.name))));
        }
    }
}

/// What of `own` stands in place of something else that is shared under the same name.
pub(super) fn displaced(own: &ResourceCollection, shared: &SharedResources) -> BTreeSet<Problem> {
    let named = [type_url::CLUSTER, type_url::LISTENER].into_iter().flat_map(|of_type| own.of_type(of_type));
    let twice = named.filter(|own| {
        let shared = shared.get(own.type_url, &own.name);
        shared.is_some_and(|shared| shared.version != own.version)
    });
    let reason =
        |own: &Encoded| format!("is there twice: the one of the proxy itself ({}) is sent", own.origin);
    twice.map(|own| contested(own, reason(own))).collect()
}

fn contested(encoded: &Encoded, reason: String) -> Problem {
    Problem { subject: Subject::Contested(encoded.place()), reason }
}
