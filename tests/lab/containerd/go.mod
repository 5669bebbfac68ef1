// The modules that each version of containerd needs are pinned in versions/: `go build -modfile=versions/2.4.mod`.
module edgegpu.test/containerd

go 1.24.0
