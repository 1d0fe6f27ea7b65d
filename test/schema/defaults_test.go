package schema

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = DescribeTable("The shortest good object gets every default", func(ctx SpecContext, short, full string) {
	stored, want := parse(short), parse(full)
	stored.SetNamespace("default")
	stored.SetName("short")
	Expect(strict.Create(ctx, stored, client.DryRunAll)).To(Succeed())
	Expect(stored.Object["spec"]).To(Equal(want.Object["spec"]))
},
	Entry("AgentRun", `
apiVersion: pawl.run/v1alpha1
kind: AgentRun
spec: {modelRef: {name: m}, prompt: Go.}`, `
apiVersion: pawl.run/v1alpha1
kind: AgentRun
spec:
  modelRef: {name: m}
  prompt: Go.
  limits:
    maxTurns: 15
    maxToolCalls: 40
    maxTokens: 200000
    activeDeadlineSeconds: 900
    deadlineSeconds: 604800
    maxRepeatedPlans: 3
    maxConsecutiveFailures: 3
    maxInvalidDecisions: 2
    inputTimeoutSeconds: 86400
  context: {maxTokens: 120000, maxToolResultBytes: 16384}
  humanInput: Enabled
  state: Active`),
	Entry("AgentRun with some limits, progress and output", `
apiVersion: pawl.run/v1alpha1
kind: AgentRun
spec:
  modelRef: {name: m}
  prompt: Go.
  limits: {maxTurns: 2}
  progress: {expression: "1"}
  output: {schema: {}}
  context: {}`, `
apiVersion: pawl.run/v1alpha1
kind: AgentRun
spec:
  modelRef: {name: m}
  prompt: Go.
  limits:
    maxTurns: 2
    maxToolCalls: 40
    maxTokens: 200000
    activeDeadlineSeconds: 900
    deadlineSeconds: 604800
    maxRepeatedPlans: 3
    maxConsecutiveFailures: 3
    maxInvalidDecisions: 2
    inputTimeoutSeconds: 86400
  progress: {expression: "1", maxUnchangedTurns: 5}
  output: {schema: {}}
  context: {maxTokens: 120000, maxToolResultBytes: 16384}
  humanInput: Enabled
  state: Active`),
	Entry("Model with a network", `
apiVersion: pawl.run/v1alpha1
kind: Model
spec: {provider: OpenAI, model: gpt-5}`, `
apiVersion: pawl.run/v1alpha1
kind: Model
spec: {provider: OpenAI, model: gpt-5, maxOutputTokens: 4096, requestTimeoutSeconds: 120, maxAttempts: 5}`),
	Entry("Model with a script", `
apiVersion: pawl.run/v1alpha1
kind: Model
spec: {provider: Scripted, script: [{final: Done.}]}`, `
apiVersion: pawl.run/v1alpha1
kind: Model
spec: {provider: Scripted, script: [{final: Done.}], maxOutputTokens: 4096, requestTimeoutSeconds: 120, maxAttempts: 5}`),
	Entry("ToolPolicy", `
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
spec:
  servers: [{name: crm, mcp: {url: "http://crm/mcp"}}]
  tools: [{match: ["crm.*"]}]
  rules: [{name: all, match: ["*"], action: Ask, approval: {}}]`, `
apiVersion: pawl.run/v1alpha1
kind: ToolPolicy
spec:
  servers: [{name: crm, mcp: {url: "http://crm/mcp"}}]
  tools: [{match: ["crm.*"], effect: NonIdempotent, execution: Sequential, timeoutSeconds: 30, maxResultBytes: 65536}]
  rules: [{name: all, match: ["*"], action: Ask, approval: {timeoutSeconds: 86400, onTimeout: End, onDeny: ReturnToModel}}]`),
)
