//! The tower service under the client.

use super::answer::{Request, answer, writes};
use super::kinds::Target;
use super::refusal::Refusal;
use super::state::Shared;
use super::watching::Watching;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::Value;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = http::Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The server as a tower service, for a client with layers of its own; returned by
/// [`Server::service`](super::Server::service).
#[derive(Clone, Debug)]
pub struct Service(pub(super) Arc<Shared>);

impl tower_service::Service<http::Request<Body>> for Service {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shared = self.0.clone();
        async move {
            let (parts, body) = request.into_parts();
            let query = parts.uri.query().unwrap_or_default();
            let request = Request {
                method: parts.method,
                path: parts.uri.path().to_owned(),
                query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
                headers: parts.headers,
                body: body.collect_bytes().await?.to_vec(),
            };
            serve(shared, request).await.map_err(Into::into)
        }
        .boxed()
    }
}

/// Counts a write that has no answer yet.
struct Writing(Arc<Shared>);

impl Writing {
    fn begin(shared: &Arc<Shared>) -> Self {
        let mut state = shared.state();
        state.writes += 1;
        state.writing += 1;
        state.last_write = Instant::now();
        Self(shared.clone())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.writing -= 1;
        state.last_write = Instant::now();
    }
}

async fn serve(shared: Arc<Shared>, request: Request) -> Result<Answer, io::Error> {
    let target = Target::parse(&request.path, &shared.state().store.kinds);
    let target = match target {
        Ok(target) => target,
        Err(refusal) => return refused(&refusal),
    };
    let Some(verb) = request.verb(&target) else {
        // Custom kinds ask for a name before they look at the method.
        let is_custom = !shared.state().store.kinds[target.kind].builtin;
        let names_none = target.name.is_none() && is_custom;
        let refusal =
            if names_none { Refusal::bad_request("name must be provided") } else { Refusal::not_allowed() };
        return refused(&refusal);
    };
    let is_write = writes(verb);
    let _writing = is_write.then(|| Writing::begin(&shared));
    let delay = {
        let mut state = shared.state();
        *state.requests.entry((verb, target.kind)).or_default() += 1;
        state.delay
    };
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let fails = shared.state().fails(target.kind, is_write);
    if let Some(code) = fails {
        return refused(&Refusal::asked_for(code));
    }
    if verb == "watch" {
        return match Watching::begin(&shared, target, &request) {
            Ok(watching) => {
                let lines = watching.into_lines().map(|line| Ok(Frame::data(line)));
                response(200, None, StreamBody::new(lines).boxed_unsync())
            }
            Err(refusal) => refused(&refusal),
        };
    }
    let (answered, is_lost) = {
        let mut state = shared.state();
        let answered = answer(&mut state, &target, verb, &request);
        let is_lost = is_write && state.loses_answers > 0;
        if is_lost {
            state.loses_answers -= 1;
        }
        (answered, is_lost)
    };
    if is_write {
        shared.ring();
    }
    if is_lost {
        return Err(io::Error::new(
            io::ErrorKind::ConnectionReset,
            "the answer of a write was lost, as the test asked",
        ));
    }
    match answered {
        Ok((code, body)) => whole(code, None, &body),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> Result<Answer, io::Error> {
    whole(refusal.code, refusal.retry_after, &refusal.status())
}

fn whole(code: u16, retry_after: Option<u64>, body: &Value) -> Result<Answer, io::Error> {
    response(code, retry_after, Full::new(Bytes::from(body.to_string())).boxed_unsync())
}

fn response(
    code: u16,
    retry_after: Option<u64>,
    body: UnsyncBoxBody<Bytes, Infallible>,
) -> Result<Answer, io::Error> {
    let mut response =
        http::Response::builder().status(code).header(http::header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        response = response.header(http::header::RETRY_AFTER, seconds);
    }
    response.body(body).map_err(io::Error::other)
}
