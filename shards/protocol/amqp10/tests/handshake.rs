//! Headers, SASL, open and close.

use super::script::{check, check_client, check_new, config, sasl_config};
use crate::amqp10::{Config, Sasl};

#[test]
fn server_opens() {
    check_new(config(), "header; open", "> header 0; * opened peer; > open us");
}

#[test]
fn header_in_pieces() {
    check_new(config(), "text AM; text QP; bytes 00 01 00; bytes 00", "> header 0");
}

#[test]
fn other_protocol_is_answered_with_ours_and_closed() {
    // AMQP 1.0 §2.2.
    for input in
        ["text GET", "text X", "text AMQP; bytes 00 00 09 01", "text AMQP; bytes 02 01 00 00", "sasl-header"]
    {
        check_new(config(), &format!("{input}; wait 3000"), "> header 0; * closed amqp:not-implemented");
    }
    check_new(sasl_config(true), "header; wait 3000", "> header 3; * closed amqp:not-implemented");
    check_new(sasl_config(true), "text HELLO; wait 3000", "> header 3; * closed amqp:not-implemented");
    check_new(
        sasl_config(false),
        "text AMQP; bytes 00 01 01 00; wait 3000",
        "> header 0; * closed amqp:not-implemented",
    );
}

#[test]
fn sasl_as_server() {
    let offered = "> header 3; > sasl-mechanisms [\"PLAIN\", \"SCRAM-SHA-256\"]";
    check_new(
        sasl_config(true),
        "sasl-header; sasl-init PLAIN; !outcome ok; header; open",
        &format!("{offered}; * sasl-init PLAIN; > sasl-outcome Ok; > header 0; * opened peer; > open us"),
    );
    check_new(
        sasl_config(true),
        "sasl-header; sasl-init SCRAM-SHA-256; !challenge; sasl-response; !challenge; sasl-response; !outcome ok",
        &format!(
            "{offered}; * sasl-init SCRAM-SHA-256; > sasl-challenge; * sasl-response; > sasl-challenge; * sasl-response
             > sasl-outcome Ok"
        ),
    );
    check_new(
        sasl_config(true),
        "sasl-header; sasl-init PLAIN; !outcome no; wait 3000",
        &format!("{offered}; * sasl-init PLAIN; > sasl-outcome Auth; * closed amqp:unauthorized-access"),
    );
}

#[test]
fn sasl_may_be_left_out_where_it_is_not_required() {
    check_new(sasl_config(false), "header; open", "> header 0; * opened peer; > open us");
}

#[test]
fn what_is_pipelined_behind_sasl_init_waits_for_the_caller() {
    // proton sends its header, open, begin and more before it has read anything.
    check_new(
        sasl_config(true),
        "sasl-header; sasl-init PLAIN; header; open; begin; attach receiver; flow h=0 credit=10; !outcome ok",
        "> header 3; > sasl-mechanisms [\"PLAIN\", \"SCRAM-SHA-256\"]; * sasl-init PLAIN; > sasl-outcome Ok; > header 0
         * opened peer; > open us; > begin remote=0; * begun 0; * attached 0 s=0 l; > attach h=0 sender l
         * flow 0 credit=10",
    );
}

#[test]
fn sasl_faults_end_the_connection() {
    let offered = "> header 3; > sasl-mechanisms [\"PLAIN\", \"SCRAM-SHA-256\"]";
    // AMQP 1.0 §5.3.1: there are no empty frames in this layer.
    for input in [
        "sasl-empty",
        "empty",
        "open",
        "sasl-response",
        "sasl-init DIGEST-MD5",
        "bytes 00 00 00 01 00 00 00 00",
    ] {
        check_new(
            sasl_config(true),
            &format!("sasl-header; {input}; wait 3000"),
            &format!("{offered}; > sasl-outcome Auth; * closed amqp:unauthorized-access"),
        );
    }
}

#[test]
fn header_behind_sasl_must_be_amqp() {
    check_new(
        sasl_config(true),
        "sasl-header; sasl-init PLAIN; !outcome ok; sasl-header; wait 3000",
        "> header 3; > sasl-mechanisms [\"PLAIN\", \"SCRAM-SHA-256\"]; * sasl-init PLAIN; > sasl-outcome Ok; > header 0
         * closed amqp:not-implemented",
    );
}

