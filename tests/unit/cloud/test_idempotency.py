"""Requests under a key, on both databases: made once, whoever dies, hangs or comes at the same time."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kits.stores import open_store

from edgegpu_cloud.errors import CloudError, ConflictError
from edgegpu_cloud.fleet.audit.entries import NOTHING, Author, audit
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.idempotency import (
    LASTS_S,
    TAKEN_OVER_S,
    IdempotentRequests,
    InFlightError,
    KeyReusedError,
    RepeatableRequest,
    StoredAnswer,
)
from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.records import AuditFilter
from edgegpu_cloud.store.store import CommitMoment

KEY = "6f1c0f4e-4a5b-4e8e-9c0d-000000000001"
ASKED = RepeatableRequest(by="otto", key=KEY, digest="1" * 64)


class KilledError(BaseException):
    """The process ends here."""


class Site:
    """A store, the requests under a key in it, and a change that counts itself in the audit."""

    def __init__(self, url: str) -> None:
        self.now_s, self.dies_at = 1_000.0, -1
        self.url, self.commits = url, 0
        self.store = open_store(url, self.watch)
        self.requests = IdempotentRequests(self.store, clock=lambda: self.now_s)

    def watch(self, moment: CommitMoment) -> None:
        self.commits += moment is CommitMoment.BEFORE_COMMIT
        if moment is CommitMoment.AFTER_COMMIT and self.commits == self.dies_at:
            raise KilledError

    def change(self, first: Callable[[], None] = lambda: None) -> Callable[[], StoredAnswer]:
        """Return a change that calls `first` before it writes."""

        def make() -> StoredAnswer:
            first()
            with self.store.write() as tx:
                audit(tx, Author("otto", self.now_s), AuditKind.TOKEN_MADE, NOTHING)
            return StoredAnswer(201, f'{{"number": {self.made()}}}')

        return make

    def made(self) -> int:
        with self.store.read() as tx:
            return len(tx.notes.audit_page(AuditFilter(what="token.made"), limit=50, scope=()))


@pytest.fixture
def site(store_url: str) -> Iterator[Site]:
    site = Site(store_url)
    yield site
    site.store.close()


def test_a_change_is_made_once_and_answered_again(site: Site) -> None:
    first = site.requests.once(ASKED, site.change())
    assert first == (StoredAnswer(201, '{"number": 1}'), False)
    assert site.requests.once(ASKED, site.change()) == (first[0], True)
    assert site.made() == 1


def test_another_request_under_the_key_is_refused_and_another_person_has_keys_of_their_own(site: Site) -> None:
    site.requests.once(ASKED, site.change())
    with pytest.raises(KeyReusedError):
        site.requests.once(RepeatableRequest(by="otto", key=KEY, digest="2" * 64), site.change())
    assert site.requests.once(RepeatableRequest(by="anna", key=KEY, digest="2" * 64), site.change())[1] is False
    assert site.made() == 2


def test_a_key_is_a_new_one_after_a_day(site: Site) -> None:
    site.requests.once(ASKED, site.change())
    site.now_s += LASTS_S - 1
    assert site.requests.once(ASKED, site.change())[1] is True
    site.now_s += 2
    assert site.requests.once(ASKED, site.change())[1] is False
    assert site.made() == 2


def test_a_change_that_was_refused_leaves_the_key_free(site: Site) -> None:
    def refuse() -> None:
        raise CloudError("cannot", remedy="do it otherwise")

    with pytest.raises(CloudError, match="cannot"):
        site.requests.once(ASKED, site.change(refuse))
    assert site.requests.once(ASKED, site.change())[1] is False


def test_of_two_at_the_same_time_one_is_told_that_the_other_is_at_it(site: Site) -> None:
    begun, go_on, answers = threading.Event(), threading.Event(), list[tuple[StoredAnswer, bool]]()

    def wait() -> None:
        begun.set()
        assert go_on.wait(20)

    thread = threading.Thread(target=lambda: answers.append(site.requests.once(ASKED, site.change(wait))))
    thread.start()
    assert begun.wait(20)
    with pytest.raises(InFlightError):
        site.requests.once(ASKED, site.change())
    go_on.set()
    thread.join(20)
    assert (answers[0][1], site.made()) == (False, 1)


def test_who_dies_after_the_change_and_before_its_answer_has_made_it_once(site: Site) -> None:
    site.dies_at = 2  # the first commit is that of the key
    with pytest.raises(KilledError):
        site.requests.once(ASKED, site.change())
    with pytest.raises(InFlightError):
        site.requests.once(ASKED, site.change())
    site.now_s += TAKEN_OVER_S
    with pytest.raises(ConflictError, match="its answer is lost"):
        site.requests.once(ASKED, site.change())
    assert site.made() == 1


def test_who_hangs_before_the_change_makes_nothing_once_another_has(site: Site) -> None:
    def hang() -> None:
        site.now_s += TAKEN_OVER_S
        with ThreadPoolExecutor(1) as other:
            assert other.submit(site.requests.once, ASKED, site.change()).result(20)[1] is False

    with pytest.raises(InFlightError):
        site.requests.once(ASKED, site.change(hang))
    assert site.made() == 1
    assert site.requests.once(ASKED, site.change())[1] is True


def test_the_store_has_neither_the_key_nor_what_was_answered(site: Site) -> None:
    site.requests.once(ASKED, lambda: StoredAnswer(201, '{"token": "a-secret"}'))
    engine = open_engine(site.url)
    with engine.connect() as connection:
        (row,) = connection.exec_driver_sql("SELECT * FROM idempotency_keys")
    engine.dispose()
    assert KEY not in repr(row)
    assert "a-secret" not in repr(row)
    assert site.requests.once(ASKED, site.change())[0].body == '{"token": "a-secret"}'
