//! What proxies show to others: asked for here, signed elsewhere.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    generator::{AdminIdentity, ProxyMetadata},
    mesh::{Authority, Dataplane, Identity, IdentityError, MeshContext, WorkloadCertificate, identity},
};

/// How long what a proxy shows stays when another authority is to sign for it: all who meet it, in whatever zone,
/// have to hear of that one first.
pub(crate) const HEARD: TimeDelta = TimeDelta::seconds(10);

/// Asks for what a proxy shows to others.
#[derive(Clone, Debug)]
pub(crate) struct SigningRequest {
    /// Which proxy.
    pub(crate) name: Arc<str>,
    /// Who signs for the mesh, and whom.
    pub(crate) workload: Option<(Arc<Authority>, Identity)>,
    /// The address of the listener before its admin endpoint.
    pub(crate) admin: Option<IpAddr>,
}

/// What came of a [`SigningRequest`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Signed {
    /// The certificate, when one was asked for, or why there is none.
    pub(crate) workload: Option<Result<Arc<WorkloadCertificate>, String>>,
    /// The admin identity, when one was asked for and somebody signs such, or why there is none.
    pub(crate) admin: Option<Result<Arc<AdminIdentity>, String>>,
}

impl Signed {
    /// Whether something could not be signed that may be another time.
    pub(crate) fn is_incomplete(&self) -> bool {
        matches!(self.workload, Some(Err(_))) || matches!(self.admin, Some(Err(_)))
    }
}

/// What one proxy shows to others.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    /// The certificate of the workload.
    pub(super) workload: Option<Arc<WorkloadCertificate>>,
    admin: Option<Arc<AdminIdentity>>,
    /// The address an admin identity was asked for, whether or not there is one.
    asked: Option<IpAddr>,
    /// Something was asked for and has not come.
    signing: bool,
    /// Nothing new can be made before what was asked for is here.
    pub(super) needed: bool,
    /// Since when somebody else is to sign than who signed what it shows.
    succeeded: Option<DateTime<Utc>>,
    /// What nobody could sign, and why; it is not asked for again before somebody says so.
    refused: Option<(Arc<Authority>, Identity, String)>,
}

/// When certificates are to be replaced.
#[derive(Debug, Default)]
pub(super) struct Renewals(BTreeSet<(DateTime<Utc>, Arc<str>)>);

impl Renewals {
    /// When the next one is due.
    pub(super) fn next(&self) -> Option<DateTime<Utc>> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes out one that is due.
    pub(super) fn due(&mut self, now: DateTime<Utc>) -> Option<Arc<str>> {
        self.0.first().filter(|(at, _)| *at <= now)?;
        self.0.pop_first().map(|(_, name)| name)
    }

    /// `certificate` of `name`, if there is one, is not the one to be replaced any more.
    pub(super) fn forget(&mut self, name: &Arc<str>, certificate: Option<&Arc<WorkloadCertificate>>) {
        if let Some(certificate) = certificate {
            self.0.remove(&(identity::renewal_time(certificate), Arc::clone(name)));
        }
    }

    /// Looks at `name` again at this time.
    fn wake(&mut self, name: &Arc<str>, at: DateTime<Utc>) {
        self.0.insert((at, Arc::clone(name)));
    }

    fn note(&mut self, name: &Arc<str>, certificate: &WorkloadCertificate) {
        self.0.insert((identity::renewal_time(certificate), Arc::clone(name)));
    }
}

