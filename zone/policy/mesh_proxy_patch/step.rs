//! One change of finished messages.

use std::{collections::BTreeMap, sync::Arc};

use common::policy::mesh_proxy_patch::{
    ClusterMatch, FilterMatch, FilterOperation, JsonPatch, ListenerMatch, Modification, Operation,
    ResourceModification, RuntimeModification, VirtualHostMatch,
    native::{self, Native},
};
use prost_reflect::{DynamicMessage, ReflectMessage, Value};

use super::{json, merge};
use crate::generator::{Encoded, type_url};

const HTTP_CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";
/// The origin of what is added.
const ORIGIN: &str = "mesh-proxy-patch";

/// One change, read.
#[derive(Debug)]
pub(super) enum Step {
    /// A resource more.
    Add(Arc<Encoded>),
    /// Something about clusters.
    Cluster(ClusterMatch, OfResource),
    /// Something about listeners.
    Listener(ListenerMatch, OfResource),
    /// Something about the virtual hosts of listeners.
    VirtualHost(VirtualHostMatch, OfHost),
    /// Something about the filters of connections.
    NetworkFilter(FilterMatch, OfFilter),
    /// Something about the filters of requests.
    HttpFilter(FilterMatch, OfFilter),
    /// Something about what an Envoy decides by while it runs.
    Runtime(RuntimeModification),
}

/// What is done to a resource.
#[derive(Debug)]
pub(super) enum OfResource {
    Remove,
    Patch(How),
}

/// What is done to virtual hosts.
#[derive(Debug)]
pub(super) enum OfHost {
    Add(DynamicMessage),
    Remove,
    Patch(How),
}

/// What is done to the filters in a list.
#[derive(Debug)]
pub(super) enum OfFilter {
    Remove,
    Patch(How),
    AddFirst(DynamicMessage),
    AddLast(DynamicMessage),
    AddBefore(DynamicMessage),
    AddAfter(DynamicMessage),
}

/// How a message is changed.
#[derive(Debug)]
pub(super) enum How {
    /// This is merged in.
    Merge(DynamicMessage),
    /// Its JSON form is changed.
    Json(Vec<JsonPatch>),
}

