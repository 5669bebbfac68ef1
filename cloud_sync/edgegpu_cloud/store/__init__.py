"""The controller's store, a database. No other package uses SQLAlchemy."""

from edgegpu_cloud.store.notes import SERVER_TIME
from edgegpu_cloud.store.records import (
    Alarm,
    AuditEntry,
    BoxEvent,
    BoxRecord,
    BoxState,
    CertificateRecord,
    CommandHistoryLine,
    EnrolledBox,
    EnrolmentAttempt,
    Json,
    Latest,
    Orphan,
    RequestState,
    Revision,
    StoredCommand,
    Token,
)
from edgegpu_cloud.store.store import CommitMoment, ControllerStore, RecordError, StoreError, Transaction

__all__ = [
    "SERVER_TIME",
    "Alarm",
    "AuditEntry",
    "BoxEvent",
    "BoxRecord",
    "BoxState",
    "CertificateRecord",
    "CommandHistoryLine",
    "CommitMoment",
    "ControllerStore",
    "EnrolledBox",
    "EnrolmentAttempt",
    "Json",
    "Latest",
    "Orphan",
    "RecordError",
    "RequestState",
    "Revision",
    "StoreError",
    "StoredCommand",
    "Token",
    "Transaction",
]
