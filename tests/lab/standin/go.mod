// The modules that each version of Kubernetes needs are pinned in versions/: `go build -modfile=versions/1.37.mod`.
module edgegpu.test/standin

go 1.25.0
