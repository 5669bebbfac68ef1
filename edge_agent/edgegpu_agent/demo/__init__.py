"""The demo: services placed on cards and checked, on simulated cards or on this box's own."""
