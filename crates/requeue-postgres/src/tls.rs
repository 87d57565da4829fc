//! TLS by rustls, and its options in a connection string.
//!
//! The names and their meanings are libpq's. tokio-postgres reads `sslmode` up to `require`; the options for
//! certificates (`sslmode=verify-full`, `sslrootcert`) are removed from the string first.

use crate::conn_string::ConnString;
use requeue::BoxError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The authorities whose certificates of servers are trusted.
#[derive(Debug, PartialEq)]
pub(crate) enum Trust {
    /// Any: the connection is encrypted, and the server is not verified.
    Anyone,
    /// The system's authorities.
    System,
    /// The authorities in this file.
    File(String),
}

/// Removes from a connection string the options that tokio-postgres does not read.
pub(crate) fn trust(config: &mut ConnString) -> Result<Trust, BoxError> {
    let (roots, mode) = (config.take("sslrootcert"), config.take("sslmode"));
    let mut is_checked = roots.is_some();
    match mode.as_deref() {
        None => {}
        Some("verify-full") => {
            is_checked = true;
            config.put("sslmode=require");
        }
        Some("verify-ca") => {
            return Err("sslmode=verify-ca does not check the server's name: use verify-full".into());
        }
        Some(mode @ ("disable" | "prefer" | "require")) => config.put(&format!("sslmode={mode}")),
        Some(_) => return Err("sslmode is one of disable, prefer, require, verify-full".into()),
    }
    Ok(match roots {
        _ if !is_checked => Trust::Anyone,
        Some(file) if file != "system" => Trust::File(file),
        _ => Trust::System,
    })
}

/// Makes connections that trust these authorities.
pub(crate) fn connector(trust: &Trust) -> Result<MakeRustlsConnect, BoxError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Anyone => Arc::new(Anyone(provider.clone())),
        Trust::System => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let why = found.errors.first().map_or_else(String::new, |e| format!(": {e}"));
                return Err(format!(
                    "no certificates of authorities were found{why}; name a file by sslrootcert"
                )
                .into());
            }
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?
        }
        Trust::File(file) => {
            let read = |e: rustls::pki_types::pem::Error| format!("sslrootcert {file}: {e}");
            for certificate in CertificateDer::pem_file_iter(file).map_err(read)? {
                roots.add(certificate.map_err(read)?).map_err(|e| format!("sslrootcert {file}: {e}"))?;
            }
            if roots.is_empty() {
                return Err(format!("sslrootcert {file}: there is no certificate in it").into());
            }
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?
        }
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // the name of the door to a verifier of one's own
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Accepts any certificate whose key the server has.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &str) -> (String, Trust) {
        let mut conn_string = ConnString::of(config);
        let trust = trust(&mut conn_string).expect("it can be read");
        (conn_string.join(), trust)
    }

    #[test]
    fn what_is_said_of_certificates_is_taken_out_of_a_connection_string() {
        let file = || Trust::File("/a b/ca.pem".into());
        let cases = [
            ("host=db", "host=db", Trust::Anyone),
            ("host = db  sslmode = require", "host = db sslmode=require", Trust::Anyone),
            ("host=db sslmode=verify-full user=u", "host=db user=u sslmode=require", Trust::System),
            (
                r"sslrootcert='/a b/ca.pem' password='it\'s x=y' host=db",
                r"password='it\'s x=y' host=db",
                file(),
            ),
            ("host=db sslrootcert=/a\\ b/ca.pem sslmode=prefer", "host=db sslmode=prefer", file()),
            ("postgres://u:p@db/shop", "postgres://u:p@db/shop", Trust::Anyone),
            ("postgres://db/shop?sslmode=require", "postgres://db/shop?sslmode=require", Trust::Anyone),
            ("postgres://db?sslmode=verify-full", "postgres://db?sslmode=require", Trust::System),
            (
                "postgresql://db?sslrootcert=%2Fa%20b%2Fca.pem&connect_timeout=3",
                "postgresql://db?connect_timeout=3",
                file(),
            ),
            ("postgres://db?sslrootcert=system", "postgres://db", Trust::System),
            ("", "", Trust::Anyone),
            ("host", "host", Trust::Anyone),
            ("password='", "password='", Trust::Anyone),
        ];
        for (config, rest, trust) in cases {
            assert_eq!(read(config), (rest.to_owned(), trust), "{config}");
        }
    }

    #[test]
    fn a_mode_that_is_not_offered_is_refused() {
        for mode in ["verify-ca", "allow", "yes", ""] {
            for config in [format!("host=db sslmode={mode}"), format!("postgres://db?sslmode={mode}")] {
                assert!(trust(&mut ConnString::of(&config)).is_err(), "{config}");
            }
        }
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        for file in ["/nowhere/ca.pem", "/dev/null"] {
            let refused = connector(&Trust::File(file.into())).map(drop).expect_err(file);
            assert!(refused.to_string().contains(file), "{refused}");
        }
    }
}
