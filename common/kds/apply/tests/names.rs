//! What is called how, and whose name it is.

use super::*;
use crate::model::Labels;

#[test]
fn names_of_old_zones_are_kept_below_the_zone() {
    let follower = Follower::Global {
        zone: "zone-1".into(),
        foreign: Foreign::Rewrite,
        naming: ZoneNaming::Below,
        quota: ZoneQuota::default(),
    };
    let mut bad = from_global("bad");
    bad.spec = (&b"[]"[..]).into();
    let sent = [from_global("a"), bad];
    let received = received(&sent, &["gone.default"], false, &follower);
    let mine = |name: &str| resource(name, zone("zone-1"));
    let held = [mine("zone-1.gone"), mine("gone"), mine("zone-1.bad")];
    let plan = plan(&index(held), &received, &follower, DateTime::UNIX_EPOCH);
    assert_eq!(words(&plan), ["create zone-1.a", "delete zone-1.gone"]);
    assert_eq!(plan.verdicts[0].name, "bad.default", "the peer knows it by this name");
}

#[test]
fn a_name_of_another_zone_is_refused_and_both_are_named() {
    let follower = global(Foreign::Rewrite);
    let theirs = mapper::up(&from_global("t"), "zone-2", &[]).unwrap();
    let zones = ["zone-1", "zone-2"]
        .map(|name| Resource::new(ResourceKey::global(&kinds::zone::KIND, name), DateTime::UNIX_EPOCH));
    let mut unlabelled = theirs.clone();
    unlabelled.labels.remove(labels::DISPLAY_NAME);
    for (sent, owner) in [(theirs, "what zone \"zone-2\" calls so"), (unlabelled, "may be another zone's")] {
        let received = received(&[sent.clone(), up(from_global("good"))], &[], false, &follower);
        let plan = plan(&index(zones.clone()), &received, &follower, DateTime::UNIX_EPOCH);
        assert_eq!(words(&plan), [format!("create {}", called("good"))]);
        let [verdict] = &plan.verdicts[..] else { panic!("{:?}", plan.verdicts) };
        assert_eq!(verdict.name, format!("{}.default", sent.name()));
        let says = ["is not the name on global of what zone \"zone-1\" calls", owner];
        assert!(says.iter().all(|words| verdict.reason.contains(words)), "{}", verdict.reason);
    }
    // Names of global are not a zone's to take either, before anybody has them.
    let received = received(&[from_global("operators")], &[], false, &follower);
    let plan = plan(&index(zones), &received, &follower, DateTime::UNIX_EPOCH);
    assert_eq!((words(&plan).len(), plan.verdicts.len()), (0, 1));
}

#[test]
fn owners_of_refused_names_are_looked_for_a_few_times() {
    let zones = (0..500).map(|n| format!("zone-{n}"));
    let zones: Vec<Resource> = zones
        .map(|name| Resource::new(ResourceKey::global(&kinds::zone::KIND, &name), DateTime::UNIX_EPOCH))
        .collect();
    let theirs = (0..100).map(|n| mapper::up(&from_global(&format!("t-{n}")), "zone-499", &[]).unwrap());
    let theirs: Vec<Resource> = theirs.collect();
    let follower = global(Foreign::Rewrite);
    let plan =
        plan(&index(zones), &received(&theirs, &[], false, &follower), &follower, DateTime::UNIX_EPOCH);
    assert_eq!((plan.verdicts.len(), plan.writes.len()), (100, 0));
    let told =
        plan.verdicts.iter().filter(|verdict| verdict.reason.contains("what zone \"zone-499\" calls so"));
    assert_eq!(told.count(), OWNERS);
}

#[test]
fn a_namespace_is_a_dns_label() {
    let follower = global(Foreign::Rewrite);
    // Anything else can be chosen so that the hash is that of another name.
    let forged = "\u{1}2\u{6}{\u{7f}";
    let sent = ["demo", forged, "Demo", "a.b"].map(|namespace| {
        let own = from_global("t").with_label(labels::NAMESPACE, namespace);
        up(own)
    });
    let received = received(&sent, &[], false, &follower);
    let plan = plan(&index([]), &received, &follower, DateTime::UNIX_EPOCH);
    assert_eq!(words(&plan), [format!("create {}", sent[0].name())]);
    let told =
        |verdict: &&Verdict| verdict.reason.contains("k8s.kuma.io/namespace: a lowercase RFC 1123 label");
    assert_eq!(plan.verdicts.iter().filter(told).count(), 3, "{:?}", plan.verdicts);
}

