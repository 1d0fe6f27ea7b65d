package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Effect is what a call may change outside, and so how often it may be sent.
// +kubebuilder:validation:Enum=ReadOnly;Idempotent;NonIdempotent
type Effect string

const (
	// EffectReadOnly changes nothing; the call may be repeated.
	EffectReadOnly Effect = "ReadOnly"
	// EffectIdempotent changes something once per effect key; the call may be sent
	// again with the same key while the key lives.
	EffectIdempotent Effect = "Idempotent"
	// EffectNonIdempotent changes something each time; the call is sent at most once.
	EffectNonIdempotent Effect = "NonIdempotent"
)

// Execution says whether calls of one batch may run at the same time, and whether the
// model waits for them.
// +kubebuilder:validation:Enum=Parallel;Sequential;Background
type Execution string

const (
	// ExecutionParallel lets neighbours in a batch run at the same time.
	ExecutionParallel Execution = "Parallel"
	// ExecutionSequential runs the call alone.
	ExecutionSequential Execution = "Sequential"
	// ExecutionBackground runs the call alone until its service takes it and goes on by
	// itself; then the model works on, and looks at the call with the built-in tool check.
	ExecutionBackground Execution = "Background"
)

// BinaryContent says what becomes of content that is no text.
// +kubebuilder:validation:Enum=Describe;Include
type BinaryContent string

const (
	// BinaryContentDescribe replaces it by what identifies it.
	BinaryContentDescribe BinaryContent = "Describe"
	// BinaryContentInclude keeps it.
	BinaryContentInclude BinaryContent = "Include"
)

// Action is a rule's verdict.
// +kubebuilder:validation:Enum=Allow;Ask;Deny
type Action string

const (
	// ActionAllow lets the call run.
	ActionAllow Action = "Allow"
	// ActionAsk lets the call run once a person approved it.
	ActionAsk Action = "Ask"
	// ActionDeny refuses the call.
	ActionDeny Action = "Deny"
)

// Consequence says what follows when a call is refused.
// +kubebuilder:validation:Enum=End;ReturnToModel
type Consequence string

const (
	// ConsequenceEnd ends the run.
	ConsequenceEnd Consequence = "End"
	// ConsequenceReturnToModel gives the model a denied result and lets it go on.
	ConsequenceReturnToModel Consequence = "ReturnToModel"
)

// ToolPolicySpec says which tools exist for a run and what may be done with them.
// Its tools and rules apply only to its own servers.
type ToolPolicySpec struct {
	// servers are the places that tools come from. A tool's full name is
	// <server>.<tool>.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Servers []ToolServer `json:"servers"`

	// tools gives properties to tools; the first entry that matches a tool wins.
	// Without one a tool is NonIdempotent, Sequential and has the defaults below.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Tools []ToolProperties `json:"tools,omitempty"`

	// rules give verdicts; the first rule that matches a call wins, and a call that
	// none matches is denied.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Rules []ToolRule `json:"rules,omitempty"`
}

// ToolServer is one place that tools come from.
// +kubebuilder:validation:XValidation:rule="[has(self.mcp), has(self.http), has(self.job), has(self.agentRun)].filter(given, given).size() == 1",message="set exactly one of mcp, http, job and agentRun"
type ToolServer struct {
	// name is the first part of the full name of each of its tools. No two policies
	// of one run may declare the same name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="use lower case letters, digits and '-', with a letter or digit at both ends"
	Name string `json:"name"`

	// mcp is a Model Context Protocol server over streamable HTTP. Its tools are
	// listed when a run starts and stay as they are for that run.
	// +optional
	MCP *MCPServer `json:"mcp,omitempty"`

	// http is a plain HTTP service: one POST per call.
	// +optional
	HTTP *HTTPServer `json:"http,omitempty"`

	// job runs a Kubernetes Job in the run's namespace for each call.
	// +optional
	Job *JobServer `json:"job,omitempty"`

	// agentRun creates another AgentRun, a child, in the run's namespace for each call.
	// +optional
	AgentRun *AgentRunServer `json:"agentRun,omitempty"`
}

