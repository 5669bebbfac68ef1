# Made by edgegpu_plugin.pb.regenerate from pb/proto: change it there.
"""Generated code: only the package above imports it."""
