//! Changes to the machine for one test: file systems of its own, which are small or stand still.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

/// A file system of its own, a few MiB large.
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts one of so many MiB.
    pub fn mount(mebibytes: u32) -> Self {
        let folder = TempDir::new().unwrap();
        let size = format!("size={mebibytes}m");
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &folder.path().display().to_string()]);
        Self { folder }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Takes all room there is.
    pub fn fill(&self) {
        let ballast = fs::File::create(self.path().join("ballast")).unwrap();
        let mut size = 0;
        for step in [65_536, 4_096, 1] {
            while std::os::unix::fs::FileExt::write_all_at(&ballast, &vec![1; step], size).is_ok() {
                size += step as u64;
            }
        }
    }

    /// Gives the room back.
    pub fn free(&self) {
        fs::remove_file(self.path().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process may still have files open.
        let _gone_with_the_machine = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Runs a tool that changes the machine for this test. Without the right to, the test fails: it would look
/// as if it had passed.
pub fn run(tool: &str, args: &[&str]) {
    let output = Command::new(tool).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("{tool} is missing ({e}): demo/setup.sh test installs it"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {args:?}: {said}; this test needs the rights of root");
}

/// A file system of its own that can be made to stand still: whoever writes to it waits.
pub struct StillDisk {
    folder: TempDir,
    _image: TempDir,
}

impl StillDisk {
    /// Mounts one of so many MiB.
    pub fn mount(mebibytes: u64) -> Self {
        let (folder, image) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let file = image.path().join("image");
        fs::File::create(&file).and_then(|made| made.set_len(mebibytes << 20)).unwrap();
        let (file, at) = (file.display().to_string(), folder.path().display().to_string());
        run("mkfs.ext4", &["-q", "-F", &file]);
        run("mount", &["-o", "loop", &file, &at]);
        Self { folder, _image: image }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Stands still until the value is dropped, which must be before whoever writes to it is waited for.
    pub fn stand_still(&self) -> Still<'_> {
        run("fsfreeze", &["-f", &self.path().display().to_string()]);
        Still(self)
    }
}

impl Drop for StillDisk {
    fn drop(&mut self) {
        let _gone_with_the_machine = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// A disk that stands still.
pub struct Still<'a>(&'a StillDisk);

impl Drop for Still<'_> {
    fn drop(&mut self) {
        let _told_by_what_waits_for_it = Command::new("fsfreeze").arg("-u").arg(self.0.path()).status();
    }
}
