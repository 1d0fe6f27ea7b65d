// Package controlplane runs a real Kubernetes control plane on loopback: etcd,
// kube-apiserver and kube-controller-manager, without a node. Tests, the demo and the
// controlplane command all start it through this package.
//
// What is real: storage, admission policies, RBAC, service accounts and their tokens,
// garbage collection, namespace deletion, quotas, Jobs up to the pods they create. What is
// not: nothing schedules or runs a pod, so a test that needs one finished writes its status.
//
//	plane, err := controlplane.Start(ctx, controlplane.Options{Install: []string{controlplane.DefaultConfig()}})
//	if err != nil { ... }
//	defer plane.Stop()
//	out, err := plane.Kubectl(ctx, "get", "agentruns")
//
// The three programs are children of the calling process and end with it, also when it is
// killed: a watchdog, which holds one end of a pipe, ends them once the other end closes.
package controlplane
