"""Values of the protocol for the properties: ids, topics, epochs."""

from hypothesis import strategies as st

from edgegpu_sync.ids import CommandId, DeviceId, OpName, command_id, device_id, op_name
from edgegpu_sync.topics import PLAIN_KINDS, CommandTopic, PlainTopic, ResultTopic, Topic

device_ids: st.SearchStrategy[DeviceId] = st.from_regex(r"[a-z0-9]{16}", fullmatch=True).map(device_id)
command_ids: st.SearchStrategy[CommandId] = st.from_regex(r"[a-z0-9][a-z0-9-]{7,39}", fullmatch=True).map(command_id)
op_names: st.SearchStrategy[OpName] = st.sampled_from(["k3s.restart", "sharing.install", "x", "a.b.c"]).map(op_name)
topics: st.SearchStrategy[Topic] = st.one_of(
    st.builds(PlainTopic, device_ids, st.sampled_from(list(PLAIN_KINDS.values()))),
    st.builds(CommandTopic, device_ids, op_names, command_ids),
    st.builds(ResultTopic, device_ids, command_ids),
)
