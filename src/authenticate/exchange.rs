//! What does a client claim in its SASL exchange? The library's session, and what has to be checked around it.
//!
//! Invariants: a claim comes out only when the exchange is complete and the library has validated it; for SCRAM that
//! is the proof, for PLAIN and ANONYMOUS the shape alone, and the caller has still to check. An exchange is not stepped
//! again after it ended, and sees no message that its parser would index out of bounds.
//! Left out: whether the claim is good enough (`authenticate`).

use std::sync::Arc;

use rsasl::callback::{Context, Request, SessionCallback, SessionData};
use rsasl::mechanisms::anonymous::ANONYMOUS;
use rsasl::mechanisms::plain::PLAIN;
use rsasl::mechanisms::scram::SCRAM_SHA256;
use rsasl::mechanisms::scram::properties::ScramStoredPassword;
use rsasl::prelude::{
    Mechanism, Mechname, Registry, SASLConfig, SASLServer, Session, SessionError, State, Validation,
};
use rsasl::property::{AuthId, AuthzId, Password};
use rsasl::validate::{Validate, ValidationError};

use super::access;
use super::verifiers::Verifiers;
use crate::users::prepare_name;

/// Bytes of one message of a client; no mechanism of ours needs more.
pub(super) const MESSAGE_BYTES_MAX: usize = 4096;

/// Characters of a refused user's name in the log. The rest is left out.
const LOGGED_NAME_MAX: usize = 64;

static MECHANISMS: &[Mechanism] = &[SCRAM_SHA256, PLAIN, ANONYMOUS];

/// One exchange.
pub(super) struct Exchange {
    session: Session<ClaimValidation>,
    scram: bool,
    plain: bool,
    /// Messages seen.
    messages: u32,
}

/// Who a client says it is. Names are prepared.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Anonymous,
    /// Not checked yet.
    Password {
        name: String,
        password: Vec<u8>,
    },
    /// The client has proved that it knows the password.
    Proved {
        name: String,
    },
}

/// What a message of the client led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Challenge(Vec<u8>),
    /// The exchange is over; the bytes go out with a good outcome.
    Claimed(Claim, Vec<u8>),
    Failed(Fault),
}

/// Why an exchange cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Not what the mechanism's specification says.
    Malformed,
    /// A wrong proof, an unknown user, or one who wants to act as another.
    NotProved,
}

impl Exchange {
    /// Begins an exchange by a mechanism that was offered.
    pub(super) fn new(mechanism: &str, verifiers: Arc<Verifiers>) -> Option<Exchange> {
        let name = Mechname::parse(mechanism.as_bytes()).ok()?;
        let config = SASLConfig::builder()
            .with_registry(Registry::with_mechanisms(MECHANISMS))
            .with_callback(Callback { verifiers })
            .ok()?;
        let session = SASLServer::<ClaimValidation>::new(config).start_suggested(name).ok()?;
        Some(Exchange {
            session,
            scram: mechanism == access::SCRAM,
            plain: mechanism == access::PLAIN,
            messages: 0,
        })
    }

    /// The user that a message of the client names, right or wrong, as far as it fits a line of the log.
    pub(super) fn user_named(&self, message: &[u8]) -> Option<String> {
        // RFC 4616 §2: [authzid] NUL authcid NUL passwd; RFC 5802 §7: gs2-header "n=" username "," nonce.
        let name = if self.plain {
            message.split(|byte| *byte == 0).nth(1)?
        } else if self.scram {
            message.split(|byte| *byte == b',').nth(2)?.strip_prefix(b"n=")?
        } else {
            return None;
        };
        Some(String::from_utf8_lossy(name).chars().take(LOGGED_NAME_MAX).collect())
    }

    /// Takes a message of the client. A failed or claimed exchange is over.
    pub(super) fn step(&mut self, message: &[u8]) -> Step {
        self.messages += 1;
        if message.len() > MESSAGE_BYTES_MAX || (self.scram && !scram_shape(self.messages, message)) {
            return Step::Failed(Fault::Malformed);
        }
        let mut answer = Vec::new();
        match self.session.step(Some(message), &mut answer) {
            Ok(State::Running) => Step::Challenge(answer),
            // A wrong proof also ends well, but without a validation.
            Ok(State::Finished(_)) => match self.session.validation() {
                Some(Some(claim)) => Step::Claimed(claim, answer),
                Some(None) | None => Step::Failed(Fault::NotProved),
            },
            Err(_) => Step::Failed(Fault::Malformed),
        }
    }
}

