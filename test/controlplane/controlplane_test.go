package controlplane_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/test/controlplane"
)

// childDir makes the test binary start a control plane in the named folder, say so, and wait
// to be killed.
const childDir = "PAWL_TEST_CONTROLPLANE_DIR"

var components = []controlplane.Component{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager}

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		_, err := controlplane.Start(context.Background(), controlplane.Options{Dir: dir})
		fmt.Println("started:", err)
		select {}
	}
	os.Exit(m.Run())
}

func TestControlPlane(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Control plane")
}

func alive(pid int) bool {
	// A zombie still takes signals; its state tells.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

var _ = Describe("A control plane", Ordered, func() {
	var plane *controlplane.ControlPlane

	BeforeAll(func(ctx SpecContext) {
		var err error
		plane, err = controlplane.Start(ctx, controlplane.Options{Install: []string{controlplane.DefaultConfig()}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	})

	kubectl := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		out, err := plane.Kubectl(ctx, args...)
		Expect(err).NotTo(HaveOccurred())
		return out
	}

	It("serves admission policies that validate and mutate", func(ctx SpecContext) {
		resources := kubectl(ctx, "api-resources", "--api-group=admissionregistration.k8s.io", "--output=name")
		Expect(resources).To(And(
			ContainSubstring("validatingadmissionpolicies.admissionregistration.k8s.io"),
			ContainSubstring("mutatingadmissionpolicies.admissionregistration.k8s.io")))
		Expect(kubectl(ctx, "get", "validatingadmissionpolicies", "--output=jsonpath={.items[*].status.typeChecking.expressionWarnings}")).
			To(BeEmpty(), "the API server finds nothing wrong with the types in the policies' expressions")
	})

	It("knows users and service accounts", func(ctx SpecContext) {
		user, err := plane.UserKubeconfig("alice", "writers")
		Expect(err).NotTo(HaveOccurred())
		account, err := plane.ServiceAccountKubeconfig(ctx, "pawl-system", "pawl-controller-manager")
		Expect(err).NotTo(HaveOccurred())
		impersonating, err := plane.ImpersonatingKubeconfig("bob", "approvers")
		Expect(err).NotTo(HaveOccurred())
		for kubeconfig, want := range map[string][]string{
			user:          {"alice", "writers"},
			account:       {"system:serviceaccount:pawl-system:pawl-controller-manager"},
			impersonating: {"bob", "approvers"},
		} {
			out, err := plane.KubectlAs(ctx, kubeconfig, "auth", "whoami", "--output=yaml")
			Expect(err).NotTo(HaveOccurred())
			for _, name := range want {
				Expect(out).To(ContainSubstring(name))
			}
		}
	})

	It("is open to other processes through its folder", func(ctx SpecContext) {
		access, err := controlplane.Attach(plane.Dir())
		Expect(err).NotTo(HaveOccurred())
		Expect(access.Kubectl(ctx, "get", "namespaces")).To(ContainSubstring("pawl-system"))
	})

	It("collects garbage and makes pods for Jobs", func(ctx SpecContext) {
		kubectl(ctx, "create", "job", "example", "--image=none", "--", "true")
		pods := func(ctx context.Context) string {
			out, _ := plane.Kubectl(ctx, "get", "pods", "--selector=job-name=example", "--output=name")
			return out
		}
		Eventually(pods).WithContext(ctx).WithTimeout(20 * time.Second).Should(ContainSubstring("pod/"))
		kubectl(ctx, "delete", "job", "example", "--cascade=foreground", "--wait=false")
		Eventually(pods).WithContext(ctx).WithTimeout(20 * time.Second).Should(Or(BeEmpty(), ContainSubstring("No resources")))
	})

	It("keeps its folder to itself", func(ctx SpecContext) {
		_, err := controlplane.Start(ctx, controlplane.Options{Dir: plane.Dir()})
		Expect(err).To(MatchError(ContainSubstring("in use")))
		Expect(controlplane.Owner(plane.Dir())).To(Equal(os.Getpid()))
		Expect(controlplane.Owner(GinkgoT().TempDir())).To(BeZero())
	})

	It("runs other programs beside it, and says how they ended", func() {
		process, err := plane.StartProcess("example", exec.Command("sh", "-c", "echo said; exit 3"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(process.Exited()).Should(BeClosed())
		Expect(process.Err()).To(MatchError("exit status 3"))
		Expect(os.ReadFile(plane.LogFile("example"))).To(BeEquivalentTo("said\n"))

		process, err = plane.StartProcess("example", exec.Command("sleep", "1000"))
		Expect(err).NotTo(HaveOccurred())
		process.Kill()
		Expect(process.Err()).To(MatchError("signal: killed"))
	})

	It("ends its processes and removes its temporary folder", func() {
		pids := []int{}
		for _, component := range components {
			pid, err := plane.PID(component)
			Expect(err).NotTo(HaveOccurred())
			Expect(alive(pid)).To(BeTrue())
			pids = append(pids, pid)
		}
		process, err := plane.StartProcess("left", exec.Command("sleep", "1000"))
		Expect(err).NotTo(HaveOccurred())
		pids = append(pids, process.PID())
		Expect(plane.Stop()).To(Succeed())
		for _, pid := range pids {
			Expect(alive(pid)).To(BeFalse())
		}
		Expect(plane.Dir()).NotTo(BeADirectory())
	})
})

var _ = Describe("A control plane whose owner is killed", func() {
	It("ends with it", func() {
		dir := GinkgoT().TempDir()
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), childDir+"="+dir)
		out, err := command.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(command.Start()).To(Succeed())
		line, err := bufio.NewReader(out).ReadString('\n')
		Expect(err).NotTo(HaveOccurred())
		Expect(line).To(Equal("started: <nil>\n"))

		pids := []int{}
		for _, component := range components {
			data, err := os.ReadFile(filepath.Join(dir, "pids", string(component)))
			Expect(err).NotTo(HaveOccurred())
			var pid int
			_, err = fmt.Sscan(string(data), &pid)
			Expect(err).NotTo(HaveOccurred())
			Expect(alive(pid)).To(BeTrue())
			pids = append(pids, pid)
		}
		Expect(command.Process.Signal(syscall.SIGKILL)).To(Succeed())
		_ = command.Wait()
		for _, pid := range pids {
			Eventually(func() bool { return alive(pid) }).WithTimeout(10 * time.Second).Should(BeFalse())
		}
	})
})
