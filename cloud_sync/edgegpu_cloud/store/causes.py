"""Why a database cannot be used, as a few general causes with what to do: by the words of its driver; pure."""

from collections.abc import Callable
from dataclasses import dataclass

from edgegpu_cloud.phrases import Phrase, phrase


@dataclass(frozen=True, slots=True)
class DatabaseCause:
    """A general cause, and what to do about it."""

    what: Phrase
    remedy: Phrase


_Cause = Callable[[str], DatabaseCause]
"""Of the place of a database."""


def _plain(what: Phrase, remedy: Phrase) -> _Cause:
    return lambda _: DatabaseCause(what, remedy)


_LOGIN = phrase("it refuses the login")
_DAMAGED = _plain(phrase("it is damaged"), phrase("restore it from a backup (docs/cloud/backup.md says how)"))
_RACE = _plain(
    phrase("the same is there already"),
    phrase("somebody has written the same at the same time: look again, and try again"),
)
_DOWN = _plain(
    phrase("it cannot be reached"),
    phrase(
        "is PostgreSQL running there (systemctl status postgresql), and is `database.url` in controller.yaml right?"
    ),
)
_FULL = phrase("it is out of space")
_CAUSES: dict[str, _Cause] = {
    "not a database": _DAMAGED,
    "malformed": _DAMAGED,
    "is full": lambda place: DatabaseCause(_FULL, phrase("make room on the disk of %(place)s", place=place)),
    "locked": lambda place: DatabaseCause(
        phrase("it is locked"), phrase("another process has it open: fuser -v %(place)s", place=place)
    ),
    "UNIQUE": _RACE,
    "duplicate key": _RACE,
    "password authentication failed": _plain(
        _LOGIN,
        phrase("put the user's password into the file that `database.password_file` in controller.yaml names"),
    ),
    "no password supplied": _plain(
        _LOGIN, phrase("name a file with the user's password: `database.password_file` in controller.yaml")
    ),
    "No space left": _plain(_FULL, phrase("make room on the disk of its server")),
    "too many": _plain(
        phrase("it has no connection left"),
        phrase("raise max_connections in its server's postgresql.conf, or stop what else is connected"),
    ),
    "no pg_hba.conf entry": _plain(_LOGIN, phrase("allow this user and this machine in its server's pg_hba.conf")),
    "permission denied": _plain(
        phrase("its user may not use it"),
        phrase("make controller.yaml's user the database's owner: ALTER DATABASE … OWNER TO …"),
    ),
    'role "': _plain(_LOGIN, phrase("create the user: createuser --pwprompt USER, on the machine of the database")),
    'database "': _plain(
        phrase("it does not exist"), phrase("create the database: createdb --owner USER DATABASE, on its machine")
    ),
    "connection": _DOWN,
    "starting up": _DOWN,
    "shutting down": _DOWN,
}
"""The causes by words of the driver's: the first that fits."""

_OTHER = _plain(phrase("it refuses"), phrase("look at the disk, and at who has it open"))


def cause_of(words: str, place: str) -> DatabaseCause:
    """Return the general cause for the words of a database's driver.

    Args:
        words: one line of the driver.
        place: where the database is, for people.
    """
    return next((cause for part, cause in _CAUSES.items() if part in words), _OTHER)(place)
