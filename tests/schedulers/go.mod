// The modules of each version are pinned in versions/: `go build -modfile=versions/1.20.mod k8s.io/kubernetes/cmd/kube-scheduler`.
module edgegpu.test/schedulers

go 1.21
