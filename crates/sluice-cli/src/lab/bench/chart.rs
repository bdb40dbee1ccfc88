//! The chart in the README: grants a second by callers, over loopback and against the model.

use std::path::Path;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::measure::Measure;
use super::world::Stage;
use crate::failure::Failure;

const SIZE: (u32, u32) = (960, 400);
/// Each system, with the position of its figures in pixels above its line. The first has none: they would
/// cover the others'.
const SYSTEMS: [(&str, RGBColor, Option<i32>); 3] = [
    ("lone update", RGBColor(230, 159, 0), None),
    ("reference", RGBColor(213, 94, 0), Some(-9)),
    ("sluice", RGBColor(0, 114, 178), Some(22)),
];

/// The end of the axis, so high that the legend has room above all lines.
const MOST_GRANTS: f64 = 1e7;

/// Callers and grants a second of one system.
type ChartLine = Vec<(f64, f64)>;

pub(crate) fn write(measures: &[Measure], file: &Path) -> Result<(), Failure> {
    let svg = draw(measures)?;
    std::fs::write(file, svg).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

fn draw(measures: &[Measure]) -> Result<String, Failure> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let panels = area.split_evenly((1, 2));
        let titles = [(Stage::Loopback, "over loopback"), (Stage::DynamoProfile, "DynamoDB modelled")];
        for (panel, (stage, title)) in panels.iter().zip(titles) {
            let lines = SYSTEMS.map(|(system, ..)| line(measures, stage, system));
            if lines.iter().all(Vec::is_empty) {
                return Err(Failure::new(
                    "the chart shows the scenario `ample`, which was not run: add --scenario ample",
                ));
            }
            draw_panel(panel, title, &lines).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(svg)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("the chart cannot be drawn: {error}"))
}

#[allow(clippy::cast_precision_loss)]
fn line(measures: &[Measure], stage: Stage, system: &str) -> ChartLine {
    let of = |measure: &&Measure| {
        measure.scenario == "ample" && measure.stage == stage && measure.system == system
    };
    measures
        .iter()
        .filter(of)
        .map(|measure| (measure.callers as f64, measure.grants_per_second.max(1.0)))
        .collect()
}

type Panel<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_panel(
    panel: &Panel<'_>,
    title: &str,
    lines: &[ChartLine; 3],
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>> {
    let mut chart = ChartBuilder::on(panel)
        .caption(format!("Grants a second from one bucket, {title}"), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(Callers, (1_f64..MOST_GRANTS).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc("callers")
        .x_labels(4)
        .y_labels(8)
        .y_label_formatter(&|rate| grouped(*rate))
        .label_style(("sans-serif", 16))
        .draw()?;
    for (line, (system, colour, above)) in lines.iter().zip(SYSTEMS) {
        let style = ShapeStyle::from(colour).stroke_width(3);
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style))?
            .label(system)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        chart.draw_series(line.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
        chart.draw_series(
            above.into_iter().flat_map(|above| line.iter().map(move |point| (above, point))).map(
                |(above, point)| {
                    let style = TextStyle::from(("sans-serif", 16)).color(&colour);
                    EmptyElement::at(*point) + Text::new(grouped(point.1), (-14, -above), style)
                },
            ),
        )?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK.mix(0.2))
        .background_style(WHITE)
        .label_font(("sans-serif", 16))
        .draw()
}

fn grouped(rate: f64) -> String {
    match rate {
        rate if rate >= 999_500.0 => format!("{:.0} M", rate / 1e6),
        rate if rate >= 9_950.0 => format!("{:.0} k", rate / 1e3),
        // 1 k on the axis, not 1.0 k.
        rate if rate > 1_000.0 => format!("{:.1} k", rate / 1e3),
        rate if rate >= 999.5 => "1 k".to_owned(),
        rate => format!("{rate:.0}"),
    }
}

/// An axis from 1 to 512, logarithmic, with a mark at each case.
#[derive(Clone, Copy)]
struct Callers;

impl Ranged for Callers {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[allow(clippy::cast_possible_truncation)]
    fn map(&self, callers: &f64, (from, to): (i32, i32)) -> i32 {
        // Part of a step of eight stays free at either end.
        let at = (callers.log(8.0) + 0.35) / 3.7;
        from + (f64::from(to - from) * at).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        vec![1.0, 8.0, 64.0, 512.0]
    }

    fn range(&self) -> std::ops::Range<f64> {
        1.0..512.0
    }
}

impl ValueFormatter<f64> for Callers {
    fn format(callers: &f64) -> String {
        format!("{callers:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::bench::measure::{Case, Used};

    fn measure(stage: Stage, callers: usize, system: &'static str, grants: u64) -> Measure {
        let mut used = Used { seconds: 1.0, ..Used::default() };
        used.tally.grants = grants;
        used.measure(stage, Case { scenario: "ample", name: "test", callers }, system)
    }

    #[test]
    fn the_chart_shows_what_was_measured() {
        let measures: Vec<Measure> = [Stage::Loopback, Stage::DynamoProfile]
            .into_iter()
            .flat_map(|stage| {
                [(1, 215), (64, 84_296)].map(|(callers, grants)| measure(stage, callers, "sluice", grants))
            })
            .collect();
        let svg = draw(&measures).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["215", "84 k", "sluice", "reference", "over loopback", "DynamoDB modelled", "512"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn a_chart_of_nothing_says_what_is_missing() {
        assert!(draw(&[]).unwrap_err().to_string().contains("--scenario ample"));
    }
}
