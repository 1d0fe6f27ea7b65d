package v1alpha1

// Annotations that people give verdicts with, and the stamps that admission adds.
const (
	// AnnotationApprove approves what is pending; its value is status.pending.digest.
	AnnotationApprove = "pawl.run/approve"
	// AnnotationDeny refuses what is pending; its value is status.pending.digest.
	AnnotationDeny = "pawl.run/deny"
	// AnnotationDenyReason says why, for the model and the journal.
	AnnotationDenyReason = "pawl.run/deny-reason"
	// AnnotationAnswer answers questions; its value is JSON {"<question id>": "text"}.
	AnnotationAnswer = "pawl.run/answer"
	// AnnotationSettle settles unknown outcomes; its value is JSON
	// {"<effect key>": "committed"} or "rejected".
	AnnotationSettle = "pawl.run/settle"
	// AnnotationApproveBy is stamped by admission with the approver's user name.
	AnnotationApproveBy = "pawl.run/approve-by"
	// AnnotationDenyBy is stamped by admission with the denier's user name.
	AnnotationDenyBy = "pawl.run/deny-by"
	// AnnotationComplete delivers results of calls that wait for an event outside; its value
	// is JSON {"<call id>": <result>}.
	AnnotationComplete = "pawl.run/complete"
	// AnnotationCompleteBy is stamped by admission with the completer's user name.
	AnnotationCompleteBy = "pawl.run/complete-by"
	// AnnotationAnswerBy is stamped by admission with the answerer's user name.
	AnnotationAnswerBy = "pawl.run/answer-by"
	// AnnotationSettleBy is stamped by admission with the settler's user name.
	AnnotationSettleBy = "pawl.run/settle-by"
	// AnnotationCreatedBy is stamped by admission at creation and never changes.
	AnnotationCreatedBy = "pawl.run/created-by"
)

// Labels on every object that belongs to a run.
const (
	// LabelRun is the run's name, hashed when it is longer than a label may be.
	LabelRun = "pawl.run/run"
	// LabelRunUID is the run's UID.
	LabelRunUID = "pawl.run/run-uid"
)

// Annotations on the Job of a call and its pod, and on the child run of a call.
const (
	// AnnotationCallID is the id of the call.
	AnnotationCallID = "pawl.run/call-id"
	// AnnotationEffectKey is the call's effect key.
	AnnotationEffectKey = "pawl.run/effect-key"
	// AnnotationArguments holds the call's arguments, on the pod alone.
	AnnotationArguments = "pawl.run/arguments"
)

// What a child run says of the run that made it. The operator writes these when it creates
// the child, where its own admission policies keep everybody else from it, and they never
// change.
const (
	// LabelParentUID is the UID of the run whose call the child is.
	LabelParentUID = "pawl.run/parent-uid"
	// LabelRootUID is the UID of the run at the top of the tree.
	LabelRootUID = "pawl.run/root-uid"
	// AnnotationParent is the name of the run whose call the child is.
	AnnotationParent = "pawl.run/parent"
	// AnnotationRoot is the name of the run at the top of the tree.
	AnnotationRoot = "pawl.run/root"
	// AnnotationDepth is the child's level in the tree, whose top has level 1.
	AnnotationDepth = "pawl.run/depth"
)

// MaxDepth is how many levels a tree of runs has at most.
const MaxDepth = 3

// FinalizerParent keeps a child run until its parent has recorded its result, or has ended.
const FinalizerParent = "pawl.run/parent"

// FinalizerEffects keeps a run, and the journal segments that its effects are recorded
// in, until every call that may have an effect has a known outcome, and the Job of a call
// until its outcome is recorded.
const FinalizerEffects = "pawl.run/effects"

// Condition types of AgentRun.
const (
	// ConditionSucceeded is the summary: Unknown while the run is open, then True or
	// False for ever.
	ConditionSucceeded = "Succeeded"
	// ConditionFinished is True at every ending, so that a pipeline has one thing to
	// wait for.
	ConditionFinished = "Finished"
	// ConditionApprovalRequired is True while a batch waits for approval.
	ConditionApprovalRequired = "ApprovalRequired"
	// ConditionInputRequired is True while a question waits for an answer.
	ConditionInputRequired = "InputRequired"
	// ConditionOutcomeUnknown is True while nobody knows whether some call took effect, and
	// Unknown where the journal is lost that would say which calls were under way.
	ConditionOutcomeUnknown = "OutcomeUnknown"
	// ConditionReconciling is True while the run is open (kstatus).
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True for every ending but Completed (kstatus).
	ConditionStalled = "Stalled"
)

// ConditionReady is the summary condition of Model and ToolPolicy.
const ConditionReady = "Ready"

// Reasons of Ready on Model and ToolPolicy.
const (
	// ReadyReasonAccepted surfaces when the object can be used.
	ReadyReasonAccepted = "Accepted"
	// ReadyReasonInvalid surfaces when the object has to be changed; the message
	// names every problem.
	ReadyReasonInvalid = "Invalid"
)

