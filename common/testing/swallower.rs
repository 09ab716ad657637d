//! A way to a server on which what is sent can get lost without a word, as when a machine hangs or something between forgets a
//! connection.

use std::{
    io,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

/// Passes connections on to one server, gone with this value.
pub struct Swallower {
    port: u16,
    way: Arc<Way>,
    _task: AbortOnDropHandle<()>,
}

/// What all connections look at.
#[derive(Default)]
struct Way {
    /// Raised whenever those that are open then fall silent.
    silenced: AtomicU64,
    /// Whether new ones are silent as well.
    closed: AtomicBool,
    /// All fall silent when this is sent.
    word: Mutex<Option<&'static str>>,
}

impl Swallower {
    /// Stands before the server at this port of the loopback address.
    ///
    /// # Errors
    /// When there is no port left.
    pub async fn before(server: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let way = Arc::new(Way::default());
        let shared = Arc::clone(&way);
        let task = tokio::spawn(async move {
            let mut relays = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                relays.spawn(relay(client, server, Arc::clone(&shared)));
            }
        });
        Ok(Self { port, way, _task: AbortOnDropHandle::new(task) })
    }

    /// Where it is to be reached.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Nothing passes any more on the connections that are open now, and none of them ends. New ones work.
    pub fn silence(&self) {
        self.way.silenced.fetch_add(1, Ordering::SeqCst);
    }

    /// The same as soon as somebody sends `word`, which is lost.
    pub fn silence_at(&self, word: &'static str) {
        *self.way.word() = Some(word);
    }

    /// Whether the word of [`Swallower::silence_at`] was sent.
    pub fn was_sent(&self) -> bool {
        self.way.word().is_none()
    }

    /// Nothing passes any more, on new connections neither.
    pub fn silence_all(&self) {
        self.way.closed.store(true, Ordering::SeqCst);
        self.silence();
    }
}

impl Way {
    fn word(&self) -> std::sync::MutexGuard<'_, Option<&'static str>> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the word in what is sent.
    fn look(&self, sent: &[u8]) {
        let mut word = self.word();
        if word.is_some_and(|word| sent.windows(word.len()).any(|part| part == word.as_bytes())) {
            *word = None;
            self.silenced.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Until the client leaves: the server must not see what became of it, nor the client of the server.
async fn relay(mut client: TcpStream, server: u16, way: Arc<Way>) {
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
    let began = way.silenced.load(Ordering::SeqCst);
    let is_silent = || way.closed.load(Ordering::SeqCst) || way.silenced.load(Ordering::SeqCst) != began;
    let (mut up, mut down) = (vec![0; 65536], vec![0; 65536]);
    let mut left = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let sent = &up[..read.unwrap_or(0)];
                way.look(sent);
                if sent.is_empty() || !is_silent() && server.write_all(sent).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut down), if !left => {
                let answer = &down[..read.unwrap_or(0)];
                left = answer.is_empty();
                if !is_silent() && (left || client.write_all(answer).await.is_err()) {
                    return;
                }
            }
        }
    }
}