// MCPServer is a Model Context Protocol server over streamable HTTP.
// +kubebuilder:validation:XValidation:rule="!has(self.oauth) || !has(self.headersFrom) || self.headersFrom.all(h, h.name.lowerAscii() != 'authorization')",message="oauth sets the header Authorization: take it out of headersFrom"
type MCPServer struct {
	// url of the MCP endpoint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != '' && !self.contains('#') && !self.contains('@')",message="url must be an absolute http or https URL without user or fragment"
	URL string `json:"url"`

	// headersFrom sets headers of every request from Secrets.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	HeadersFrom []HeaderFromSecret `json:"headersFrom,omitempty"`

	// oauth gets access tokens for every request from an authorization server.
	// +optional
	OAuth *OAuthClient `json:"oauth,omitempty"`

	// caBundleConfigMapRef names the ConfigMap key that holds PEM certificates
	// which are trusted instead of the system's for this server.
	// +optional
	CABundleConfigMapRef *KeyReference `json:"caBundleConfigMapRef,omitempty"`
}

// HTTPServer is a service that answers POST <url>/<tool>.
// +kubebuilder:validation:XValidation:rule="!has(self.oauth) || !has(self.headersFrom) || self.headersFrom.all(h, h.name.lowerAscii() != 'authorization')",message="oauth sets the header Authorization: take it out of headersFrom"
type HTTPServer struct {
	// url that "/<tool>" is appended to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != '' && size(url(self).getQuery()) == 0 && !self.contains('#') && !self.contains('@')",message="url must be an absolute http or https URL without user, query or fragment"
	URL string `json:"url"`

	// headersFrom sets headers of every request from Secrets.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	HeadersFrom []HeaderFromSecret `json:"headersFrom,omitempty"`

	// oauth gets access tokens for every request from an authorization server.
	// +optional
	OAuth *OAuthClient `json:"oauth,omitempty"`

	// caBundleConfigMapRef names the ConfigMap key that holds PEM certificates
	// which are trusted instead of the system's for this server.
	// +optional
	CABundleConfigMapRef *KeyReference `json:"caBundleConfigMapRef,omitempty"`

	// tools that the service has.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Tools []HTTPTool `json:"tools"`
}

// HTTPTool is one tool of an HTTP service.
type HTTPTool struct {
	// name is the last segment of the tool's URL and the second part of its full name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]+$')",message="use letters, digits, '_' and '-'"
	Name string `json:"name"`

	// description is shown to the model.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description,omitempty"`

	// inputSchema is the JSON Schema (2020-12) of the arguments, an object at its
	// root. Bounded in size, depth and references; checked by the operator, which
	// reports problems in status.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	InputSchema runtime.RawExtension `json:"inputSchema"`
}

// JobServer runs Jobs. A call's Job is named after its effect key, runs one pod once, for
// at most the tool's timeoutSeconds, and is deleted when the call's outcome is recorded.
type JobServer struct {
	// tools, one kind of Job each.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Tools []JobTool `json:"tools"`
}

// JobTool is a tool whose calls are Jobs.
type JobTool struct {
	// name is the second part of the tool's full name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]+$')",message="use letters, digits, '_' and '-'"
	Name string `json:"name"`

	// description is shown to the model.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description,omitempty"`

	// inputSchema is the JSON Schema (2020-12) of the arguments, an object at its
	// root. Bounded in size, depth and references; checked by the operator, which
	// reports problems in status.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	InputSchema runtime.RawExtension `json:"inputSchema"`

	// template of the call's pod. Its containers find the arguments in
	// /pawl/arguments.json and the environment variables PAWL_EFFECT_KEY and
	// PAWL_CALL_ID. The result is the termination message of the first container: JSON,
	// or else text, at most 4096 bytes.
	// +required
	Template JobTemplate `json:"template"`
}

// JobTemplate is what a Job makes its pod from.
type JobTemplate struct {
	// spec is a pod's spec, as in a Job, of at most 65536 bytes as JSON. It is stored as it
	// is and checked by the operator, which reports problems in status. Where it says
	// nothing, containers run as a user other than root, without privileges, on a
	// read-only file system, with modest resources, and without a service account's token.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec"`
}

// AgentRunServer creates child runs. A call's child is named after its effect key, spends
// what its parent has left, and is cancelled and suspended with it. Runs are at most three
// levels deep; a call that would go deeper is refused.
type AgentRunServer struct {
	// tools, one kind of child each.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Tools []AgentRunTool `json:"tools"`
}

