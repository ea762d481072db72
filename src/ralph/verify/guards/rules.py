"""The rules of the guards, in the order in which they are asked."""

from ralph.verify.guards.cases import case_findings
from ralph.verify.guards.detects_testing import detection_findings
from ralph.verify.guards.hardcoded import hardcoded_findings
from ralph.verify.guards.loosened_settings import config_findings
from ralph.verify.guards.other_languages import foreign_findings
from ralph.verify.guards.suppressions import suppression_findings, untyped_findings
from ralph.verify.guards.swallowed_errors import swallow_findings
from ralph.verify.guards.validation import validation_findings
from ralph.verify.guards.weakened_checks import verifier_findings

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