// Reason is a reason of the condition Succeeded: public, closed, documented.
type Reason string

// Reasons of Succeeded=True.
const (
	// ReasonCompleted surfaces when the model gave an answer that satisfies spec.output.
	ReasonCompleted Reason = "Completed"
)

// Reasons of Succeeded=False.
const (
	// ReasonApprovalDenied surfaces when a person denied a call whose rule ends the run then.
	ReasonApprovalDenied Reason = "ApprovalDenied"
	// ReasonApprovalExpired surfaces when nobody answered a request for approval in time.
	ReasonApprovalExpired Reason = "ApprovalExpired"
	// ReasonPolicyDenied surfaces when a Deny rule with onDeny End matched.
	ReasonPolicyDenied Reason = "PolicyDenied"
	// ReasonCancelled surfaces when spec.state was set to Cancelled.
	ReasonCancelled Reason = "Cancelled"
	// ReasonDeadlineExceeded surfaces when activeDeadlineSeconds or deadlineSeconds ran out.
	ReasonDeadlineExceeded Reason = "DeadlineExceeded"
	// ReasonMaxTurns surfaces when maxTurns decisions did not lead to an answer.
	ReasonMaxTurns Reason = "MaxTurns"
	// ReasonToolBudgetExhausted surfaces when a batch would have passed maxToolCalls.
	ReasonToolBudgetExhausted Reason = "ToolBudgetExhausted"
	// ReasonTokenBudgetExhausted surfaces when the next request would pass maxTokens.
	ReasonTokenBudgetExhausted Reason = "TokenBudgetExhausted"
	// ReasonCostBudgetExhausted surfaces when the next request would pass maxCost.
	ReasonCostBudgetExhausted Reason = "CostBudgetExhausted"
	// ReasonNoProgress surfaces when plans repeat, calls keep failing, or the progress
	// expression stands still.
	ReasonNoProgress Reason = "NoProgress"
	// ReasonInvalidDecision surfaces when the model kept giving decisions that are not valid.
	ReasonInvalidDecision Reason = "InvalidDecision"
	// ReasonOutputInvalid surfaces when the model kept giving answers that do not
	// satisfy spec.output.
	ReasonOutputInvalid Reason = "OutputInvalid"
	// ReasonModelError surfaces when the provider refused the request for good, or
	// every attempt failed.
	ReasonModelError Reason = "ModelError"
	// ReasonModelRefused surfaces when the model or its content filter refused to answer.
	ReasonModelRefused Reason = "ModelRefused"
	// ReasonCannotContinue surfaces when the model said that it can't go on.
	ReasonCannotContinue Reason = "CannotContinue"
	// ReasonInputExpired surfaces when nobody answered a question in time.
	ReasonInputExpired Reason = "InputExpired"
	// ReasonToolUnavailable surfaces when a required tool could not be reached.
	ReasonToolUnavailable Reason = "ToolUnavailable"
	// ReasonOutcomeUnknown surfaces, with False, when nobody settled an unknown outcome
	// in time, and, with Unknown, while one waits to be settled.
	ReasonOutcomeUnknown Reason = "OutcomeUnknown"
	// ReasonContextOverflow surfaces when the conversation is longer than the model accepts.
	ReasonContextOverflow Reason = "ContextOverflow"
	// ReasonCheckpointFailed surfaces when the journal is missing, altered or refused.
	ReasonCheckpointFailed Reason = "CheckpointFailed"
	// ReasonInvalidConfiguration surfaces when something is wrong that can't heal by itself.
	ReasonInvalidConfiguration Reason = "InvalidConfiguration"
)

// Reasons of Succeeded=Unknown.
const (
	// ReasonPending surfaces before the run was looked at.
	ReasonPending Reason = "Pending"
	// ReasonRunning surfaces while the model decides or tools run.
	ReasonRunning Reason = "Running"
	// ReasonApprovalRequired surfaces while a batch waits for approval.
	ReasonApprovalRequired Reason = "ApprovalRequired"
	// ReasonInputRequired surfaces while a question waits for an answer.
	ReasonInputRequired Reason = "InputRequired"
	// ReasonWaitingForTool surfaces while a call goes on outside: a Job, a child run, or a
	// service that answers later.
	ReasonWaitingForTool Reason = "WaitingForTool"
	// ReasonModelUnavailable surfaces while the provider fails and is asked again later.
	ReasonModelUnavailable Reason = "ModelUnavailable"
	// ReasonConfigurationNotReady surfaces while something the run refers to is
	// missing or not ready; it heals by itself.
	ReasonConfigurationNotReady Reason = "ConfigurationNotReady"
	// ReasonSuspended surfaces while spec.state is Suspended.
	ReasonSuspended Reason = "Suspended"
)
