//! One mesh and its connected proxies: what a change asks for is compiled and handed out.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use chrono::{DateTime, Utc};

use super::{
    admission,
    credentials::{Credentials, Renewals, Signed, SigningRequest},
    outbound::OutboundCall,
    part::{Assigned, CompiledPart, Part, Parts, SetId},
    place::{Located, Place},
    profiles::Profiles,
    set::{Set, Sets},
    task::{OwnOutcome, Task, TaskOutcome, guarded, in_parallel},
    told::{KnownProblems, SharedProblems, ToldProblems},
};
use crate::{
    generator::{
        Encoded, Giver, ProxyMetadata, RenewedEndpoints, ResourceCollection, ResourceSet, Shown, Sidecar,
    },
    mesh::{Dataplane, MeshContext, Problem},
    policy::Profile,
};

/// Proxies that are told before it is looked whether something more urgent came.
const TOLD: usize = 64;
/// Jobs done before it is looked whether something more urgent came.
const BATCH: usize = 64;

/// The proxies of one mesh and what they get.
#[derive(Debug)]
pub(crate) struct Compiler {
    pub(super) mesh: Arc<MeshContext>,
    pub(super) proxies: BTreeMap<Arc<str>, ProxyState>,
    pub(super) located: Located,
    pub(super) profiles: Profiles,
    pub(super) parts: Parts,
    pub(super) sets: Sets,
    /// What everybody calls who calls all there is at virtual addresses; `None` until somebody asks.
    pub(super) everything: Option<Arc<[Arc<OutboundCall>]>>,
    /// The same for applications that call by name.
    pub(super) everything_by_name: Option<Arc<[Arc<OutboundCall>]>>,
    /// What is to be compiled, in the order in which it was asked for.
    pub(super) queue: VecDeque<Job>,
    /// Whose endpoints are to be renewed. They overtake everything else.
    pub(super) endpoints: BTreeSet<Assigned>,
    /// Endpoints renewed since the last publications.
    renewed: Vec<(Part, Arc<Encoded>)>,
    /// Who is to be told something new.
    pub(super) outdated: BTreeSet<Arc<str>>,
    /// Who is to be told at once, whatever else is being compiled for them.
    urgent: BTreeSet<Arc<str>>,
    unsigned: Vec<SigningRequest>,
    renewals: Renewals,
    /// What proxies that left had, as far as that was something else than they should have had.
    pub(super) left_with: BTreeMap<Arc<str>, ResourceSet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// What belongs to this proxy alone.
    Own(Arc<str>),
    /// Something shared.
    Part(Part),
}

/// What is known of a connected proxy.
#[derive(Debug)]
pub(super) struct ProxyState {
    pub(super) metadata: ProxyMetadata,
    pub(super) dataplane: Option<Arc<Dataplane>>,
    pub(super) place: Place,
    own: Option<ResourceCollection>,
    /// It waits in the queue.
    queued: bool,
    credentials: Credentials,
    problems: BTreeSet<Problem>,
    /// What it was told of what it lacks, where some of that is its own.
    known_problems: Option<KnownProblems>,
    /// Why it gets nothing new.
    failure: Option<String>,
    /// What it was told last.
    told: Option<ResourceSet>,
    /// What it has if it was told nothing since it came (again).
    had: Option<ResourceSet>,
    /// Whether it was left something that it should not have any more, because it would refuse what it should.
    keeps: bool,
}

/// What one proxy is to have from now on.
#[derive(Debug)]
pub(crate) struct Publication {
    /// Which proxy.
    pub(crate) name: Arc<str>,
    /// Its configuration; `None` to keep the one it has.
    pub(crate) set: Option<ResourceSet>,
    /// What was left out.
    pub(crate) problems: Arc<[String]>,
    /// Those of them that are about what an Envoy gets.
    pub(crate) of_envoy: Arc<[Problem]>,
    /// The first of them by which it does without something.
    pub(crate) lacks: Option<Arc<str>>,
    /// What it was left that it should not have any more; `None` when that was not looked at.
    pub(crate) kept: Option<Arc<[Arc<Encoded>]>>,
    /// Whether nothing could be made for it.
    pub(crate) failed: bool,
}

