"""How often something happens, as a person reads it."""


def rate(value: float) -> str:
    """A rate per second, with one digit after the point below 100, and three that count below 1."""
    if 0 < value < 1:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