#[test]
fn what_an_old_zone_sends_is_called_as_it_is_there() {
    let follower = Follower::Global {
        zone: "zone-1".into(),
        foreign: Foreign::Rewrite,
        naming: ZoneNaming::Below,
        quota: ZoneQuota::default(),
    };
    let honest = [
        from_global("a"),
        from_global("b").with_label(labels::DISPLAY_NAME, "b"),
        from_global("c.demo").with_label(labels::DISPLAY_NAME, "c").with_label(labels::NAMESPACE, "demo"),
    ];
    let posing = from_global("x").with_label(labels::DISPLAY_NAME, "web").with_label(labels::NAMESPACE, "0");
    let sent: Vec<Resource> = honest.into_iter().chain([posing]).collect();
    let plan = plan(&index([]), &received(&sent, &[], false, &follower), &follower, DateTime::UNIX_EPOCH);
    assert_eq!(words(&plan), ["create zone-1.a", "create zone-1.b", "create zone-1.c.demo"]);
    assert!(plan.verdicts[0].reason.contains("take the label away"), "{:?}", plan.verdicts);
}

#[test]
fn whose_name_it_is_gets_it_back() {
    let follower = global(Foreign::Rewrite);
    let mine = up(from_global("t"));
    let squatted = Resource { origin: zone("zone-2"), labels: Labels::new(), ..mine.clone() };
    let received = received(std::slice::from_ref(&mine), &[], false, &follower);
    let plan = plan(&index([squatted]), &received, &follower, DateTime::UNIX_EPOCH);
    let [Write::Put { resource, .. }] = &plan.writes[..] else { panic!("{:?}", plan.writes) };
    assert_eq!((&resource.origin, plan.verdicts.len()), (&zone("zone-1"), 0));
}

#[test]
fn a_removed_name_counts_once_however_often_it_is_said() {
    let own = |name: &str| Resource { origin: zone("zone-1"), ..up(from_global(name)) };
    let held: usize = ["a", "b"].map(|name| Owned::one(&own(name)).bytes).iter().sum();
    let unlimited = ZoneQuota { total: 0, per_kind: 0, bytes: 0 };
    let of_two = [
        ZoneQuota { total: 2, ..unlimited },
        ZoneQuota { per_kind: 2, ..unlimited },
        ZoneQuota { bytes: held, ..unlimited },
    ];
    let gone = format!("{}.default", called("b"));
    for quota in of_two {
        let follower = Follower::Global {
            zone: "zone-1".into(),
            foreign: Foreign::Rewrite,
            naming: ZoneNaming::Hashed,
            quota,
        };
        let sent = ["c", "d", "e"].map(|name| up(from_global(name)));
        let received = received(&sent, &[&*gone; 50], false, &follower);
        let plan = plan(&index([own("a"), own("b")]), &received, &follower, DateTime::UNIX_EPOCH);
        assert_eq!((plan.removed, plan.writes.len(), plan.verdicts.len()), (1, 2, 2), "{quota:?}");
    }

    let repeated = received(&[], &["b.default"; 50], false, &Follower::Zone);
    let guarded = DecodedResponse { guarded: true, ..repeated };
    let held = [from_global("a"), from_global("b")];
    let on_zone = plan(&index(held), &guarded, &Follower::Zone, DateTime::UNIX_EPOCH);
    assert_eq!((on_zone.removed, on_zone.held), (1, 2));
    assert_eq!(words(&on_zone), ["delete b"]);

    // What is in no mesh has two names.
    let (kind, follower) = (&kinds::zone_ingress::KIND, global(Foreign::Rewrite));
    let names = ["ingress", "ingress.", "ingress"].map(str::to_owned).to_vec();
    let received = DecodedResponse::decode(kind, [], names, false, &follower);
    let ingress = Resource::new(ResourceKey::global(kind, "ingress"), DateTime::UNIX_EPOCH);
    let ingress = Resource { origin: zone("zone-1"), ..ingress };
    let plan = plan(&index([ingress]), &received, &follower, DateTime::UNIX_EPOCH);
    assert_eq!((plan.removed, words(&plan).len()), (1, 1));
}
