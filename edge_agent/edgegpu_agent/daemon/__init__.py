"""The process edgegpu-agent: always there, finishes what an interrupted change of this machine left behind."""