// AgentRunTool is a tool whose calls are child runs.
type AgentRunTool struct {
	// name is the second part of the tool's full name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]+$')",message="use letters, digits, '_' and '-'"
	Name string `json:"name"`

	// description is shown to the model.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description,omitempty"`

	// inputSchema is the JSON Schema (2020-12) of the arguments, an object at its
	// root. Bounded in size, depth and references; checked by the operator, which
	// reports problems in status.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	InputSchema runtime.RawExtension `json:"inputSchema"`

	// prompt is CEL over args that gives the child's prompt, a string of 1 to 131072
	// characters. A tool whose expression can't be used is in status.quarantined. A call
	// for whose arguments it gives nothing usable is refused.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Prompt string `json:"prompt"`

	// template of the child's spec, in which prompt and state have no place.
	// +required
	Template AgentRunTemplate `json:"template"`
}

// AgentRunTemplate is the spec of a child run less its prompt and state.
type AgentRunTemplate struct {
	// modelRef names the Model that decides, in the parent's namespace.
	// +required
	ModelRef LocalReference `json:"modelRef"`

	// toolPolicyRefs name the ToolPolicies whose tools exist for the child. Those of its
	// parent do not, unless they are named here. Without any the model can only answer.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	ToolPolicyRefs []LocalReference `json:"toolPolicyRefs,omitempty"`

	// systemPrompt is given to the model as its instructions.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	SystemPrompt string `json:"systemPrompt,omitempty"`

	// limits of the child. maxTokens, maxCost, activeDeadlineSeconds and deadlineSeconds
	// are lowered to what the parent has left when the call is sent; calls that are sent
	// together divide it evenly. What a child does not use goes back to its parent.
	// +optional
	// +default={}
	Limits Limits `json:"limits,omitzero"`

	// progress is a goal measure that must move.
	// +optional
	Progress *Progress `json:"progress,omitempty"`

	// output is what the child's final answer must satisfy. With a schema the result of the
	// call is the answer's JSON value, without one it is the answer's text.
	// +optional
	Output *Output `json:"output,omitempty"`

	// context bounds what the model is shown.
	// +optional
	// +default={}
	Context Context `json:"context,omitzero"`

	// humanInput offers the model the tools ask, request_approval and cannot_continue.
	// People answer on the child; status.pending of its parent says that it waits.
	// +optional
	// +default="Enabled"
	HumanInput HumanInput `json:"humanInput,omitempty"`

	// ttlSecondsAfterFinished deletes the child that long after its completionTime, and not
	// before its result is recorded. Without it the child goes with its parent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// ToolProperties gives properties to the tools it matches.
// +kubebuilder:validation:XValidation:rule="!has(self.maxAttempts) || self.maxAttempts == 1 || (has(self.effect) && self.effect != 'NonIdempotent')",message="maxAttempts above 1 needs effect ReadOnly or Idempotent: a NonIdempotent call is sent at most once"
// +kubebuilder:validation:XValidation:rule="!has(self.reconcile) || !has(self.effect) || self.effect != 'ReadOnly'",message="reconcile needs effect Idempotent or NonIdempotent: a ReadOnly call has no effect to look up"
// +kubebuilder:validation:XValidation:rule="!has(self.idempotencyKeyLifetimeSeconds) || (has(self.effect) && self.effect == 'Idempotent')",message="idempotencyKeyLifetimeSeconds needs effect Idempotent"
type ToolProperties struct {
	// match lists full tool names; * matches any characters, dots too.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=200
	Match []string `json:"match"`

	// effect of a call. ReadOnly may be repeated. Idempotent says that the service
	// applies a call once per effect key: HTTP services get the key as the
	// Idempotency-Key header, MCP servers as _meta["pawl.run/idempotency-key"], Jobs as
	// the environment variable PAWL_EFFECT_KEY; a child run has it as its name.
	// +optional
	// +default="NonIdempotent"
	Effect Effect `json:"effect,omitempty"`

	// execution inside a batch. Background makes a difference for calls that go on outside:
	// Jobs, child runs, MCP tasks and HTTP tools that answer 202. The model is told at once
	// that the call runs. What it came to it learns by the built-in tool check, at the latest
	// when it answers: no run ends while its calls go on.
	// +optional
	// +default="Sequential"
	Execution Execution `json:"execution,omitempty"`

	// timeoutSeconds bounds one attempt, the time in which a call goes on outside
	// included. Child runs are bounded by their own limits instead.
	// +optional
	// +default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// maxResultBytes bounds what is read of a result; more is cut off and the
	// result says so. What is larger than 64 KiB is kept in ConfigMaps of its own beside
	// the run's journal, at most 16 MiB of a run.
	// +optional
	// +default=65536
	// +kubebuilder:validation:Minimum=64
	// +kubebuilder:validation:Maximum=1048576
	MaxResultBytes int32 `json:"maxResultBytes,omitempty"`

	// binaryContent says what becomes of images, audio and other binary content in the
	// result of an MCP tool. Describe, the default, gives the model their kind, type,
	// size and digest. Include gives it the data itself besides, as base64 within
	// maxResultBytes; what does not fit is cut off, which leaves it unusable.
	// +optional
	BinaryContent BinaryContent `json:"binaryContent,omitempty"`

	// idempotencyKeyLifetimeSeconds is how long the service remembers an effect key.
	// A call whose outcome is unknown is sent again only while this lasts, less
	// five minutes for clocks that differ. Default: 86400, a day.
	// +optional
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=31536000
	IdempotencyKeyLifetimeSeconds int32 `json:"idempotencyKeyLifetimeSeconds,omitempty"`

	// reconcile is where the operator looks up what became of a call whose outcome is
	// unknown. Without it a person settles it. The address is frozen with each call.
	// +optional
	Reconcile *EffectReconcile `json:"reconcile,omitempty"`

	// conflictKey is CEL over args; calls of one batch with equal values never run
	// at the same time.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	ConflictKey string `json:"conflictKey,omitempty"`

	// maxCallsPerRun bounds the calls of one run to each tool matched here; a call
	// beyond it is refused and the model told so.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxCallsPerRun int32 `json:"maxCallsPerRun,omitempty"`

	// requestsPerMinute bounds the attempts at calls of each tool matched here that are
	// begun in a minute, of all runs under this policy and of all replicas together. They
	// are evenly spaced, and a call that comes too early waits. Default: unbounded.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	RequestsPerMinute int32 `json:"requestsPerMinute,omitempty"`

	// maxAttempts bounds the attempts at one call that failed in a way which may pass:
	// the service asked to come back later, was not reached, or did not answer. Each is
	// journalled. Default 3 for ReadOnly and Idempotent; a NonIdempotent call has one.
	// Up to ten attempts that were lost in a restart of the operator come on top.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	MaxAttempts int32 `json:"maxAttempts,omitempty"`

	// required set to true ends the run as ToolUnavailable when a call could not
	// reach the tool in any of its attempts.
	// +optional
	Required bool `json:"required,omitempty"`

	// ignoreForProgress lists members left out when results are compared, such as
	// "$.time": a dollar sign and member names joined by dots.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[$]([.][A-Za-z_][A-Za-z0-9_-]*)+$')",message="write '$' and the names of members, joined by dots, such as $.time"
	IgnoreForProgress []string `json:"ignoreForProgress,omitempty"`

	// redact lists, as JSONPath (RFC 9535), what of a result is replaced by "[redacted]"
	// before anything of it is stored or shown, such as "$.customer.email", "$.items[*].price"
	// or "$..token". It holds for errors, for results that come late, are looked up or are
	// delivered by people too. A result that is not JSON is withheld as a whole, and so is
	// one that was cut at maxResultBytes. Checked by the operator, which reports problems in
	// status. A call keeps the paths of the moment at which it was proposed; later ones
	// come on top.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Redact []string `json:"redact,omitempty"`
}

// EffectReconcile is where effects are looked up.
type EffectReconcile struct {
	// http is a service that is asked GET <url>/<effect key> and answers
	// {"state": "committed" | "rejected" | "pending" | "notFound", "result": ...};
	// 404 means notFound.
	// +required
	HTTP EffectService `json:"http"`
}

// EffectService is an HTTP service that knows what became of effects.
// +kubebuilder:validation:XValidation:rule="!has(self.oauth) || !has(self.headersFrom) || self.headersFrom.all(h, h.name.lowerAscii() != 'authorization')",message="oauth sets the header Authorization: take it out of headersFrom"
type EffectService struct {
	// url that "/<effect key>" is appended to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != '' && size(url(self).getQuery()) == 0 && !self.contains('#') && !self.contains('@')",message="url must be an absolute http or https URL without user, query or fragment"
	URL string `json:"url"`

	// headersFrom sets headers of every request from Secrets.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	HeadersFrom []HeaderFromSecret `json:"headersFrom,omitempty"`

	// oauth gets access tokens for every request from an authorization server.
	// +optional
	OAuth *OAuthClient `json:"oauth,omitempty"`

	// caBundleConfigMapRef names the ConfigMap key that holds PEM certificates
	// which are trusted instead of the system's for this service.
	// +optional
	CABundleConfigMapRef *KeyReference `json:"caBundleConfigMapRef,omitempty"`
}

// ToolRule gives a verdict on the calls it matches.
// +kubebuilder:validation:XValidation:rule="!has(self.approval) || self.action == 'Ask'",message="approval belongs to action Ask"
// +kubebuilder:validation:XValidation:rule="!has(self.onDeny) || self.action == 'Deny'",message="onDeny belongs to action Deny; for Ask set approval.onDeny"
type ToolRule struct {
	// name identifies the rule in what an approver sees and in the journal.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="use lower case letters, digits and '-', with a letter or digit at both ends"
	Name string `json:"name"`

	// match lists full tool names; * matches any characters, dots too.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=200
	Match []string `json:"match"`

	// when is CEL over args, tool, call and run (call.answers holds what people answered to
	// the questions of an MCP tool, by question, once it has asked some); the rule matches only where it is
	// true. An expression that fails at run time denies the call.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	When string `json:"when,omitempty"`

	// action is the verdict.
	// +required
	Action Action `json:"action"`

	// onDeny says what follows a Deny. Default ReturnToModel; End ends the run as
	// PolicyDenied.
	// +optional
	OnDeny Consequence `json:"onDeny,omitempty"`

	// approval says how an Ask is put before people.
	// +optional
	Approval *Approval `json:"approval,omitempty"`
}

// Approval says how a call is put before people.
type Approval struct {
	// timeoutSeconds is how long people have.
	// +optional
	// +default=86400
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// onTimeout says what follows when nobody answered in time.
	// +optional
	// +default="End"
	OnTimeout Consequence `json:"onTimeout,omitempty"`

	// onDeny says what follows a denial.
	// +optional
	// +default="ReturnToModel"
	OnDeny Consequence `json:"onDeny,omitempty"`

	// message is shown to the approver.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// ToolPolicyStatus is what the operator found about a ToolPolicy.
type ToolPolicyStatus struct {
	// conditions holds Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// tools that exist: those whose definitions are part of the policy itself, and those
	// that its MCP servers offered when the operator last asked, at most ten minutes ago.
	// A run asks again when it starts. Of more than 2048 the first by name are shown.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=4096
	Tools []ResolvedTool `json:"tools,omitempty"`

	// quarantined are tools that no run gets although their server can be used: those that
	// an MCP server offered, with what to change in the server, and child runs whose prompt
	// or template can't be used. Of more than 128 the first by name are shown.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Quarantined []QuarantinedTool `json:"quarantined,omitempty"`

	// unavailable are MCP servers that did not say what they offer when the operator last
	// asked. A run that needs one waits as ConfigurationNotReady.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Unavailable []UnavailableServer `json:"unavailable,omitempty"`
}

// QuarantinedTool is a tool that can't be used, though its server can.
type QuarantinedTool struct {
	// name is the full name; a name that is not allowed is shown shortened and escaped.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Name string `json:"name"`

	// reason says what to change.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason"`
}

// UnavailableServer is a server that could not be asked for its tools.
type UnavailableServer struct {
	// name of the server in spec.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`

	// reason says what stands in the way.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason"`
}

// ResolvedTool is a tool with the properties that apply to it.
type ResolvedTool struct {
	// name is the full name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Name string `json:"name"`

	// effect that applies.
	// +required
	Effect Effect `json:"effect"`

	// digest of name, description, schema and, where a server gives them, annotations.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	Digest string `json:"digest"`
}

// ToolPolicy declares which tools exist for a run and what may be done with them.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tpol,categories=pawl
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ToolPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which tools exist and what may be done with them.
	// +required
	Spec ToolPolicySpec `json:"spec"`

	// status is written by the operator.
	// +optional
	Status ToolPolicyStatus `json:"status,omitzero"`
}

// ToolPolicyList is a list of ToolPolicies.
// +kubebuilder:object:root=true
type ToolPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ToolPolicy `json:"items"`
}
