"""A picture of gaps: for each side a dot for each seed, the mean and its interval, over the band of the margin."""
WIDTH, LEFT, RIGHT, TOP, ROW = 860, 150, 30, 70, 44
INK, FAINT, BAND = "#1a1a1a", "#6b6b6b", "#e4ecf5"


def picture(gaps, margin, about):
    """`gaps`: {side: (mean, half of the interval, [gap of each seed])} in percent."""
    reach = max([margin, *(abs(value) for mean, half, each in gaps.values() for value in (mean - half, mean + half, *each))]) * 1.08
    height = TOP + ROW * len(gaps) + 60

    def x(value):
        return LEFT + (WIDTH - LEFT - RIGHT) * (value + reach) / (2 * reach)

    bottom = TOP + ROW * len(gaps)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="14" fill="{INK}" '
             f'role="img"><title>Gap of the validation loss to BF16, {about}</title>', f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
             f'<text x="{LEFT}" y="24" font-size="16">Gap of the validation loss to BF16 in percent, {about} (right: worse)</text>',
             f'<text x="{LEFT}" y="46" fill="{FAINT}">dots: seeds; bar: mean and 95% interval; band: ±{margin:g}%</text>',
             f'<rect x="{x(-margin):.1f}" y="{TOP}" width="{x(margin) - x(-margin):.1f}" height="{bottom - TOP}" fill="{BAND}"/>',
             f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{TOP}" y2="{bottom}" stroke="{FAINT}"/>']
    for number, (side, (mean, half, each)) in enumerate(gaps.items()):
        y = TOP + ROW * (number + 0.5)
        parts.append(f'<text x="{LEFT - 12}" y="{y + 5:.1f}" text-anchor="end">{side}</text>')
        parts += [f'<circle cx="{x(gap):.1f}" cy="{y + 10:.1f}" r="2.5" fill="none" stroke="{FAINT}"/>' for gap in each]
        parts.append(f'<line x1="{x(mean - half):.1f}" x2="{x(mean + half):.1f}" y1="{y - 4:.1f}" y2="{y - 4:.1f}" stroke="{INK}" stroke-width="3"/>')
        parts.append(f'<rect x="{x(mean) - 4:.1f}" y="{y - 8:.1f}" width="8" height="8" fill="{INK}"/>')
        parts.append(f'<text x="{x(mean):.1f}" y="{y - 12:.1f}" text-anchor="middle" font-size="12">{mean:+.2f}%</text>')
    for value in (-reach / 1.08, -margin, 0, margin, reach / 1.08):
        parts.append(f'<text x="{x(value):.1f}" y="{bottom + 22}" text-anchor="middle" fill="{FAINT}">{value:+.2f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
