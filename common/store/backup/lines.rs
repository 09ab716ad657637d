//! The lines of a backup, one by one.

use std::{
    io::{BufRead, Read},
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use chrono::DateTime;
use serde::{Deserialize, Serialize};

use super::{BackupError, BackupHeader};
use crate::{
    model::{Labels, Origin, Resource, ResourceKey, Revision},
    registry,
    store::record::nanos,
};

/// Bytes that are written together.
const CHUNK: usize = 64 << 10;

/// One line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum BackupLine {
    /// The first.
    Backup(BackupHeader),
    Resource(Box<ResourceLine>),
    Session {
        key: String,
        document: String,
    },
    /// The last.
    End(EndLine),
}

#[derive(Serialize, Deserialize)]
pub(super) struct EndLine {
    /// How many stand before it.
    lines: u64,
    /// The sum over their bytes, ends of lines included.
    sum: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ResourceLine {
    kind: String,
    mesh: String,
    name: String,
    labels: Labels,
    /// In base64, as the status.
    spec: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    origin: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<[String; 3]>,
    created: i64,
    modified: i64,
    revision: Revision,
}

impl ResourceLine {
    fn of(resource: &Resource) -> Self {
        let owner = resource.owner.as_ref();
        Self {
            kind: resource.kind().name.to_owned(),
            mesh: resource.mesh().to_owned(),
            name: resource.name().to_owned(),
            labels: resource.labels.clone(),
            spec: BASE64_STANDARD.encode(&resource.spec),
            status: resource.status.as_ref().map(|status| BASE64_STANDARD.encode(status)),
            origin: resource.origin.as_column().to_owned(),
            owner: owner.map(|o| [o.kind.name.to_owned(), o.mesh.to_string(), o.name.to_string()]),
            created: nanos(resource.created),
            modified: nanos(resource.modified),
            revision: resource.revision,
        }
    }

    pub(super) fn into_resource(self) -> Result<Resource, String> {
        let key = |kind: &str, mesh: &str, name: &str| {
            let known =
                registry::by_name(kind).ok_or_else(|| format!("the type {kind:?} is unknown here"))?;
            Ok::<_, String>(ResourceKey::new(known, mesh, name))
        };
        let bytes = |text: &str| BASE64_STANDARD.decode(text).map(Bytes::from).map_err(|e| e.to_string());
        let owner = self.owner.map(|[kind, mesh, name]| key(&kind, &mesh, &name)).transpose()?;
        Ok(Resource {
            key: key(&self.kind, &self.mesh, &self.name)?,
            labels: self.labels,
            spec: bytes(&self.spec)?,
            status: self.status.as_deref().map(bytes).transpose()?,
            origin: Origin::from_column(&self.origin),
            owner,
            created: DateTime::from_timestamp_nanos(self.created),
            modified: DateTime::from_timestamp_nanos(self.modified),
            revision: self.revision,
        })
    }
}

/// A resource as a backup has it, as JSON.
///
/// # Errors
/// Never: names are text.
pub fn resource_to_json(resource: &Resource) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&ResourceLine::of(resource))
}

/// Back from [`resource_to_json`].
///
/// # Errors
/// A text that says what is wrong with it.
pub fn resource_from_json(json: &[u8]) -> Result<Resource, String> {
    let line: ResourceLine = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    line.into_resource()
}

/// The text of a backup, a part at a time: each resource is written when it is its turn.
pub struct BackupLines {
    header: Option<BackupHeader>,
    resources: std::vec::IntoIter<Arc<Resource>>,
    sessions: std::vec::IntoIter<(String, String)>,
    lines: u64,
    sum: crc32fast::Hasher,
    ended: bool,
}

impl BackupLines {
    pub(super) fn new(
        header: BackupHeader,
        resources: Vec<Arc<Resource>>,
        sessions: Vec<(String, String)>,
    ) -> Self {
        Self {
            header: Some(header),
            resources: resources.into_iter(),
            sessions: sessions.into_iter(),
            lines: 0,
            sum: crc32fast::Hasher::new(),
            ended: false,
        }
    }

    fn line(&mut self) -> Option<BackupLine> {
        if let Some(header) = self.header.take() {
            return Some(BackupLine::Backup(header));
        }
        if let Some(resource) = self.resources.next() {
            return Some(BackupLine::Resource(Box::new(ResourceLine::of(&resource))));
        }
        let (key, document) = self.sessions.next()?;
        Some(BackupLine::Session { key, document })
    }
}

impl Iterator for BackupLines {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < CHUNK && !self.ended {
            let line = self.line().unwrap_or_else(|| {
                self.ended = true;
                BackupLine::End(EndLine { lines: self.lines, sum: self.sum.clone().finalize() })
            });
            let from = text.len();
            // Texts and numbers always have a JSON form.
            text.extend(serde_json::to_vec(&line).unwrap_or_default());
            text.push(b'\n');
            self.lines += 1;
            self.sum.update(&text[from..]);
        }
        (!text.is_empty()).then_some(text)
    }
}

/// The lines of a text, counted and summed up.
pub(super) struct CountedLines<R> {
    text: R,
    longest: u64,
    lines: u64,
    sum: crc32fast::Hasher,
}

impl<R: BufRead> CountedLines<R> {
    pub(super) fn new(text: R, longest: u64) -> Self {
        Self { text, longest, lines: 0, sum: crc32fast::Hasher::new() }
    }

    /// The next line; `None` where there is none. The last one must fit what was read before it.
    pub(super) fn next(&mut self) -> Result<Option<BackupLine>, BackupError> {
        let mut line = Vec::new();
        let read = self.text.by_ref().take(self.longest).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        let before = (self.lines, self.sum.clone().finalize());
        self.lines += 1;
        if line.last() != Some(&b'\n') {
            return Err(self.wrong("it does not end: a part is missing, or it is too long"));
        }
        self.sum.update(&line);
        let parsed = serde_json::from_slice(&line).map_err(|error| self.wrong(&error.to_string()))?;
        match &parsed {
            BackupLine::End(end) if (end.lines, end.sum) != before => {
                Err(self.wrong("what stands before it is not what was written"))
            }
            _ => Ok(Some(parsed)),
        }
    }

    pub(super) fn wrong(&self, reason: &str) -> BackupError {
        BackupError::Line { line: self.lines, reason: reason.to_owned() }
    }
}
