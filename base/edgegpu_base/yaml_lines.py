"""The lines of a YAML file's keys, by the nodes that its parser has made."""

from collections.abc import Sequence

import yaml


def line_of(root: yaml.Node | None, location: Sequence[object], *, otherwise: int) -> int:
    """Return the line of a key, from 1 on, or of the last part of its path that the file has.

    Args:
        root: the node of the whole file; None for an empty one.
        location: the path of the key: names of keys, and numbers of entries from 0 on.
        otherwise: the line where the file has no part of the path.
    """
    node, line = root, otherwise
    for step in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == step), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
    return line
