"""The rules of the guards, in the order in which they are asked."""

from ralph.verify.guards.cases import case_findings
from ralph.verify.guards.config import config_findings
from ralph.verify.guards.detected import detection_findings
from ralph.verify.guards.foreign import foreign_findings
from ralph.verify.guards.hardcoded import hardcoded_findings
from ralph.verify.guards.silenced import suppression_findings, untyped_findings
from ralph.verify.guards.swallowed import swallow_findings
from ralph.verify.guards.validation import validation_findings
from ralph.verify.guards.verifier import verifier_findings

RULES = (
    case_findings,
    foreign_findings,
    swallow_findings,
    hardcoded_findings,
    detection_findings,
    validation_findings,
    suppression_findings,
    untyped_findings,
    config_findings,
    verifier_findings,
)
