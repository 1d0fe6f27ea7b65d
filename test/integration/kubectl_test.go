package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/controlplane"
)

var _ = Describe("kubectl", Ordered, func() {
	var w world

	// kubectl runs as admin in the specs' namespace.
	kubectl := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		return must(env.Plane.Kubectl(ctx, append(args, "--namespace", w.namespace)...))
	}

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "kubectl")
		samples := filepath.Join(must(controlplane.Root()), "config", "samples")
		dir := GinkgoT().TempDir()
		for _, name := range []string{"lookup.yaml", "slow.yaml", "question.yaml"} {
			text := strings.ReplaceAll(string(must(os.ReadFile(filepath.Join(samples, name)))), caseToolServer, tools.URL)
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
		}
		kubectl(ctx, "apply", "--filename", dir)
	})

	It("wait returns when a run has completed", func(ctx SpecContext) {
		kubectl(ctx, "wait", "agentrun/lookup", "--for=condition=Finished", "--timeout=30s")
		kubectl(ctx, "wait", "agentrun/lookup", "--for=condition=Succeeded", "--timeout=1s")
	})

	It("get shows where runs stand", func(ctx SpecContext) {
		lines := strings.Split(kubectl(ctx, "get", "arun", "lookup"), "\n")
		Expect(strings.Fields(lines[0])).To(Equal([]string{"NAME", "SUCCEEDED", "REASON", "TURNS", "TOKENS", "COST", "AGE"}))
		Expect(strings.Fields(lines[1])).To(HaveExactElements(Equal("lookup"), Equal("True"), Equal("Completed"), Equal("2"), MatchRegexp(`^\d+$`), Not(BeEmpty())))

		awaitOpen(ctx, w.key("question"), v1alpha1.ReasonInputRequired)
		lines = strings.Split(kubectl(ctx, "get", "agentrun", "question", "--output=wide"), "\n")
		Expect(strings.Fields(lines[0])).To(Equal([]string{"NAME", "SUCCEEDED", "REASON", "TURNS", "TOKENS", "COST", "AGE", "MODEL", "PENDING", "OWNER"}))
		Expect(strings.Fields(lines[1])).To(HaveExactElements(Equal("question"), Equal("Unknown"), Equal("InputRequired"), Equal("1"), MatchRegexp(`^\d+$`), Not(BeEmpty()), Equal("question")))

		everything := kubectl(ctx, "get", "pawl", "--output=name")
		Expect(everything).To(And(ContainSubstring("agentrun.pawl.run/slow"), ContainSubstring("toolpolicy.pawl.run/slow"), ContainSubstring("model.pawl.run/slow")))
		Expect(strings.Fields(kubectl(ctx, "get", "mdl", "slow"))).To(ContainElements("READY", "True", "Scripted"))
		Expect(strings.Fields(kubectl(ctx, "get", "tpol", "slow"))).To(ContainElements("READY", "True", "Accepted"))
	})

	It("annotate answers a question", func(ctx SpecContext) {
		id := kubectl(ctx, "get", "agentrun", "question", "--output=jsonpath={.status.question.id}")
		kubectl(ctx, "annotate", "agentrun", "question", v1alpha1.AnnotationAnswer+`={"`+id+`": "order-4711"}`)
		Expect(awaitCompleted(ctx, w.key("question")).Status.Result.Text).To(Equal("Thank you, I know which order you mean."))
	})

	It("patch cancels a run, and wait returns for it too", func(ctx SpecContext) {
		awaitRequests(ctx, w.key("slow"), "slow.wait", 1)
		kubectl(ctx, "patch", "agentrun", "slow", "--type=merge", `--patch={"spec":{"state":"Cancelled"}}`)
		kubectl(ctx, "wait", "agentrun/slow", "--for=condition=Finished", "--timeout=30s")
		kubectl(ctx, "wait", "agentrun/slow", "--for=jsonpath={.status.completionTime}", "--timeout=1s")
		Expect(kubectl(ctx, "get", "agentrun", "slow", "--no-headers")).To(MatchRegexp(`slow\s+False\s+Cancelled`))
	})

	It("describe shows what happened", func(ctx SpecContext) {
		Eventually(ctx, describe(ctx, w.key("lookup"))).Should(And(MatchRegexp(`Normal\s+Started`), MatchRegexp(`Normal\s+Completed`)))
		Eventually(ctx, describe(ctx, w.key("slow"))).Should(MatchRegexp(`Warning\s+Cancelled`))
		Eventually(ctx, describe(ctx, w.key("question"))).Should(And(MatchRegexp(`Normal\s+InputRequired`), ContainSubstring("answered by admin")))
	})

	It("apply of the same file again changes nothing", func(ctx SpecContext) {
		run := get(ctx, w.key("lookup"))
		text := must(os.ReadFile(filepath.Join(must(controlplane.Root()), "config", "samples", "lookup.yaml")))
		command := env.Plane.KubectlCommand(ctx, env.Plane.Kubeconfig(), "apply", "--namespace", w.namespace, "--filename=-")
		command.Stdin = strings.NewReader(strings.ReplaceAll(string(text), caseToolServer, tools.URL))
		output, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		Expect(string(output)).To(ContainSubstring("agentrun.pawl.run/lookup unchanged"))
		Expect(get(ctx, w.key("lookup")).ResourceVersion).To(Equal(run.ResourceVersion))
	})
})

var _ = Describe("Limits", func() {
	It("have defaults, and none can be switched off", func(ctx SpecContext) {
		w := newWorld(ctx, "limits")
		w.start(ctx, "defaults", `{run: {state: Suspended}}`)
		limits := get(ctx, w.key("defaults")).Spec.Limits
		Expect(limits).To(Equal(v1alpha1.Limits{
			MaxTurns: 15, MaxToolCalls: 40, MaxTokens: 200000, ActiveDeadlineSeconds: 900, DeadlineSeconds: 604800,
			MaxRepeatedPlans: 3, MaxConsecutiveFailures: 3, MaxInvalidDecisions: limits.MaxInvalidDecisions, InputTimeoutSeconds: 86400,
		}))
		Expect(*limits.MaxInvalidDecisions).To(BeEquivalentTo(2))
		for _, name := range []string{
			"maxTurns", "maxToolCalls", "maxTokens", "activeDeadlineSeconds", "deadlineSeconds", "maxRepeatedPlans",
			"maxConsecutiveFailures", "inputTimeoutSeconds",
		} {
			for _, value := range []string{"0", "-1", "9999999999999"} {
				command := env.Plane.KubectlCommand(ctx, env.Plane.Kubeconfig(), "create", "--dry-run=server", "--namespace", w.namespace, "--filename=-")
				command.Stdin = strings.NewReader(`{"apiVersion": "pawl.run/v1alpha1", "kind": "AgentRun", "metadata": {"name": "off"},
					"spec": {"modelRef": {"name": "m"}, "prompt": "p", "limits": {"` + name + `": ` + value + `}}}`)
				output, err := command.CombinedOutput()
				Expect(err).To(HaveOccurred(), "%s: %s", name, value)
				Expect(string(output)).To(ContainSubstring("spec.limits." + name))
			}
		}
	})
})
