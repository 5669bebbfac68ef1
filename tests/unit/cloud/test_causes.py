"""A database's refusal is one of a few causes with what to do, on a Chinese page; in English its driver's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.speaking import phrasing
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from edgegpu_cloud.store.causes import cause_of
from edgegpu_cloud.store.store import ControllerStore, StoreError, explained, place_of

if TYPE_CHECKING:
    from pathlib import Path

CHINESE = phrasing("zh")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ('connection failed: connection to server at "10.0.0.5", port 5432 failed: Connection refused', "无法连接到它"),
        ("consuming input failed: server closed the connection unexpectedly", "无法连接到它"),
        ('FATAL: password authentication failed for user "edgegpu"', "数据库拒绝登录"),
        ('FATAL: no pg_hba.conf entry for host "10.0.0.9", user "edgegpu"', "数据库拒绝登录"),
        ('FATAL: role "edgegpu" does not exist', "数据库拒绝登录"),
        ('FATAL: database "edgegpu" does not exist', "数据库不存在"),
        ("could not extend file: No space left on device", "磁盘空间已用完"),
        ("database or disk is full", "磁盘空间已用完"),
        ("database is locked", "数据库被锁定"),
        ("file is not a database", "数据库已损坏"),
        ("FATAL: sorry, too many clients already", "没有剩余的连接"),
        ("words of another year", "数据库拒绝了操作"),
    ],
)
def test_each_cause_has_its_words(words: str, what: str) -> None:
    known = cause_of(words, "/var/lib/edgegpu")
    assert CHINESE.said(known.what) == what
    assert "<q" not in CHINESE.said(known.remedy)
    assert CHINESE.said(known.remedy) != phrasing("en").said(known.remedy)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "controller.db"
    file.write_bytes(b"no database at all" * 1_000)
    with pytest.raises(StoreError) as caught:
        ControllerStore.open(f"sqlite:///{file}")
    error = caught.value
    assert error.text == f"cannot use {file}: file is not a database"
    assert error.words == "file is not a database"
    assert error.remedy == "restore it from a backup (docs/cloud/backup.md says how)"
    assert CHINESE.refusal(error).startswith(f"无法使用 {file}\N{FULLWIDTH COLON}数据库已损坏")
    assert "<q" not in CHINESE.refusal(error)


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/full.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE a (b TEXT)"))
        connection.execute(text("PRAGMA max_page_count = 2"))
        with pytest.raises(SQLAlchemyError) as caught:
            connection.execute(text("INSERT INTO a VALUES (hex(zeroblob(100000)))"))
        connection.rollback()
    error = explained(caught.value, place_of(engine.url))
    assert "database or disk is full" in error.text
    assert CHINESE.said(error.text).endswith("磁盘空间已用完")
    engine.dispose()
