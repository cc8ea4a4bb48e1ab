//! How are latencies drawn? As curves over percentiles, both axes logarithmic, in an SVG that needs nothing else.
//!
//! `x = log10(1 / (1 - p))`, so that each nine is as wide as the one before. Colours are told apart on paper by their dashes.

use std::fmt::Write;

use crate::sample::Latencies;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 78.0;
/// Points of a curve.
const POINTS: usize = 240;
/// Nines that are drawn: up to 99.999 %.
const NINES: f64 = 5.0;
const COLOURS: [&str; 6] = ["#0b5fa5", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#374151"];
const DASHES: [&str; 6] = ["none", "7 4", "2 3", "9 3 2 3", "12 4", "4 2"];

/// One curve.
pub struct Curve<'a> {
    pub name: &'a str,
    pub latencies: &'a Latencies,
}

/// A chart of all curves that have anything. `None`: there is none.
pub fn percentiles(title: &str, curves: &[Curve<'_>]) -> Option<String> {
    let drawn: Vec<&Curve<'_>> = curves.iter().filter(|curve| !curve.latencies.is_empty()).collect();
    let ends = drawn.iter().flat_map(|curve| [0.0, 100.0].map(|at| curve.latencies.percentile_us(at)));
    let (mut low, mut high) = (f64::MAX, 0.0_f64);
    for us in ends.flatten() {
        (low, high) = (low.min(us), high.max(us));
    }
    if drawn.is_empty() {
        return None;
    }
    let (low, high) = (low.max(0.01).log10().floor(), high.max(0.1).log10().ceil());
    let high = high.max(low + 1.0);
    let mut svg = head(title, WIDTH, HEIGHT);
    grid(&mut svg, low, high);
    for (index, curve) in drawn.iter().enumerate() {
        let (colour, dash) = (COLOURS[index % COLOURS.len()], DASHES[index % DASHES.len()]);
        let points: Vec<String> = (0..=POINTS)
            .filter_map(|step| {
                let nines = NINES * step as f64 / POINTS as f64;
                // A curve ends where it has no message of its own any more.
                let share = 10_f64.powf(-nines);
                let is_there = share * curve.latencies.count() as f64 >= 1.0;
                let us = curve.latencies.percentile_us(100.0 * (1.0 - share)).filter(|_| is_there)?;
                Some(format!("{:.1},{:.1}", x(nines), y(us.max(0.01).log10(), low, high)))
            })
            .collect();
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2.2" stroke-dasharray="{dash}"/>"#,
            points.join(" ")
        );
        legend(&mut svg, index, curve.name, colour, dash);
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn legend(svg: &mut String, index: usize, name: &str, colour: &str, dash: &str) {
    let (left, top) = (LEFT + 170.0 * (index % 4) as f64, HEIGHT - 24.0 + 16.0 * (index / 4) as f64);
    let _ = writeln!(
        svg,
        r#"<line x1="{left}" y1="{top}" x2="{}" y2="{top}" stroke="{colour}" stroke-width="2.2" stroke-dasharray="{dash}"/><text x="{}" y="{}">{}</text>"#,
        left + 30.0,
        left + 36.0,
        top + 4.0,
        escape(name)
    );
}

/// Begins an SVG with a title.
fn head(title: &str, width: f64, height: f64) -> String {
    let (title, middle) = (escape(title), width / 2.0);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#1f2937">
<title>{title}</title><rect width="{width}" height="{height}" fill="#fff"/>
<text x="{middle}" y="24" text-anchor="middle" font-size="15" font-weight="600">{title}</text>
"##
    )
}

fn grid(svg: &mut String, low: f64, high: f64) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for power in low as i32..=high as i32 {
        let at = y(f64::from(power), low, high);
        let _ = writeln!(
            svg,
            r##"<line x1="{LEFT}" y1="{at:.1}" x2="{right}" y2="{at:.1}" stroke="#d1d5db"/><text x="{}" y="{:.1}" text-anchor="end">{}</text>"##,
            LEFT - 6.0,
            at + 4.0,
            show_power(power)
        );
    }
    for (nines, name) in [
        (0.0, "0 %"),
        (0.301, "50 %"),
        (1.0, "90 %"),
        (2.0, "99 %"),
        (3.0, "99.9 %"),
        (4.0, "99.99 %"),
        (5.0, "99.999 %"),
    ] {
        let at = x(nines);
        let anchor = if nines >= NINES { "end" } else { "middle" };
        let _ = writeln!(
            svg,
            r##"<line x1="{at:.1}" y1="{TOP}" x2="{at:.1}" y2="{bottom}" stroke="#e5e7eb"/><text x="{at:.1}" y="{}" text-anchor="{anchor}">{name}</text>"##,
            bottom + 17.0
        );
    }
    let _ = writeln!(
        svg,
        r#"<text x="{}" y="{}" text-anchor="middle">of messages were at least as quick</text>"#,
        f64::midpoint(LEFT, right),
        bottom + 36.0
    );
}

fn x(nines: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * nines / NINES
}

fn y(power: f64, low: f64, high: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (power - low) / (high - low)
}

/// Of microseconds.
fn show_power(power: i32) -> String {
    let value = 10_f64.powi(power);
    match power {
        6.. => format!("{} s", value / 1e6),
        3..6 => format!("{} ms", value / 1e3),
        _ => format!("{value} us"),
    }
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_drawn_as_far_as_they_have_messages() {
        let (mut one, mut many) = (Latencies::default(), Latencies::default());
        (1..=10).for_each(|us| one.record(us * 1000));
        (1..=100_000).for_each(|ns| many.record(ns * 10));
        let curves = [Curve { name: "a<b", latencies: &one }, Curve { name: "many", latencies: &many }];
        let svg = percentiles("t & t", &curves).unwrap();
        assert!(svg.contains("a&lt;b") && svg.contains("t &amp; t") && !svg.contains("NaN"), "{svg}");
        let points: Vec<usize> = svg
            .lines()
            .filter_map(|line| line.strip_prefix("<polyline points=\""))
            .map(|line| line.split('"').next().unwrap().split(' ').count())
            .collect();
        // Ten messages reach to 90 %, which is one of five nines.
        assert_eq!(points, [POINTS / 5 + 1, POINTS + 1]);
    }

    #[test]
    fn nothing_is_no_chart() {
        assert!(percentiles("t", &[Curve { name: "none", latencies: &Latencies::default() }]).is_none());
    }
}
