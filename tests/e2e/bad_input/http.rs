//! HTTP/1.1 byte by byte: a client library would repair half of what is tried here.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use common::tls::Trust;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::table::{Answer, Front};
use crate::harness::ControlPlane;

/// Longest silence after which an answer counts as over.
const SILENCE: Duration = Duration::from_secs(8);

/// One listener that speaks HTTP/1.1. Its input is what goes over the wire, its verdict the status of the
/// first answer, or `closed` without one.
pub struct Http {
    name: &'static str,
    address: SocketAddr,
    tls: Option<TlsConnector>,
    /// What every request bears, beside what stands in its bytes.
    token: Option<String>,
}

impl Http {
    /// A plain one.
    pub fn plain(name: &'static str, url: &str) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        Self { name, address, tls: None, token: None }
    }

    /// A plain one, asked by its administrator.
    pub fn of_admin(name: &'static str, cp: &ControlPlane) -> Self {
        Self { token: Some(cp.admin_token()), ..Self::plain(name, &cp.url("")) }
    }

    /// One behind TLS with this certificate.
    pub fn tls(name: &'static str, address: SocketAddr, certificate: &str) -> Self {
        let config = Trust::Roots(certificate.to_owned()).client_config(&["http/1.1"]).unwrap();
        Self { name, address, tls: Some(TlsConnector::from(Arc::new(config))), token: None }
    }

    /// Sends these bytes and reads until the other side is done.
    pub async fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let stream = TcpStream::connect(self.address).await.expect("the listener takes connections");
        match &self.tls {
            None => talk(stream, bytes).await,
            Some(tls) => {
                let name = ServerName::from(self.address.ip());
                talk(tls.connect(name, stream).await.expect("TLS works"), bytes).await
            }
        }
    }
}

/// What the other side says; one that hangs up while it is still being talked to has its say as well.
async fn talk(stream: impl AsyncRead + AsyncWrite, bytes: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let writing = async {
        if writer.write_all(bytes).await.is_ok() {
            let _hung_up = writer.flush().await;
        }
    };
    let reading = async {
        let mut answer = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        while let Ok(Ok(read @ 1..)) = timeout(SILENCE, reader.read(&mut buffer)).await {
            answer.extend_from_slice(&buffer[..read]);
        }
        answer
    };
    tokio::join!(writing, reading).1
}

impl Front for Http {
    type Input = Vec<u8>;

    fn name(&self) -> &str {
        self.name
    }

    async fn send(&self, input: &Vec<u8>) -> Answer {
        let answer = match &self.token {
            Some(token) => self.exchange(&bearing(input, token)).await,
            None => self.exchange(input).await,
        };
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
        Answer::new(status.unwrap_or("closed").to_owned(), text)
    }
}

/// A request with one more header.
fn bearing(request: &[u8], token: &str) -> Vec<u8> {
    let first_line = request.windows(2).position(|two| two == b"\r\n").expect("a request has a line") + 2;
    let (line, rest) = request.split_at(first_line);
    [line, format!("authorization: Bearer {token}\r\n").as_bytes(), rest].concat()
}

/// A request that says how long its body is, from this machine, and is the last of its connection.
pub fn request(method: &str, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// A GET.
pub fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n").into_bytes()
}

/// A PUT of a JSON document.
pub fn put(path: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    request("PUT", path, "content-type: application/json\r\n", body)
}
