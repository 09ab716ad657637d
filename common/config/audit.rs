//! Where requests are taken down: `apiServer.audit`.

use serde::{Deserialize, Serialize};

/// Help for the settings of this file, by path.
pub(super) const HELP: &[(&str, &str)] = &[
    (
        "apiServer.audit.file",
        "File to which it is written who asked for what, or stdout; empty: none, the newest are kept in memory",
    ),
    ("apiServer.audit.maxBytes", "Length at which that file is begun anew; four older ones are kept"),
];

/// `apiServer.audit`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AuditSection {
    /// The file, or `stdout`; empty means none.
    pub file: String,
    /// How long it may become.
    pub max_bytes: u64,
}

impl Default for AuditSection {
    fn default() -> Self {
        Self { file: String::new(), max_bytes: 64 << 20 }
    }
}
