package journal

import (
	"encoding/json"
	"time"
)

// Payload is what an event of one type holds.
type Payload interface {
	// Type of the event that holds the payload.
	Type() Type
}

// Claimed begins a new epoch: the named worker owns the run from here on.
type Claimed struct {
	Worker string `json:"worker"`
	// Previous is the owner that did not let go, empty when there was none.
	Previous string `json:"previous,omitempty"`
	// Lost is the estimate charged for a model request that the previous owner may
	// have sent and nobody saw the answer of.
	Lost *Usage `json:"lost,omitempty"`
}

// Released lets go of the run.
type Released struct {
	Worker string `json:"worker"`
	// Waiting says what for, as a reason of the condition Succeeded.
	Waiting string `json:"waiting"`
}

// RunStarted freezes what must not change in a run.
type RunStarted struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	CreatedBy string            `json:"createdBy,omitempty"`
	// Lineage of a child run, nil for every other.
	Lineage      *Lineage  `json:"lineage,omitempty"`
	SystemPrompt string    `json:"systemPrompt,omitempty"`
	Prompt       string    `json:"prompt"`
	Model        Model     `json:"model"`
	Limits       Limits    `json:"limits"`
	Progress     *Progress `json:"progress,omitempty"`
	Output       *Output   `json:"output,omitempty"`
	// MaxToolResultBytes bounds one tool result in the prompt.
	MaxToolResultBytes int32 `json:"maxToolResultBytes"`
	// Projection is the version of the projection that makes the run's requests: a
	// conversation must not change its form in the middle.
	Projection int `json:"projection,omitempty"`
	// ContextTokens bounds one request, by estimate; 0 for no bound.
	ContextTokens int64 `json:"contextTokens,omitempty"`
	HumanInput    bool  `json:"humanInput"`
	// Tools is the catalogue, in the order in which the model sees it.
	Tools    []Tool   `json:"tools,omitempty"`
	Policies []Policy `json:"policies,omitempty"`
}

// Limits are a run's limits, every default filled in.
type Limits struct {
	MaxTurns     int32 `json:"maxTurns"`
	MaxToolCalls int32 `json:"maxToolCalls"`
	MaxTokens    int64 `json:"maxTokens"`
	// MaxCost in US dollars as a decimal, empty for none.
	MaxCost                string `json:"maxCost,omitempty"`
	ActiveDeadlineSeconds  int32  `json:"activeDeadlineSeconds"`
	DeadlineSeconds        int32  `json:"deadlineSeconds"`
	MaxRepeatedPlans       int32  `json:"maxRepeatedPlans"`
	MaxConsecutiveFailures int32  `json:"maxConsecutiveFailures"`
	MaxInvalidDecisions    int32  `json:"maxInvalidDecisions"`
	InputTimeoutSeconds    int32  `json:"inputTimeoutSeconds"`
}

// Progress is a goal measure that must move.
type Progress struct {
	Expression        string `json:"expression"`
	MaxUnchangedTurns int32  `json:"maxUnchangedTurns"`
}

// Output is what the final answer must satisfy.
type Output struct {
	Schema      json.RawMessage `json:"schema,omitempty"`
	Validations []Validation    `json:"validations,omitempty"`
}

// Validation is one condition on the final answer.
type Validation struct {
	Expression string `json:"expression"`
	Message    string `json:"message"`
}

