package mcp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/test/controlplane"
	"github.com/pawl-run/pawl/test/runs"
	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// hostileRow is a row of the table in docs/mcp.md: the server's name, and how it ends.
var hostileRow = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|[^|]+\\| `([A-Za-z_]+)`(?:, `([a-z]+)`)? \\|$")

// ending is how a run with a hostile server ends, by the documentation.
type ending struct{ class, effect string }

// documented reads docs/mcp.md.
func documented() map[string]ending {
	GinkgoHelper()
	root, err := controlplane.Root()
	Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(root, "docs", "mcp.md"))
	Expect(err).NotTo(HaveOccurred())
	endings := map[string]ending{}
	for _, row := range hostileRow.FindAllStringSubmatch(string(text), -1) {
		endings[row[1]] = ending{row[2], row[3]}
	}
	return endings
}

const hostileModel = `
apiVersion: pawl.run/v1alpha1
kind: Model
metadata: {name: model}
spec:
  provider: Scripted
  script:
  - toolCalls: [{tool: bad.act, arguments: {}}]
  - final: Done.
`

const hostileRun = `
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
metadata: {name: NAME}
spec:
  servers: [{name: bad, mcp: {url: "URL/hostile/NAME"}}]
  tools: [{match: ["*"], timeoutSeconds: 15}]
  rules: [{name: all, match: ["*"], action: Allow}]
---
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: NAME}
spec: {modelRef: {name: model}, toolPolicyRefs: [{name: NAME}], prompt: Try.}
`

// patience is how long a run may take to end: the longest is as long as its call's timeout
// and one list of tools that never comes.
const patience = 90 * time.Second

// maxResident is what the operator may have resident with every hostile server at once.
const maxResident = 384 << 20

var _ = Describe("Hostile servers, all at once", func() {
	It("end as documented, and the operator stays up and small", func(ctx SpecContext) {
		endings := documented()
		var names []string
		for name := range endings {
			names = append(names, name)
		}
		Expect(names).To(ConsistOf(toolserver.Hostiles()), "docs/mcp.md describes exactly the hostile servers that there are")
		pid := env.Operator().PID()
		world := runs.New(ctx, env, "mcp-hostile")
		world.Apply(ctx, hostileModel)
		for _, name := range names {
			world.Apply(ctx, hostileRun, "NAME", name, "URL", env.ToolsURL)
		}
		for _, name := range names {
			expectEnding(ctx, world, name, endings[name])
		}
		Expect(env.Operator().PID()).To(Equal(pid))
		Expect(env.Operator().Exited()).NotTo(BeClosed())
		peak := peakResident(pid)
		AddReportEntry(fmt.Sprintf("the operator had at most %d MiB resident with %d hostile servers", peak>>20, len(names)), ReportEntryVisibilityAlways)
		Expect(peak).To(BeNumerically("<", maxResident))
	}, NodeTimeout(5*time.Minute))
})

// expectEnding waits until a run has ended as documented.
func expectEnding(ctx context.Context, world *runs.World, name string, want ending) {
	GinkgoHelper()
	switch want.class {
	case "ConfigurationNotReady":
		run := world.AwaitWithin(ctx, patience, name, v1alpha1.ReasonConfigurationNotReady)
		Expect(runs.Succeeded(run).Message).To(ContainSubstring("server bad does not list its tools"), name)
		return
	case "quarantined":
		run := world.AwaitWithin(ctx, patience, name, v1alpha1.ReasonCompleted)
		Expect(completed(ctx, world, run).Class).To(Equal("ok"), name)
		policy := &v1alpha1.ToolPolicy{}
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: world.Namespace, Name: name}, policy)).To(Succeed())
			g.Expect(policy.Status.Quarantined).To(HaveLen(1))
		}).WithTimeout(patience).Should(Succeed(), name)
		return
	}
	reason := v1alpha1.ReasonCompleted
	if want.effect == journal.EffectUnknown {
		reason = v1alpha1.ReasonOutcomeUnknown
	}
	run := world.AwaitWithin(ctx, patience, name, reason)
	last := completed(ctx, world, run)
	Expect([]string{last.Class, last.Effect}).To(Equal([]string{want.class, want.effect}), "%s: %s", name, last.Message)
	Expect(len(last.Value)).To(BeNumerically("<", 70<<10), name)
}

// completed is how the run's only call ended.
func completed(ctx context.Context, world *runs.World, run *v1alpha1.AgentRun) journal.CallCompleted {
	GinkgoHelper()
	records, _ := world.Journal(ctx, run)
	ended := runs.Events[journal.CallCompleted](records)
	Expect(ended).To(HaveLen(1), run.Name)
	return ended[0]
}

// peakResident is the most that a process had resident, in bytes.
func peakResident(pid int) int64 {
	GinkgoHelper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			Expect(err).NotTo(HaveOccurred())
			return kilobytes << 10
		}
	}
	Fail("the kernel does not say how much was resident")
	return 0
}
