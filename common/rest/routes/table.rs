//! The table: every route of every port that speaks HTTP for people and programs, in the order in which the
//! documentation lists them.

use super::{
    Needs::{Known, KnownOnPath, Nothing, OnEverything, OnPath, OnSomething, Proxy, ReadingZones, Shown},
    Route,
    RouteAnswer::{Json, List, Object, Page, Resource, Resources, Text, Written},
    RouteMethod::{Delete, Get, Post, Put},
    RoutePlace::{self, Diagnostics, Global, Proxies, Zone},
};
use crate::{
    model::{
        Kind,
        kinds::{
            access_role::RoleVerb::{
                Admin, Audit, Backup, Delete as Deleting, GenerateDataplaneToken, GenerateUserToken,
                GenerateZoneToken, Operate, Read, Settings, ViewClusters, ViewConfigDump, ViewStats, Write,
            },
            dataplane, mesh_gateway, mesh_service, rollout,
        },
    },
    rest::overview,
    store::history::keeps_history,
};

/// All routes.
pub static TABLE: &[Route] = &[
    Route::new(Get, "/", Nothing, "who this control plane is").answers(Object(&[
        "hostname",
        "product",
        "version",
        "instanceId",
        "clusterId",
        "gui",
        "strait",
    ])),
    Route::new(Get, "/openapi.json", Nothing, "this API, in OpenAPI 3.1").answers(Object(&[
        "openapi",
        "info",
        "paths",
        "components",
    ])),
    Route::new(Get, "/who-am-i", Nothing, "name and groups of the caller")
        .answers(Object(&["name", "groups"])),
    Route::new(Get, "/authn", Nothing, "which ways there are to log in")
        .answers(Object(&["tokens", "openIdConnect"])),
    Route::new(Get, "/access/can-i", Nothing, "whether the caller may do something, and why not")
        .query(&["verb", "kind", "mesh", "name", "zone", "scope", "user", "groups"])
        .answers(Object(&["allowed", "reason", "user", "groups"])),
    Route::new(Get, "/config", OnEverything(Settings), "the settings of this process, secrets masked")
        .answers(Object(&[])),
    Route::new(Get, "/logging", OnEverything(Operate), "what this process logs, by the paths of modules")
        .answers(Object(&["components"])),
    Route::new(Put, "/logging", OnEverything(Operate), "gives a component another level of logs")
        .answers(Object(&["components"])),
    Route::new(Delete, "/logging", OnEverything(Operate), "takes all levels back that were given")
        .answers(Object(&["components"])),
    Route::new(
        Delete,
        "/logging/{component}",
        OnEverything(Operate),
        "takes the level of one component back",
    )
    .answers(Object(&["components"])),
    Route::new(Get, "/policies", Nothing, "types of policies").answers(Object(&["policies"])),
    Route::new(Get, "/_resources", Nothing, "types of resources").answers(Object(&["resources"])),
    Route::new(Get, "/global-insight", OnEverything(Read), "counts over everything").answers(Object(&[
        "createdAt",
        "dataplanes",
        "meshes",
        "policies",
        "resources",
        "services",
        "zones",
    ])),
    Route::new(Get, "/global-insights", OnEverything(Read), "the same in the form of older clients")
        .answers(Object(&["type", "creationTime", "resources"])),
    Route::new(Get, "/audit", OnEverything(Audit), "who asked for what, the newest first")
        .query(&["user", "kind", "outcome", "since", "size"])
        .answers(Object(&["items", "next"])),
    Route::new(Get, "/_kri/{kri}", OnSomething(Read), "the resource with this identifier")
        .query(&["format", "namespace"])
        .answers(Object(&["type", "name"])),
    Route::new(Get, "/history", Known, "what became of resources, the newest first")
        .query(&["kind", "mesh", "author", "since", "after", "before", "size"])
        .answers(Object(&["items", "next", "knownAfter"])),
    Route::new(Get, "/history/{revision}", Known, "what changed with a revision").answers(Object(&[
        "items",
        "next",
        "knownAfter",
    ])),
    Route::new(Post, "/history/undo", Known, "takes changes back, as far as the caller may write them")
        .answers(Object(&["steps", "left", "revision"])),
    Route::new(Get, "/sync", ReadingZones, "how far all zones are; on global")
        .answers(Object(&["revision", "zones"])),
    Route::new(Get, "/sync/revisions/{revision}", ReadingZones, "who has acknowledged a revision")
        .query(&["timeout", "of"])
        .answers(Object(&["revision", "acknowledged", "zones"])),
    Route::new(
        Get,
        "/sync/zones/{zone}/{kind}/{name}",
        ReadingZones,
        "why a zone has, lacks or refuses a resource; on global",
    )
    .query(&["mesh"])
    .answers(Object(&["zone", "type", "name", "state", "reason", "revision", "acked", "status"])),
    Route::new(Post, "/tokens/dataplane", OnSomething(GenerateDataplaneToken), "makes a token of a proxy")
        .answers(Text("text/plain")),
    Route::new(Post, "/tokens/zone", OnSomething(GenerateZoneToken), "makes a token of a zone")
        .answers(Text("text/plain")),
    Route::new(Post, "/tokens/user", OnSomething(GenerateUserToken), "makes a token of a user")
        .answers(Text("text/plain")),
    Route::new(Get, "/strait/backup", OnEverything(Backup), "the whole store, secrets and all")
        .answers(Text("application/x-ndjson")),
    // Of kinds.
    Route::new(Get, "<list>", OnPath(Read), "lists resources")
        .query(&["size", "offset", "name"])
        .answers(Resources),
    Route::new(Get, "<all>", OnPath(Read), "lists resources of all meshes")
        .query(&["size", "offset", "name"])
        .answers(Resources),
    Route::new(Get, "<list>/{name}", OnPath(Read), "one resource")
        .query(&["format", "namespace"])
        .answers(Resource),
    Route::new(Put, "<list>/{name}", OnPath(Write), "makes or changes a resource")
        .query(&["dryRun"])
        .with(&[200, 201])
        .answers(Written),
    Route::new(Delete, "<list>/{name}", OnPath(Deleting), "deletes a resource and what it owns")
        .answers(Written),
    Route::new(Get, "<list>/_overview", OnPath(Read), "lists resources with what is known about them")
        .of(has_overview)
        .query(&["size", "offset", "name"])
        .answers(Page),
    Route::new(Get, "<all>/_overview", OnPath(Read), "the same of all meshes")
        .of(has_overview)
        .query(&["size", "offset", "name"])
        .answers(Page),
    Route::new(Get, "<list>/{name}/_overview", OnPath(Read), "a resource with what is known about it")
        .of(has_overview)
        .answers(Object(&["type", "name"])),
    Route::new(Get, "<overviews>", OnPath(Read), "the same list for older clients")
        .of(has_overview)
        .query(&["size", "offset", "name"])
        .answers(Page),
    Route::new(Get, "<all overviews>", OnPath(Read), "the same list of all meshes for older clients")
        .of(has_overview)
        .query(&["size", "offset", "name"])
        .answers(Page),
    Route::new(Get, "<overviews>/{name}", OnPath(Read), "the same of one for older clients")
        .of(has_overview)
        .answers(Object(&["type", "name"])),
    Route::new(
        Get,
        "<list>/{name}/_history",
        KnownOnPath(Read),
        "what became of a resource, the newest first",
    )
    .of(keeps_history)
    .query(&["since", "after", "before", "size"])
    .answers(Object(&["items", "next", "knownAfter"])),
    Route::new(Get, "<list>/{name}/_history/{revision}", KnownOnPath(Read), "a resource as it was")
        .of(keeps_history)
        .answers(Object(&["type", "name"])),
    Route::new(
        Post,
        "<list>/{name}/begin",
        OnSomething(Write),
        "sends a change out in the waves of a rollout",
    )
    .of(is_rollout)
    .with(&[200, 201])
    .answers(Object(&["rollout", "waves", "changes"])),
    Route::new(Post, "<list>/{name}/halt", OnSomething(Write), "stops a rollout where it is")
        .of(is_rollout)
        .answers(Object(&["rollout", "state"])),
    Route::new(Post, "<list>/{name}/resume", OnSomething(Write), "lets a halted rollout go on")
        .of(is_rollout)
        .answers(Object(&["rollout", "state"])),
    Route::new(Post, "<list>/{name}/advance", OnSomething(Write), "ends the pause of a rollout")
        .of(is_rollout)
        .answers(Object(&["rollout", "state"])),
    Route::new(
        Post,
        "<list>/{name}/abort",
        OnSomething(Write),
        "brings everybody back to what was before a rollout",
    )
    .of(is_rollout)
    .answers(Object(&["rollout", "state"])),
    Route::new(Get, "<list>/{name}/status", OnPath(Read), "how far a rollout is, zone by zone; on global")
        .of(is_rollout)
        .query(&["timeout", "after"])
        .answers(Object(&["rollout", "state", "wave", "waves", "changes", "log"])),
    Route::new(Get, "<list>/{name}/xds", OnPath(ViewConfigDump), "the configuration dump of an Envoy")
        .of(is_proxy)
        .query(&["include_eds"]),
    Route::new(Get, "<list>/{name}/stats", OnPath(ViewStats), "the stats of an Envoy")
        .of(is_proxy)
        .query(&["format", "usedonly"])
        .answers(Text("text/plain")),
    Route::new(Get, "<list>/{name}/clusters", OnPath(ViewClusters), "the clusters of an Envoy")
        .of(is_proxy)
        .query(&["format"])
        .answers(Text("text/plain")),
    Route::new(Get, "<list>/{name}/_config", OnPath(ViewConfigDump), "what a proxy is to run with")
        .of(is_proxy)
        .query(&["shadow", "include"])
        .answers(Object(&["xds"])),
    Route::new(Get, "<list>/{name}/_rules", OnPath(Read), "the rules that hold for a proxy").of(has_rules),
    Route::new(Get, "<list>/{name}/_layout", OnPath(Read), "inbounds and outbounds of a proxy")
        .of(is_dataplane),
    Route::new(Get, "<list>/{name}/_policies", OnPath(Read), "policies of a proxy").of(is_dataplane),
    Route::new(Get, "<list>/{name}/_inbounds/{kri}/_policies", OnPath(Read), "policies of an inbound")
        .of(is_dataplane),
    Route::new(Get, "<list>/{name}/_outbounds/{kri}/_policies", OnPath(Read), "policies of an outbound")
        .of(is_dataplane),
    Route::new(Get, "<list>/{name}/_outbounds/{kri}/_routes", OnPath(Read), "routes of an outbound")
        .of(is_dataplane),
    Route::new(
        Get,
        "<list>/{name}/_outbounds/{kri}/_routes/{route}/_policies",
        OnPath(Read),
        "policies of a route of an outbound",
    )
    .of(is_dataplane),
    Route::new(Get, "<list>/{name}/policies", OnPath(Read), "policies of a proxy in the older form")
        .of(is_dataplane),
    Route::new(Get, "<list>/{name}/rules", OnPath(Read), "rules of a proxy in the older form")
        .of(is_dataplane),
    Route::new(Get, "<list>/{name}/_older", OnPath(Read), "policies of the older generation of a proxy")
        .of(is_dataplane),
    Route::new(Get, "<list>/{name}/_dataplanes", OnPath(Read), "proxies that serve a service")
        .of(is_mesh_service),
    Route::new(Get, "<list>/{name}/_resources/dataplanes", OnPath(Read), "proxies that it is for")
        .of(is_service_or_policy)
        .query(&["size", "offset", "name"]),
    Route::new(Get, "<list>/{name}/-resources/dataplanes", OnPath(Read), "the same as kumactl spells it")
        .of(is_policy),
    Route::new(Get, "<list>/{name}/_hostnames", OnPath(Read), "host names of a service")
        .of(is_service)
        .answers(Object(&["total", "items"])),
    Route::new(Get, "<list>/{name}/dataplanes", OnPath(Read), "proxies that it is for, in the older form")
        .of(is_policy_or_gateway)
        .answers(Object(&["total", "items"])),
    // Of global.
    Route::new(
        Get,
        "/strait/recovery",
        OnEverything(Operate),
        "what rebuilding global from its zones would do",
    )
    .at(Global)
    .query(&["removeAbsent", "believeOne", "partial"]),
    Route::new(Post, "/strait/recovery", OnEverything(Operate), "rebuilds global from its zones")
        .at(Global)
        .query(&["removeAbsent", "believeOne", "partial"]),
    Route::new(Get, "/strait/epoch", OnEverything(Operate), "which history zones are shown").at(Global),
    Route::new(Post, "/strait/epoch", OnEverything(Operate), "raises the epoch of that history")
        .at(Global)
        .answers(Object(&["storeId", "epoch"])),
    Route::new(
        Post,
        "/strait/zones/{zone}/offer",
        OnEverything(Operate),
        "offers a zone again what it refused: all of it, of a kind, or one resource",
    )
    .at(Global)
    .query(&["kind", "mesh", "name"])
    .with(&[202])
    .answers(Object(&["offered"])),
    Route::new(
        Get,
        "/strait/signing-key",
        OnEverything(Read),
        "the public half of the key that signs what zones are sent",
    )
    .at(Global)
    .answers(Object(&["id", "publicKey"])),
    // Of a zone.
    Route::new(Get, "/strait/link", OnEverything(Read), "how the zone stands with global")
        .at(Zone)
        .answers(Object(&["connected", "upstream", "down", "up"])),
    Route::new(Post, "/strait/link/approve", OnEverything(Operate), "lets through what is held back")
        .at(Zone)
        .with(&[202])
        .answers(Object(&[])),
    Route::new(
        Post,
        "/strait/link/offer",
        OnEverything(Operate),
        "offers global again what it refused: all of it, of a kind, or one resource",
    )
    .at(Zone)
    .query(&["kind", "mesh", "name"])
    .with(&[202])
    .answers(Object(&["offered"])),
    Route::new(Post, "/strait/link/move", OnEverything(Operate), "lets the zone look at another global")
        .at(Zone)
        .with(&[202])
        .answers(Object(&[])),
    Route::new(Delete, "/strait/link/move", OnEverything(Operate), "gives that up")
        .at(Zone)
        .answers(Object(&[])),
    Route::new(Post, "/strait/link/move/commit", OnEverything(Operate), "lets the zone follow that global")
        .at(Zone)
        .query(&["acceptLosses"])
        .with(&[202])
        .answers(Object(&[])),
    Route::new(
        Post,
        "/v3/discovery:monitoringassignments",
        OnEverything(Read),
        "whose metrics are to be collected, as kuma_sd_configs of Prometheus asks",
    )
    .at(Zone)
    .query(&["fetch-timeout"])
    .with(&[200, 304])
    .answers(Object(&["version_info", "resources", "type_url"])),
    Route::new(
        Get,
        "/monitoring/targets",
        OnEverything(Read),
        "whose metrics are to be collected, as http_sd_configs of Prometheus asks",
    )
    .at(Zone)
    .query(&["client", "mesh"])
    .answers(List),
    Route::new(
        Get,
        "/strait/resources",
        OnEverything(Admin),
        "the files a zone reads, and what is wrong with them",
    )
    .at(Zone)
    .answers(Object(&["folder", "state"])),
    looking("/debug/proxies", "connected proxies").answers(Object(&["total", "items"])),
    looking("/debug/proxies/{id}/config", "what a connected proxy was sent"),
    looking("/debug", "a page with the names below").answers(Text("text/html")),
    looking("/debug/", "the same page").answers(Text("text/html")),
    looking("/debug/list", "the names below").answers(List),
    looking("/debug/adsz", "connections, with what each asked for").query(&["proxyID"]),
    looking("/debug/cachez", "names of the resources that are kept encoded").query(&["sizes"]),
    looking("/debug/cdsz", "clusters of one connection").query(&["proxyID"]),
    looking("/debug/config_dump", "all that one connection is to have").query(&[
        "proxyID",
        "types",
        "include_eds",
    ]),
    looking("/debug/configz", "objects an operator wrote").query(&["kind", "mesh"]),
    looking("/debug/connections", "connections").query(&["proxyID"]),
    looking("/debug/ecdsz", "extensions of one connection").query(&["proxyID"]),
    looking("/debug/edsz", "endpoints of one connection").query(&["proxyID"]),
    looking("/debug/endpointShardz", "endpoints by service, mesh and zone").query(&["mesh"]),
    looking("/debug/endpointz", "the same under its older name").query(&["mesh"]),
    looking("/debug/instancesz", "what the connected proxies serve").query(&["proxyID"]),
    looking("/debug/mesh", "one mesh").query(&["mesh"]),
    looking("/debug/networkz", "where other zones are entered"),
    looking("/debug/push_status", "what is not sent, and why"),
    looking("/debug/registryz", "services").query(&["mesh"]),
    looking("/debug/syncz", "how far each connection is with each type").query(&["proxyID"]),
    Route::new(Post, "/debug/force_disconnect", OnEverything(Operate), "ends connections of proxies")
        .at(Zone)
        .query(&["proxyID"])
        .answers(Object(&["disconnected"])),
    // The page.
    page("/gui", "the overview: a map of the federation, and what is wrong"),
    page("/gui/zones", "all zones"),
    page("/gui/zones/{zone}", "one zone").query(&["show"]),
    Route::new(Post, "/gui/zones/{zone}/approve", OnEverything(Operate), "lets through what is held back")
        .at(RoutePlace::Page)
        .with(&[303])
        .answers(Text(HTML)),
    Route::new(Post, "/gui/zones/{zone}/offer", OnEverything(Operate), "offers again what was refused")
        .at(RoutePlace::Page)
        .with(&[303])
        .answers(Text(HTML)),
    page("/gui/meshes", "all meshes").query(&["search", "page"]),
    page("/gui/meshes/{mesh}", "one mesh, with a map of its services"),
    page("/gui/services", "services").query(&["mesh", "search", "page"]),
    page("/gui/dataplanes", "dataplanes").query(&["mesh", "search", "zone", "status", "page"]),
    page("/gui/dataplanes/{mesh}/{name}", "one dataplane, and its Envoy").query(&["show", "find"]),
    page("/gui/policies", "policies").query(&["mesh", "type", "search", "page"]),
    page("/gui/resources/{kind}/{name}", "one resource: whom it reaches, who has it, how it was")
        .query(&["mesh", "from", "to"]),
    page("/gui/history", "who changed what").query(&["kind", "mesh", "author", "before"]),
    page("/gui/change", "a form for a change").query(&["kind", "mesh", "name"]),
    Route::new(Post, "/gui/change", OnSomething(Write), "shows what a change would do, or makes it")
        .at(RoutePlace::Page)
        .with(&[200, 303])
        .answers(Text(HTML)),
    page("/gui/changes/{revision}", "how far a change is"),
    page("/gui/rollouts", "changes that go out in waves"),
    page("/gui/rollouts/{name}", "one of them, as it goes on"),
    Route::new(
        Post,
        "/gui/rollouts/{name}/{action}",
        OnSomething(Write),
        "halts a rollout, or lets it go on or back",
    )
    .at(RoutePlace::Page)
    .with(&[303])
    .answers(Text(HTML)),
    Route::new(Get, "/gui/session", Nothing, "a form to sign in")
        .query(&["to"])
        .at(RoutePlace::Page)
        .answers(Text(HTML)),
    Route::new(Post, "/gui/session", Shown, "signs in, with a user token")
        .at(RoutePlace::Page)
        .with(&[303])
        .answers(Text(HTML)),
    Route::new(Post, "/gui/session/end", Shown, "signs out")
        .at(RoutePlace::Page)
        .with(&[200, 303])
        .answers(Text(HTML)),
    Route::new(Get, "/gui/login", Nothing, "sends on to the provider of OpenID Connect to log in there")
        .query(&["to"])
        .at(RoutePlace::Page)
        .with(&[303])
        .answers(Text(HTML)),
    Route::new(Get, "/gui/login/done", Shown, "signs in, with what the provider of OpenID Connect sends")
        .query(&["code", "state", "iss", "error", "error_description"])
        .at(RoutePlace::Page)
        .with(&[303])
        .answers(Text(HTML)),
    Route::new(Get, "/gui/live", OnSomething(Read), "tells, as long as it is read, that something changed")
        .at(RoutePlace::Page)
        .answers(Text("text/event-stream")),
    Route::new(Get, "/gui/page.css", Nothing, "how the page looks")
        .at(RoutePlace::Page)
        .answers(Text("text/css")),
    Route::new(Get, "/gui/page.js", Nothing, "how the page keeps up to date")
        .at(RoutePlace::Page)
        .answers(Text("text/javascript")),
    Route::new(Post, "/bootstrap", Proxy, "what an Envoy starts with").at(Proxies).answers(Json),
    Route::new(Get, "/healthy", Nothing, "whether the process runs")
        .at(Diagnostics)
        .answers(Text("text/plain")),
    Route::new(Get, "/ready", Nothing, "whether it does its work")
        .at(Diagnostics)
        .with(&[200, 503])
        .answers(Object(&["ready", "waitingFor"])),
    Route::new(Get, "/metrics", Nothing, "metrics, for Prometheus")
        .at(Diagnostics)
        .answers(Text("text/plain")),
];

