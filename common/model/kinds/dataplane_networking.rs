//! A data plane proxy but for what it calls: that is long, and few who ask about a proxy want to know it.

use bytes::Bytes;
use prost::Message;

use crate::{
    model::SpecError,
    proto::kuma::mesh::v1alpha1::{
        EnvoyAdmin,
        dataplane::{
            Networking,
            networking::{Gateway, Inbound, Listener, TransparentProxying},
        },
    },
};

/// A `Dataplane` of which nothing else is read.
#[derive(Clone, PartialEq, Message)]
struct Networked {
    #[prost(message, optional, tag = "1")]
    networking: Option<WithoutOutbounds>,
}

/// `Dataplane.Networking` without its second field.
#[derive(Clone, PartialEq, Message)]
struct WithoutOutbounds {
    #[prost(message, repeated, tag = "1")]
    inbound: Vec<Inbound>,
    #[prost(message, optional, tag = "3")]
    gateway: Option<Gateway>,
    #[prost(message, optional, tag = "4")]
    transparent_proxying: Option<TransparentProxying>,
    #[prost(string, tag = "5")]
    address: String,
    #[prost(string, tag = "7")]
    advertised_address: String,
    #[prost(message, optional, tag = "8")]
    admin: Option<EnvoyAdmin>,
    #[prost(message, repeated, tag = "9")]
    listeners: Vec<Listener>,
}

/// The networking of an encoded `Dataplane`; its outbounds are passed over, whatever is in them.
///
/// # Errors
/// [`SpecError::Proto`] when the rest is not what it should be.
pub fn networking(spec: &[u8]) -> Result<Networking, SpecError> {
    let WithoutOutbounds {
        inbound,
        gateway,
        transparent_proxying,
        address,
        advertised_address,
        admin,
        listeners,
    } = Networked::decode(spec)?.networking.unwrap_or_default();
    Ok(Networking {
        inbound,
        outbound: Vec::new(),
        gateway,
        transparent_proxying,
        address,
        advertised_address,
        admin,
        listeners,
    })
}

/// A `Dataplane` of which everything is kept.
#[derive(Clone, PartialEq, Message)]
struct EditableDataplane {
    #[prost(message, optional, tag = "1")]
    networking: Option<WithEncodedOutbounds>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    metrics: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    probes: Option<Bytes>,
}

/// `Dataplane.Networking` with its second field as it came.
#[derive(Clone, PartialEq, Message)]
struct WithEncodedOutbounds {
    #[prost(message, repeated, tag = "1")]
    inbound: Vec<Inbound>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    outbound: Vec<Bytes>,
    #[prost(message, optional, tag = "3")]
    gateway: Option<Gateway>,
    #[prost(message, optional, tag = "4")]
    transparent_proxying: Option<TransparentProxying>,
    #[prost(string, tag = "5")]
    address: String,
    #[prost(string, tag = "7")]
    advertised_address: String,
    #[prost(message, optional, tag = "8")]
    admin: Option<EnvoyAdmin>,
    #[prost(message, repeated, tag = "9")]
    listeners: Vec<Listener>,
}

/// An encoded `Dataplane` after `change` of what it serves; the outbounds are neither shown nor read. What has no
/// networking stays as it is. `spec` is in the normal form, where no field comes twice.
///
/// # Errors
/// [`SpecError::Proto`] when the rest is not what it should be.
pub fn change_served(
    spec: &Bytes,
    change: impl FnOnce(&mut Vec<Inbound>, &mut Option<Gateway>),
) -> Result<Bytes, SpecError> {
    let mut dataplane = EditableDataplane::decode(Bytes::clone(spec))?;
    let Some(networking) = &mut dataplane.networking else { return Ok(Bytes::clone(spec)) };
    change(&mut networking.inbound, &mut networking.gateway);
    Ok(dataplane.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message;

    use super::{change_served, networking};
    use crate::proto::kuma::mesh::v1alpha1::{
        Dataplane, EnvoyAdmin, MetricsBackend,
        dataplane::{
            Networking, Probes,
            networking::{Gateway, Inbound, Listener, Outbound, TransparentProxying},
        },
    };

    fn whole() -> Networking {
        Networking {
            inbound: vec![
                Inbound { port: 1, ..Inbound::default() },
                Inbound { port: 2, ..Inbound::default() },
            ],
            outbound: vec![Outbound { port: 3, ..Outbound::default() }; 4],
            gateway: Some(Gateway { tags: [("a".to_owned(), "b".to_owned())].into(), ..Gateway::default() }),
            transparent_proxying: Some(TransparentProxying {
                redirect_port_inbound: 5,
                ..TransparentProxying::default()
            }),
            address: "127.0.0.1".to_owned(),
            advertised_address: "127.0.0.2".to_owned(),
            admin: Some(EnvoyAdmin { port: 6 }),
            listeners: vec![Listener { port: 7, ..Listener::default() }],
        }
    }

    #[test]
    fn everything_but_the_outbounds_is_read() {
        let whole = whole();
        let probes = Some(Probes { port: 8, ..Probes::default() });
        let spec = Dataplane { networking: Some(whole.clone()), probes, ..Dataplane::default() };
        let read = networking(&spec.encode_to_vec()).map_err(|error| error.to_string());
        assert_eq!(read, Ok(Networking { outbound: Vec::new(), ..whole }));
        assert_eq!(networking(&[]).map_err(|error| error.to_string()), Ok(Networking::default()));
        assert!(networking(b"no protobuf").is_err());
    }
    #[test]
    fn what_is_served_changes_and_nothing_else() {
        let metrics = Some(MetricsBackend { name: "m".to_owned(), ..MetricsBackend::default() });
        let probes = Some(Probes { port: 8, ..Probes::default() });
        let mut dataplane = Dataplane { networking: Some(whole()), metrics, probes };
        let spec = Bytes::from(dataplane.encode_to_vec());
        let same = change_served(&spec, |_, _| ()).map_err(|error| error.to_string());
        assert_eq!(same, Ok(Bytes::clone(&spec)));

        let tag = || ("zone".to_owned(), "east".to_owned());
        let changed = change_served(&spec, |inbounds, gateway| {
            inbounds.iter_mut().for_each(|inbound| inbound.tags.extend([tag()]));
            gateway.iter_mut().for_each(|gateway| gateway.tags.extend([tag()]));
        });
        let networking = dataplane.networking.as_mut().unwrap();
        networking.inbound.iter_mut().for_each(|inbound| inbound.tags.extend([tag()]));
        networking.gateway.iter_mut().for_each(|gateway| gateway.tags.extend([tag()]));
        assert_eq!(changed.map_err(|error| error.to_string()), Ok(dataplane.encode_to_vec().into()));

        let none = Bytes::new();
        assert_eq!(change_served(&none, |_, _| unreachable!()).map_err(|error| error.to_string()), Ok(none));
        assert!(change_served(&Bytes::from_static(b"no protobuf"), |_, _| ()).is_err());
    }
}
