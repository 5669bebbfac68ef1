"""Revision 0003: accounts, web sessions, API tokens, one-time links, failed sign-ins; the audit by person and kind."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables of people."""
    _accounts()
    _secrets()
    _addresses()
    op.create_index("ix_audit_by", "audit", ["by"])
    op.create_index("ix_audit_what", "audit", ["what"])


def _accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("password", sa.String(255), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("language", sa.String(8), nullable=False),
        sa.Column("created_at_s", sa.Float(53), nullable=False),
        sa.Column("password_at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_accounts"),
    )
    op.create_table(
        "web_sessions",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("created_at_s", sa.Float(53), nullable=False),
        sa.Column("used_at_s", sa.Float(53), nullable=False),
        sa.Column("ends_at_s", sa.Float(53), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("agent", sa.String(200), nullable=False),
        _of_account("web_sessions"),
        sa.PrimaryKeyConstraint("digest", name="pk_web_sessions"),
    )
    op.create_index("ix_web_sessions_account", "web_sessions", ["account"])


def _secrets() -> None:
    op.create_table(
        "api_tokens",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("created_at_s", sa.Float(53), nullable=False),
        sa.Column("expires_at_s", sa.Float(53), nullable=False),
        sa.Column("used_at_s", sa.Float(53), nullable=False),
        _of_account("api_tokens"),
        sa.PrimaryKeyConstraint("digest", name="pk_api_tokens"),
        sa.UniqueConstraint("account", "name", name="uq_api_tokens_account_name"),
    )
    op.create_table(
        "one_time_links",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("created_at_s", sa.Float(53), nullable=False),
        sa.Column("expires_at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_one_time_links"),
    )
    op.create_index("ix_one_time_links_account", "one_time_links", ["account"])


def _addresses() -> None:
    op.create_table(
        "sign_in_failures",
        sa.Column("key", sa.String(160), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("last_at_s", sa.Float(53), nullable=False),
        sa.Column("locked_until_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_sign_in_failures"),
    )
    op.create_index("ix_sign_in_failures_last_at_s", "sign_in_failures", ["last_at_s"])
    op.create_table(
        "known_addresses",
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        _of_account("known_addresses"),
        sa.PrimaryKeyConstraint("account", "address", name="pk_known_addresses"),
    )


def _of_account(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["account"], ["accounts.name"], name=f"fk_{table}_account_accounts")
