//! What a connection has to say, read a little at a time.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read from a connection before others have their turn: thousands of frames can be in them. And before the
/// requests among them are looked at: HTTP/2 is read for as long as there is something to read.
const TURN: usize = 16 << 10;

/// A connection after TLS. Below it a turn would end unseen: TLS goes on with what it has decrypted already.
pub(super) struct Paced<IO> {
    io: IO,
    /// Bytes read in this turn.
    turn: usize,
}

impl<IO> Paced<IO> {
    pub(super) fn new(io: IO) -> Self {
        Self { io, turn: 0 }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Paced<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.turn >= TURN {
            this.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let Poll::Ready(read) = Pin::new(&mut this.io).poll_read(cx, buf) else {
            this.turn = 0;
            return Poll::Pending;
        };
        this.turn += buf.filled().len() - before;
        Poll::Ready(read)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Paced<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_turn_ends_although_there_is_more() {
        let (here, mut there) = duplex(1 << 20);
        there.write_all(&[b'x'; 10 * TURN]).await.unwrap();
        let (mut paced, mut buffer) = (Paced::new(here), vec![0; TURN / 4]);
        for _ in 0..10 {
            let mut read = 0;
            while let Poll::Ready(bytes) = poll!(std::pin::pin!(paced.read(&mut buffer))) {
                read += bytes.unwrap();
            }
            assert_eq!(read, TURN);
        }
    }
}
