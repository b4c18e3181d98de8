"""Why a run may not learn: rules over a plain record of its figures, the same live and afterwards."""

from spreeze_zmq.broker.doctor.doctor import Doctor, findings_of
from spreeze_zmq.broker.doctor.finding import Finding
from spreeze_zmq.broker.doctor.plan_rules import findings_at_start

__all__ = ["Doctor", "Finding", "findings_at_start", "findings_of"]
