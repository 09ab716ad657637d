//! Asks the Prometheus that the settings name. No resource says where to ask, so nobody who writes one can have this
//! process ask anybody else.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use common::{clip::clip, model::kinds::rollout::HaltQuery, tls::Trust};
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::ServerName;
use serde::Deserialize;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::machine::QueryFinding;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const LONGEST: usize = 1 << 20;
/// What is shown of what somebody else says, in bytes.
const SHOWN: usize = 200;

/// Why an address is none.
#[derive(Debug, Error)]
#[error("{0:?} is not the address of a Prometheus: use http://prometheus:9090 or https://prometheus:9090")]
pub(crate) struct PrometheusAddressError(String);

/// The Prometheus of the settings.
#[derive(Clone, Debug)]
pub(crate) struct PromClient {
    host: String,
    port: u16,
    is_tls: bool,
    /// What stands before the paths of its API.
    prefix: String,
}

impl PromClient {
    /// The one at `address`.
    ///
    /// # Errors
    /// [`PrometheusAddressError`] when that is no address. That nobody is there is no error: it may come.
    pub(crate) fn at(address: &str) -> Result<Self, PrometheusAddressError> {
        let wrong = || PrometheusAddressError(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| wrong())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?.to_owned();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { host, port, is_tls, prefix: uri.path().trim_end_matches('/').to_owned() })
    }

    /// What comes of `query`.
    pub(super) async fn judge(&self, query: &HaltQuery) -> QueryFinding {
        match timeout(PATIENCE, self.ask(&query.promql)).await {
            Err(_) => QueryFinding::Unheard(format!("no answer within {PATIENCE:?}")),
            Ok(Err(why)) => QueryFinding::Unheard(clip(&why, SHOWN).to_owned()),
            Ok(Ok(samples)) => compared(query, &samples),
        }
    }

    async fn ask(&self, promql: &str) -> Result<Vec<f64>, String> {
        let bare = self.host.trim_matches(['[', ']']).to_owned();
        let socket =
            TcpStream::connect((bare.as_str(), self.port)).await.map_err(|error| error.to_string())?;
        let body = match self.is_tls {
            false => self.get(socket, promql).await?,
            true => {
                let trust = Trust::System.client_config(&["http/1.1"]).map_err(|error| error.to_string())?;
                let name = ServerName::try_from(bare).map_err(|error| error.to_string())?;
                let stream = TlsConnector::from(Arc::new(trust)).connect(name, socket).await;
                self.get(stream.map_err(|error| error.to_string())?, promql).await?
            }
        };
        samples(&body)
    }

    async fn get(&self, io: impl AsyncRead + AsyncWrite + Unpin, promql: &str) -> Result<Bytes, String> {
        let path = format!(
            "{}/api/v1/query?query={}&timeout={}s",
            self.prefix,
            utf8_percent_encode(promql, NON_ALPHANUMERIC),
            PATIENCE.as_secs()
        );
        let request = Request::get(path).header(header::HOST, format!("{}:{}", self.host, self.port));
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let opened = hyper::client::conn::http1::handshake(TokioIo::new(io)).await;
        let (mut sender, connection) = opened.map_err(|error| error.to_string())?;
        let exchange = async move {
            let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let body = Limited::new(response.into_body(), LONGEST).collect().await;
            body.map(|body| body.to_bytes()).map_err(|error| error.to_string())
        };
        // What goes wrong with the connection, the exchange notices.
        let (answer, _connection) = tokio::join!(exchange, connection);
        answer
    }
}

#[derive(Deserialize)]
struct PromAnswer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<PromData>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum PromData {
    Vector(Vec<PromSeries>),
    Scalar((f64, String)),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct PromSeries {
    value: (f64, String),
}

/// The values in an answer of its API.
fn samples(body: &[u8]) -> Result<Vec<f64>, String> {
    let answer: PromAnswer = serde_json::from_slice(body).map_err(|_| "that is no Prometheus".to_owned())?;
    if answer.status != "success" {
        return Err(answer.error);
    }
    let value = |(_, text): &(f64, String)| {
        text.parse::<f64>().map_err(|_| format!("{:?} is no number", clip(text, SHOWN)))
    };
    match answer.data {
        Some(PromData::Vector(series)) => series.iter().map(|one| value(&one.value)).collect(),
        Some(PromData::Scalar(scalar)) => Ok(vec![value(&scalar)?]),
        _ => Err("the query gives neither a vector nor a scalar".to_owned()),
    }
}

/// Where there is no sample nothing is above or below anything. What is no number is neither.
fn compared(query: &HaltQuery, samples: &[f64]) -> QueryFinding {
    let above =
        query.above.and_then(|limit| Some((samples.iter().find(|value| **value > limit)?, "above", limit)));
    let below =
        query.below.and_then(|limit| Some((samples.iter().find(|value| **value < limit)?, "below", limit)));
    match above.or(below) {
        None => QueryFinding::Good,
        Some((value, side, limit)) => QueryFinding::Bad(format!("{value} is {side} {limit}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::{Router, extract::RawQuery, routing::get};
    use tokio::net::TcpListener;

    use super::*;

    fn query(above: Option<f64>, below: Option<f64>) -> HaltQuery {
        HaltQuery { promql: "sum(rate(x[1m])) > 0".to_owned(), above, below, interval: None }
    }

    #[test]
    fn every_sample_is_compared() {
        let check = |samples: &[f64], above, below| compared(&query(above, below), samples);
        assert_eq!(check(&[], Some(1.0), Some(1.0)), QueryFinding::Good);
        assert_eq!(check(&[0.5, 1.0], Some(1.0), None), QueryFinding::Good);
        assert_eq!(check(&[0.5, 2.0], Some(1.0), None), QueryFinding::Bad("2 is above 1".to_owned()));
        assert_eq!(check(&[0.5, 2.0], None, Some(1.0)), QueryFinding::Bad("0.5 is below 1".to_owned()));
        assert_eq!(check(&[f64::NAN], Some(1.0), Some(0.0)), QueryFinding::Good);
    }

    #[test]
    fn answers_of_its_api_are_read() {
        let vector = br#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2.5"]}]}}"#;
        assert_eq!(samples(vector), Ok(vec![2.5]));
        let scalar = br#"{"status":"success","data":{"resultType":"scalar","result":[1,"3"]}}"#;
        assert_eq!(samples(scalar), Ok(vec![3.0]));
        let error = br#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
        assert_eq!(samples(error), Err("parse error".to_owned()));
        assert!(samples(b"<html>").is_err());
    }

    #[tokio::test]
    async fn it_is_asked_at_the_address_of_the_settings() {
        let asked = get(async |RawQuery(query): RawQuery| {
            assert!(query.unwrap().starts_with("query=sum%28rate%28x%5B1m%5D%29%29%20%3E%200"));
            r#"{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}"#
        });
        let router = Router::new().route("/prom/api/v1/query", asked);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/prom/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let prometheus = PromClient::at(&address).unwrap();
        assert_eq!(
            prometheus.judge(&query(Some(1.0), None)).await,
            QueryFinding::Bad("7 is above 1".to_owned())
        );
        let nobody = PromClient::at("http://127.0.0.1:1").unwrap().judge(&query(Some(1.0), None)).await;
        assert!(matches!(nobody, QueryFinding::Unheard(_)), "{nobody:?}");
        for wrong in ["", "prometheus:9090", "ftp://prometheus", "file:///etc/passwd"] {
            assert!(PromClient::at(wrong).is_err(), "{wrong:?}");
        }
    }
}
