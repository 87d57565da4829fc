//! s14 of the design against the real API server: takeovers, and writes of a process that no longer leads.
//! processes.rs has processes that are stopped and killed, and the tests of `lease` have clocks that differ,
//! on paused time.

use crate::{World, figure, size};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::{Api, Config};
use requeue_kube::lease::{Elector, NotLeader, client_layer};
use serde_json::json;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(3);

fn candidate(world: &World, identity: usize) -> Elector {
    Elector::builder(&world.client, "leader")
        .namespace(&world.namespace)
        .identity(identity.to_string())
        .lease_duration(LEASE)
        .renew_deadline(Duration::from_secs(2))
        .retry_period(Duration::from_millis(400))
        .skew(Duration::from_millis(200))
        .start()
        .unwrap()
}

#[tokio::test]
async fn s14_takeovers_and_the_writes_of_one_that_leads_no_more() {
    let Some(world) = World::new("s14").await else { return };
    let config: Config = world.server.as_ref().unwrap().config();
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let mut leader = candidate(&world, 0);
    assert_eq!(leader.leading().await.token(), 0);
    for n in 1..=size(20, 4) {
        let client = ClientBuilder::try_from(config.clone()).unwrap();
        let client = client.with_layer(&client_layer(leader.fence())).build();
        let maps: Api<ConfigMap> = Api::namespaced(client, &world.namespace);
        let name = format!("of-{n}");
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        maps.create(&PostParams::default(), &map).await.unwrap();

        let next = candidate(&world, n);
        // A write of somebody else is a conflict at the next renewal, and no more.
        let label = json!({"metadata": {"labels": {"n": n.to_string()}}});
        leases.patch("leader", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(leader.is_leader() && !next.is_leader());

        let (old, began) = (leader.fence(), Instant::now());
        let (what, most) = if n % 2 == 0 {
            leader.release().await;
            ("s14: takeover after a clean stop", Duration::from_secs(2))
        } else {
            drop(leader);
            ("s14: takeover after an end without one", LEASE + Duration::from_secs(2))
        };
        let token = next.leading().await.token();
        figure(what, began.elapsed(), most);
        assert_eq!(usize::try_from(token).unwrap(), n);
        assert!(old.check().is_err());
        let refused = maps.replace(&name, &PostParams::default(), &map).await.unwrap_err();
        assert!(NotLeader::is_in(&refused), "{refused}");
        maps.get(&name).await.unwrap();
        let spec = leases.get("leader").await.unwrap().spec.unwrap();
        assert_eq!(spec.holder_identity, Some(n.to_string()));
        leader = next;
    }
    leader.release().await;
    assert_eq!(leases.get("leader").await.unwrap().spec.unwrap().holder_identity.unwrap_or_default(), "");
}
