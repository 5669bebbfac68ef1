"""The copy of a SQLite store that is in use, as it was at one moment."""

from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError

from edgegpu_cloud.errors import CloudError


def copy_file(source: Path, target: Path) -> None:
    """Write a whole, consistent copy of a store; others may write to it meanwhile.

    Args:
        source: the store's file.
        target: must not exist.

    Raises:
        CloudError: the store cannot be read, or the copy cannot be written.
    """
    engine = create_engine(f"sqlite:///{source}", isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("VACUUM INTO ?", (str(target),))
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).partition("\n")[0]
        raise CloudError(f"cannot copy {source}: {cause}", remedy="make room there") from error
    finally:
        engine.dispose()