// Tool is one entry of the frozen catalogue.
type Tool struct {
	Name        string          `json:"name"`
	Alias       string          `json:"alias"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Digest      string          `json:"digest"`
}

// Policy is a ToolPolicy as it was when the run started. Rules stay live.
type Policy struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// DecisionKind is the closed set of decisions.
type DecisionKind string

// Kinds of a decision.
const (
	DecisionFinal           DecisionKind = "Final"
	DecisionToolCalls       DecisionKind = "ToolCalls"
	DecisionRequestApproval DecisionKind = "RequestApproval"
	DecisionQuestion        DecisionKind = "Question"
	DecisionCannotContinue  DecisionKind = "CannotContinue"
	DecisionPaused          DecisionKind = "Paused"
	DecisionRefused         DecisionKind = "Refused"
	DecisionOverflow        DecisionKind = "Overflow"
	DecisionInvalid         DecisionKind = "Invalid"
)

// DecisionMade is one turn: what the model decided, and what was made of it.
type DecisionMade struct {
	Kind DecisionKind `json:"kind"`
	// Text is the answer, the question, the reason to give up, or what was said
	// beside calls.
	Text string `json:"text,omitempty"`
	// Calls in the reply's order. For every kind but Final, Refused and Overflow a
	// reply may have some; each gets exactly one result.
	Calls []Call `json:"calls,omitempty"`
	// Intents are the calls that a RequestApproval announces.
	Intents []Intent `json:"intents,omitempty"`
	// Code and Problem say what is wrong with an Invalid decision.
	Code    string `json:"code,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Clipped is true when the request's output limit was lowered by the token budget,
	// CostClipped when it was lowered by the cost budget.
	Clipped     bool `json:"clipped,omitempty"`
	CostClipped bool `json:"costClipped,omitempty"`
	// MaxOutputTokens is the request's output limit where that is not the Model's.
	MaxOutputTokens int32 `json:"maxOutputTokens,omitempty"`

	StopReason     string `json:"stopReason,omitempty"`
	Usage          Usage  `json:"usage"`
	Attempt        int32  `json:"attempt"`
	DurationMillis int64  `json:"durationMillis"`
	// RequestDigest covers the projected request, Projection is the version of the
	// projection that made it.
	RequestDigest string `json:"requestDigest"`
	Projection    int    `json:"projection"`
	// RequestTokens is what the request was estimated at, before any correction.
	RequestTokens int64  `json:"requestTokens,omitempty"`
	RequestID     string `json:"requestID,omitempty"`
	// Part is the digest of the provider's own reply, stored beside the event.
	Part string `json:"part,omitempty"`
}

// Call is one proposed call with everything that is frozen about it.
type Call struct {
	// ID is unique in the run; ProviderID is what the reply said.
	ID         string `json:"id"`
	ProviderID string `json:"providerID,omitempty"`
	// Alias as the model wrote it; Tool is the full name, empty when there is none.
	Alias string `json:"alias"`
	Tool  string `json:"tool,omitempty"`
	// Arguments exactly as the model wrote them.
	Arguments       string `json:"arguments"`
	ArgumentsDigest string `json:"argumentsDigest"`
	// PlanDigest covers tool and canonical arguments, to recognise a call again.
	PlanDigest string `json:"planDigest,omitempty"`
	EffectKey  string `json:"effectKey,omitempty"`
	// Effect, Parallel, ConflictKey, TimeoutSeconds, MaxAttempts,
	// KeyLifetimeSeconds, MaxResultBytes, IncludeBinary and Required are the tool's properties
	// when the decision was made.
	Effect             string `json:"effect,omitempty"`
	Parallel           bool   `json:"parallel,omitempty"`
	ConflictKey        string `json:"conflictKey,omitempty"`
	TimeoutSeconds     int32  `json:"timeoutSeconds,omitempty"`
	MaxAttempts        int32  `json:"maxAttempts,omitempty"`
	KeyLifetimeSeconds int32  `json:"keyLifetimeSeconds,omitempty"`
	MaxResultBytes     int32  `json:"maxResultBytes,omitempty"`
	IncludeBinary      bool   `json:"includeBinary,omitempty"`
	Required           bool   `json:"required,omitempty"`
	// Redact lists as JSONPath what is left out of the result before it is stored.
	Redact []string `json:"redact,omitempty"`
	// Reconcile is the address where the effect can be looked up, empty for none.
	Reconcile string `json:"reconcile,omitempty"`
	// Handle by which the call goes on outside, for tools where it is known before the call
	// is sent; empty for all others.
	Handle string `json:"handle,omitempty"`
	// Child is what the tool declares that the call's child run may spend, nil for calls
	// that are none.
	Child *Budget `json:"child,omitempty"`
	// Background is true for a call that goes on in the background once it goes on outside.
	Background bool `json:"background,omitempty"`
	// Verdict of policy when the decision was made.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Invalid says why the call can't run; such a call has no verdict.
	Invalid string `json:"invalid,omitempty"`
}

