use super::*;
use crate::fake::Server;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{DeleteParams, PostParams};
use kube::client::ClientBuilder;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn server() -> Server {
    Server::new().with::<Lease>().with::<ConfigMap>()
}

fn candidate(server: &Server, identity: &str) -> Elector {
    Elector::builder(&server.client(), "sites").identity(identity).start().unwrap()
}

fn with_wall_off_by(server: &Server, identity: &str, seconds: i64) -> Elector {
    let mut builder = Elector::builder(&server.client(), "sites").identity(identity);
    builder.rules.wall_is_off_by = SignedDuration::from_secs(seconds);
    builder.start().unwrap()
}

fn lease(server: &Server) -> k8s_openapi::api::coordination::v1::LeaseSpec {
    server.get::<Lease>("default", "sites").unwrap().spec.unwrap()
}

#[tokio::test(start_paused = true)]
async fn settings_that_contradict_each_other_are_named() {
    let server = server();
    let builder = || Elector::builder(&server.client(), "sites").identity("a");
    for (builder, part) in [
        (builder().identity(""), "the identity is empty"),
        (builder().namespace(""), "the namespace is empty"),
        (builder().lease_duration(10 * SECOND), "the lease duration (10s)"),
        (builder().retry_period(9 * SECOND), "the renew deadline (10s)"),
        (builder().retry_period(Duration::ZERO), "the retry period is zero"),
        (Elector::builder(&server.client(), "").identity("a"), "the name of the lease is empty"),
    ] {
        let told = builder.start().unwrap_err().to_string();
        assert!(told.contains(part), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_the_other_after_its_end_within_the_lease_duration_and_two_seconds() {
    let server = server();
    let a = candidate(&server, "a");
    assert_eq!(a.leading().await.token(), 0);
    let b = candidate(&server, "b");
    sleep(100 * SECOND).await;
    assert!(a.is_leader() && !b.is_leader());
    let killed = Instant::now();
    drop(a);
    assert_eq!(b.leading().await.token(), 1);
    assert!(killed.elapsed() < 17 * SECOND, "{:?}", killed.elapsed());
    assert!(killed.elapsed() > 12 * SECOND, "{:?}", killed.elapsed());
    assert_eq!(lease(&server).lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_away_is_taken_within_two_seconds() {
    let server = server();
    let a = candidate(&server, "a");
    let fence = a.leading().await;
    let b = candidate(&server, "b");
    sleep(30 * SECOND).await;
    let began = Instant::now();
    a.release().await;
    assert_eq!(fence.check(), Err(NotLeader));
    assert_eq!(lease(&server).holder_identity, None);
    assert_eq!(b.leading().await.token(), 1);
    assert!(began.elapsed() <= 2 * SECOND, "{:?}", began.elapsed());
    a.release().await; // a second time does nothing
    assert!(b.is_leader() && !a.is_leader());
}

#[tokio::test(start_paused = true)]
async fn clocks_a_minute_apart_make_no_two_leaders_in_twenty_takeovers() {
    let server = server();
    let mut leader = with_wall_off_by(&server, "0", 60);
    leader.leading().await;
    for n in 1..=20_u32 {
        let off_by = if n % 2 == 0 { 60 } else { -60 };
        let next = with_wall_off_by(&server, &n.to_string(), off_by);
        for _ in 0..400 {
            sleep(SECOND / 10).await;
            assert!(leader.is_leader() && !next.is_leader());
        }
        let (old, began) = (leader.fence(), Instant::now());
        if n % 3 == 0 {
            leader.release().await;
        } else {
            drop(leader);
        }
        let fence = next.leading().await;
        assert!(old.check().is_err());
        assert_eq!(fence.token(), n);
        assert!(began.elapsed() < 17 * SECOND);
        leader = next;
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_at_a_renewal_is_read_and_overcome() {
    let server = server();
    let a = candidate(&server, "a");
    let fence = a.leading().await;
    for _ in 0..20 {
        // Somebody writes what is none of the holder's business.
        let mut lease = server.get::<Lease>("default", "sites").unwrap();
        lease.metadata.labels = Some([("n".to_owned(), server.version().to_string())].into());
        server.apply(&lease).unwrap();
        sleep(3 * SECOND).await;
        fence.check().unwrap();
    }
    server.fail_next_writes(1, 409);
    sleep(8 * SECOND).await;
    fence.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_at_the_deadline_and_begins_a_new_term_later() {
    let server = server();
    let a = candidate(&server, "a");
    let fence = a.leading().await;
    sleep(20 * SECOND).await;
    server.fail_next(1000, 500);
    let began = Instant::now();
    fence.lost().await;
    assert!(began.elapsed() <= 10 * SECOND && began.elapsed() >= 8 * SECOND, "{:?}", began.elapsed());
    assert!(!a.is_leader());
    let next = a.leading().await;
    assert_eq!(next.token(), 1);
    assert!(fence.check().is_err(), "it is bound to the term that has ended");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_requests_hang_stops_before_another_one_leads() {
    let server = server();
    let a = candidate(&server, "a");
    let fence = a.leading().await;
    sleep(20 * SECOND).await;
    server.delay(3600 * SECOND);
    let began = Instant::now();
    fence.lost().await;
    assert!(began.elapsed() <= 10 * SECOND, "{:?}", began.elapsed());
    sleep(SECOND / 10).await;
    assert_eq!(*a.watch().borrow(), None);
}

#[tokio::test(start_paused = true)]
async fn the_fence_falls_by_the_clock_when_no_task_has_run() {
    let server = server();
    let a = candidate(&server, "a");
    let fence = a.leading().await;
    // As a process that was stopped: the clock has moved, and no task but this one has been polled.
    let mut moved = std::pin::pin!(tokio::time::advance(11 * SECOND));
    let waker = std::task::Waker::noop();
    _ = moved.as_mut().poll(&mut std::task::Context::from_waker(waker));
    assert_eq!(*a.watch().borrow(), Some(0), "the task has not run");
    assert_eq!(fence.check(), Err(NotLeader));
    assert!(!a.is_leader());
    moved.await;
    assert_eq!(a.leading().await.token(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_with_the_identity_of_the_holder_waits_like_others() {
    let server = server();
    let a = candidate(&server, "a");
    a.leading().await;
    let other = candidate(&server, "a");
    assert!(timeout(100 * SECOND, other.leading()).await.is_err());
    assert!(a.is_leader());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_costs_no_lease_duration() {
    let server = server();
    server.lose_answer_of_next_write();
    let began = Instant::now();
    let a = candidate(&server, "a");
    a.leading().await;
    assert!(began.elapsed() <= 2 * SECOND, "{:?}", began.elapsed());
    let fence = a.fence().bound().unwrap();
    server.lose_answer_of_next_write();
    sleep(20 * SECOND).await;
    fence.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_longer_duration_in_the_lease_counts() {
    let server = server();
    let builder = Elector::builder(&server.client(), "sites").identity("a");
    let a = builder.lease_duration(60 * SECOND).start().unwrap();
    a.leading().await;
    let b = candidate(&server, "b");
    sleep(10 * SECOND).await;
    drop(a);
    let began = Instant::now();
    b.leading().await;
    assert!(began.elapsed() > 57 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_ends_the_term() {
    let server = server();
    let a = candidate(&server, "a");
    let fence = a.leading().await;
    server.delete::<Lease>("default", "sites").unwrap();
    fence.lost().await;
    assert_eq!(a.leading().await.token(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_given_away_while_a_run_goes_on() {
    let server = server();
    let a = candidate(&server, "a");
    let fence = a.leading().await;
    let run = fence.run_begins();
    assert!(timeout(SECOND, fence.over()).await.is_err());
    let releasing = a.clone();
    let released = tokio::spawn(async move { releasing.release().await });
    timeout(SECOND / 10, fence.over()).await.unwrap();
    assert_eq!(lease(&server).holder_identity.as_deref(), Some("a"));
    drop(run);
    released.await.unwrap();
    assert_eq!(lease(&server).holder_identity, None);
}

#[tokio::test(start_paused = true)]
async fn a_run_may_go_on_until_the_lease_duration_less_the_skew() {
    let server = server();
    let a = candidate(&server, "a");
    let fence = a.leading().await;
    let began = Instant::now();
    server.fail_next(1000, 500);
    fence.lost().await;
    assert_eq!(began.elapsed().as_secs(), 10);
    fence.over().await;
    assert_eq!(began.elapsed().as_secs(), 14);
}

#[tokio::test(start_paused = true)]
async fn a_client_with_the_layer_reads_always_and_writes_while_its_process_leads() {
    let server = server();
    let a = candidate(&server, "a");
    let client = ClientBuilder::new(server.service(), "default").with_layer(&client_layer(a.fence())).build();
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let map = ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some("m".into()), ..Default::default() },
        ..ConfigMap::default()
    };
    a.leading().await;
    maps.create(&PostParams::default(), &map).await.unwrap();
    a.release().await;
    let writes = server.writes();
    assert!(NotLeader::is_in(&maps.create(&PostParams::default(), &map).await.unwrap_err()));
    assert!(NotLeader::is_in(&maps.delete("m", &DeleteParams::default()).await.unwrap_err()));
    assert!(NotLeader::is_in(&maps.replace("m", &PostParams::default(), &map).await.unwrap_err()));
    maps.get("m").await.unwrap();
    assert_eq!(server.writes(), writes);
    server.fail_next(1, 500);
    assert!(!NotLeader::is_in(&maps.get("m").await.unwrap_err()));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_leader_that_is_dropped() {
    let server = server();
    let fence = candidate(&server, "a").fence();
    timeout(SECOND, fence.lost()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_metrics_say_who_leads() {
    let (server, mut registry) = (server(), crate::prometheus_client::registry::Registry::default());
    let metrics = Metrics::register(&mut registry);
    let leads = || {
        let mut text = String::new();
        crate::prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series = "leader_election_master_status{name=\"sites\"} ";
        text.lines().find_map(|line| line.strip_prefix(series)).unwrap().to_owned()
    };
    let of = |identity: &str| Elector::builder(&server.client(), "sites").identity(identity);
    let a = of("a").metrics(&metrics).start().unwrap();
    assert_eq!(leads(), "0");
    let fence = a.leading().await;
    assert_eq!(leads(), "1");
    server.fail_next(12, 500);
    fence.lost().await;
    sleep(SECOND / 10).await;
    assert_eq!(leads(), "0");
    a.leading().await;
    assert_eq!(leads(), "1");
    a.release().await;
    assert_eq!(leads(), "0");
}
