#![allow(clippy::unwrap_used)]
use common::{
    document::Document,
    mode::Mode,
    store::{feed::Feed, memory::MemoryStore},
};

use super::*;
use crate::share::{ADDRESS_BYTES_OF_ZONE, SERVICES_OF_ACCOUNT, SERVICES_OF_ZONE};

struct Bench {
    store: Arc<MemoryStore>,
    addresses: Addresses,
    feed: Feed,
}

impl Bench {
    async fn new() -> Self {
        Self::over(Arc::new(MemoryStore::new(uuid::Uuid::nil()))).await
    }

    /// As after a start of the process.
    async fn over(store: Arc<MemoryStore>) -> Self {
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let of_zone = Arc::clone(&store) as Arc<dyn Store>;
        let addresses =
            Addresses::new("east".into(), Naming::default(), of_zone, Env::system("test"), feed.reader());
        Self { store, addresses, feed }
    }

    async fn put(&self, yaml: &str, zone: &str) {
        put(&self.store, yaml, zone).await;
    }

    async fn delete(&self, key: ResourceKey) {
        self.store.transact(Batch::of([Write::delete_when(key, Precondition::None)])).await.unwrap();
    }

    /// One round on the newest index, and the names with their addresses after it.
    async fn round(&mut self) -> Vec<String> {
        self.feed = Feed::load(Arc::clone(&self.store) as Arc<dyn Store>).await.unwrap();
        self.addresses.reader = self.feed.reader();
        self.addresses.follow_newest();
        self.addresses.settle().await;
        assert!(self.addresses.open.is_empty());
        let index = Feed::load(Arc::clone(&self.store) as Arc<dyn Store>).await.unwrap().reader().current();
        let Some(stored) = index.get(&address_book::key("default")) else { return Vec::new() };
        let book = AddressBook::parse(&stored.spec::<Config>().unwrap().config).unwrap();
        let shown = |entry: address_book::Entry| {
            let ports: Vec<String> =
                entry.outbounds(&Naming::default()).iter().map(|(port, _)| port.to_string()).collect();
            format!(
                "{} {} {}",
                entry.names(&Naming::default()).join(" "),
                entry.address.unwrap(),
                ports.join(" ")
            )
        };
        book.entries().map(shown).collect()
    }
}

/// Says which revision that is.
async fn put(store: &MemoryStore, yaml: &str, zone: &str) -> u64 {
    let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
    let mut resource = document.into_resource(chrono::DateTime::UNIX_EPOCH);
    let mode = Mode::federated_zone(zone);
    mode.label(&mut resource);
    resource.origin = mode.origin_of(resource.kind());
    store.transact(Batch::of([Write::put(resource)])).await.unwrap().revision
}

fn dataplane(name: &str, service: &str) -> String {
    format!(
        "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.2, inbound: [{{port: 80, \
         servicePort: 8080, tags: {{kuma.io/service: {service}}}}}]}}}}"
    )
}

#[tokio::test]
async fn addresses_stay_as_long_as_somebody_has_the_service() {
    let mut bench = Bench::new().await;
    bench.put("{type: Mesh, name: default}", "east").await;
    assert!(bench.round().await.is_empty(), "nothing is written where nothing is wanted");
    bench.put(&dataplane("web-1", "web"), "east").await;
    bench.put(&dataplane("web-2", "web"), "east").await;
    assert_eq!(bench.round().await, ["web.mesh 240.0.0.0 80"]);

    let before = *bench.store.watch_head().borrow();
    bench.put(&dataplane("web-3", "web"), "east").await;
    bench.round().await;
    assert_eq!(*bench.store.watch_head().borrow(), before + 1, "one more of them is no reason to write");

    bench.put(&dataplane("api-1", "api"), "east").await;
    bench
        .put(
            "{type: ZoneIngress, name: in, zone: west, networking: {address: 127.0.0.9, port: 10001}, availableServices: \
             [{mesh: default, instances: 1, tags: {kuma.io/service: far}}, {mesh: other, instances: 1, tags: \
             {kuma.io/service: b}}]}",
            "west",
        )
        .await;
    let all = ["api.mesh 240.0.0.1 80", "far.mesh 240.0.0.2 80", "web.mesh 240.0.0.0 80"];
    assert_eq!(bench.round().await, all);

    // A start of the process gives nobody another address.
    let mut again = Bench::over(Arc::clone(&bench.store)).await;
    let before = *again.store.watch_head().borrow();
    assert_eq!(again.round().await, all);
    assert_eq!(*again.store.watch_head().borrow(), before);

    let gone = |name: &str| ResourceKey::new(&dataplane::KIND, "default", name);
    again.delete(gone("web-1")).await;
    assert_eq!(again.round().await, all);
    again.delete(gone("web-2")).await;
    again.delete(gone("web-3")).await;
    assert_eq!(again.round().await, all[..2]);
}

