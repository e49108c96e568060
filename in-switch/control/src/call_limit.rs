//! Limits the calls in progress of each caller, and of all together.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use tonic::{
    Request, Status,
    body::Body,
    codegen::{BoxFuture, Service, http},
};
use tower::Layer;

use crate::{
    counter::{Counter, Counting},
    incoming::Caller,
};

/// Refuses calls of [`Caller`]s beyond the limits with RESOURCE_EXHAUSTED. A call counts until it is answered;
/// one that answers with a stream, until that has ended, if its service keeps [`InProgress`] that long.
#[derive(Clone, Debug)]
pub struct CallLimit(pub(crate) Arc<Counter>);

/// A call that counts, until all clones have been dropped.
#[derive(Clone, Debug)]
pub struct InProgress(#[allow(dead_code, reason = "counts by being kept")] Option<Arc<Counting>>);

impl InProgress {
    /// Of this call; of one that came by a server without limits, it counts nothing.
    pub fn of<T>(request: &Request<T>) -> Self {
        request.extensions().get().cloned().unwrap_or(Self(None))
    }
}

impl<S> Layer<S> for CallLimit {
    type Service = Limited<S>;

    fn layer(&self, service: S) -> Limited<S> {
        Limited { calls: Arc::clone(&self.0), service }
    }
}

/// A service within the limits.
#[derive(Clone, Debug)]
pub struct Limited<S> {
    calls: Arc<Counter>,
    service: S,
}

impl<S> Limited<S> {
    /// Errors: which limit is reached.
    fn start<B>(&self, request: &http::Request<B>) -> Result<InProgress, Status> {
        let caller = request.extensions().get::<Caller>();
        let caller = caller.ok_or_else(|| Status::unauthenticated("the caller is unknown"))?;
        let counting = self.calls.start(caller.holder()).map_err(Status::resource_exhausted)?;
        Ok(InProgress(Some(Arc::new(counting))))
    }
}

impl<S, B> Service<http::Request<B>> for Limited<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<Self::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let in_progress = match self.start(&request) {
            Ok(in_progress) => in_progress,
            Err(refused) => return Box::pin(async move { Ok(refused.into_http()) }),
        };
        request.extensions_mut().insert(in_progress.clone());
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(in_progress);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Mutex};

    use tonic::{Code, codegen::http::Request as HttpRequest};
    use tower::ServiceExt;

    use super::*;
    use crate::counter::Most;

    fn call_of(certificate: &str) -> HttpRequest<()> {
        let mut request = HttpRequest::new(());
        request.extensions_mut().insert(Caller::holding(certificate.as_bytes()));
        request
    }

    #[tokio::test]
    async fn a_call_counts_until_what_it_answers_with_has_ended() {
        let streams = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&streams);
        // Answers with a stream, which goes on.
        let service = tower::service_fn(move |request: HttpRequest<()>| {
            kept.lock().unwrap().push(request.extensions().get::<InProgress>().unwrap().clone());
            async { Ok::<_, Infallible>(http::Response::new(Body::default())) }
        });
        let limits = Most { each: 2, all: 3 };
        let service = CallLimit(Counter::new(limits, "calls in progress")).layer(service);
        let call = async |request| {
            let answer = service.clone().oneshot(request).await.unwrap();
            Status::from_header_map(answer.headers()).map(|status| status.code())
        };
        assert_eq!(call(call_of("a")).await, None);
        assert_eq!(call(call_of("a")).await, None);
        assert_eq!(call(call_of("a")).await, Some(Code::ResourceExhausted));
        assert_eq!(call(call_of("b")).await, None);
        assert_eq!(call(call_of("c")).await, Some(Code::ResourceExhausted), "of all");
        streams.lock().unwrap().clear();
        assert_eq!(call(call_of("a")).await, None);
        assert_eq!(call(HttpRequest::new(())).await, Some(Code::Unauthenticated));
    }
}
