//! What does a comparison look like? One page with everything in it, for a telephone, a screen and paper.

use std::fmt::Write;

use crate::chart::{Curve, escape, percentiles};
use crate::compare::{Comparison, Part};
use crate::quantity::show_size;
use crate::report::{OURS, Row, show_count, show_factor, show_us};

const STYLE: &str = "
:root{color-scheme:light}body{font:15px/1.5 system-ui,sans-serif;color:#1f2937;margin:0 auto;max-width:60rem;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem;border-top:1px solid #d1d5db;padding-top:1rem}
code{background:#f3f4f6;padding:.1em .3em;border-radius:.2em}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.86rem}
th,td{padding:.3rem .5rem;border-bottom:1px solid #e5e7eb;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{border-bottom:2px solid #9ca3af}
tr.ours{font-weight:600}.void{color:#b91c1c;white-space:normal;text-align:left}
figure{margin:1rem 0}svg{width:100%;height:auto;max-width:48rem}.bar{fill:#0b5fa5}.note{color:#4b5563;font-size:.86rem}
@media print{body{max-width:none;font-size:11px;padding:0}h2{break-after:avoid}figure,tr{break-inside:avoid}.scroll{overflow:visible}
th,td{padding:.15rem .3rem;white-space:normal}}";

pub(crate) fn render(comparison: &Comparison) -> String {
    let title = escape(&comparison.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n\
         <p class=\"note\">In each round an echo, our broker and each other one follow one another on the same core, by the same \
         generator on another core. Ratios are taken within a round; told are their median and range. A round whose echo is more \
         than 15&nbsp;% off the median echo is dropped. A row where a message was lost, doubled or changed is void.</p>\n<ul>\n"
    );
    for (name, version, confirm) in &comparison.peers {
        let _ = writeln!(
            page,
            "<li><b>{}</b>: {}. A confirm of a durable message means: {}.</li>",
            escape(name),
            escape(version),
            escape(confirm)
        );
    }
    for (name, reason) in &comparison.skipped {
        let _ = writeln!(page, "<li><b>{}</b> is skipped: {}</li>", escape(name), escape(reason));
    }
    page.push_str("</ul>\n");
    comparison.parts.iter().for_each(|part| section(&mut page, part));
    page.push_str("</body></html>\n");
    page
}

fn section(page: &mut String, part: &Part) {
    let _ = writeln!(page, "<h2><code>{}</code></h2>", escape(&part.words));
    if let Some(reason) = &part.failed {
        let _ = writeln!(page, "<p class=\"void\">Not measured: {}</p>", escape(reason));
        return;
    }
    page.push_str("<div class=\"scroll\"><table><thead><tr>");
    for head in [
        "broker",
        "case",
        "per s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "ours, rate in its",
        "ours, p50 in its",
        "p50 in echoes",
        "rounds",
        "sent",
        "delivered",
        "lost",
        "doubled",
    ] {
        let _ = write!(page, "<th>{head}</th>");
    }
    page.push_str("</tr></thead><tbody>\n");
    part.rows.iter().for_each(|row| line(page, row));
    page.push_str("</tbody></table></div>\n");
    // Ours begins each case; others of the same case follow it.
    let starts: Vec<usize> = (0..part.rows.len()).filter(|&index| part.rows[index].broker == OURS).collect();
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(part.rows.len());
        figure(page, &part.rows[start..end]);
    }
}

fn line(page: &mut String, row: &Row) {
    let class = if row.broker == OURS { " class=\"ours\"" } else { "" };
    let _ = write!(page, "<tr{class}><td>{}</td><td>{}</td>", escape(&row.broker), escape(&case(row)));
    if let Some(reason) = &row.void {
        let _ = writeln!(page, "<td class=\"void\" colspan=\"12\">void: {}</td></tr>", escape(reason));
        return;
    }
    let ratio = |median: Option<f64>, min: Option<f64>, max: Option<f64>| match (median, min, max) {
        (Some(median), Some(min), Some(max)) => {
            format!("{} ({}–{})", show_factor(median), show_factor(min), show_factor(max))
        }
        (_, _, _) => "–".to_owned(),
    };
    let rounds = match row.rounds_dropped {
        0 => row.rounds.to_string(),
        dropped => format!("{} of {}", row.rounds - dropped, row.rounds),
    };
    let cells = [
        show_count(row.rate_per_s),
        show_us(row.p50_us),
        show_us(row.p99_us),
        show_us(row.p999_us),
        ratio(row.ratio_peer, row.ratio_peer_min, row.ratio_peer_max),
        ratio(row.ratio_peer_p50, row.ratio_peer_p50_min, row.ratio_peer_p50_max),
        ratio(row.ratio_echo, row.ratio_echo_min, row.ratio_echo_max),
        rounds,
        row.sent.to_string(),
        row.delivered.to_string(),
        row.lost.to_string(),
        row.duplicated.to_string(),
    ];
    cells.iter().for_each(|cell| _ = write!(page, "<td>{cell}</td>"));
    page.push_str("</tr>\n");
}

fn case(row: &Row) -> String {
    let mut text = format!("{} {} {}", show_size(row.size), row.settle, row.protocol);
    if row.workload == "durable" {
        let _ = write!(text, " depth {} × {} queues", row.window, row.queues);
    }
    for rate in &row.rates_asked {
        let _ = write!(text, " {rate}/s");
    }
    if row.count > 0 && row.rates_asked.is_empty() {
        let _ = write!(text, " × {}", row.count);
    }
    text.push_str(&row.churn.map(|churn| format!(" {churn}")).unwrap_or_default());
    text
}

fn figure(page: &mut String, rows: &[Row]) {
    let Some(ours) = rows.first() else { return };
    let mut curves: Vec<Curve<'_>> = rows
        .iter()
        .filter(|row| row.void.is_none())
        .map(|row| Curve { name: &row.broker, latencies: &row.latencies })
        .collect();
    curves.push(Curve { name: "echo", latencies: &ours.echo_latencies });
    if let Some(svg) = percentiles(&format!("{} {}", ours.workload, case(ours)), &curves) {
        let _ = writeln!(page, "<figure>{svg}</figure>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Latencies;

    fn row(broker: &str, void: Option<&str>) -> Row {
        let mut latencies = Latencies::default();
        (1..1000).for_each(|us| latencies.record(us * 1000));
        Row {
            workload: "pingpong",
            broker: broker.to_owned(),
            size: 100,
            rate_per_s: Some(1e6),
            ratio_peer: (broker != OURS).then_some(2.5),
            ratio_peer_min: Some(2.0),
            ratio_peer_max: Some(3.0),
            rounds: 7,
            rounds_dropped: 2,
            void: void.map(str::to_owned),
            latencies,
            ..Row::default()
        }
    }

    #[test]
    fn a_page_has_everything_in_it_and_escapes_what_it_shows() {
        let part = |rows, failed| Part { words: "pingpong --size 100".to_owned(), rows, failed };
        let page = render(&Comparison {
            title: "a < b".to_owned(),
            parts: vec![
                part(vec![row(OURS, None), row("other", None)], None),
                part(vec![row(OURS, Some("of 5 messages sent: 1 lost"))], None),
                part(Vec::new(), Some("broker <away>".to_owned())),
            ],
            peers: vec![("other".to_owned(), "Other 1".to_owned(), "synced".to_owned())],
            skipped: vec![("third".to_owned(), "no java & no mvn".to_owned())],
        });
        for expect in [
            "<h1>a &lt; b</h1>",
            "2.50 (2.00–3.00)",
            "5 of 7",
            "void: of 5 messages sent: 1 lost",
            "broker &lt;away&gt;",
            "no java &amp; no mvn",
            "Other 1",
            "1,000,000",
            "@media print",
            "viewport",
        ] {
            assert!(page.contains(expect), "{expect} is not in {page}");
        }
        assert_eq!(page.matches("<svg").count(), 1, "a void row has no curve");
        assert!(
            !page.contains("http://")
                || page.matches("http://").count() == page.matches("xmlns=\"http://").count()
        );
    }
}
