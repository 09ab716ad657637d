//! The file with the token of the administrator: nobody but its owner reads it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno, process::geteuid};
use thiserror::Error;

use super::ADMIN_USER_TOKEN;

/// Bytes of a token, at most; it has to fit into a header.
const LONGEST: u64 = 16 << 10;
/// What others may do with a file.
const OTHERS: u32 = 0o077;

/// Why the file is not used.
#[derive(Debug, Error)]
pub enum AdminFileError {
    /// There is none.
    #[error("there is no {0}")]
    Absent(PathBuf),
    /// It cannot be read or written.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A link, a folder or the like.
    #[error("{0} is no regular file")]
    Irregular(PathBuf),
    /// It belongs to somebody else.
    #[error("{path} belongs to user {owner}, not to user {reader} who reads it")]
    Owner {
        /// Which file.
        path: PathBuf,
        /// User id of its owner.
        owner: u32,
        /// User id of who reads it.
        reader: u32,
    },
    /// Not only its owner can read it.
    #[error("{path} has mode {mode:03o}: others than its owner may read or write it")]
    Mode {
        /// Which file.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// Something else is in it.
    #[error("{0} holds no token")]
    Content(PathBuf),
}

/// Where a control plane keeps the token.
#[derive(Clone, Debug)]
pub struct AdminTokenFile(PathBuf);

impl AdminTokenFile {
    /// The one of the control plane with this work folder.
    pub fn in_folder(work_dir: &Path) -> Self {
        Self(work_dir.join(ADMIN_USER_TOKEN))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The token in it, if nobody but its owner, who asks, could read or write it.
    ///
    /// # Errors
    /// [`AdminFileError`] naming the file.
    pub fn read(&self) -> Result<String, AdminFileError> {
        let path = || self.0.clone();
        // Who can make a link or a pipe here decides neither what is read nor how long it takes.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(AdminFileError::Absent(path())),
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                return Err(AdminFileError::Irregular(path()));
            }
            Err(source) => return Err(self.failed("read", source)),
        };
        // Asked of what is open, which nobody can exchange any more.
        let about = file.metadata().map_err(|source| self.failed("read", source))?;
        let (owner, reader, mode) = (about.uid(), geteuid().as_raw(), about.mode() & 0o777);
        if !about.is_file() {
            return Err(AdminFileError::Irregular(path()));
        }
        if owner != reader {
            return Err(AdminFileError::Owner { path: path(), owner, reader });
        }
        if mode & OTHERS != 0 {
            return Err(AdminFileError::Mode { path: path(), mode });
        }
        self.content(file)
    }

    fn content(&self, file: File) -> Result<String, AdminFileError> {
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|source| self.failed("read", source))?;
        let text = String::from_utf8(bytes).unwrap_or_default();
        let token = text.trim();
        let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if token.is_empty() || text.len() as u64 > LONGEST || !token.chars().all(is_token) {
            return Err(AdminFileError::Content(self.0.clone()));
        }
        Ok(token.to_owned())
    }

    /// Puts a token in the place of whatever is there. Who reads meanwhile reads the old one or the new one.
    ///
    /// # Errors
    /// [`AdminFileError::File`] naming the file.
    pub fn write(&self, token: &str) -> Result<(), AdminFileError> {
        let beside = self.0.with_extension(format!("{}.new", std::process::id()));
        let written = remove(&beside).and_then(|()| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(token.as_bytes())?;
            file.sync_all()?;
            // A folder of that name would not make way.
            fs::rename(&beside, &self.0)
        });
        written.map_err(|source| {
            let _left_behind = remove(&beside);
            self.failed("write", source)
        })
    }

    /// Removes it, if it is there.
    ///
    /// # Errors
    /// [`AdminFileError::File`] naming the file.
    pub fn remove(&self) -> Result<(), AdminFileError> {
        remove(&self.0).map_err(|source| self.failed("remove", source))
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> AdminFileError {
        AdminFileError::File { doing, path: self.0.clone(), source }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn it_is_the_owners_alone_whatever_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = AdminTokenFile::in_folder(folder.path());
        assert!(matches!(file.read(), Err(AdminFileError::Absent(_))));
        let elsewhere = folder.path().join("elsewhere");
        let before: [&dyn Fn(&Path); 4] = [
            &|_| {},
            &|path| fs::write(path, "a.b.c").unwrap(),
            &|path| symlink(&elsewhere, path).unwrap(),
            &|path| {
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
                    .unwrap()
            },
        ];
        for (n, before) in before.iter().enumerate() {
            file.remove().unwrap();
            before(file.path());
            assert!(file.read().is_err(), "{n}");
            file.write(&format!("token.{n}")).unwrap();
            assert_eq!((file.read().unwrap(), mode(file.path())), (format!("token.{n}"), 0o600));
        }
        assert!(!elsewhere.exists(), "a link is replaced, not followed");
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [ADMIN_USER_TOKEN], "nothing is left beside it");
    }

    #[test]
    fn what_others_can_read_or_write_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = AdminTokenFile::in_folder(folder.path());
        file.write("a.b.c").unwrap();
        for bits in [0o640, 0o604, 0o620, 0o602, 0o610] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(bits)).unwrap();
            let error = file.read().unwrap_err();
            assert!(matches!(error, AdminFileError::Mode { mode, .. } if mode == bits), "{error}");
        }
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(file.read().unwrap(), "a.b.c");
    }

    #[test]
    fn what_is_no_token_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = AdminTokenFile::in_folder(folder.path());
        for content in ["", " \n", "a\nb", "a b", "a\u{e9}", &"a".repeat(20_000)] {
            file.write(content).unwrap();
            assert!(matches!(file.read(), Err(AdminFileError::Content(_))), "{content:?}");
        }
        file.write("a.b-c_d\n").unwrap();
        assert_eq!(file.read().unwrap(), "a.b-c_d");
    }
}