impl Compiler {
    /// Nobody is connected yet.
    pub(crate) fn new(mesh: Arc<MeshContext>) -> Self {
        Self {
            mesh,
            proxies: BTreeMap::new(),
            located: Located::default(),
            profiles: Profiles::default(),
            parts: Parts::default(),
            sets: Sets::default(),
            everything: None,
            everything_by_name: None,
            queue: VecDeque::new(),
            endpoints: BTreeSet::new(),
            renewed: Vec::new(),
            outdated: BTreeSet::new(),
            urgent: BTreeSet::new(),
            unsigned: Vec::new(),
            renewals: Renewals::default(),
            left_with: BTreeMap::new(),
        }
    }

    /// What this proxy has that was made by a process before this one, or beside it.
    pub(crate) fn remember(&mut self, name: Arc<str>, had: ResourceSet) {
        // What is known here is more.
        if !self.proxies.contains_key(&name) {
            self.left_with.entry(name).or_insert(had);
        }
    }

    /// A proxy came, or came again: it may have been away, so it is told everything.
    pub(crate) fn arrive(&mut self, name: &Arc<str>, metadata: ProxyMetadata) {
        let dataplane = self.mesh.dataplanes.get(name).cloned();
        match self.proxies.get_mut(name) {
            Some(proxy) => {
                proxy.had = proxy.told.take().or(proxy.had.take());
                (proxy.metadata, proxy.dataplane) = (metadata, dataplane);
            }
            None => {
                let had = self.left_with.remove(name);
                let proxy = ProxyState { had, ..ProxyState::new(metadata, dataplane) };
                self.proxies.insert(Arc::clone(name), proxy);
            }
        }
        self.relocate(name, true);
        self.queue_own(name);
        self.outdated.insert(Arc::clone(name));
    }

    /// A proxy left.
    pub(crate) fn leave(&mut self, name: &Arc<str>) {
        self.displace(name);
        if let Some(proxy) = self.proxies.remove(name) {
            self.renewals.forget(name, proxy.credentials.shown.as_ref().and_then(Shown::certificate));
            let had = proxy.told.or(proxy.had).filter(|_| proxy.keeps && proxy.dataplane.is_some());
            self.left_with.extend(had.map(|had| (Arc::clone(name), had)));
        }
    }

