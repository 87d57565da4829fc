//! A client layer that refuses to write while its process does not lead.

use super::{Fence, NotLeader};
use futures::future::BoxFuture;
use http::Method;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A layer for kube's client that refuses each request that writes (POST, PUT, PATCH, DELETE) while the fence
/// does not hold, with the error [`NotLeader`]. Reads pass. Reviews of access and tokens are POST requests,
/// and refused too.
///
/// The elector needs a client without this layer, because a process that does not lead yet writes the lease.
/// The layer added last is called first, so add layers that retry after this one. kube's own retries
/// ([`kube::Config::default_retry`]) are inside of it, and continue for as long as they take.
///
/// ```no_run
/// use kube::client::ClientBuilder;
/// use requeue_kube::lease::{self, Elector, NotLeader};
///
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// let config = kube::Config::infer().await?;
/// let elector = Elector::builder(&kube::Client::try_from(config.clone())?, "sites-leader")
///     .identity(std::env::var("POD_NAME")?)
///     .start()?;
/// let client = ClientBuilder::try_from(config)?.with_layer(&lease::client_layer(elector.fence())).build();
///
/// let maps = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(client);
/// if let Err(e) = maps.delete("old", &Default::default()).await {
///     assert!(!NotLeader::is_in(&e), "another process leads");
/// }
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn client_layer(fence: Fence) -> FenceWrites {
    FenceWrites { fence }
}

/// A layer that refuses to write while a fence does not hold; made by [`client_layer`].
#[derive(Clone, Debug)]
pub struct FenceWrites {
    fence: Fence,
}

impl<S> Layer<S> for FenceWrites {
    type Service = FencedWrites<S>;

    fn layer(&self, inner: S) -> FencedWrites<S> {
        FencedWrites { inner, fence: self.fence.clone() }
    }
}

/// A client's service that refuses to write while a fence does not hold.
#[derive(Clone, Debug)]
pub struct FencedWrites<S> {
    inner: S,
    fence: Fence,
}

impl<S> FencedWrites<S> {
    fn may(&self, method: &Method) -> Result<(), NotLeader> {
        if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
            return Ok(());
        }
        self.fence.check()
    }
}

impl<S, B> Service<http::Request<B>> for FencedWrites<S>
where
    S: Service<http::Request<B>, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        if let Err(e) = self.may(request.method()) {
            return Box::pin(async move { Err(e.into()) });
        }
        let answer = self.inner.call(request);
        Box::pin(async move { answer.await.map_err(Into::into) })
    }
}
