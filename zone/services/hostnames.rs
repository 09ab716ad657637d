//! Host names of services: each generator makes one for each service it is for, and who has a name first keeps it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use common::{
    clip::clipped,
    model::{
        Resource, ResourceKey, Spec,
        kinds::{
            hostname_generator::HostnameGenerator,
            service_status::{Address, Condition, GeneratorRef, GeneratorStatus, ORIGIN_GENERATOR},
        },
        labels,
    },
};

/// What the condition of a generator is called.
const GENERATED: &str = "Generated";
/// What is told of a name that could not be made, in bytes.
const LONGEST_REASON: usize = 512;

/// What all generators make of all services.
#[derive(Debug, Default)]
pub(super) struct Hostnames {
    generators: BTreeMap<Arc<str>, Generator>,
    /// Of each service, by generator.
    made: BTreeMap<ResourceKey, BTreeMap<Arc<str>, GeneratedHostname>>,
    /// Who asks for a name, the one who has it first.
    claims: BTreeMap<ClaimedHostname, BTreeSet<HostnameClaim>>,
}

#[derive(Debug)]
struct Generator {
    precedence: Precedence,
    spec: HostnameGenerator,
}

/// Those of the zone come first, then the older ones.
type Precedence = (bool, DateTime<Utc>, Arc<str>);

/// What a generator made of a service.
#[derive(Debug)]
enum GeneratedHostname {
    /// A name, which is in [`Hostnames::claims`].
    Name(ClaimedHostname, HostnameClaim),
    /// None, for this reason.
    Nothing(String),
}

/// A name among services of one kind in one mesh.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimedHostname {
    kind: &'static str,
    mesh: Arc<str>,
    hostname: String,
}

/// In the order in which claims are granted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HostnameClaim {
    generator: Precedence,
    created: DateTime<Utc>,
    service: ResourceKey,
}

impl Hostnames {
    /// Follows the change of a generator; says which services `among` these it was or is for.
    pub(super) fn generator<'a>(
        &mut self,
        name: &Arc<str>,
        resource: Option<&Resource>,
        among: impl Iterator<Item = &'a Arc<Resource>>,
    ) -> Vec<ResourceKey> {
        let after = resource.and_then(|resource| {
            let of_zone = resource.label(labels::ORIGIN) == Some(labels::ORIGIN_ZONE);
            let precedence = (!of_zone, resource.created, Arc::clone(name));
            Some(Generator { precedence, spec: HostnameGenerator::decode(&resource.spec).ok()? })
        });
        let before = self.generators.remove(name);
        let versions: Vec<&Generator> = before.iter().chain(&after).collect();
        let concerned = among.filter(|service| versions.iter().any(|g| g.spec.selects(service)));
        let concerned = concerned.map(|service| service.key.clone()).collect();
        if let Some(after) = after {
            self.generators.insert(Arc::clone(name), after);
        }
        concerned
    }

    /// Makes the names of `service`, seen from `zone`, again; says whose status may differ for that.
    pub(super) fn service(&mut self, service: &Resource, zone: &str) -> BTreeSet<ResourceKey> {
        let mut concerned = self.forget(&service.key);
        let mut made = BTreeMap::new();
        for (name, generator) in self.generators.iter().filter(|(_, g)| g.spec.selects(service)) {
            let hostname = generator.spec.hostname(service, zone).map_err(|error| error.to_string());
            let usable = hostname.and_then(|hostname| match labels::subdomain_problem(&hostname) {
                None => Ok(hostname),
                Some(problem) => Err(format!("{hostname:?} is no host name: {problem}")),
            });
            let outcome = match usable {
                Ok(hostname) => {
                    let claimed = ClaimedHostname {
                        kind: service.kind().name,
                        mesh: Arc::clone(&service.key.mesh),
                        hostname,
                    };
                    let claim = HostnameClaim {
                        generator: generator.precedence.clone(),
                        created: service.created,
                        service: service.key.clone(),
                    };
                    let claims = self.claims.entry(claimed.clone()).or_default();
                    concerned.extend(claims.iter().map(|claim| claim.service.clone()));
                    claims.insert(claim.clone());
                    GeneratedHostname::Name(claimed, claim)
                }
                // Templates and what they make may be long.
                Err(reason) => GeneratedHostname::Nothing(clipped(reason, LONGEST_REASON)),
            };
            made.insert(Arc::clone(name), outcome);
        }
        if !made.is_empty() {
            self.made.insert(service.key.clone(), made);
        }
        concerned.remove(&service.key);
        concerned
    }

    /// The service is gone; says whose status may differ for that.
    pub(super) fn forget(&mut self, service: &ResourceKey) -> BTreeSet<ResourceKey> {
        let mut concerned = BTreeSet::new();
        for made in self.made.remove(service).into_iter().flat_map(BTreeMap::into_values) {
            let GeneratedHostname::Name(claimed, claim) = made else { continue };
            if let Some(claims) = self.claims.get_mut(&claimed) {
                claims.remove(&claim);
                concerned.extend(claims.iter().map(|claim| claim.service.clone()));
                if claims.is_empty() {
                    self.claims.remove(&claimed);
                }
            }
        }
        concerned.remove(service);
        concerned
    }

    /// The host names of a service, and what became of each generator that is for it.
    pub(super) fn of(&self, service: &ResourceKey) -> (Vec<Address>, Vec<GeneratorStatus>) {
        let (mut addresses, mut statuses) = (Vec::new(), Vec::new());
        for (generator, made) in self.made.get(service).into_iter().flatten() {
            let reference = GeneratorRef { core_name: generator.to_string() };
            let condition = match made {
                GeneratedHostname::Nothing(reason) => {
                    Condition::new(GENERATED, false, "TemplateError", reason.clone())
                }
                GeneratedHostname::Name(claimed, _) => match self.holder(claimed) {
                    Some(holder) if holder != service => {
                        let reason = format!("{} is the host name of {holder}", claimed.hostname);
                        Condition::new(GENERATED, false, "Collision", reason)
                    }
                    _ => {
                        addresses.push(Address {
                            hostname: claimed.hostname.clone(),
                            origin: ORIGIN_GENERATOR.to_owned(),
                            hostname_generator_ref: reference.clone(),
                        });
                        Condition::new(GENERATED, true, GENERATED, "")
                    }
                },
            };
            let conditions = vec![condition];
            statuses.push(GeneratorStatus { hostname_generator_ref: reference, conditions });
        }
        (addresses, statuses)
    }

    fn holder(&self, claimed: &ClaimedHostname) -> Option<&ResourceKey> {
        self.claims.get(claimed)?.first().map(|claim| &claim.service)
    }
}
