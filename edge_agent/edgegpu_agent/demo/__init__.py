"""The demo on a box: it places services on the box's own cards and checks them."""
