//! What is served, declared once: method, path, what a caller needs for it and what it is for.
//!
//! ```text
//!  table ──► Route ──► Mounted: handlers, each on a Route ──► guard ──► Router
//!                         └──► /openapi.json
//! ```
//!
//! A handler can only be mounted on a [`Route`], and there is no other way to get one than from the table, which is
//! looked into when the program is compiled: what is not declared does not build, and what is declared is guarded.

mod table;

use axum::{
    handler::Handler,
    routing::{MethodFilter, MethodRouter, on},
};

use super::overview;
use crate::model::{Kind, kinds::access_role::RoleVerb};

pub use table::TABLE;

/// How a route is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMethod {
    /// Reads.
    Get,
    /// Makes or changes.
    Put,
    /// Does something.
    Post,
    /// Deletes.
    Delete,
}

impl RouteMethod {
    /// As it stands in a request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Put => MethodFilter::PUT,
            Self::Post => MethodFilter::POST,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// What a caller needs to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it is for everybody.
    Nothing,
    /// To have shown who he is. What he may not read is left out of the answer.
    Known,
    /// The right to do this to what the path names.
    OnPath(RoleVerb),
    /// The same, of who has shown who he is.
    KnownOnPath(RoleVerb),
    /// The right to do this at all; the handler decides by what else the request says, and leaves out what is not
    /// allowed.
    OnSomething(RoleVerb),
    /// The right to do this to everything here, limited by nothing but the zone whose control plane it is.
    OnEverything(RoleVerb),
    /// The right to read all zones.
    ReadingZones,
    /// What a proxy shows, which the handler checks.
    Proxy,
    /// A token in the request itself, which the handler checks; to forget it, nothing.
    Shown,
}

impl Needs {
    /// The verb of a role, where one is needed.
    pub const fn verb(self) -> Option<RoleVerb> {
        match self {
            Self::Nothing | Self::Known | Self::Proxy | Self::Shown => None,
            Self::OnPath(verb)
            | Self::KnownOnPath(verb)
            | Self::OnSomething(verb)
            | Self::OnEverything(verb) => Some(verb),
            Self::ReadingZones => Some(RoleVerb::Read),
        }
    }
}

impl Needs {
    /// Whether what it shows is for a few, so that every look at it is taken down.
    pub const fn is_of_few(self) -> bool {
        match self.verb() {
            // What changes something or makes a token is taken down by its method.
            None
            | Some(
                RoleVerb::Read
                | RoleVerb::Write
                | RoleVerb::Delete
                | RoleVerb::GenerateDataplaneToken
                | RoleVerb::GenerateZoneToken
                | RoleVerb::GenerateUserToken
                | RoleVerb::ViewStats
                | RoleVerb::ViewClusters,
            ) => false,
            Some(
                RoleVerb::ViewSecrets
                | RoleVerb::Tokens
                | RoleVerb::ConfigDump
                | RoleVerb::ViewConfigDump
                | RoleVerb::Settings
                | RoleVerb::Audit
                | RoleVerb::Backup
                | RoleVerb::Operate
                | RoleVerb::Admin,
            ) => true,
        }
    }
}

/// Where a route is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutePlace {
    /// By the API of global and of zones.
    Both,
    /// By the API of global.
    Global,
    /// By the API of a zone.
    Zone,
    /// By the API of global and of zones, for people with a browser.
    Page,
    /// By the server of the proxies of a zone.
    Proxies,
    /// By the port for diagnostics.
    Diagnostics,
}

/// What a route answers when all goes well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAnswer {
    /// An object with at least these members.
    Object(&'static [&'static str]),
    /// A resource of the kind.
    Resource,
    /// A page of resources of the kind.
    Resources,
    /// A page of objects.
    Page,
    /// What came of a write.
    Written,
    /// A list.
    List,
    /// JSON of any form.
    Json,
    /// Text of this type.
    Text(&'static str),
}

/// One route, or one for each of several kinds.
#[derive(Debug)]
pub struct Route {
    method: RouteMethod,
    /// As it is mounted; a route of kinds begins with `<list>`, `<all>`, `<overviews>` or `<all overviews>`.
    path: &'static str,
    needs: Needs,
    summary: &'static str,
    place: RoutePlace,
    answer: RouteAnswer,
    statuses: &'static [u16],
    /// Names of query parameters.
    query: &'static [&'static str],
    kinds: fn(&Kind) -> bool,
}

fn every(_: &Kind) -> bool {
    true
}

impl Route {
    const fn new(method: RouteMethod, path: &'static str, needs: Needs, summary: &'static str) -> Self {
        Self {
            method,
            path,
            needs,
            summary,
            place: RoutePlace::Both,
            answer: RouteAnswer::Json,
            statuses: &[200],
            query: &[],
            kinds: every,
        }
    }

    const fn at(mut self, place: RoutePlace) -> Self {
        self.place = place;
        self
    }

    const fn answers(mut self, answer: RouteAnswer) -> Self {
        self.answer = answer;
        self
    }

    const fn with(mut self, statuses: &'static [u16]) -> Self {
        self.statuses = statuses;
        self
    }

