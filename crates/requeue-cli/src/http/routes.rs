//! The pages of a server.

use std::fmt;

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};

/// An answer with its whole body.
pub(crate) type Answer = Response<String>;

/// A page with this content type.
pub(crate) fn page(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A page with a line of text.
pub(crate) fn text(status: StatusCode, line: &str) -> Answer {
    page(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

/// A page by its path, made anew for each request.
type Route = (&'static str, Box<dyn Fn() -> Answer + Send + Sync>);

/// The pages of a server, by their paths.
#[derive(Default)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    /// Adds a page.
    pub(crate) fn route(
        mut self,
        path: &'static str,
        page: impl Fn() -> Answer + Send + Sync + 'static,
    ) -> Self {
        self.0.push((path, Box::new(page)));
        self
    }

    /// Answers a request.
    pub(crate) fn call<B>(&self, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "GET it");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match self.0.iter().find(|(path, _)| *path == request.uri().path()) {
            Some((_, page)) => page(),
            None => {
                let paths: Vec<&str> = self.0.iter().map(|(path, _)| *path).collect();
                text(StatusCode::NOT_FOUND, &format!("there are {}", paths.join(" and ")))
            }
        }
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(path, _)| path)).finish()
    }
}
