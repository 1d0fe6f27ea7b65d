module github.com/pawl-run/pawl/hack/kubernetes

go 1.26.0
