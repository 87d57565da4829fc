//! TLS, as requested by a connection string.

mod common;

use self::common::cluster::Cluster;
use requeue_postgres::Postgres;

/// A server with a certificate for localhost from an authority of its own, and that authority's certificate.
fn server() -> Option<(Cluster, u16, String)> {
    let port = Cluster::free_port();
    let cluster = Cluster::start(&format!("listen_addresses = '127.0.0.1'\nport = {port}\n"))?;
    // by the server, so that the files are its own; a program that does not read is an error, if it ends soon enough
    for command in [
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem",
        "openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
        "printf subjectAltName=DNS:localhost > server.ext",
        "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.crt",
        "chmod 600 server.key",
    ] {
        cluster.sql(
            "postgres",
            &format!("copy (select 1) to program 'cat >/dev/null; ({command}) 2>>openssl.log'"),
        );
    }
    // the folder of the data is the server's alone
    let ca = cluster.sql("postgres", "select pg_read_file('ca.pem')");
    let copy = cluster.folder().with_extension("ca.pem");
    std::fs::write(&copy, ca).expect("a copy");
    cluster.sql("postgres", "create role worker login superuser password 'secret'");
    let hba = r"local all all trust\nhost all postgres 127.0.0.1/32 trust\nhostssl all worker 127.0.0.1/32 scram-sha-256\n";
    cluster.sql(
        "postgres",
        &format!("copy (select 1) to program 'cat >/dev/null; printf \"{hba}\" > pg_hba.conf'"),
    );
    cluster.sql("postgres", "alter system set ssl = on");
    cluster.sql("postgres", "select pg_reload_conf()");
    while cluster.sql("postgres", "show ssl") != "on" {
        std::thread::yield_now();
    }
    Some((cluster, port, copy.display().to_string()))
}

/// How the server's connections with this application name are encrypted.
fn encrypted(cluster: &Cluster, name: &str) -> String {
    let asked =
        "select distinct coalesce(s.version, 'not') from pg_stat_activity a join pg_stat_ssl s using (pid)";
    cluster.sql("postgres", &format!("{asked} where a.application_name = '{name}'"))
}

#[test]
fn connections_are_encrypted_and_certificates_checked_as_the_string_says() {
    let Some((cluster, port, ca)) = server() else { return };
    let at = |host: &str| format!("postgres://postgres@{host}:{port}/postgres");
    let connects = |name: &str, string: &str| {
        let glue = if string.contains('?') { '&' } else { '?' };
        let pg = Postgres::connect(&format!("{string}{glue}application_name={name}")).wait()?;
        Ok::<_, requeue_engine::EngineError>((encrypted(&cluster, name), pg))
    };
    let refused =
        |string: &str| connects("refused", string).map(|(how, _)| how).expect_err(string).to_string();

    // nothing is said: encrypted, as the server offers it
    assert_eq!(connects("nothing", &at("localhost")).expect("it is up").0, "TLSv1.3");
    assert_eq!(
        connects("require", &format!("{}?sslmode=require", at("127.0.0.1"))).expect("it is up").0,
        "TLSv1.3"
    );
    assert_eq!(
        connects("disable", &format!("{}?sslmode=disable", at("localhost"))).expect("it is up").0,
        "not"
    );
    let checked = format!("{}?sslmode=verify-full&sslrootcert={ca}", at("localhost"));
    assert_eq!(connects("checked", &checked).expect("the authority is known").0, "TLSv1.3");
    let words = format!(
        "host=localhost port={port} user=postgres dbname=postgres sslrootcert='{ca}' application_name=words"
    );
    let pg = Postgres::connect(&words).wait().expect("the authority is known");
    assert_eq!(encrypted(&cluster, "words"), "TLSv1.3");
    drop(pg);

    // the certificate is not for this name, or its issuer is unknown
    let why = refused(&format!("{}?sslrootcert={ca}", at("127.0.0.1")));
    assert!(why.contains("not valid for name"), "{why}");
    let why = refused(&format!("{}?sslmode=verify-full", at("localhost")));
    assert!(why.contains("UnknownIssuer") || why.contains("no certificates"), "{why}");

    // a password, bound to the connection
    let worker = at("localhost").replace("postgres@", "worker:secret@");
    let bound = connects("bound", &format!("{worker}?channel_binding=require&sslrootcert={ca}"));
    let (how, pg) = bound.expect("the password is right");
    assert_eq!(how, "TLSv1.3");
    pg.migrate().wait().expect("it may");
    let q = pg.queue::<String>("orders").open().wait().expect("it opens");
    q.add("a".into()).wait().expect("it is written");
    let item = q.get_blocking().expect("it comes back");
    assert_eq!(item.key(), "a");
    assert_eq!(encrypted(&cluster, "bound"), "TLSv1.3", "the connections of the queue too");
    item.done();
    drop((q, pg));

    // a server that has no TLS
    cluster.sql("postgres", "alter system set ssl = off");
    cluster.sql("postgres", "select pg_reload_conf()");
    while cluster.sql("postgres", "show ssl") != "off" {
        std::thread::yield_now();
    }
    let why = refused(&format!("{}?sslmode=require", at("localhost")));
    assert!(why.contains("does not support TLS"), "{why}");
    assert_eq!(connects("off", &at("localhost")).expect("it need not be").0, "not");
}
