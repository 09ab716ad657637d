//! gRPC message by message: prefixes, flags and metadata as a test says, over HTTP/2 as it should be.

use std::{net::SocketAddr, sync::Arc};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use common::tls::Trust;
use futures::{StreamExt, stream};
use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use percent_encoding::percent_decode_str;
use prost::Message;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::table::{Answer, Front};

/// One listener that speaks gRPC over TLS.
pub struct Grpc {
    name: &'static str,
    address: SocketAddr,
    tls: TlsConnector,
}

/// One call. Its verdict is the code the call ends with, or what [`Call::until`] makes of a message.
pub struct Call {
    /// Service and method.
    pub path: &'static str,
    /// Metadata, in this order; a name may come twice.
    pub metadata: Vec<(String, String)>,
    /// What is sent, prefixes and all.
    pub body: Vec<Bytes>,
    /// Whether this side hangs up after that.
    pub closes: bool,
    /// What to make of each message that comes: an answer ends the call.
    pub until: Until,
}

/// Looks at one message, and knows when there is no need to look at another.
pub type Until = Box<dyn Fn(&[u8]) -> Option<Answer> + Send + Sync>;

impl Grpc {
    /// A listener behind TLS with this certificate.
    pub fn new(name: &'static str, address: SocketAddr, certificate: &str) -> Self {
        let config = Trust::Roots(certificate.to_owned()).client_config(&["h2"]).unwrap();
        Self { name, address, tls: TlsConnector::from(Arc::new(config)) }
    }

    /// Makes a call over a connection of its own.
    pub async fn call(&self, call: &Call) -> Answer {
        self.call_with(call, &call.metadata).await
    }

    /// Makes a call with other metadata.
    pub async fn call_with(&self, call: &Call, metadata: &[(String, String)]) -> Answer {
        let stream = TcpStream::connect(self.address).await.expect("the listener takes connections");
        let stream = self.tls.connect(ServerName::from(self.address.ip()), stream).await.expect("TLS works");
        let io = TokioIo::new(stream);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.expect("HTTP/2 works");
        let connection = tokio::spawn(connection);
        let body = stream::iter(call.body.clone()).map(|data| Ok::<_, std::io::Error>(Frame::data(data)));
        let rest = if call.closes { stream::empty().left_stream() } else { stream::pending().right_stream() };
        let mut request = Request::post(self.uri(call.path))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in metadata {
            request = request.header(name, value);
        }
        let request = request.body(StreamBody::new(Box::pin(body.chain(rest)))).unwrap();
        let answer = match sender.send_request(request).await {
            Ok(response) => read(response, &call.until).await,
            Err(error) => Answer::new("reset", format!("{error:?}")),
        };
        connection.abort();
        answer
    }

    fn uri(&self, path: &str) -> Uri {
        format!("https://{}{path}", self.address).parse().unwrap()
    }
}

async fn read(response: http::Response<Incoming>, until: &Until) -> Answer {
    let (head, mut body) = response.into_parts();
    if !head.status.is_success() {
        return Answer::new(head.status.as_u16(), format!("{head:?}"));
    }
    let (mut buffer, mut last) = (BytesMut::new(), head.headers);
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Answer::new("reset", format!("{error:?}")),
        };
        match frame.into_data() {
            Ok(data) => buffer.extend_from_slice(&data),
            Err(frame) => last = frame.into_trailers().unwrap_or_default(),
        }
        while let Some(message) = unframed(&mut buffer) {
            if let Some(answer) = until(&message) {
                return answer;
            }
        }
    }
    status(&last)
}

fn status(headers: &HeaderMap) -> Answer {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let code = tonic::Code::from_bytes(text("grpc-status").as_bytes());
    let message = percent_decode_str(text("grpc-message")).decode_utf8_lossy().into_owned();
    Answer::new(format!("{code:?}"), message)
}

/// Takes one message off the front.
fn unframed(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = buffer.get(1..5).map(|mut length| length.get_u32() as usize)?;
    if buffer.len() < 5 + length {
        return None;
    }
    buffer.advance(5);
    Some(buffer.split_to(length).freeze())
}

/// A message as it goes over the wire.
pub fn framed(message: &impl Message) -> Bytes {
    let encoded = message.encode_to_vec();
    prefixed(0, u32::try_from(encoded.len()).unwrap(), &encoded)
}

/// Anything behind any prefix.
pub fn prefixed(flag: u8, length: u32, bytes: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + bytes.len());
    framed.put_u8(flag);
    framed.put_u32(length);
    framed.put_slice(bytes);
    framed.freeze()
}

impl Front for Grpc {
    type Input = Call;

    fn name(&self) -> &str {
        self.name
    }

    async fn send(&self, input: &Call) -> Answer {
        self.call(input).await
    }
}