// Verdict is what policy said about a call.
type Verdict struct {
	Action       string `json:"action"`
	Policy       string `json:"policy,omitempty"`
	Rule         string `json:"rule,omitempty"`
	RuleDigest   string `json:"ruleDigest,omitempty"`
	PolicyDigest string `json:"policyDigest,omitempty"`
	// End is true when a Deny ends the run.
	End bool `json:"end,omitempty"`
	// ApprovedBy is the digest of a granted intent that covers an Ask.
	ApprovedBy string `json:"approvedBy,omitempty"`
	// TimeoutSeconds, EndOnTimeout and EndOnDeny are the terms of an Ask.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	EndOnTimeout   bool  `json:"endOnTimeout,omitempty"`
	EndOnDeny      bool  `json:"endOnDeny,omitempty"`
	// Message for the model on a Deny, for people on an Ask.
	Message string `json:"message,omitempty"`
}

// Intent is a call that the model asks approval for before proposing it.
type Intent struct {
	Tool            string `json:"tool"`
	Arguments       string `json:"arguments"`
	ArgumentsDigest string `json:"argumentsDigest"`
	// PlanDigest recognises the call, as in Call.
	PlanDigest string `json:"planDigest,omitempty"`
	// Approval is the digest of the request that covered it.
	Approval string `json:"approval,omitempty"`
}

// ApprovalRequested puts a batch, or what the model intends, before people.
type ApprovalRequested struct {
	// Digest is what a verdict must name.
	Digest    string    `json:"digest"`
	ExpiresAt time.Time `json:"expiresAt"`
	// EndOnTimeout and EndOnDeny say what ends the run.
	EndOnTimeout bool   `json:"endOnTimeout,omitempty"`
	EndOnDeny    bool   `json:"endOnDeny,omitempty"`
	Message      string `json:"message,omitempty"`
	// Calls as they will run. For an intent they are the announced ones.
	Calls []PendingCall `json:"calls,omitempty"`
	// Intent is true when the model asked, so that approval grants nothing by itself.
	Intent bool `json:"intent,omitempty"`
	// Continues is the id of the one call that is to go on with an answer which its service
	// asked for; empty where a batch or an intent is pending.
	Continues string `json:"continues,omitempty"`
}

// PendingCall is one call of an ApprovalRequested.
type PendingCall struct {
	ID              string `json:"id"`
	Tool            string `json:"tool"`
	Policy          string `json:"policy,omitempty"`
	Rule            string `json:"rule,omitempty"`
	RuleDigest      string `json:"ruleDigest,omitempty"`
	PolicyDigest    string `json:"policyDigest,omitempty"`
	Asks            bool   `json:"asks,omitempty"`
	Effect          string `json:"effect,omitempty"`
	EffectKey       string `json:"effectKey,omitempty"`
	ArgumentsDigest string `json:"argumentsDigest"`
}

// ApprovalGranted lets what was asked go on; By names who.
type ApprovalGranted struct {
	Digest string `json:"digest"`
}

// ApprovalDenied refuses what was asked; By names who, unless it expired.
type ApprovalDenied struct {
	Digest  string `json:"digest"`
	Reason  string `json:"reason,omitempty"`
	Expired bool   `json:"expired,omitempty"`
	// End is true when the run ends with it.
	End bool `json:"end,omitempty"`
}

// CallDispatched is written before calls are sent.
type CallDispatched struct {
	Calls []Dispatch `json:"calls"`
}

// Dispatch is one attempt at one call.
type Dispatch struct {
	ID       string    `json:"id"`
	Attempt  int32     `json:"attempt"`
	Deadline time.Time `json:"deadline"`
	// Budget is what is reserved for the call's child run, the same at each attempt.
	Budget *Budget `json:"budget,omitempty"`
}

// CallDeferred says that an attempt goes on outside, after the request that began it: the
// run waits without a worker until it is asked about, or told.
type CallDeferred struct {
	ID      string `json:"id"`
	Attempt int32  `json:"attempt"`
	// Handle names what goes on, for the tool's adapter: a status URL, a task, a Job, a run.
	Handle string `json:"handle"`
	// PollMillis is how long to wait before asking, each time.
	PollMillis int64 `json:"pollMillis,omitempty"`
	// Until is when the call is given up.
	Until time.Time `json:"until"`
}