#[tokio::test]
async fn services_outside_are_known_by_their_host_as_well() {
    let mut bench = Bench::new().await;
    bench.put("{type: Mesh, name: default}", "east").await;
    let outside = |name: &str, service: &str, address: &str, hidden: bool| {
        format!(
            "{{type: ExternalService, mesh: default, name: {name}, networking: {{address: '{address}', disableHostDNSEntry: \
             {hidden}}}, tags: {{kuma.io/service: {service}}}}}"
        )
    };
    bench.put(&outside("a", "maps", "maps.example.com:443", false), "east").await;
    bench.put(&outside("b", "bank", "bank.example.com:443", true), "east").await;
    assert_eq!(
        bench.round().await,
        ["bank.mesh 240.0.0.0 443 80", "maps.mesh 240.0.0.1 443 80", "maps.example.com 240.0.0.2 443 80",]
    );
    bench.delete(ResourceKey::new(&mesh::KIND, "", "default")).await;
    assert!(bench.round().await.is_empty());
}

#[tokio::test]
async fn names_are_made_up_of_tags() {
    let mut bench = Bench::new().await;
    bench.put("{type: Mesh, name: default}", "east").await;
    let tagged = |name: &str, version: &str| {
        format!(
            "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.2, inbound: [{{port: 80, tags: \
             {{kuma.io/service: web, version: {version}}}}}]}}}}"
        )
    };
    bench.put(&tagged("web-1", "v1"), "east").await;
    bench.put(&tagged("web-2", "v2"), "east").await;
    assert_eq!(bench.round().await, ["web.mesh 240.0.0.0 80"]);
    let by_version = |host: &str| {
        format!(
            "{{type: VirtualOutbound, mesh: default, name: by-version, selectors: [{{match: {{kuma.io/service: '*', version: \
             '*'}}}}], conf: {{host: '{host}', port: '8080', parameters: [{{name: service, tagKey: kuma.io/service}}, {{name: \
             version}}]}}}}"
        )
    };
    bench.put(&by_version("{{.version}}.{{.service}}.test"), "east").await;
    assert_eq!(
        bench.round().await,
        ["web.mesh 240.0.0.0 80", "v1.web.test 240.0.0.1 8080", "v2.web.test 240.0.0.2 8080",]
    );
    bench.put(&tagged("web-3", "v3"), "east").await;
    assert_eq!(bench.round().await[3], "v3.web.test 240.0.0.3 8080");
    // Of several who want one port of one name one has it.
    bench.put(&by_version("all.test"), "east").await;
    assert_eq!(bench.round().await, ["web.mesh 240.0.0.0 80", "all.test 240.0.0.1 8080"]);
    bench
        .delete(ResourceKey::new(
            common::registry::by_name("VirtualOutbound").unwrap(),
            "default",
            "by-version",
        ))
        .await;
    assert_eq!(bench.round().await, ["web.mesh 240.0.0.0 80"]);
}