impl Credentials {
    /// What has to be asked for now, if anything. Says in [`needed`](Self::needed) whether to wait for it: a
    /// certificate that is only to be renewed serves until it ends.
    ///
    /// # Errors
    /// The reason why there can be no configuration.
    pub(super) fn request(
        &mut self,
        name: &Arc<str>,
        dataplane: &Dataplane,
        metadata: &ProxyMetadata,
        mesh: &MeshContext,
        renewals: &mut Renewals,
        now: DateTime<Utc>,
    ) -> Result<Option<SigningRequest>, CredentialsError> {
        self.needed = false;
        let workload = mesh.lacks_certificate(dataplane, self.workload.as_deref(), now)?;
        let serves = match (&workload, &self.workload) {
            (Some((authority, identity)), Some(current)) => {
                authority.stands_by(current, identity, now) || mesh.believes(current, now)
            }
            (Some(_), None) => false,
            (None, _) => true,
        };
        if workload.is_none() {
            self.succeeded = None;
        }
        let workload = workload.filter(|(authority, identity)| {
            let successor = self.workload.as_ref().is_some_and(|current| {
                // A name that is taken away is not accepted any more, so what bears it is of no use.
                let given = |of: &Identity| of.given.as_ref().map(|given| given.id.clone());
                let keeps_name = current.given_by().is_none() || given(&current.identity) == given(identity);
                keeps_name && !authority.is_akin(current, identity)
            });
            if !(serves && successor) {
                self.succeeded = None;
                return true;
            }
            let due = *self.succeeded.get_or_insert(now) + HEARD;
            if now < due {
                renewals.wake(name, due);
            }
            now >= due
        });
        if workload.is_none() {
            // Nothing is to be renewed any more, so nobody is to be told that it was not.
            self.refused = None;
        }
        let refused = self.refused.as_ref().filter(|(authority, whom, _)| {
            let same = |(wanted, identity): &(Arc<Authority>, Identity)| {
                Arc::ptr_eq(wanted, authority) && identity == whom
            };
            workload.as_ref().is_some_and(same)
        });
        if let Some((.., reason)) = refused {
            // It comes back by itself, later.
            return if serves { Ok(None) } else { Err(CredentialsError::Refused(reason.clone())) };
        }
        let admin = needs_admin(metadata, dataplane).filter(|address| self.asked != Some(*address));
        if workload.is_none() && admin.is_none() {
            return Ok(None);
        }
        self.needed = !serves || admin.is_some();
        if std::mem::replace(&mut self.signing, true) {
            return Ok(None);
        }
        Ok(Some(SigningRequest { name: Arc::clone(name), workload, admin }))
    }

    /// Takes in what was asked for. What could not be signed is noted; whoever calls asks
    /// [again](Self::retry) later.
    pub(super) fn signed(&mut self, request: &SigningRequest, signed: Signed, renewals: &mut Renewals) {
        self.signing = false;
        if let Some(address) = request.admin {
            (self.admin, self.asked) = (signed.admin.and_then(Result::ok), Some(address));
        }
        match (signed.workload, &request.workload) {
            (Some(Ok(certificate)), _) => {
                renewals.forget(&request.name, self.workload.as_ref());
                renewals.note(&request.name, &certificate);
                (self.workload, self.refused, self.succeeded) = (Some(certificate), None, None);
            }
            (Some(Err(reason)), Some((authority, identity))) => {
                self.refused = Some((Arc::clone(authority), identity.clone(), reason));
            }
            (Some(Err(_)) | None, _) => {}
        }
    }

    /// Tries again what failed for a reason that may go away by itself.
    pub(super) fn retry(&mut self) {
        self.refused = None;
        if self.admin.is_none() {
            self.asked = None;
        }
    }

    /// What the listener before the admin endpoint shows; `None` for no such listener.
    pub(super) fn admin(
        &self,
        metadata: &ProxyMetadata,
        dataplane: &Dataplane,
    ) -> Option<Arc<AdminIdentity>> {
        let needed = needs_admin(metadata, dataplane);
        self.admin.clone().filter(|admin| needed == Some(admin.address))
    }

    /// Why what it shows is not renewed.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.refused.as_ref().map(|(.., reason)| reason.as_str())
    }
}

/// Why a proxy has nothing to show.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialsError {
    /// Nobody signs for the mesh.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It could not be signed.
    #[error("{0}")]
    Refused(String),
}

/// The address of the listener before its admin endpoint; `None` for no such listener.
fn needs_admin(metadata: &ProxyMetadata, dataplane: &Dataplane) -> Option<IpAddr> {
    let endpoint = metadata.admin.as_ref()?;
    dataplane.address.filter(|address| endpoint.needs_listener(*address))
}
