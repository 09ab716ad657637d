//! Files that hold secrets.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// Everybody on the machine.
const OTHERS_READ: u32 = 0o004;

/// Warns when everybody on the machine may read `path`, which holds `what`. It is used all the same: where files
/// are handed to a container, nobody else is on its machine, and they often have such permissions.
pub fn warn_if_open(path: &Path, what: &str) {
    let open = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & OTHERS_READ != 0);
    if open {
        tracing::warn!(
            path = %path.display(),
            "everybody on this machine may read {what}: take that right away (chmod o-r)"
        );
    }
}
