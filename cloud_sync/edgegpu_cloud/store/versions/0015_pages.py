"""Revision 0015: indexes by which enrolment and the boxes of rollouts are paged, and enrolment is purged."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NEW = (
    ("tokens_in_order", "tokens", ["at_s", "digest"]),
    ("tokens_by_end", "tokens", ["expires_at_s"]),
    ("requests_of_token", "requests", ["token", "at_s", "id"]),
    ("requests_of_state", "requests", ["state", "at_s", "id"]),
    ("ix_certificates_not_after_s", "certificates", ["not_after_s"]),
    ("ix_certificates_revoked_at_s", "certificates", ["revoked_at_s"]),
    ("rollout_boxes_in_order", "rollout_boxes", ["rollout", "position"]),
)
_OLD = (("ix_requests_token", "requests"), ("ix_requests_state", "requests"))


def upgrade() -> None:
    """Create the new indexes; each of the old ones is the beginning of a new one."""
    for name, table, columns in _NEW:
        op.create_index(name, table, columns)
    for name, table in _OLD:
        op.drop_index(name, table_name=table)
