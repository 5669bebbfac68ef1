"""The installer of edgegpu on a box: install and uninstall as transactions, which k3s and kubelet survive."""