/// A look inside a zone.
const fn looking(path: &'static str, summary: &'static str) -> Route {
    Route::new(Get, path, OnEverything(ViewConfigDump), summary).at(Zone)
}

const HTML: &str = "text/html";

/// A page for people with a browser. It shows what its reader may read.
const fn page(path: &'static str, summary: &'static str) -> Route {
    Route::new(Get, path, OnSomething(Read), summary).at(RoutePlace::Page).answers(Text(HTML))
}

fn has_overview(kind: &Kind) -> bool {
    overview::of(kind).is_some()
}

fn is_rollout(kind: &Kind) -> bool {
    kind == &rollout::KIND
}

fn is_proxy(kind: &Kind) -> bool {
    kind.is_proxy
}

fn is_dataplane(kind: &Kind) -> bool {
    kind == &dataplane::KIND
}

fn is_mesh_service(kind: &Kind) -> bool {
    kind == &mesh_service::KIND
}

fn has_rules(kind: &Kind) -> bool {
    is_dataplane(kind) || kind == &mesh_gateway::KIND
}

fn is_service(kind: &Kind) -> bool {
    kind.service.is_some()
}

fn is_policy(kind: &Kind) -> bool {
    kind.policy.is_some()
}

fn is_service_or_policy(kind: &Kind) -> bool {
    is_mesh_service(kind) || is_policy(kind)
}

fn is_policy_or_gateway(kind: &Kind) -> bool {
    is_policy(kind) || kind == &mesh_gateway::KIND
}
