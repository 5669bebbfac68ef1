"""What a controller knows, kept in a database: SQLAlchemy is in here and nowhere else."""

from edgegpu_cloud.store.notes import SERVER_TIME
from edgegpu_cloud.store.records import (
    Alarm,
    AuditEntry,
    Box,
    BoxEvent,
    BoxState,
    Certificate,
    Enrolled,
    Heard,
    Json,
    Latest,
    Orphan,
    Request,
    RequestState,
    Revision,
    StoredCommand,
    Token,
)
from edgegpu_cloud.store.store import Moment, RecordError, Store, StoreError, Transaction

__all__ = [
    "SERVER_TIME",
    "Alarm",
    "AuditEntry",
    "Box",
    "BoxEvent",
    "BoxState",
    "Certificate",
    "Enrolled",
    "Heard",
    "Json",
    "Latest",
    "Moment",
    "Orphan",
    "RecordError",
    "Request",
    "RequestState",
    "Revision",
    "Store",
    "StoreError",
    "StoredCommand",
    "Token",
    "Transaction",
]
