package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DesiredState is what people want of a run.
// +kubebuilder:validation:Enum=Active;Suspended;Cancelled
type DesiredState string

const (
	// StateActive lets the run go on.
	StateActive DesiredState = "Active"
	// StateSuspended starts nothing new; what is in flight ends and is recorded.
	StateSuspended DesiredState = "Suspended"
	// StateCancelled ends the run. It can't be taken back.
	StateCancelled DesiredState = "Cancelled"
)

// HumanInput says whether the model may turn to people.
// +kubebuilder:validation:Enum=Enabled;Disabled
type HumanInput string

const (
	// HumanInputEnabled offers the model the tools ask, request_approval and cannot_continue.
	HumanInputEnabled HumanInput = "Enabled"
	// HumanInputDisabled offers none of them.
	HumanInputDisabled HumanInput = "Disabled"
)

// AgentRunSpec is one bounded task.
// +kubebuilder:validation:XValidation:rule="self.modelRef == oldSelf.modelRef",message="modelRef is immutable: create a new AgentRun"
// +kubebuilder:validation:XValidation:rule="has(self.toolPolicyRefs) == has(oldSelf.toolPolicyRefs) && (!has(self.toolPolicyRefs) || self.toolPolicyRefs == oldSelf.toolPolicyRefs)",message="toolPolicyRefs is immutable: create a new AgentRun"
// +kubebuilder:validation:XValidation:rule="has(self.systemPrompt) == has(oldSelf.systemPrompt) && (!has(self.systemPrompt) || self.systemPrompt == oldSelf.systemPrompt)",message="systemPrompt is immutable: create a new AgentRun"
// +kubebuilder:validation:XValidation:rule="self.prompt == oldSelf.prompt",message="prompt is immutable: create a new AgentRun"
// +kubebuilder:validation:XValidation:rule="self.limits == oldSelf.limits",message="limits is immutable: create a new AgentRun"
// +kubebuilder:validation:XValidation:rule="has(self.progress) == has(oldSelf.progress) && (!has(self.progress) || self.progress == oldSelf.progress)",message="progress is immutable: create a new AgentRun"
// +kubebuilder:validation:XValidation:rule="has(self.output) == has(oldSelf.output) && (!has(self.output) || self.output == oldSelf.output)",message="output is immutable: create a new AgentRun"
// +kubebuilder:validation:XValidation:rule="self.context == oldSelf.context",message="context is immutable: create a new AgentRun"
// +kubebuilder:validation:XValidation:rule="self.humanInput == oldSelf.humanInput",message="humanInput is immutable: create a new AgentRun"
// +kubebuilder:validation:XValidation:rule="oldSelf.state != 'Cancelled' || self.state == 'Cancelled'",message="state Cancelled can't be taken back: create a new AgentRun"
type AgentRunSpec struct {
	// modelRef names the Model that decides. Immutable.
	// +required
	ModelRef LocalReference `json:"modelRef"`

	// toolPolicyRefs name the ToolPolicies whose tools exist for this run. The order
	// means nothing. Without any the model can only answer. Immutable.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ToolPolicyRefs []LocalReference `json:"toolPolicyRefs,omitempty"`

	// systemPrompt is given to the model as its instructions. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	SystemPrompt string `json:"systemPrompt,omitempty"`

	// prompt is the task. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	Prompt string `json:"prompt"`

	// limits of the run; each has a default and none can be switched off. Immutable.
	// +optional
	// +default={}
	Limits Limits `json:"limits,omitzero"`

	// progress is a goal measure that must move. Immutable.
	// +optional
	Progress *Progress `json:"progress,omitempty"`

	// output is what the final answer must satisfy. Immutable.
	// +optional
	Output *Output `json:"output,omitempty"`

	// context bounds what the model is shown. Immutable.
	// +optional
	// +default={}
	Context Context `json:"context,omitzero"`

	// humanInput offers the model the tools ask, request_approval and
	// cannot_continue. Immutable.
	// +optional
	// +default="Enabled"
	HumanInput HumanInput `json:"humanInput,omitempty"`

	// state that people want. Active and Suspended may alternate; Cancelled is final.
	// +optional
	// +default="Active"
	State DesiredState `json:"state,omitempty"`

	// ttlSecondsAfterFinished deletes the run that long after its completionTime; 0
	// deletes at once. A run with unknown effects stays until they are settled, and one
	// whose condition OutcomeUnknown is Unknown until somebody deletes it. No default: with
	// a self-healing pipeline a deleted run would be created, and run, again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// Limits bound a run; reaching one ends it with a reason of its own.
type Limits struct {
	// maxTurns bounds the committed decisions, valid or not. Reason MaxTurns.
	// +optional
	// +default=15
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxTurns int32 `json:"maxTurns,omitempty"`

	// maxToolCalls bounds the tool calls; a batch that would pass it does not run at
	// all. Reason ToolBudgetExhausted.
	// +optional
	// +default=40
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxToolCalls int32 `json:"maxToolCalls,omitempty"`

	// maxTokens bounds input and output tokens of all requests together. Checked
	// before a request. Reason TokenBudgetExhausted.
	// +optional
	// +default=200000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	MaxTokens int64 `json:"maxTokens,omitempty"`

	// maxCost bounds what all requests together cost, in US dollars, as a decimal string
	// with at most six places. Checked before a request, which counts with its estimate.
	// Needs prices of the Model. Default: no bound but maxTokens. Reason
	// CostBudgetExhausted.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}([.][0-9]{1,6})?$`
	// +kubebuilder:validation:MaxLength=13
	MaxCost string `json:"maxCost,omitempty"`

	// activeDeadlineSeconds bounds the time spent working: asking the model and
	// running tools. Time that people take does not count. Reason DeadlineExceeded.
	// +optional
	// +default=900
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	ActiveDeadlineSeconds int32 `json:"activeDeadlineSeconds,omitempty"`

	// deadlineSeconds bounds the time from startTime, everything included. Reason
	// DeadlineExceeded.
	// +optional
	// +default=604800
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`

	// maxRepeatedPlans bounds executions of the same plan, or of the same call, with
	// the same results; the next is refused before it runs. Reason NoProgress.
	// +optional
	// +default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxRepeatedPlans int32 `json:"maxRepeatedPlans,omitempty"`

	// maxConsecutiveFailures bounds the turns in a row in which every call failed.
	// Reason NoProgress.
	// +optional
	// +default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxConsecutiveFailures int32 `json:"maxConsecutiveFailures,omitempty"`

	// maxInvalidDecisions is how many decisions in a row that are not valid are
	// explained to the model; the next one ends the run. Reason InvalidDecision, or
	// OutputInvalid when the answer did not satisfy spec.output.
	// +optional
	// +default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxInvalidDecisions *int32 `json:"maxInvalidDecisions,omitempty"`

	// inputTimeoutSeconds is how long people have to answer a question, to approve
	// what the model asked about, or to settle an unknown outcome. Reasons
	// InputExpired, ApprovalExpired and OutcomeUnknown.
	// +optional
	// +default=86400
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	InputTimeoutSeconds int32 `json:"inputTimeoutSeconds,omitempty"`
}

// Progress is a goal measure that must move.
type Progress struct {
	// expression is CEL over results, the outputs of the last batch in call order
	// (null for a failed call).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`

	// maxUnchangedTurns bounds the executed turns in a row that leave the value
	// unchanged. Reason NoProgress.
	// +optional
	// +default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxUnchangedTurns int32 `json:"maxUnchangedTurns,omitempty"`
}

// Output is what the final answer must satisfy.
// +kubebuilder:validation:XValidation:rule="has(self.schema) || (has(self.validations) && size(self.validations) > 0)",message="set schema, validations or both"
type Output struct {
	// schema is a JSON Schema (2020-12). With it the answer must be JSON. An answer
	// that is one fenced JSON block counts as that JSON.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Schema *runtime.RawExtension `json:"schema,omitempty"`

	// validations must all be true.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Validations []OutputValidation `json:"validations,omitempty"`
}

// OutputValidation is one condition on the final answer.
type OutputValidation struct {
	// expression is CEL over answer: the parsed JSON where schema is set, else the text.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`

	// message tells the model what to change when expression is not true.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}

// Context bounds what the model is shown.
type Context struct {
	// maxTokens bounds one request, by estimate. A longer conversation has its older tool
	// results reduced to a digest and a beginning, then its older turns to a summary that
	// the model writes; what is then still too long ends the run. Reason ContextOverflow.
	// +optional
	// +default=120000
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=10000000
	MaxTokens int64 `json:"maxTokens,omitempty"`

	// maxToolResultBytes bounds one tool result in the prompt; more is cut off and
	// the result says so.
	// +optional
	// +default=16384
	// +kubebuilder:validation:Minimum=64
	// +kubebuilder:validation:Maximum=131072
	MaxToolResultBytes int32 `json:"maxToolResultBytes,omitempty"`
}

// AgentRunStatus is a projection of the run's journal, written by the operator.
type AgentRunStatus struct {
	// conditions: Succeeded, Finished, ApprovalRequired, InputRequired,
	// OutcomeUnknown, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// startTime is when the run's journal began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is set for every ending.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// turns is the number of committed decisions.
	// +optional
	Turns int32 `json:"turns,omitempty"`

	// toolCalls is the number of tool calls that were dispatched.
	// +optional
	ToolCalls int32 `json:"toolCalls,omitempty"`

	// usage of the model, all requests together, and of child runs that have ended.
	// +optional
	Usage *Usage `json:"usage,omitempty"`

	// owner works on the run now. A hint: the journal decides.
	// +optional
	Owner *Owner `json:"owner,omitempty"`

	// journal says how far the journal has come. It only grows.
	// +optional
	Journal *Journal `json:"journal,omitempty"`

	// pending is the batch of calls that waits for approval, or the child runs that wait for
	// people.
	// +optional
	Pending *Pending `json:"pending,omitempty"`

	// question waits for an answer.
	// +optional
	Question *Question `json:"question,omitempty"`

	// unknownEffects are calls of which nobody knows whether they took effect.
	// +optional
	// +listType=map
	// +listMapKey=effectKey
	// +kubebuilder:validation:MaxItems=64
	UnknownEffects []UnknownEffect `json:"unknownEffects,omitempty"`

	// result is the final answer.
	// +optional
	Result *Result `json:"result,omitempty"`
}

// Usage counts tokens.
type Usage struct {
	// totalTokens is inputTokens + outputTokens.
	// +required
	TotalTokens int64 `json:"totalTokens"`
	// inputTokens, cache reads and writes included.
	// +required
	InputTokens int64 `json:"inputTokens"`
	// outputTokens, reasoning included.
	// +required
	OutputTokens int64 `json:"outputTokens"`
	// cacheReadTokens is the part of inputTokens read from the provider's cache.
	// +optional
	CacheReadTokens int64 `json:"cacheReadTokens,omitempty"`
	// cacheWriteTokens is the part of inputTokens written to the provider's cache.
	// +optional
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`

	// reasoningTokens is the part of outputTokens spent on reasoning.
	// +optional
	ReasoningTokens int64 `json:"reasoningTokens,omitempty"`
	// cost in US dollars by the Model's prices, a decimal string. Empty without prices.
	// +optional
	Cost string `json:"cost,omitempty"`

	// estimated is true when some request came back without a usage report, or not
	// at all, and was charged an estimate. A reply that was lost counts as long as the
	// request allowed.
	// +optional
	Estimated bool `json:"estimated,omitempty"`
}

// Owner is the worker that works on a run.
type Owner struct {
	// worker is its name and incarnation.
	// +required
	Worker string `json:"worker"`
	// epoch of its claim; each claim has a higher one.
	// +required
	Epoch int64 `json:"epoch"`
}

// Journal says how far a run's journal has come.
type Journal struct {
	// events is the number of events.
	// +required
	Events int64 `json:"events"`
	// segments is the number of ConfigMaps.
	// +required
	Segments int32 `json:"segments"`
	// bytes is the size of all events.
	// +required
	Bytes int64 `json:"bytes"`
	// head is the digest of the newest event.
	// +required
	Head string `json:"head"`
}

// Pending is a batch of calls that waits for approval, or what child runs wait for.
type Pending struct {
	// digest is what an approval or denial must name. Empty where only children wait:
	// people answer each on itself.
	// +optional
	Digest string `json:"digest,omitempty"`
	// expiresAt is when the request lapses, or the first of those of children. Absent where
	// none of them lapses.
	// +optional
	ExpiresAt metav1.Time `json:"expiresAt,omitzero"`
	// message of the rule that asks, or what the model wrote to ask for approval.
	// Control characters are shown escaped.
	// +optional
	Message string `json:"message,omitempty"`
	// calls of the batch. What is approved is exactly these, whole: their digests cover
	// more than a preview shows.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=64
	Calls []PendingCall `json:"calls,omitempty"`
	// children are the runs below this one that wait for people. Nothing of them can be
	// answered here.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Children []PendingChild `json:"children,omitempty"`
}

// PendingChild is a run below this one, in the same namespace, that waits for people.
type PendingChild struct {
	// name of the child. A verdict is an annotation of it.
	// +required
	Name string `json:"name"`
	// tool is the full name of the tool whose call the child is.
	// +required
	Tool string `json:"tool"`
	// reason is what it waits for: ApprovalRequired, InputRequired or OutcomeUnknown.
	// +required
	Reason string `json:"reason"`
	// digest is what an approval or denial on the child must name.
	// +optional
	Digest string `json:"digest,omitempty"`
	// question is the id of the question that waits for an answer on the child.
	// +optional
	Question string `json:"question,omitempty"`
	// expiresAt is when what it waits for lapses, where that is known.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// PendingCall is one call of a batch that waits for approval.
type PendingCall struct {
	// id of the call.
	// +required
	ID string `json:"id"`
	// tool is the full name.
	// +required
	Tool string `json:"tool"`
	// rule that asks, or allows, this call.
	// +optional
	Rule string `json:"rule,omitempty"`
	// effect class of the call.
	// +optional
	Effect Effect `json:"effect,omitempty"`
	// argumentsPreview is the arguments, or their beginning and how long they are where
	// that is more than 1 KiB; the journal has the rest. Characters that could deceive a
	// reader are shown escaped.
	// +required
	ArgumentsPreview string `json:"argumentsPreview"`
	// argumentsDigest covers the exact bytes of the arguments.
	// +required
	ArgumentsDigest string `json:"argumentsDigest"`
	// answerPreview is what a person answered to the tool's question and the call goes on
	// with, at most 1 KiB, shown as the arguments are. Empty where no tool asked.
	// +optional
	AnswerPreview string `json:"answerPreview,omitempty"`
	// effectKey that the call will carry.
	// +optional
	EffectKey string `json:"effectKey,omitempty"`
}

// Question is a question that waits for an answer.
type Question struct {
	// id is what the answer must name.
	// +required
	ID string `json:"id"`
	// text of the question, at most 4 KiB. Characters that could deceive a reader are
	// shown escaped.
	// +required
	Text string `json:"text"`
	// expiresAt is when the question lapses.
	// +required
	ExpiresAt metav1.Time `json:"expiresAt"`
	// tool is the full name of the tool that asks, empty where the model does.
	// +optional
	Tool string `json:"tool,omitempty"`
	// callID is the id of the call that waits for the answer, where a tool asks.
	// +optional
	CallID string `json:"callID,omitempty"`
	// digest covers the exact bytes of the call's arguments and everything that the tool
	// asks, of which text may show less.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// UnknownEffect is a call of which nobody knows whether it took effect.
type UnknownEffect struct {
	// effectKey is what a settlement must name.
	// +required
	EffectKey string `json:"effectKey"`
	// tool is the full name.
	// +required
	Tool string `json:"tool"`
	// since is when the call was sent.
	// +required
	Since metav1.Time `json:"since"`
	// lastCheck is when the operator last looked the effect up, where the policy says
	// how.
	// +optional
	LastCheck *metav1.Time `json:"lastCheck,omitempty"`
}

// Result is the final answer.
type Result struct {
	// text of the answer, at most 4 KiB; the whole answer is in the journal.
	// +required
	Text string `json:"text"`
	// truncated is true when text is not the whole answer.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
	// digest of the whole answer.
	// +required
	Digest string `json:"digest"`
}

// AgentRun is one bounded agent task.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=arun,categories=pawl
// +kubebuilder:printcolumn:name="Succeeded",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].reason`
// +kubebuilder:printcolumn:name="Turns",type=integer,JSONPath=`.status.turns`
// +kubebuilder:printcolumn:name="Tokens",type=integer,JSONPath=`.status.usage.totalTokens`
// +kubebuilder:printcolumn:name="Cost",type=string,JSONPath=`.status.usage.cost`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.modelRef.name`,priority=1
// +kubebuilder:printcolumn:name="Pending",type=string,JSONPath=`.status.pending.digest`,priority=1
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.status.owner.worker`,priority=1
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.completionTime) || (has(self.status) && has(self.status.completionTime) && self.status.completionTime == oldSelf.status.completionTime)",message="status.completionTime is final"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.conditions) || !oldSelf.status.conditions.exists(c, c.type == 'Succeeded' && c.status != 'Unknown') || (has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'Succeeded' && oldSelf.status.conditions.exists(o, o.type == 'Succeeded' && o.status == c.status && o.reason == c.reason)))",message="the condition Succeeded is final once it is True or False"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.journal) || (has(self.status) && has(self.status.journal) && self.status.journal.events >= oldSelf.status.journal.events)",message="status.journal only grows"
type AgentRun struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the task.
	// +required
	Spec AgentRunSpec `json:"spec"`

	// status is a projection of the run's journal, written by the operator.
	// +optional
	Status AgentRunStatus `json:"status,omitzero"`
}

// AgentRunList is a list of AgentRuns.
// +kubebuilder:object:root=true
type AgentRunList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AgentRun `json:"items"`
}