/// An ingress of another zone that offers so many services.
fn offering(zone: &str, name: &str, services: std::ops::Range<usize>) -> String {
    let services: Vec<serde_json::Value> = services
        .map(|i| serde_json::json!({"mesh": "default", "instances": 1, "tags": {"kuma.io/service": format!("{zone}-{i:05}")}}))
        .collect();
    serde_json::json!({
        "type": "ZoneIngress", "name": name, "zone": zone, "networking": {"address": "10.0.0.1", "port": 1,
        "advertisedAddress": "10.0.0.1", "advertisedPort": 1}, "availableServices": services,
    })
    .to_string()
}

#[tokio::test]
async fn a_zone_has_a_share_of_the_addresses_and_no_other_pays_for_it() {
    let mut bench = Bench::new().await;
    bench.put("{type: Mesh, name: default}", "west").await;
    bench.put(&offering("stolen", "s-1", 0..8_000), "stolen").await;
    bench.put(&offering("stolen", "s-2", 7_000..60_000), "stolen").await;
    let of = |names: &[String], zone: &str| names.iter().filter(|name| name.starts_with(zone)).count();
    let names = bench.round().await;
    assert_eq!(of(&names, "stolen"), SERVICES_OF_ZONE);
    bench.put(&offering("west", "w-1", 0..3), "west").await;
    let more = bench.round().await;
    assert_eq!((of(&more, "stolen"), of(&more, "west")), (SERVICES_OF_ZONE, 3));
    let kept = names.iter().filter(|name| more.contains(name)).count();
    assert_eq!(kept, names.len(), "nobody's address changes");
    // What goes makes room for what waited.
    bench.delete(ResourceKey::global(&zone_ingress::KIND, "s-1")).await;
    let names = bench.round().await;
    assert_eq!((of(&names, "stolen"), of(&names, "west")), (SERVICES_OF_ZONE, 3));
    bench.delete(ResourceKey::global(&zone_ingress::KIND, "s-2")).await;
    assert_eq!(of(&bench.round().await, "stolen"), 0);
    assert!(bench.addresses.shares.keys().all(|payer| *payer == WishPayer::Zone("west".into())));
}

#[tokio::test]
async fn what_is_long_has_fewer_addresses_and_leaves_room_to_others() {
    let mut bench = Bench::new().await;
    bench.put("{type: Mesh, name: default}", "west").await;
    let label = "x".repeat(63);
    let long = |i: usize| {
        let name = format!("stolen-{i:05}.{label}.{label}.{label}");
        serde_json::json!({"mesh": "default", "instances": 1, "tags": {"kuma.io/service": name}})
    };
    let offers = |name: &str, services: std::ops::Range<usize>| {
        serde_json::json!({
            "type": "ZoneIngress", "name": name, "zone": "stolen", "networking": {"address": "10.0.0.1", "port": 1,
            "advertisedAddress": "10.0.0.1", "advertisedPort": 1}, "availableServices": services.map(long).collect::<Vec<_>>(),
        })
        .to_string()
    };
    bench.put(&offers("s-1", 0..5_000), "stolen").await;
    bench.put(&offers("s-2", 5_000..9_000), "stolen").await;
    bench.put(&offering("west", "w-1", 0..3), "west").await;
    let of = |names: &[String], zone: &str| names.iter().filter(|name| name.starts_with(zone)).count();
    let names = bench.round().await;
    let taken = of(&names, "stolen");
    assert!((4_000..SERVICES_OF_ZONE).contains(&taken) && taken < 9_000, "{taken}");
    assert_eq!(of(&names, "west"), 3);
    let stored = bench.store.snapshot().await.unwrap().resources;
    let book = stored.iter().find(|resource| resource.key == address_book::key("default")).unwrap();
    assert!(book.spec.len() <= ADDRESS_BYTES_OF_ZONE + 1024, "{}", book.spec.len());
    // What goes makes room for all that waits.
    bench.delete(ResourceKey::global(&zone_ingress::KIND, "s-1")).await;
    assert_eq!(of(&bench.round().await, "stolen"), 4_000);
    assert!(bench.addresses.shares.values().all(|known| known.left_out() == 0));
}