    const fn query(mut self, names: &'static [&'static str]) -> Self {
        self.query = names;
        self
    }

    const fn of(mut self, kinds: fn(&Kind) -> bool) -> Self {
        self.kinds = kinds;
        self
    }

    /// How it is asked.
    pub fn method(&self) -> RouteMethod {
        self.method
    }

    /// Its path, that of a route of kinds with the place of their paths in angle brackets.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// What a caller needs.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// What it is for.
    pub fn summary(&self) -> &'static str {
        self.summary
    }

    /// Where it is served.
    pub fn place(&self) -> RoutePlace {
        self.place
    }

    /// What it answers when all goes well.
    pub fn answer(&self) -> RouteAnswer {
        self.answer
    }

    /// With which statuses it does.
    pub fn statuses(&self) -> &'static [u16] {
        self.statuses
    }

    /// Names of parameters in the query.
    pub fn parameters(&self) -> &'static [&'static str] {
        self.query
    }

    /// Whether there is one for each of several kinds.
    pub fn is_of_kinds(&self) -> bool {
        self.path.starts_with('<')
    }

    /// The paths under which it is mounted for `kind`, the one of today first.
    pub fn paths_of(&self, kind: &Kind) -> Vec<String> {
        let Some((place, rest)) = self.path.strip_prefix('<').and_then(|path| path.split_once('>')) else {
            return Vec::new();
        };
        if kind.path.is_empty() || !(self.kinds)(kind) {
            return Vec::new();
        }
        let in_meshes = kind.is_mesh_scoped();
        let segments = match place {
            "overviews" | "all overviews" => {
                vec![overview::of(kind).map(|overview| overview.legacy_path).unwrap_or_default()]
            }
            _ => vec![kind.path, kind.alias],
        };
        let segments = segments.into_iter().filter(|segment| !segment.is_empty());
        let path = |segment| match place {
            "all" | "all overviews" => in_meshes.then(|| format!("/{segment}{rest}")),
            _ if in_meshes => Some(format!("/meshes/{{mesh}}/{segment}{rest}")),
            _ => Some(format!("/{segment}{rest}")),
        };
        segments.filter_map(path).collect()
    }
}

/// Whether who asks for this only reads, whatever the method says: some clients put what they ask into a body.
pub fn only_reads(method: &str, path: &str) -> bool {
    let is_it = |route: &&Route| route.method.as_str() == method && route.path == path;
    TABLE.iter().find(is_it).is_some_and(|route| route.needs.verb() == Some(RoleVerb::Read))
}

/// Whether this does something that is no write of resources: a token is made, or a control plane is led.
pub fn acts(method: &str, path: &str) -> bool {
    let is_it = |route: &&Route| route.method.as_str() == method && route.path == path;
    TABLE.iter().find(is_it).is_some_and(|route| {
        let acting = matches!(
            route.needs.verb(),
            Some(
                RoleVerb::Operate
                    | RoleVerb::GenerateDataplaneToken
                    | RoleVerb::GenerateZoneToken
                    | RoleVerb::GenerateUserToken
            )
        );
        acting && route.method != RouteMethod::Get
    })
}

/// The route that is read with `GET` at `path`.
pub const fn get(path: &str) -> &'static Route {
    declared(RouteMethod::Get, path)
}

/// The route that is written with `PUT` at `path`.
pub const fn put(path: &str) -> &'static Route {
    declared(RouteMethod::Put, path)
}

/// The route that is asked with `POST` at `path`.
pub const fn post(path: &str) -> &'static Route {
    declared(RouteMethod::Post, path)
}

/// The route that is asked with `DELETE` at `path`.
pub const fn delete(path: &str) -> &'static Route {
    declared(RouteMethod::Delete, path)
}

/// Meant for constants: what is not in the table does not compile then.
const fn declared(method: RouteMethod, path: &str) -> &'static Route {
    let mut n = 0;
    while n < TABLE.len() {
        if TABLE[n].method as u8 == method as u8 && is_same(TABLE[n].path.as_bytes(), path.as_bytes()) {
            return &TABLE[n];
        }
        n += 1;
    }
    panic!("this route is not in the table")
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut n = 0;
    while n < one.len() {
        if one[n] != other[n] {
            return false;
        }
        n += 1;
    }
    true
}

/// A handler where it is served.
#[derive(Clone)]
pub(super) struct MountedRoute {
    pub(super) route: &'static Route,
    pub(super) kind: Option<&'static Kind>,
    pub(super) path: String,
    pub(super) handler: MethodRouter,
}

/// Handlers on routes of the table. Nothing else can be served by an API.
#[derive(Clone, Default)]
pub struct Mounted {
    pub(super) routes: Vec<MountedRoute>,
}

impl Mounted {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves a route that is of no kind.
    pub fn on<H, T, S>(mut self, route: &'static Route, handler: H, state: &S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        let handler = on(route.method.filter(), handler).with_state(state.clone());
        self.routes.push(MountedRoute { route, kind: None, path: route.path.to_owned(), handler });
        self
    }

    /// Serves a route of kinds for `kind`, under each of its paths; not at all where it is not one of `kind`.
    pub fn on_kind<H, T, S>(
        mut self,
        kind: &'static Kind,
        route: &'static Route,
        handler: H,
        state: &S,
    ) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        let handler: MethodRouter = on(route.method.filter(), handler).with_state(state.clone());
        let mounted = route.paths_of(kind).into_iter().map(|path| MountedRoute {
            route,
            kind: Some(kind),
            path,
            handler: handler.clone(),
        });
        self.routes.extend(mounted);
        self
    }

    /// Together with `other`.
    pub fn merge(mut self, other: Self) -> Self {
        self.routes.extend(other.routes);
        self
    }
}

#[cfg(test)]
mod tests;
