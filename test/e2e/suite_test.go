// Package e2e tries what only a real node can show, on the cluster that KUBECONFIG names:
// Jobs whose pods a kubelet runs, and an operator that is killed between every two writes
// while they do. `make e2e` packs the pods' image and runs it; see docs/jobs.md.
//
// It installs Pawl's definitions, roles and admission policies there, runs the operator as a
// process on this machine, and leaves namespaces behind that begin with e2e-.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/controlplane"
	"github.com/pawl-run/pawl/test/environment"
	"github.com/pawl-run/pawl/test/runs"
)

var (
	// image is what the pods run.
	image   = os.Getenv("PAWL_E2E_IMAGE")
	cluster runs.Cluster
	access  *controlplane.Access
	tollway *gate
	manager *operator
)

func TestEndToEnd(t *testing.T) {
	if image == "" {
		t.Skip("PAWL_E2E_IMAGE is not set: make e2e sets it, packs that image and installs Pawl on the cluster of KUBECONFIG")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "End to end")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	kubeconfig := os.Getenv("KUBECONFIG")
	Expect(kubeconfig).NotTo(BeEmpty(), "KUBECONFIG has to name the cluster")
	dir := GinkgoT().TempDir()
	var err error
	access, err = controlplane.Use(dir, kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	Expect(access.Install(ctx, controlplane.DefaultConfig())).To(Succeed())

	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	admin, err := client.New(access.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	cluster = runs.Cluster{Admin: admin, Kubectl: access.Kubectl, OperatorLog: filepath.Join(dir, "operator.log")}
	standAside(ctx)

	account, err := access.ServiceAccountConfig(ctx, environment.Namespace, environment.Account)
	Expect(err).NotTo(HaveOccurred())
	tollway = openGate(account)
	DeferCleanup(tollway.close)
	manager = newOperator(ctx)
	tollway.kill = manager.kill
	manager.start()
	DeferCleanup(manager.kill)
}, NodeTimeout(5*time.Minute))

// standAside keeps the cluster from running an operator of its own: the one that is tested
// is a process on this machine.
func standAside(ctx context.Context) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, "scale", "deployment", "--all", "--replicas=0", "--namespace", environment.Namespace)
	Expect(err).NotTo(HaveOccurred())
}

// operator is the operator's process, one life after the other under one worker name.
type operator struct {
	program, kubeconfig string
	command             *exec.Cmd
}

// newOperator makes one that reaches the cluster by way of the gate.
func newOperator(ctx context.Context) *operator {
	GinkgoHelper()
	program, err := environment.BuildOperator(ctx)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := access.WriteKubeconfig("operator", &rest.Config{Host: tollway.url()})
	Expect(err).NotTo(HaveOccurred())
	return &operator{program: program, kubeconfig: kubeconfig}
}

func (o *operator) start() {
	GinkgoHelper()
	log, err := os.OpenFile(cluster.OperatorLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = log.Close() }()
	o.command = exec.Command(o.program, "--worker-name", "e2e", "--namespace", environment.Namespace, "--lease-duration", "10s",
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	o.command.Env = append(os.Environ(), "KUBECONFIG="+o.kubeconfig)
	o.command.Stdout, o.command.Stderr = log, log
	Expect(o.command.Start()).To(Succeed())
}

// kill ends the process with SIGKILL and waits until it is gone.
func (o *operator) kill() {
	_ = o.command.Process.Kill()
	_ = o.command.Wait()
}

func report(format string, args ...any) {
	AddReportEntry(fmt.Sprintf(format, args...), ReportEntryVisibilityAlways)
}
