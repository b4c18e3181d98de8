"""Another module's number, function and object, as an author's own modules hold them."""

COEFFICIENT = 0.0


class Schedule:
    """A number that its owner moves."""

    def __init__(self):
        self.value = 0.0


SCHEDULE = Schedule()


def coefficient():
    """The module's number."""
    return COEFFICIENT
