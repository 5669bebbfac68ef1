"""The kinds of changes in the audit; pure."""

from enum import StrEnum


class AuditKind(StrEnum):
    """What was changed. The part before the dot is a kind of several; stored entries may have names of other versions.

    `tests/unit/cloud/test_audit.py` makes an entry of each, the console's page Audit names each.
    """

    ALARM_SEEN = "alarm.seen"
    ALERT_SILENCED = "alert.silenced"
    BOX_BLOCKED = "box.blocked"
    BOX_CLUSTER = "box.cluster"
    BOX_CONFIRMED = "box.confirmed"
    BOX_ENROLLED = "box.enrolled"
    BOX_FORGOTTEN = "box.forgotten"
    BOX_LABELS = "box.labels"
    BOX_RENAMED = "box.renamed"
    BOX_REVOKED = "box.revoked"
    BOX_SPEC = "box.spec"
    BOX_UNBLOCKED = "box.unblocked"
    COMMAND = "command"
    COMMAND_CANCELLED = "command.cancelled"
    CONTROLLER_ADDED = "controller.added"
    ENROLMENT_APPROVED = "enrolment.approved"
    ENROLMENT_REFUSED = "enrolment.refused"
    KEYS_ADDED = "keys.added"
    OPERATION = "operation"
    OPERATION_CANCELLED = "operation.cancelled"
    PERSON_ADDED = "person.added"
    PERSON_DISABLED = "person.disabled"
    PERSON_ENABLED = "person.enabled"
    PERSON_LANGUAGE = "person.language"
    PERSON_LINK = "person.link"
    PERSON_PASSWORD = "person.password"  # noqa: S105  (the name of a kind)
    PERSON_REMOVED = "person.removed"
    PERSON_ROLE = "person.role"
    PERSON_SCOPE = "person.scope"
    PERSON_SESSION_REVOKED = "person.session_revoked"
    PERSON_TOKEN_ADDED = "person.token_added"  # noqa: S105  (the name of a kind)
    PERSON_TOKEN_REVOKED = "person.token_revoked"  # noqa: S105  (the name of a kind)
    ROLLOUT_ABORTED = "rollout.aborted"
    ROLLOUT_PAUSED = "rollout.paused"
    ROLLOUT_RESUMED = "rollout.resumed"
    ROLLOUT_STARTED = "rollout.started"
    SIGN_IN = "sign_in"
    SIGN_IN_REFUSED = "sign_in.refused"
    SIGN_OUT = "sign_out"
    STORE_MIGRATED = "store.migrated"
    STORE_RESTORED = "store.restored"
    TOKEN_MADE = "token.made"  # noqa: S105  (the name of a kind)
    TOKEN_TAKEN_BACK = "token.taken_back"  # noqa: S105  (the name of a kind)
    WEBHOOK_ADDED = "webhook.added"
    WEBHOOK_DISABLED = "webhook.disabled"
    WEBHOOK_ENABLED = "webhook.enabled"
    WEBHOOK_REMOVED = "webhook.removed"