    /// How many parts and sets are kept.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.parts.len() + self.sets.len()
    }

    pub(super) fn queue_own(&mut self, name: &Arc<str>) {
        if let Some(proxy) = self.proxies.get_mut(name)
            && !std::mem::replace(&mut proxy.queued, true)
        {
            self.queue.push_back(Job::Own(Arc::clone(name)));
        }
    }

    pub(super) fn queue_parts(&mut self, parts: impl IntoIterator<Item = Part>) {
        for part in parts {
            if let Some(slot) = self.parts.get_mut(&part)
                && !std::mem::replace(&mut slot.dirty, true)
            {
                self.sets.await_part(&slot.sets);
                self.queue.push_back(Job::Part(part));
            }
        }
    }

    /// Whether there is nothing to compile and nobody to tell.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_compiled() && self.outdated.is_empty() && self.urgent.is_empty()
    }

    fn is_compiled(&self) -> bool {
        self.queue.is_empty() && self.endpoints.is_empty() && self.located.is_settled()
    }

    /// Renews endpoints, then works on the rest until there is nothing left or `enough` says so.
    pub(crate) fn work(&mut self, now: DateTime<Utc>, mut enough: impl FnMut() -> bool) {
        self.renew_endpoints();
        while !self.is_compiled() {
            // What is compiled depends on who calls it, and under which profile.
            if !self.locate_some() {
                self.batch(now);
            }
            if enough() {
                return;
            }
        }
    }

    fn renew_endpoints(&mut self) {
        let known = |assigned: Assigned| {
            let part = Part::Assignment(assigned);
            // One that was never compiled is in the queue.
            let made = self.parts.get(&part).is_some_and(|slot| slot.made.is_some());
            made.then_some(part)
        };
        let parts: Vec<Part> = std::mem::take(&mut self.endpoints).into_iter().filter_map(known).collect();
        let none = Profile::default();
        let mesh = &self.mesh;
        let compiled = in_parallel(parts, |part| {
            let made = guarded(|| part.compile(mesh, &none));
            (part, made)
        });
        for (part, made) in compiled {
            let (Some(slot), Some(made)) = (self.parts.get(&part), made) else { continue };
            let name = |made: &CompiledPart| made.encoded().map(|encoded| Arc::clone(&encoded.name));
            let Some(encoded) = made.encoded().filter(|_| slot.made.as_ref().map(name) == Some(name(&made)))
            else {
                // It is gone or has another name, so that those who have it lose something, in their turn.
                self.queue_parts([part]);
                continue;
            };
            let (encoded, dirty) = (Arc::clone(encoded), slot.dirty);
            let differs = self.parts.made(&part, made).is_some();
            if let Some(slot) = self.parts.get_mut(&part) {
                slot.dirty = dirty;
            }
            let Some(slot) = self.parts.get(&part) else { continue };
            if differs {
                self.urgent.extend(self.sets.reassigned(&encoded, &slot.sets, &self.parts));
                self.renewed.push((part, encoded));
            }
        }
    }

    fn batch(&mut self, now: DateTime<Utc>) {
        let jobs: Vec<Job> = self.queue.drain(..self.queue.len().min(BATCH)).collect();
        let tasks: Vec<Task> = jobs.into_iter().filter_map(|job| self.task(job, now)).collect();
        let mesh = &self.mesh;
        for outcome in in_parallel(tasks, |task| task.run(mesh)) {
            match outcome {
                TaskOutcome::Part(part, made) => self.compiled(&part, made),
                TaskOutcome::Own(name, own) => self.owned(&name, own),
            }
        }
    }

    /// What a job takes; `None` for one that is not needed any more, or not possible yet.
    fn task(&mut self, job: Job, now: DateTime<Utc>) -> Option<Task> {
        match job {
            Job::Part(part) => {
                let slot = self.parts.get(&part)?;
                let profile = part.profile().and_then(|id| self.profiles.get(id));
                let profile = profile.map(Arc::clone).unwrap_or_default();
                slot.dirty.then_some(Task::Part(part, profile))
            }
            Job::Own(name) => {
                self.proxies.get_mut(&name)?.queued = false;
                self.own_task(name, now)
            }
        }
    }

    fn own_task(&mut self, name: Arc<str>, now: DateTime<Utc>) -> Option<Task> {
        let proxy = self.proxies.get_mut(&name)?;
        let Some(dataplane) = proxy.dataplane.clone() else {
            let reason = format!("Dataplane {}/{name} does not exist (yet)", self.mesh.mesh);
            proxy.failure = Some(reason);
            self.outdated.insert(name);
            return None;
        };
        let before = proxy.shown();
        match proxy.credentials.request(
            &name,
            &dataplane,
            &proxy.metadata,
            &self.mesh,
            &mut self.renewals,
            now,
        ) {
            Ok(request) => self.unsigned.extend(request),
            Err(error) => {
                proxy.failure = Some(error.to_string());
                self.outdated.insert(name);
                return None;
            }
        }
        if proxy.shown() != before {
            // What it calls others with is part of its profile, and it is put together for the new one.
            self.relocate(&name, false);
            self.queue_own(&name);
            return None;
        }
        if proxy.credentials.needed {
            // It is put together once that is here.
            return None;
        }
        let sidecar = Sidecar {
            shown: proxy.credentials.shown.clone().filter(|_| self.mesh.wants_certificate(&dataplane)),
            admin: proxy.credentials.admin(&proxy.metadata, &dataplane),
            metadata: proxy.metadata.clone(),
            dataplane,
        };
        let set = proxy.place.set().and_then(|id| self.sets.get(id));
        let calls = set.map(|set| Arc::clone(&set.calls)).unwrap_or_default();
        Some(Task::Own(name, Box::new(sidecar), calls))
    }

    /// Takes in what became of a part; what it was stays when it could not be compiled.
    fn compiled(&mut self, part: &Part, made: Option<CompiledPart>) {
        // It may have been asked for twice: dropped, and taken again while it was in the queue.
        let Some(slot) = self.parts.get(part).filter(|slot| slot.dirty) else { return };
        let made = made.or_else(|| slot.made.clone()).unwrap_or(CompiledPart::Nothing);
        let before = self.parts.made(part, made);
        let (new, complete) = self.sets.compiled(part, before, &mut self.parts);
        self.queue_new(new);
        for name in complete {
            self.settle(&name);
            self.outdated.insert(name);
        }
    }

    /// Queues parts that are new with a set. Endpoints go ahead: those that were known otherwise are not renewed
    /// any more.
    pub(super) fn queue_new(&mut self, new: Vec<Part>) {
        for part in new {
            match part {
                Part::Assignment(_) => self.queue.push_front(Job::Part(part)),
                Part::Cluster(..) | Part::Listener(..) | Part::Front(..) => {
                    self.queue.push_back(Job::Part(part));
                }
            }
        }
    }

    fn owned(&mut self, name: &Arc<str>, (own, problems): OwnOutcome) {
        let Some(proxy) = self.proxies.get_mut(name) else { return };
        proxy.problems = problems;
        match own {
            Ok(own) => (proxy.own, proxy.failure) = (Some(own), None),
            Err(error) => proxy.failure = Some(error.to_string()),
        }
        self.outdated.insert(Arc::clone(name));
    }

    /// What has to be signed. Each is asked for once, until [`signed`](Self::signed) answers.
    pub(crate) fn unsigned(&mut self) -> Vec<SigningRequest> {
        std::mem::take(&mut self.unsigned)
    }

    /// Takes in what was asked for. A failure is noted; whoever calls asks [again](Self::retry) later.
    pub(crate) fn signed(&mut self, request: &SigningRequest, signed: Signed) {
        let Some(proxy) = self.proxies.get_mut(&request.name) else { return };
        let before = proxy.shown();
        proxy.credentials.signed(request, signed, &mut self.renewals);
        if proxy.shown() != before {
            // What it calls others with is part of its profile.
            self.relocate(&request.name, false);
        }
        self.queue_own(&request.name);
    }

    /// Tries again what failed for a reason that may go away by itself.
    pub(crate) fn retry(&mut self, name: &Arc<str>) {
        if let Some(proxy) = self.proxies.get_mut(name) {
            proxy.credentials.retry();
        }
        self.queue_own(name);
    }

    /// When the next certificate is to be replaced.
    pub(crate) fn next_renewal(&self) -> Option<DateTime<Utc>> {
        self.renewals.next()
    }

    /// Replaces the certificates whose time has come.
    pub(crate) fn renew(&mut self, now: DateTime<Utc>) {
        while let Some(name) = self.renewals.due(now) {
            self.queue_own(&name);
        }
    }

    /// What a proxy shows.
    pub(crate) fn shown(&self, name: &str) -> Option<&Shown> {
        let proxy = self.proxies.get(name)?;
        let wanted = proxy.dataplane.as_ref().is_some_and(|dataplane| self.mesh.wants_certificate(dataplane));
        proxy.credentials.shown.as_ref().filter(|_| wanted)
    }

    /// What was left out for a proxy, or why there is nothing new for it. What it was told already is not put into
    /// words again while it is the same.
    fn problems(
        &self,
        proxy: &ProxyState,
        shared: &mut SharedProblems,
    ) -> (ToldProblems, Option<KnownProblems>) {
        if let Some(reason) = &proxy.failure {
            let words = [reason.clone()].into();
            let told = ToldProblems { words, of_envoy: Arc::default(), lacks: Some(reason.as_str().into()) };
            return (told, None);
        }
        let id = proxy.place.set();
        let set = id.and_then(|id| self.sets.get(id));
        let displaced = match (&proxy.own, set.and_then(|set| set.published.as_ref())) {
            (Some(own), Some(shared)) => admission::displaced(own, shared),
            _ => BTreeSet::new(),
        };
        let own: BTreeSet<&Problem> =
            proxy.problems.iter().chain(&proxy.place.problems).chain(&displaced).collect();
        let trouble = proxy.credentials.trouble();
        let of_set = || set.into_iter().flat_map(|set| set.problems(&self.parts));
        if let Some(id) = id.filter(|_| own.is_empty() && trouble.is_none()) {
            let told = shared.entry(id).or_insert_with(|| ToldProblems::of(of_set(), None));
            return (told.clone(), None);
        }
        let of = id.zip(set.map(|set| set.troubles));
        match &proxy.known_problems {
            Some(known) if known.rests_on(of, &own, trouble) => (known.told.clone(), None),
            _ => {
                let told = ToldProblems::of(own.iter().copied().chain(of_set()), trouble);
                (told.clone(), Some(KnownProblems::new(of, &own, trouble, told)))
            }
        }
    }

    /// What proxies are to have from now on: all who are to be told at once, and some of the others. One for
    /// whom something is still to be compiled is told when that is done, unless it is about endpoints.
    pub(crate) fn publications(&mut self) -> Vec<Publication> {
        let urgent = std::mem::take(&mut self.urgent);
        let mut outdated = std::mem::take(&mut self.outdated);
        if let Some(rest) = outdated.iter().nth(TOLD).cloned() {
            self.outdated = outdated.split_off(&rest);
        }
        let told: BTreeSet<&Arc<str>> = urgent.iter().chain(&outdated).collect();
        let renewed = std::mem::take(&mut self.renewed);
        let mut brought: HashMap<SetId, RenewedEndpoints> = HashMap::new();
        let mut shared_problems = SharedProblems::new();
        let mut publications = Vec::new();
        for name in told {
            let Some(proxy) = self.proxies.get(name) else { continue };
            let (problems, newly_known) = self.problems(proxy, &mut shared_problems);
            let mut keeps = None;
            let set = proxy.place.set().and_then(|id| self.sets.get(id));
            let shared = set.and_then(|set| set.published.as_ref());
            let in_work = proxy.queued
                || proxy.credentials.needed
                || proxy.failure.is_some()
                || self.located.awaits(name)
                || set.is_some_and(Set::is_waiting);
            let set = match (&proxy.own, shared, &proxy.told) {
                // What is being made for it may not fit what it shares, but endpoints always do. Nor has it to
                // wait with them for whatever else it is told when its turn comes.
                (_, _, Some(told)) if (in_work || self.outdated.contains(name)) && urgent.contains(name) => {
                    // What it was told is of the set it had before, until what it is to have now was made.
                    let (_, of) = proxy.place.former.or(proxy.place.now).unwrap_or_default();
                    let renewed = brought.entry(of).or_insert_with(|| {
                        let set = self.sets.get(of);
                        let its = |(part, encoded): &&(Part, Arc<Encoded>)| {
                            self.parts.get(part).is_some_and(|slot| slot.sets.contains(&of))
                                && set.is_some_and(|set| set.has(encoded))
                        };
                        let its = renewed.iter().filter(its);
                        RenewedEndpoints::new(its.map(|(_, encoded)| Arc::clone(encoded)).collect())
                    });
                    Some(renewed.brought_to(told))
                }
                _ if proxy.failure.is_some() => None,
                (Some(own), Some(shared), _) if !in_work => {
                    let kept = problems.kept(own, shared, proxy.told.as_ref().or(proxy.had.as_ref()));
                    let (own, all) = kept.as_ref().map_or((own, &[][..]), |(own, all)| (own, &all[..]));
                    keeps = Some(if all.is_empty() { Arc::default() } else { Arc::from(all) });
                    let particulars = &proxy.place.particulars;
                    Some(ResourceSet::for_one(own, shared, particulars, proxy.told.as_ref()))
                }
                // It is told when what is being made is there.
                _ => continue,
            };
            let failed = proxy.failure.is_some();
            let Some(proxy) = self.proxies.get_mut(name) else { continue };
            proxy.keeps = keeps.as_ref().map_or(proxy.keeps, |kept: &Arc<[_]>| !kept.is_empty());
            if newly_known.is_some() {
                proxy.known_problems = newly_known;
            }
            let differs = |set: &ResourceSet| proxy.told.as_ref().is_none_or(|told| !set.is_same(told));
            let set = set.filter(differs);
            if let Some(set) = &set {
                (proxy.told, proxy.had) = (Some(set.clone()), None);
            }
            let ToldProblems { words, of_envoy, lacks } = problems;
            let name = Arc::clone(name);
            publications.push(Publication {
                name,
                set,
                problems: words,
                of_envoy,
                lacks,
                kept: keeps,
                failed,
            });
        }
        publications
    }
}

impl ProxyState {
    /// By whom it was given the identity that it shows; `None` when it is a member of the mesh like any other.
    pub(super) fn shown(&self) -> Option<Giver> {
        self.credentials.shown.as_ref().and_then(Shown::given)
    }

    fn new(metadata: ProxyMetadata, dataplane: Option<Arc<Dataplane>>) -> Self {
        Self {
            metadata,
            dataplane,
            place: Place::default(),
            own: None,
            queued: false,
            credentials: Credentials::default(),
            problems: BTreeSet::new(),
            known_problems: None,
            failure: None,
            told: None,
            had: None,
            keeps: false,
        }
    }
}