/// Takes a claim out of the library. `None`: the client wants to act as another user.
struct ClaimValidation;

impl Validation for ClaimValidation {
    type Value = Option<Claim>;
}

struct Callback {
    verifiers: Arc<Verifiers>,
}

impl SessionCallback for Callback {
    fn callback(
        &self,
        _session: &SessionData,
        context: &Context,
        request: &mut Request,
    ) -> Result<(), SessionError> {
        if let Some(name) = context.get_ref::<AuthId>() {
            let verifier = self.verifiers.of(&scram_name(name));
            request.satisfy::<ScramStoredPassword>(&ScramStoredPassword::new(
                verifier.iterations,
                &verifier.salt,
                &verifier.stored_key,
                &verifier.server_key,
            ))?;
        }
        Ok(())
    }

    fn validate(
        &self,
        session: &SessionData,
        context: &Context,
        validate: &mut Validate<'_>,
    ) -> Result<(), ValidationError> {
        let claim = match session.mechanism().mechanism.as_str() {
            access::ANONYMOUS => Some(Claim::Anonymous),
            access::PLAIN => plain_claim(context),
            access::SCRAM => scram_claim(context),
            _ => None,
        };
        validate.with::<ClaimValidation, _>(|| Ok(claim))?;
        Ok(())
    }
}

fn plain_claim(context: &Context) -> Option<Claim> {
    let name = context.get_ref::<AuthId>()?;
    let acting_as = context.get_ref::<AuthzId>().unwrap_or_default();
    let password = context.get_ref::<Password>()?.to_vec();
    (acting_as.is_empty() || acting_as == name)
        .then(|| Claim::Password { name: prepare_name(name).unwrap_or_default(), password })
}

fn scram_claim(context: &Context) -> Option<Claim> {
    let name = scram_name(context.get_ref::<AuthId>()?);
    let acting_as = scram_name(context.get_ref::<AuthzId>().unwrap_or_default());
    (acting_as.is_empty() || acting_as == name).then_some(Claim::Proved { name })
}

/// RFC 5802 §5.1: `,` and `=` in names are sent as `=2C` and `=3D`. A name that cannot be prepared is nobody's: empty.
fn scram_name(sent: &str) -> String {
    let mut name = String::with_capacity(sent.len());
    let mut rest = sent;
    while let Some((before, after)) = rest.split_once('=') {
        name.push_str(before);
        rest = match (after.strip_prefix("2C"), after.strip_prefix("3D")) {
            (Some(after), _) => {
                name.push(',');
                after
            }
            (None, Some(after)) => {
                name.push('=');
                after
            }
            (None, None) => return String::new(),
        };
    }
    name.push_str(rest);
    prepare_name(&name).unwrap_or_default()
}

/// Whether a message has the attributes that RFC 5802 §7 asks for, each a letter, `=` and a value. The library's parser
/// relies on it.
fn scram_shape(message_number: u32, message: &[u8]) -> bool {
    let mut parts = message.split(|byte| *byte == b',');
    let attribute = |part: &[u8]| matches!(part, [letter, b'=', ..] if letter.is_ascii_alphabetic());
    let is = |part: Option<&[u8]>, letter: u8| part.is_some_and(|part| part.starts_with(&[letter, b'=']));
    if message_number == 1 {
        // client-first-message = [gs2-cbind-flag "," [authzid] ","] username "," nonce ["," extensions]
        let flag = parts.next().is_some_and(|part| matches!(part, b"n" | b"y") || part.starts_with(b"p="));
        let acting_as = parts.next().is_some_and(|part| part.is_empty() || part.starts_with(b"a="));
        flag && acting_as && is(parts.next(), b'n') && is(parts.next(), b'r') && parts.all(attribute)
    } else {
        // client-final-message = channel-binding "," nonce ["," extensions] "," proof
        let last_is_proof =
            message.rsplit(|byte| *byte == b',').next().is_some_and(|part| part.starts_with(b"p="));
        let proofs = message.split(|byte| *byte == b',').filter(|part| part.starts_with(b"p=")).count();
        is(parts.next(), b'c')
            && is(parts.next(), b'r')
            && parts.all(attribute)
            && last_is_proof
            && proofs == 1
    }
}