#[test]
fn client_without_sasl_pipelines() {
    check_client(
        config(),
        "",
        "!begin; header; open; begin remote=0",
        "> begin; = Some(0); * opened peer; * begun 0 ours",
    );
    check_client(config(), "!begin", "sasl-header; wait 3000", "* ended 0; * closed amqp:not-implemented");
    check_client(config(), "!begin", "!close", "> close; * ended 0; * closed");
}

#[test]
fn client_mechanisms() {
    let client = |sasl| Config { sasl, ..config() };
    let open = "> header 0; > open us; * sasl-outcome Ok; * opened peer";
    check_client(
        client(Sasl::Anonymous { trace: "anonymous".into() }),
        "",
        "sasl-header; sasl-mechanisms PLAIN ANONYMOUS; sasl-outcome ok; header; open",
        &format!("> sasl-init ANONYMOUS anonymous; {open}"),
    );
    check_client(
        client(Sasl::Plain { user: "u".into(), password: "p".into() }),
        "",
        "sasl-header; sasl-mechanisms PLAIN; sasl-outcome ok; header; open",
        &format!("> sasl-init PLAIN \\x00u\\x00p; {open}"),
    );
    check_client(
        client(Sasl::External { identity: "".into() }),
        "",
        "sasl-header; sasl-mechanisms EXTERNAL; sasl-outcome no; wait 3000",
        "> sasl-init EXTERNAL; * sasl-outcome Auth; * closed amqp:unauthorized-access",
    );
    check_client(
        client(Sasl::Plain { user: "u".into(), password: "p".into() }),
        "",
        "sasl-header; sasl-mechanisms ANONYMOUS; wait 3000",
        "* closed amqp:unauthorized-access",
    );
    check_client(
        client(Sasl::Caller),
        "",
        "sasl-header; sasl-mechanisms SCRAM-SHA-256; !init; sasl-challenge; !respond; sasl-outcome ok",
        "* sasl-mechanisms [\"SCRAM-SHA-256\"]; > sasl-init SCRAM-SHA-256 first; * sasl-challenge; > sasl-response
         > header 0; > open us; * sasl-outcome Ok",
    );
}

#[test]
fn a_server_that_challenges_for_ever_is_left() {
    let rounds = "sasl-challenge; !respond; ".repeat(9);
    let answered = "* sasl-challenge; > sasl-response; ".repeat(8);
    check_client(
        Config { sasl: Sasl::Caller, ..config() },
        "sasl-header; sasl-mechanisms SCRAM-SHA-256; !init",
        &format!("{rounds} wait 3000"),
        &format!("{answered} * closed amqp:unauthorized-access"),
    );
}

#[test]
fn nothing_is_read_before_the_open_is_answered() {
    check_new(
        config(),
        "!manual; header; open; begin; !accept-open",
        "> header 0; * opened peer; > open us; > begin remote=0; * begun 0",
    );
}

#[test]
fn refusing_an_open_takes_an_open() {
    // AMQP 1.0 §2.4.3.
    check_new(
        config(),
        "!manual; header; open; !close error=amqp:not-found; close",
        "> header 0; * opened peer; > open us; > close amqp:not-found; * closed",
    );
}

#[test]
fn closing() {
    // The peer closes without ending its session: links, then sessions, then the connection.
    check(
        "attach sender; close error=x:bye; transfer",
        "* attached 0 s=0 l; > attach h=0 receiver l
         * detached 0 ConnectionClosed; * ended 0; > close; * closed x:bye",
    );
    // We close: what still comes is passed over.
    check(
        "attach sender; !close; transfer id=0 tag=a; begin ch=3; close",
        "* attached 0 s=0 l; > attach h=0 receiver l; > close
         * detached 0 ConnectionClosed; * ended 0; * closed",
    );
    // The peer never answers.
    check("!close; wait 1999; wait 1", "> close; * ended 0; * closed");
    check("!close; bytes ff ff ff ff ff ff ff ff; wait 2000", "> close; * ended 0; * closed");
}

#[test]
fn a_lost_socket_ends_everything_silently() {
    check(
        "attach sender; !lost; transfer id=0 tag=a",
        "* attached 0 s=0 l; > attach h=0 receiver l; * detached 0 ConnectionClosed; * ended 0; * closed",
    );
}
