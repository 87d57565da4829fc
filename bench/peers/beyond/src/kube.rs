//! kube-runtime: `applier`, which is what a `Controller` runs, in Tokio's paused time.

use crate::script::{Ran, Script, ms};
use futures::StreamExt;
use futures::channel::mpsc::unbounded;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::controller::{Action, applier};
use kube_runtime::reflector::{self, ObjectRef};
use kube_runtime::watcher::Event;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::{Instant, sleep, sleep_until};

fn object(key: usize) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(key.to_string());
    object.metadata.namespace = Some("default".to_string());
    object
}

#[derive(Debug)]
struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it failed")
    }
}

impl std::error::Error for Failed {}

/// Plays the script; called in a runtime with paused time.
pub(crate) async fn play(script: &Script) -> Ran {
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for key in 0..script.keys {
        writer.apply_watcher_event(&Event::InitApply(object(key)));
    }
    writer.apply_watcher_event(&Event::InitDone);
    let name = |key: usize| ObjectRef::<ConfigMap>::new(&key.to_string()).within("default");

    let (triggers, queue) = unbounded::<Result<ObjectRef<ConfigMap>, Infallible>>();
    let start = Instant::now();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let noted = runs.clone();
    let (fails, run, echo, echoes) = (script.fails, ms(script.run), ms(script.echo), triggers.clone());
    let reconcile = move |object: Arc<ConfigMap>, _: Arc<()>| {
        let at = start.elapsed().as_secs_f64() * 1e3;
        let key = object.metadata.name.as_deref().and_then(|name| name.parse().ok()).unwrap_or(0);
        noted.lock().unwrap_or_else(PoisonError::into_inner).push((key, at));
        let (echoes, me) = (echoes.clone(), ObjectRef::from_obj(&*object));
        Box::pin(async move {
            sleep(run).await;
            if !fails {
                return Ok(Action::await_change());
            }
            tokio::spawn(async move {
                sleep(echo).await;
                drop(echoes.unbounded_send(Ok(me)));
            });
            Err(Failed)
        }) as std::pin::Pin<Box<dyn Future<Output = Result<Action, Failed>>>>
    };
    // the user keeps the count; with the limits of client-go
    let failures = Mutex::new(0_u32);
    let policy = move |_: Arc<ConfigMap>, _: &Failed, _: Arc<()>| {
        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = ms(5).saturating_mul(1 << (*failures).min(20)).min(ms(1_000_000));
        *failures += 1;
        Action::requeue(delay)
    };
    let config = kube_runtime::Config::default().concurrency(1).debounce(ms(script.quiet));
    let mut stream = std::pin::pin!(applier(reconcile, policy, Arc::new(()), store, queue, config));
    let work = async { while stream.next().await.is_some() {} };
    let produce = async {
        for &(at, key, _) in &script.triggers {
            let at = start + ms(at);
            if at > Instant::now() {
                sleep_until(at).await;
            }
            drop(triggers.unbounded_send(Ok(name(key))));
        }
        sleep_until(start + ms(script.lasting)).await;
    };
    tokio::select! {
        biased;
        () = produce => (),
        () = work => (),
    }
    let runs = runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ran { queue: "kube-runtime".into(), script: script.name.into(), runs }
}
