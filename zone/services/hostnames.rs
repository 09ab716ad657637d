//! Host names of services: each generator makes one for each service it is for, and who has a name first keeps it, but from
//! nobody who goes before him.

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
/// How many of those who do not get a name are told who has it: so many have to be told anew when another has it.
const TOLD: usize = 8;

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

/// In the order in which claims are granted. What another zone has comes after all that is of this one or of global, however
/// long it has been there: it may have been made for the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HostnameClaim {
    is_elsewhere: bool,
    generator: Precedence,
    /// It is called otherwise by its label than by its name here, as all that came from elsewhere is.
    is_renamed: bool,
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
                        is_elsewhere: service.label(labels::ZONE).is_some_and(|owner| owner != zone),
                        generator: generator.precedence.clone(),
                        is_renamed: service.display_name() != service.name(),
                        created: service.created,
                        service: service.key.clone(),
                    };
                    GeneratedHostname::Name(claimed, claim)
                }
                // Templates and what they make may be long.
                Err(reason) => GeneratedHostname::Nothing(clipped(reason, LONGEST_REASON)),
            };
            made.insert(Arc::clone(name), outcome);
        }
        self.replace(&service.key, made)
    }

    /// The service is gone; says whose status may differ for that.
    pub(super) fn forget(&mut self, service: &ResourceKey) -> BTreeSet<ResourceKey> {
        self.replace(service, BTreeMap::new())
    }

    /// Takes in what is made of a service now; says whose status may differ for that: never more than a few for each name,
    /// however many ask for it.
    fn replace(
        &mut self,
        service: &ResourceKey,
        made: BTreeMap<Arc<str>, GeneratedHostname>,
    ) -> BTreeSet<ResourceKey> {
        let after = claims(&made);
        let before = match made.is_empty() {
            true => self.made.remove(service),
            false => self.made.insert(service.clone(), made),
        };
        let before = before.as_ref().map(claims).unwrap_or_default();
        let names: BTreeSet<&ClaimedHostname> =
            before.symmetric_difference(&after).map(|(claimed, _)| claimed).collect();
        let told = |known: &Self| names.iter().map(|claimed| known.told(claimed)).collect::<Vec<_>>();
        let told_before = told(self);
        for (claimed, claim) in before.difference(&after) {
            if let Some(claims) = self.claims.get_mut(claimed) {
                claims.remove(claim);
                if claims.is_empty() {
                    self.claims.remove(claimed);
                }
            }
        }
        for (claimed, claim) in after.difference(&before) {
            self.claims.entry(claimed.clone()).or_default().insert(claim.clone());
        }
        let moved = told_before.into_iter().zip(told(self)).filter(|(former, now)| former != now);
        let mut concerned: BTreeSet<ResourceKey> =
            moved.flat_map(|(former, now)| former.into_iter().chain(now)).collect();
        concerned.remove(service);
        concerned
    }

    /// Whose status names who has a name: the holder, and the first of those who would have it next.
    fn told(&self, claimed: &ClaimedHostname) -> Vec<ResourceKey> {
        let claims = self.claims.get(claimed).into_iter().flatten();
        claims.take(1 + TOLD).map(|claim| claim.service.clone()).collect()
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
                GeneratedHostname::Name(claimed, _) => match self.told(claimed).split_first() {
                    Some((holder, next)) if holder != service => {
                        let hostname = &claimed.hostname;
                        let reason = match next.contains(service) {
                            true => format!("{hostname} is the host name of {holder}"),
                            false => format!("{hostname} is the host name of another service"),
                        };
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
}

/// The names among what is made of a service.
fn claims(made: &BTreeMap<Arc<str>, GeneratedHostname>) -> BTreeSet<(ClaimedHostname, HostnameClaim)> {
    let claims = made.values().filter_map(|made| match made {
        GeneratedHostname::Name(claimed, claim) => Some((claimed.clone(), claim.clone())),
        GeneratedHostname::Nothing(_) => None,
    });
    claims.collect()
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use common::model::kinds::{destinations::HOSTNAME_GENERATOR, mesh_service};

    use super::*;

    fn service(number: usize) -> Resource {
        let key = ResourceKey::new(&mesh_service::KIND, "default", &format!("web-{number:05}"));
        // Each newer one comes before all that are there.
        let created = DateTime::UNIX_EPOCH - TimeDelta::seconds(i64::try_from(number).unwrap());
        Resource::new(key, created).with_label(labels::DISPLAY_NAME, "web")
    }

    /// A zone that was taken over may give one name to all of its services, and each in turn to another.
    #[test]
    fn however_many_ask_for_a_name_a_few_are_concerned() {
        let key = ResourceKey::global(&HOSTNAME_GENERATOR, "g");
        let spec = r#"{"selector": {"meshService": {}}, "template": "{{ .DisplayName }}.mesh"}"#;
        let generator = Resource::new(key.clone(), DateTime::UNIX_EPOCH).with_spec(spec);
        let mut hostnames = Hostnames::default();
        hostnames.generator(&key.name, Some(&generator), [].iter());
        let most = 2 + TOLD;
        let all: Vec<Resource> = (0..3000).map(service).collect();
        for service in &all {
            assert!(hostnames.service(service, "east").len() <= most);
            assert!(hostnames.service(service, "east").is_empty(), "nothing is new");
        }
        let reason = |hostnames: &Hostnames, number: usize| {
            let (names, statuses) = hostnames.of(&all[number].key);
            (names.len(), statuses[0].conditions[0].message.clone())
        };
        assert_eq!(reason(&hostnames, 2999).0, 1);
        let named = format!("web.mesh is the host name of {}", all[2999].key);
        let unnamed = "web.mesh is the host name of another service".to_owned();
        assert_eq!(reason(&hostnames, 2999 - TOLD), (0, named));
        assert_eq!(reason(&hostnames, 2999 - TOLD - 1), (0, unnamed.clone()));
        assert_eq!(reason(&hostnames, 0), (0, unnamed));

        assert!(hostnames.forget(&all[0].key).is_empty(), "it was told of nobody");
        let concerned = hostnames.forget(&all[2999].key);
        assert!(concerned.contains(&all[2998].key) && concerned.len() <= most, "{concerned:?}");
        assert_eq!(reason(&hostnames, 2998).0, 1);
        for service in all.iter().rev() {
            assert!(hostnames.forget(&service.key).len() <= most);
        }
        assert!(hostnames.claims.is_empty() && hostnames.made.is_empty());
    }

    #[test]
    fn what_is_older_elsewhere_or_called_so_by_a_label_takes_no_name() {
        let key = ResourceKey::global(&HOSTNAME_GENERATOR, "g");
        let spec = r#"{"selector": {"meshService": {}}, "template": "{{ .DisplayName }}.mesh"}"#;
        let generator = Resource::new(key.clone(), DateTime::UNIX_EPOCH).with_spec(spec);
        let mut hostnames = Hostnames::default();
        hostnames.generator(&key.name, Some(&generator), [].iter());
        let service = |name: &str, zone: &str, second: i64| {
            let key = ResourceKey::new(&mesh_service::KIND, "default", name);
            let service = Resource::new(key, DateTime::UNIX_EPOCH + TimeDelta::seconds(second));
            service.with_label(labels::DISPLAY_NAME, "bank").with_label(labels::ZONE, zone)
        };
        let has = |hostnames: &Hostnames, service: &Resource| !hostnames.of(&service.key).0.is_empty();
        let (stolen, squatter, own) =
            (service("bank-hash", "stolen", 0), service("payments-x", "east", 1), service("bank", "east", 2));
        hostnames.service(&stolen, "east");
        assert!(has(&hostnames, &stolen));
        assert!(hostnames.service(&squatter, "east").contains(&stolen.key));
        assert!(has(&hostnames, &squatter) && !has(&hostnames, &stolen));
        assert!(hostnames.service(&own, "east").contains(&squatter.key));
        assert!(has(&hostnames, &own) && !has(&hostnames, &squatter) && !has(&hostnames, &stolen));
        // Whoever comes again takes nothing.
        assert!(hostnames.service(&stolen, "east").is_empty());
        hostnames.forget(&own.key);
        hostnames.forget(&squatter.key);
        assert!(has(&hostnames, &stolen));
    }
}
