#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, env, fmt::Write, fs, path::Path};

use super::*;
use crate::{registry, rest::tests::mounted};

#[test]
fn each_route_stands_in_the_table_once() {
    let mut seen = BTreeSet::new();
    for route in TABLE {
        let served: Vec<String> = if route.is_of_kinds() {
            registry::ALL.iter().flat_map(|kind| route.paths_of(kind)).collect()
        } else {
            vec![route.path.to_owned()]
        };
        assert!(!served.is_empty(), "{} is of no kind", route.path);
        for path in served {
            assert!(
                seen.insert((route.method.as_str(), path.clone())),
                "{} {path} twice",
                route.method.as_str()
            );
        }
        assert!(!route.summary.is_empty() && !route.statuses.is_empty(), "{}", route.path);
    }
}

#[test]
fn looks_inside_a_zone_and_at_secrets_of_a_control_plane_are_of_few() {
    let is_of_few = |route: &&Route| route.needs.is_of_few();
    let of_few: BTreeSet<&str> = TABLE.iter().filter(is_of_few).map(Route::path).collect();
    let inside = TABLE.iter().map(Route::path).filter(|path| path.starts_with("/debug"));
    let others = [
        "/config",
        "/logging",
        "/audit",
        "/strait/backup",
        "/strait/resources",
        "/strait/recovery",
        "/strait/epoch",
        "<list>/{name}/xds",
        "<list>/{name}/_config",
    ];
    for path in inside.chain(others) {
        assert!(of_few.contains(path), "{path}");
    }
    for path in ["/", "<list>", "<list>/{name}", "/history", "/gui", "<list>/{name}/stats", "/metrics"] {
        assert!(!of_few.contains(path), "{path}");
    }
}

/// What is declared is served: in each of its places, for each of its kinds. That nothing else is, the compiler sees to.
#[tokio::test]
async fn what_is_declared_for_both_control_planes_is_mounted_on_them() {
    for (mounted, place) in
        [(mounted(false).await, RoutePlace::Global), (mounted(true).await, RoutePlace::Zone)]
    {
        let is: BTreeSet<(String, String)> =
            mounted.iter().map(|(route, path)| (route.method.as_str().to_owned(), path.clone())).collect();
        assert_eq!(is.len(), mounted.len(), "something is mounted twice");
        for route in TABLE.iter().filter(|route| route.place == RoutePlace::Both) {
            // A zone makes this answer itself.
            if place == RoutePlace::Zone && route.path.ends_with("/_config") {
                continue;
            }
            let paths = match route.is_of_kinds() {
                true => registry::ALL.iter().flat_map(|kind| route.paths_of(kind)).collect(),
                false => vec![route.path.to_owned()],
            };
            for path in paths {
                assert!(is.contains(&(route.method.as_str().to_owned(), path.clone())), "{path} {place:?}");
            }
        }
    }
}

#[test]
fn every_write_needs_something() {
    for route in TABLE.iter().filter(|route| route.method != RouteMethod::Get) {
        assert!(route.needs != Needs::Nothing, "{} {}", route.method.as_str(), route.path);
    }
}

/// `docs/reference/api.md` says what the table says; `UPDATE_GOLDEN=1` writes it.
#[test]
fn the_reference_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/api.md");
    let text = reference();
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/reference/api.md differs from the table of routes: UPDATE_GOLDEN=1 writes it"
    );
}

fn reference() -> String {
    let mut text = String::from(
        "# The REST API\n\n\
         Made of the table of routes (`common/rest/routes/table.rs`); a test compares. `GET /openapi.json` of a running \
         control plane says the same to programs, with what requests and answers look like.\n\n\
         What a caller needs is a verb of a role, or of the settings: [Access](../access.md). *Known* is who has shown a \
         user token, or one of a provider. Errors have `type`, `status`, `title` and `detail`, and \
         `invalid_parameters` where single fields are wrong.\n",
    );
    let sections = [
        ("Global and zones", RoutePlace::Both),
        ("Global", RoutePlace::Global),
        ("Zones", RoutePlace::Zone),
        ("The page", RoutePlace::Page),
        ("The server of the proxies of a zone", RoutePlace::Proxies),
        ("Diagnostics", RoutePlace::Diagnostics),
    ];
    for (title, place) in sections {
        let routes = TABLE.iter().filter(|route| route.place == place && !route.is_of_kinds());
        write!(text, "\n## {title}\n\n{HEAD}").unwrap();
        for route in routes {
            row(&mut text, route, route.path);
        }
        if place == RoutePlace::Both {
            of_kinds(&mut text);
        }
    }
    text
}

const HEAD: &str = "| method | path | needs | what it is for |\n| --- | --- | --- | --- |\n";

fn row(text: &mut String, route: &Route, path: &str) {
    let needs = match route.needs {
        Needs::Nothing => "nothing".to_owned(),
        Needs::Known => "to be known".to_owned(),
        Needs::KnownOnPath(verb) => format!("`{}`, and to be known", verb.as_str()),
        Needs::ReadingZones => format!("`{}` of all zones", RoleVerb::Read.as_str()),
        Needs::Proxy => "what the proxy shows".to_owned(),
        Needs::Shown => "a token, to show it".to_owned(),
        Needs::OnPath(verb) | Needs::OnSomething(verb) | Needs::OnEverything(verb) => {
            format!("`{}`", verb.as_str())
        }
    };
    writeln!(text, "| {} | `{path}` | {needs} | {} |", route.method.as_str(), route.summary).unwrap();
}

fn of_kinds(text: &mut String) {
    text.push_str(
        "\n## Resources\n\n\
         `LIST` is `/meshes/{mesh}/PATH` for types of a mesh and `/PATH` for the others, `ALL` is `/PATH` for types of a \
         mesh; the paths stand below. Reading a `Secret` or `GlobalSecret` needs `view-secrets`; everything else about \
         types that are kept for administrators needs `admin`.\n\n",
    );
    text.push_str(HEAD);
    for route in TABLE.iter().filter(|route| route.is_of_kinds()) {
        let kinds: Vec<&&Kind> =
            registry::ALL.iter().filter(|kind| !route.paths_of(kind).is_empty()).collect();
        if kinds.len() > FEW || route.path.starts_with("<list>/{name}/-resources") {
            row(text, route, &route.path.replace("<list>", "LIST").replace("<all>", "ALL"));
        } else {
            for kind in kinds {
                row(text, route, &route.paths_of(kind)[0]);
            }
        }
    }
    text.push_str("\n| type | path | of | written on | |\n| --- | --- | --- | --- | --- |\n");
    for kind in registry::ALL.iter().filter(|kind| !kind.path.is_empty()) {
        let of = if kind.is_mesh_scoped() { "mesh" } else { "control plane" };
        let written = match kind {
            kind if kind.read_only => "",
            kind if kind.flow.written_by_global() && kind.flow.written_by_zone() => "global and zones",
            kind if kind.flow.written_by_global() => "global",
            _ => "zones",
        };
        let alias = match kind.alias {
            "" => String::new(),
            alias => format!(" (also `{alias}`)"),
        };
        let kept = if kind.admin_only { "for administrators" } else { "" };
        writeln!(text, "| {} | `{}`{alias} | {of} | {written} | {kept} |", kind.name, kind.path).unwrap();
    }
}

/// A route of so many kinds is shown for each.
const FEW: usize = 4;
