"""The kube-scheduler of a kubeadm cluster, which a static pod runs."""
