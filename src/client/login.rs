//! How does the client log in? By the strongest mechanism that the broker offers and that fits what we know.
//!
//! With a password: SCRAM-SHA-256, else PLAIN. Without: ANONYMOUS. After SCRAM the broker's signature is checked, too.

use std::sync::Arc;

use rsasl::prelude::{Mechname, SASLClient, SASLConfig, Session};

use super::error::ClientError;
use super::url::Credentials;
use crate::authenticate::{ANONYMOUS, PLAIN, SCRAM};

/// Our side of the SASL exchange.
pub(super) struct Login {
    user: Option<String>,
    kind: Kind,
}

enum Kind {
    Anonymous,
    Plain,
    Scram { session: Box<Session>, proved: bool },
}

/// What to send first.
pub(super) struct Init {
    pub(super) mechanism: &'static str,
    pub(super) response: Vec<u8>,
}

impl Login {
    /// Begins by one of the mechanisms that are offered.
    pub(super) fn start<'a>(
        credentials: Option<&Credentials>,
        offered: impl Iterator<Item = &'a str>,
    ) -> Result<(Login, Init), ClientError> {
        let offered: Vec<String> = offered.map(str::to_owned).collect();
        let offers = |mechanism: &str| offered.iter().any(|name| name == mechanism);
        match credentials {
            None if offers(ANONYMOUS) => {
                let response = b"anonymous".to_vec();
                Ok((Login { user: None, kind: Kind::Anonymous }, Init { mechanism: ANONYMOUS, response }))
            }
            Some(own) if offers(SCRAM) => {
                let (session, response) = start_scram(own)?;
                let kind = Kind::Scram { session: Box::new(session), proved: false };
                Ok((Login { user: Some(own.user.clone()), kind }, Init { mechanism: SCRAM, response }))
            }
            Some(own) if offers(PLAIN) => {
                if own.user.contains('\0') || own.password.contains('\0') {
                    return Err(ClientError::UnfitCredentials);
                }
                let response = format!("\0{}\0{}", own.user, own.password).into_bytes();
                let login = Login { user: Some(own.user.clone()), kind: Kind::Plain };
                Ok((login, Init { mechanism: PLAIN, response }))
            }
            Some(_) | None => {
                Err(ClientError::NoMechanism { offered, has_credentials: credentials.is_some() })
            }
        }
    }

    /// Answers a challenge.
    pub(super) fn respond(&mut self, challenge: &[u8]) -> Result<Vec<u8>, ClientError> {
        match &mut self.kind {
            Kind::Anonymous | Kind::Plain => Err(self.refused()),
            // RFC 5802 §7: server-error. Some brokers say so before their outcome.
            Kind::Scram { .. } if challenge.starts_with(b"e=") => Err(self.refused()),
            Kind::Scram { session, proved } => {
                let mut response = Vec::new();
                // Some brokers send their signature as a challenge of its own.
                *proved = step(session, challenge, &mut response)?;
                Ok(response)
            }
        }
    }

    /// Takes a good outcome, with the signature that may come with it.
    pub(super) fn finish(&mut self, additional: Option<&[u8]>) -> Result<(), ClientError> {
        match &mut self.kind {
            Kind::Anonymous | Kind::Plain | Kind::Scram { proved: true, .. } => Ok(()),
            Kind::Scram { session, .. } => {
                let signature = additional.ok_or(ClientError::ImpostorBroker)?;
                if step(session, signature, &mut Vec::new())? {
                    Ok(())
                } else {
                    Err(ClientError::ImpostorBroker)
                }
            }
        }
    }

    /// The error of a bad outcome.
    pub(super) fn refused(&self) -> ClientError {
        ClientError::Refused { user: self.user.clone() }
    }
}

fn start_scram(own: &Credentials) -> Result<(Session, Vec<u8>), ClientError> {
    let config: Arc<SASLConfig> = SASLConfig::with_credentials(None, own.user.clone(), own.password.clone())
        .map_err(|_| ClientError::UnfitCredentials)?;
    let name = Mechname::parse(SCRAM.as_bytes()).map_err(|_| ClientError::UnfitCredentials)?;
    let mut session =
        SASLClient::new(config).start_suggested(&[name]).map_err(|_| ClientError::UnfitCredentials)?;
    let mut response = Vec::new();
    session.step(None, &mut response).map_err(|_| ClientError::UnfitCredentials)?;
    Ok((session, response))
}

/// Gives the session the broker's message. True: it is complete, and the broker has proved itself.
fn step(session: &mut Session, message: &[u8], response: &mut Vec<u8>) -> Result<bool, ClientError> {
    // The library's parser wants each attribute to have its letter and its `=`.
    if !message.split(|byte| *byte == b',').all(|part| part.len() >= 2) {
        return Err(ClientError::ImpostorBroker);
    }
    let state = session.step(Some(message), response).map_err(|_| ClientError::ImpostorBroker)?;
    Ok(state.is_finished())
}
