"""The number of boxes that a person types before many are changed."""

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import phrase


def check_typed(typed: str, boxes: int) -> None:
    """Refuse a change of many boxes where another number was typed than the page has shown.

    Raises:
        CloudError: it was.
    """
    if typed.strip() != str(boxes):
        raise CloudError(
            phrase(
                "cannot change many boxes: the number of boxes is %(num)s, and %(typed)r was typed",
                num=boxes,
                typed=typed,
            ),
            remedy=phrase("type the number of boxes, and press the button again"),
        )
