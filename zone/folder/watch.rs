//! Tells that something in some folders may have changed.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};
use tokio::io::{Interest, unix::AsyncFd};

/// What makes a file be read again: it was written to its end, it came or it went. While somebody still writes, what
/// is there is nobody's business.
const CHANGES: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);
/// What is read of the kernel at once. Nobody looks at it.
const EVENTS: usize = 4096;

/// A look at folders; those that are gone fall out by themselves.
pub(super) struct FolderWatch(AsyncFd<OwnedFd>);

impl FolderWatch {
    /// Of no folder yet.
    #[expect(
        deprecated,
        reason = "its successor is unsafe; it is sound for what owns its descriptor, as this does"
    )]
    pub(super) fn new() -> std::io::Result<Self> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self(AsyncFd::with_interest(queue, Interest::READABLE)?))
    }

    /// Looks at `folder` as well. One that is looked at already is looked at once.
    pub(super) fn add(&self, folder: &Path) -> std::io::Result<()> {
        inotify::add_watch(self.0.get_ref(), folder, CHANGES)?;
        Ok(())
    }

    /// Waits until something changed since the last call. Can be given up and asked again.
    pub(super) async fn changed(&self) -> std::io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut any = false;
            let mut events = [0_u8; EVENTS];
            loop {
                match rustix::io::read(self.0.get_ref(), &mut events) {
                    Ok(0) | Err(Errno::AGAIN) => break,
                    Ok(_) => any = true,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            ready.clear_ready();
            if any {
                return Ok(());
            }
        }
    }
}
