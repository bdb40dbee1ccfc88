//! Sends one call to a vendor.

use bytes::Bytes;
use http::{HeaderMap, Method, Request as HttpRequest, StatusCode, header};
use http_body_util::{BodyExt as _, Full};

use super::Worker;
use crate::failure::Failure;
use crate::lab::demo::limits::Api;
use crate::lab::demo::vendor::Call;

impl Worker {
    pub(super) async fn send(
        &self,
        api: &Api,
        call: &Call,
    ) -> Result<(StatusCode, HeaderMap, Bytes), Failure> {
        let body = serde_json::to_vec(call)?;
        let url = format!("{}{}", self.vendor, api.path);
        let request = HttpRequest::builder().method(Method::POST).uri(url);
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Full::from(body))?;
        let (head, body) = self.http.request(request).await?.into_parts();
        Ok((head.status, head.headers, body.collect().await?.to_bytes()))
    }
}