impl Step {
    /// What a policy says.
    ///
    /// # Errors
    /// Why it cannot be done, to whatever.
    pub(super) fn of(modification: Modification) -> Result<Self, String> {
        let Modification { cluster, listener, network_filter, http_filter, virtual_host, runtime } =
            modification;
        if let Some(change) = runtime {
            return Ok(Self::Runtime(change));
        }
        if let Some(change) = cluster {
            return Ok(match of_resource(&change, Native::Cluster, type_url::CLUSTER)? {
                Ok(added) => Self::Add(added),
                Err(done) => Self::Cluster(change.r#match.unwrap_or_default(), done),
            });
        }
        if let Some(change) = listener {
            return Ok(match of_resource(&change, Native::Listener, type_url::LISTENER)? {
                Ok(added) => Self::Add(added),
                Err(done) => Self::Listener(change.r#match.unwrap_or_default(), done),
            });
        }
        if let Some(change) = virtual_host {
            let done = match change.operation {
                Operation::Add => OfHost::Add(value(change.value.as_deref(), Native::VirtualHost)?),
                Operation::Remove => OfHost::Remove,
                Operation::Patch => OfHost::Patch(how(&change, Native::VirtualHost)?),
            };
            return Ok(Self::VirtualHost(change.r#match.unwrap_or_default(), done));
        }
        if let Some(change) = network_filter {
            let done = of_filter(&change, Native::NetworkFilter)?;
            return Ok(Self::NetworkFilter(change.r#match.unwrap_or_default(), done));
        }
        let change = http_filter.ok_or("it says nothing")?;
        let done = of_filter(&change, Native::HttpFilter)?;
        Ok(Self::HttpFilter(change.r#match.unwrap_or_default(), done))
    }

    /// Whether it is about a resource of this type, name and origin.
    pub(super) fn is_for(&self, of_type: &str, name: &str, origin: &str) -> bool {
        let (wanted_type, wanted_name, wanted_origin) = match self {
            Self::Add(_) | Self::Runtime(_) => return false,
            Self::Cluster(by, _) => (type_url::CLUSTER, &by.name, &by.origin),
            Self::Listener(by, _) => (type_url::LISTENER, &by.name, &by.origin),
            Self::VirtualHost(by, _) => (type_url::LISTENER, &None, &by.origin),
            Self::NetworkFilter(by, _) | Self::HttpFilter(by, _) => {
                (type_url::LISTENER, &by.listener_name, &by.origin)
            }
        };
        wanted_type == of_type
            && wanted_name.as_ref().is_none_or(|wanted| wanted == name)
            && wanted_origin.as_ref().is_none_or(|wanted| wanted == origin)
    }

    /// Tags a listener must show.
    pub(super) fn asks_for_tags(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Listener(by, _) => by.tags.as_ref(),
            Self::NetworkFilter(by, _) | Self::HttpFilter(by, _) => by.listener_tags.as_ref(),
            Self::Add(_) | Self::Cluster(..) | Self::VirtualHost(..) | Self::Runtime(_) => None,
        }
    }

    /// Whether it takes out what it is about.
    pub(super) fn removes(&self) -> bool {
        matches!(self, Self::Cluster(_, OfResource::Remove) | Self::Listener(_, OfResource::Remove))
    }

    /// Does it to `message`; says whether anything was done.
    ///
    /// # Errors
    /// Why it cannot be done; `message` may be half done then.
    pub(super) fn apply(&self, message: &mut DynamicMessage) -> Result<bool, String> {
        match self {
            Self::Add(_) | Self::Runtime(_) => Ok(false),
            Self::Cluster(_, done) | Self::Listener(_, done) => match done {
                OfResource::Remove => Ok(false),
                OfResource::Patch(how) => how.apply(message).map(|()| true),
            },
            Self::NetworkFilter(by, done) => {
                each_chain(message, |filters| done.apply(filters, by.name.as_deref()))
            }
            Self::HttpFilter(by, done) => each_manager(message, |manager| {
                done.apply(list(manager, "http_filters")?, by.name.as_deref())
            }),
            Self::VirtualHost(by, done) => each_manager(message, |manager| {
                if !manager.has_field_by_name("route_config") {
                    return Ok(false);
                }
                let routes = member(manager, "route_config")?.as_message_mut().ok_or("it has no routes")?;
                let wanted = by.route_configuration_name.as_ref();
                if wanted.is_some_and(|wanted| *wanted != native::name(routes)) {
                    return Ok(false);
                }
                done.apply(list(routes, "virtual_hosts")?, by.name.as_deref())
            }),
        }
    }
}

type Added = Result<Arc<Encoded>, OfResource>;

/// What is added, or else what is done.
fn of_resource<M>(
    change: &ResourceModification<M, Operation>,
    native: Native,
    type_url: &'static str,
) -> Result<Added, String> {
    Ok(match change.operation {
        Operation::Add => {
            let message = value(change.value.as_deref(), native)?;
            Ok(Arc::new(Encoded::dynamic(&native::name(&message), type_url, ORIGIN, &message)))
        }
        Operation::Remove => Err(OfResource::Remove),
        Operation::Patch => Err(OfResource::Patch(how(change, native)?)),
    })
}

fn of_filter(
    change: &ResourceModification<FilterMatch, FilterOperation>,
    native: Native,
) -> Result<OfFilter, String> {
    let added = || value(change.value.as_deref(), native);
    Ok(match change.operation {
        FilterOperation::Remove => OfFilter::Remove,
        FilterOperation::Patch => OfFilter::Patch(how(change, native)?),
        FilterOperation::AddFirst => OfFilter::AddFirst(added()?),
        FilterOperation::AddLast => OfFilter::AddLast(added()?),
        FilterOperation::AddBefore => OfFilter::AddBefore(added()?),
        FilterOperation::AddAfter => OfFilter::AddAfter(added()?),
    })
}

fn value(yaml: Option<&str>, native: Native) -> Result<DynamicMessage, String> {
    native.parse(yaml.ok_or("it has no value")?).map_err(|error| error.to_string())
}

fn how<M, O>(change: &ResourceModification<M, O>, native: Native) -> Result<How, String> {
    match change.json_patches.is_empty() {
        true => value(change.value.as_deref(), native).map(How::Merge),
        false => Ok(How::Json(change.json_patches.clone())),
    }
}

impl How {
    fn apply(&self, message: &mut DynamicMessage) -> Result<(), String> {
        match self {
            Self::Merge(patch) => merge::merge(message, patch),
            Self::Json(steps) => {
                let mut json = native::to_json(message).map_err(|error| error.to_string())?;
                json::apply(&mut json, steps)?;
                *message = native::of_json(message.descriptor(), &json).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Changes what is packed in a filter.
    fn apply_to_filter(&self, filter: &mut DynamicMessage) -> Result<(), String> {
        let mut config = Packed::of(filter)?;
        match self {
            Self::Json(_) => self.apply(&mut config.message)?,
            Self::Merge(patch) => {
                let patch = Packed::of(&mut patch.clone())?;
                if patch.type_url != config.type_url {
                    return Err(format!("it is {} and not {}", config.type_url, patch.type_url));
                }
                merge::merge(&mut config.message, &patch.message);
            }
        }
        config.put(filter)
    }
}

impl OfFilter {
    fn apply(&self, filters: &mut Vec<Value>, name: Option<&str>) -> Result<bool, String> {
        let is = |filter: &Value| {
            filter.as_message().is_some_and(|filter| name.is_none_or(|name| native::name(filter) == name))
        };
        let place = filters.iter().position(|filter| name.is_some() && is(filter));
        let message = |filter: &DynamicMessage| Value::Message(filter.clone());
        match (self, place) {
            (Self::Remove, _) => {
                let before = filters.len();
                filters.retain(|filter| !is(filter));
                return Ok(filters.len() != before);
            }
            (Self::Patch(how), _) => {
                let mut some = false;
                for filter in filters.iter_mut().filter(|filter| is(filter)) {
                    how.apply_to_filter(filter.as_message_mut().ok_or("it is no filter")?)?;
                    some = true;
                }
                return Ok(some);
            }
            (Self::AddFirst(filter), _) => filters.insert(0, message(filter)),
            (Self::AddLast(filter), _) => filters.push(message(filter)),
            (Self::AddBefore(filter), Some(place)) => filters.insert(place, message(filter)),
            (Self::AddAfter(filter), Some(place)) => filters.insert(place + 1, message(filter)),
            (Self::AddBefore(_) | Self::AddAfter(_), None) => return Ok(false),
        }
        Ok(true)
    }
}

impl OfHost {
    fn apply(&self, hosts: &mut Vec<Value>, name: Option<&str>) -> Result<bool, String> {
        let is = |host: &Value| {
            host.as_message().is_some_and(|host| name.is_none_or(|name| native::name(host) == name))
        };
        match self {
            Self::Add(host) => hosts.push(Value::Message(host.clone())),
            Self::Remove => hosts.retain(|host| !is(host)),
            Self::Patch(how) => {
                for host in hosts.iter_mut().filter(|host| is(host)) {
                    how.apply(host.as_message_mut().ok_or("it is no virtual host")?)?;
                }
            }
        }
        Ok(true)
    }
}

/// The configuration packed in a filter.
struct Packed {
    type_url: String,
    message: DynamicMessage,
}

impl Packed {
    fn of(filter: &mut DynamicMessage) -> Result<Self, String> {
        if !filter.has_field_by_name("typed_config") {
            return Err(format!("the filter {:?} has no typedConfig", native::name(filter)));
        }
        let config = member(filter, "typed_config")?.as_message_mut().ok_or("typedConfig is no message")?;
        let type_url = member(config, "type_url")?.as_str().unwrap_or_default().to_owned();
        let bytes = member(config, "value")?.as_bytes().cloned().unwrap_or_default();
        let descriptor = native::packed(&type_url).map_err(|error| error.to_string())?;
        let message = DynamicMessage::decode(descriptor, bytes).map_err(|error| error.to_string())?;
        Ok(Self { type_url, message })
    }

    fn put(&self, filter: &mut DynamicMessage) -> Result<(), String> {
        let config = member(filter, "typed_config")?.as_message_mut().ok_or("typedConfig is no message")?;
        let bytes = prost::Message::encode_to_vec(&self.message);
        *member(config, "value")? = Value::Bytes(bytes.into());
        Ok(())
    }
}

fn member<'a>(message: &'a mut DynamicMessage, name: &str) -> Result<&'a mut Value, String> {
    let of = message.descriptor().name().to_owned();
    message.get_field_by_name_mut(name).ok_or_else(|| format!("{of} has no {name}"))
}

fn list<'a>(message: &'a mut DynamicMessage, name: &str) -> Result<&'a mut Vec<Value>, String> {
    let of = message.descriptor().name().to_owned();
    member(message, name)?.as_list_mut().ok_or_else(|| format!("{name} of {of} is no list"))
}

/// Works on the filters of each chain of a listener.
fn each_chain(
    listener: &mut DynamicMessage,
    mut change: impl FnMut(&mut Vec<Value>) -> Result<bool, String>,
) -> Result<bool, String> {
    let mut some = false;
    for chain in list(listener, "filter_chains")? {
        some |= change(list(chain.as_message_mut().ok_or("a chain is no message")?, "filters")?)?;
    }
    Ok(some)
}

/// Works on whatever routes requests in a listener.
fn each_manager(
    listener: &mut DynamicMessage,
    mut change: impl FnMut(&mut DynamicMessage) -> Result<bool, String>,
) -> Result<bool, String> {
    each_chain(listener, |filters| {
        let mut some = false;
        for filter in filters.iter_mut().filter_map(Value::as_message_mut) {
            if native::name(filter) == HTTP_CONNECTION_MANAGER {
                let mut manager = Packed::of(filter)?;
                if change(&mut manager.message)? {
                    manager.put(filter)?;
                    some = true;
                }
            }
        }
        Ok(some)
    })
}