// CallCompleted is how an attempt, or a call that was never sent, ended.
type CallCompleted struct {
	ID      string `json:"id"`
	Attempt int32  `json:"attempt,omitempty"`
	// Final is true when this is the call's one result; otherwise another attempt or
	// a settlement follows.
	Final            bool            `json:"final"`
	Class            string          `json:"class"`
	Effect           string          `json:"effect,omitempty"`
	Retryable        bool            `json:"retryable,omitempty"`
	RetryAfterMillis int64           `json:"retryAfterMillis,omitempty"`
	DurationMillis   int64           `json:"durationMillis,omitempty"`
	Value            json.RawMessage `json:"value,omitempty"`
	Truncated        bool            `json:"truncated,omitempty"`
	Size             int64           `json:"size,omitempty"`
	Message          string          `json:"message,omitempty"`
	Receipt          string          `json:"receipt,omitempty"`
	// Artifact holds the whole result where Value is only its beginning, as text.
	Artifact *Artifact `json:"artifact,omitempty"`
	// ResultDigest covers class and value less what the policy ignores for progress.
	ResultDigest string `json:"resultDigest,omitempty"`
	// Repeats is how many times in a row this call has now given this result.
	Repeats int32 `json:"repeats,omitempty"`
	// Spent is what the call's child run cost, said once of each.
	Spent *Spent `json:"spent,omitempty"`
	// Of is the id of the call in the background that this one looked at. Without a Value
	// it gives that one's result.
	Of string `json:"of,omitempty"`
}

// EffectReconciled settles a call whose effect was unknown.
type EffectReconciled struct {
	ID        string `json:"id"`
	EffectKey string `json:"effectKey"`
	// Effect is committed or rejected.
	Effect string `json:"effect"`
	// Source says whose word it is. By names the person.
	Source Source `json:"source,omitempty"`
	// Epoch of the claim under which a worker dispatched the call whose outcome it
	// reports after it lost the run.
	Epoch int64 `json:"epoch,omitempty"`
	// Value is the result, where the service or the worker had it.
	Value json.RawMessage `json:"value,omitempty"`
	// Artifact is as in CallCompleted.
	Artifact *Artifact `json:"artifact,omitempty"`
	// Receipt is the service's own id of the effect.
	Receipt string `json:"receipt,omitempty"`
}

// Artifact is a result that is larger than an event may hold, kept in objects of its own.
type Artifact struct {
	// Digest of the content, from which its objects have their names.
	Digest string `json:"digest"`
	// Size of the content in bytes.
	Size int64 `json:"size"`
	// Pieces is how many objects hold it.
	Pieces int32 `json:"pieces"`
}

// Source is whose word a settlement is.
type Source string

// Sources of a settlement.
const (
	// SourcePerson is a person, by annotation.
	SourcePerson Source = ""
	// SourceService is the service that the policy names.
	SourceService Source = "Service"
	// SourceWorker is the worker that sent the call and lost the run meanwhile. Its
	// result is evidence, not authority.
	SourceWorker Source = "Worker"
)

// TurnCompleted closes a turn: every call of it has its result.
type TurnCompleted struct {
	// Plan covers the calls that ran, order ignored; empty when none did.
	Plan string `json:"plan,omitempty"`
	// Results covers their results likewise.
	Results string `json:"results,omitempty"`
	// Calls that ran, with their results, for recognising repetition.
	Calls []CallResult `json:"calls,omitempty"`
	// Failed is true when the turn had calls and every one of them failed.
	Failed bool `json:"failed,omitempty"`
	// Progress is the digest of the progress expression's value, where there is one.
	Progress string `json:"progress,omitempty"`
	// Reported are the ids of calls in the background of which the model is told what they
	// came to, since it answered without having looked.
	Reported []string `json:"reported,omitempty"`
}

// CallResult pairs a call with its result, both as digests.
type CallResult struct {
	Plan   string `json:"plan"`
	Result string `json:"result"`
}

// QuestionAsked puts a question before people.
type QuestionAsked struct {
	ID        string    `json:"id"`
	CallID    string    `json:"callID"`
	Text      string    `json:"text"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// QuestionAnswered answers it; By names who, unless it expired.
type QuestionAnswered struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	// Declined is true when a service asked and a person gives it no answer, Expired when
	// nobody answered it in time.
	Declined bool `json:"declined,omitempty"`
	Expired  bool `json:"expired,omitempty"`
}

// Suspended records that people stopped the run.
type Suspended struct{}

// Resumed records that people let it go on.
type Resumed struct{}

// Finished ends the run. Nothing but settlements may follow.
type Finished struct {
	// Reason is one of the reasons of the condition Succeeded.
	Reason string `json:"reason"`
	// Message for people: stable, bounded, without content of model or tools.
	Message string `json:"message"`
	// Answer is the whole final answer.
	Answer *string `json:"answer,omitempty"`
}