#[tokio::test]
async fn a_name_that_no_host_can_have_gets_no_address() {
    let mut bench = Bench::new().await;
    bench.put("{type: Mesh, name: default}", "east").await;
    let long = "x".repeat(3_700);
    bench.put(&dataplane("web-1", "web"), "east").await;
    bench.put(&dataplane("long-1", &long), "east").await;
    bench.put(&dataplane("path-1", "team/web"), "east").await;
    let offered =
        |service: &str| format!("{{mesh: default, instances: 1, tags: {{kuma.io/service: '{service}'}}}}");
    let ingress = |services: &[&str]| {
        let services: Vec<String> = services.iter().map(|service| offered(service)).collect();
        format!(
            "{{type: ZoneIngress, name: in, zone: west, networking: {{address: 127.0.0.9, port: 10001}}, \
             availableServices: [{}]}}",
            services.join(", ")
        )
    };
    bench.put(&ingress(&["far", "a/b", "a:b", long.as_str()]), "west").await;
    assert_eq!(bench.round().await, ["far.mesh 240.0.0.0 80", "web.mesh 240.0.0.1 80"]);
    let west = WishPayer::Zone("west".into());
    assert_eq!(bench.addresses.shares[&west].left_out(), 3, "it is told of that zone");
    bench.put(&ingress(&["far", "a/b"]), "west").await;
    bench.round().await;
    assert_eq!(bench.addresses.shares[&west].left_out(), 1);
    bench.delete(ResourceKey::global(&zone_ingress::KIND, "in")).await;
    assert_eq!(bench.round().await, ["web.mesh 240.0.0.1 80"]);
    assert!(bench.addresses.shares.is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_many_that_come_one_after_the_other_the_addresses_are_written_once_in_a_moment() {
    const MANY: usize = 200;
    let Bench { store, addresses, feed } = Bench::new().await;
    let (mut reader, shutdown) = (feed.reader(), CancellationToken::new());
    let coming = async {
        put(&store, "{type: Mesh, name: default}", "east").await;
        for n in 0..MANY {
            let revision = put(&store, &dataplane(&format!("d-{n}"), &format!("s-{n}")), "east").await;
            reader.wait_for(revision).await.unwrap();
        }
        let known = |index: &Index| {
            let stored = index.get(&address_book::key("default"))?;
            Some(AddressBook::parse(&stored.spec::<Config>().unwrap().config).unwrap().entries().count())
        };
        while known(&reader.latest()) != Some(MANY) {
            assert!(reader.changed().await);
        }
        let writes = usize::try_from(reader.current().revision).unwrap() - 1 - MANY;
        assert!((1..=3).contains(&writes), "{writes}");
        shutdown.cancel();
    };
    let (followed, (), ()) =
        tokio::join!(feed.run(shutdown.clone()), addresses.run(shutdown.clone()), coming);
    followed.unwrap();
}

#[tokio::test]
async fn proxies_with_one_token_have_a_share_of_the_addresses() {
    let mut bench = Bench::new().await;
    bench.put("{type: Mesh, name: default}", "east").await;
    let inbounds = |services: std::ops::Range<usize>| {
        let inbound =
            |n| serde_json::json!({"port": n + 1, "tags": {"kuma.io/service": format!("thief-{n:05}")}});
        serde_json::Value::from(services.map(inbound).collect::<Vec<_>>())
    };
    let brought = serde_json::json!({
        "type": "Dataplane", "mesh": "default", "name": "thief", "labels": {"kuma.io/registered-by": "proxy",
        "strait.io/registered-with": "0123"}, "networking": {"address": "10.0.0.1", "inbound": inbounds(0..6000)},
    });
    bench.put(&brought.to_string(), "east").await;
    bench.put(&dataplane("web-1", "web"), "east").await;
    let of = |names: &[String], start: &str| names.iter().filter(|name| name.starts_with(start)).count();
    let names = bench.round().await;
    assert_eq!((of(&names, "thief"), of(&names, "web")), (SERVICES_OF_ACCOUNT, 1));
    bench.delete(ResourceKey::new(&dataplane::KIND, "default", "thief")).await;
    assert_eq!(bench.round().await.len(), 1);
    assert!(bench.addresses.shares.is_empty());
}
