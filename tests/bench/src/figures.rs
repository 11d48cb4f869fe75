//! Medians, other quantiles, ratios, and their text.

/// Returns the median.
#[must_use]
pub fn median(figures: &[f64]) -> Option<f64> {
    quantile(figures, 0.5)
}

/// Returns the figure at this share of all, in their order.
#[must_use]
pub fn quantile(figures: &[f64], share: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
    let place = (float(last) * share).round() as usize;
    sorted.get(place).copied()
}

/// Returns the median of the ratios within the rounds.
#[must_use]
pub fn ratio(ours: &[f64], other: &[f64]) -> Option<f64> {
    let ratios = ours.iter().zip(other).map(|(ours, other)| ours / other).filter(|ratio| ratio.is_finite());
    median(&ratios.collect::<Vec<_>>())
}

#[must_use]
#[allow(clippy::cast_precision_loss, reason = "not that many")]
pub const fn float(count: usize) -> f64 {
    count as f64
}

/// Describes a figure: the smaller it is, the more decimals.
#[must_use]
pub fn short(figure: f64) -> String {
    match figure.abs() {
        _ if figure.fract() == 0.0 => format!("{figure:.0}"),
        100.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// Describes a median, and the range if there is one.
#[must_use]
pub fn spread(figures: &[f64], text: impl Fn(f64) -> String) -> String {
    let [least, half, most] = [0.0, 0.5, 1.0].map(|share| quantile(figures, share).map(&text));
    match (least, half, most) {
        (Some(least), Some(half), Some(most)) if least != most => format!("{half} [{least} to {most}]"),
        (_, half, _) => half.unwrap_or_else(|| "–".to_owned()),
    }
}
