package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReasonInfo says what a reason of the condition Succeeded means to people.
// +kubebuilder:object:generate=false
type ReasonInfo struct {
	// Reason itself.
	Reason Reason
	// Status that Succeeded has with it: Unknown while the run is open, then True or False.
	Status metav1.ConditionStatus
	// When says in one sentence when the reason surfaces.
	When string
	// WhatToDo says in one sentence what people can do about it.
	WhatToDo string
}

// AllReasons lists every reason, open runs first. OutcomeUnknown is listed twice: it
// surfaces while a run waits and as an ending.
func AllReasons() []ReasonInfo { return slices.Clone(reasons) }

var reasons = []ReasonInfo{
	{
		ReasonPending, metav1.ConditionUnknown,
		"The operator has seen the run and is still finding out what it refers to.",
		"Wait; if it stays, look whether the tool servers of its policies answer.",
	},
	{
		ReasonRunning, metav1.ConditionUnknown,
		"The model decides or tools run.",
		"Wait, or set `spec.state` to `Suspended` or `Cancelled`.",
	},
	{
		ReasonApprovalRequired, metav1.ConditionUnknown,
		"A batch of calls, or what the model intends, waits for a person.",
		"Read `status.pending`, then set the annotation `pawl.run/approve` or `pawl.run/deny` to its digest.",
	},
	{
		ReasonInputRequired, metav1.ConditionUnknown,
		"The model asked a question, or an MCP tool did before it goes on with a call.",
		"Read `status.question`, then set the annotation `pawl.run/answer` to `{\"<question id>\": \"<text>\"}`; a tool's question can be answered `decline`.",
	},
	{
		ReasonOutcomeUnknown, metav1.ConditionUnknown,
		"A call was sent and nobody knows whether it took effect.",
		"Ask the service, then set the annotation `pawl.run/settle` to `{\"<effect key>\": \"committed\"}` or `\"rejected\"`.",
	},
	{
		ReasonWaitingForTool, metav1.ConditionUnknown,
		"A call goes on outside: a Job, a child run, or a service that answers later.",
		"Wait; or deliver the result in the annotation `pawl.run/complete` as `{\"<call id>\": <result>}`.",
	},
	{
		ReasonModelUnavailable, metav1.ConditionUnknown,
		"The provider failed or asked for patience, and is asked again later.",
		"Wait; the condition's message says what failed and which attempt comes next.",
	},
	{
		ReasonConfigurationNotReady, metav1.ConditionUnknown,
		"Something that the run refers to is missing or not ready.",
		"Create or correct what the condition's message names; the run goes on by itself.",
	},
	{
		ReasonSuspended, metav1.ConditionUnknown,
		"`spec.state` is `Suspended`; nothing new is started.",
		"Set `spec.state` to `Active` to let the run go on, or to `Cancelled` to end it.",
	},
	{
		ReasonCompleted, metav1.ConditionTrue,
		"The model gave an answer that satisfies `spec.output`.",
		"Read `status.result`; the whole answer is in the journal.",
	},
	{
		ReasonApprovalDenied, metav1.ConditionFalse,
		"A person denied a call whose rule has `approval.onDeny: End`.",
		"Read in the journal who denied it and why; create a new run with another task.",
	},
	{
		ReasonApprovalExpired, metav1.ConditionFalse,
		"Nobody approved or denied in time, and the request ends the run then.",
		"Create a new run and answer in time, or raise `approval.timeoutSeconds` of the rule.",
	},
	{
		ReasonPolicyDenied, metav1.ConditionFalse,
		"A call matched a Deny rule with `onDeny: End`.",
		"Change the task, or the rule that the condition's message names.",
	},
	{
		ReasonCancelled, metav1.ConditionFalse,
		"`spec.state` was set to `Cancelled`.",
		"Nothing; if `status.unknownEffects` has entries, settle them.",
	},
	{
		ReasonDeadlineExceeded, metav1.ConditionFalse,
		"`activeDeadlineSeconds` of work or `deadlineSeconds` since `status.startTime` have passed.",
		"Look in the journal what took so long; raise the limit or make the task smaller.",
	},
	{
		ReasonMaxTurns, metav1.ConditionFalse,
		"`maxTurns` decisions did not lead to an answer.",
		"Read in the journal what the model tried; raise the limit or make the task smaller.",
	},
	{
		ReasonToolBudgetExhausted, metav1.ConditionFalse,
		"The next batch would have passed `maxToolCalls`, so none of it ran.",
		"Raise the limit, or tell the model in the prompt to use fewer calls.",
	},
	{
		ReasonTokenBudgetExhausted, metav1.ConditionFalse,
		"The next request would have passed `maxTokens`, or what was left of it cut a reply off.",
		"Raise the limit, or lower `context.maxToolResultBytes`.",
	},
	{
		ReasonCostBudgetExhausted, metav1.ConditionFalse,
		"The next request would have cost more than is left of `maxCost`, or what was left of it cut a reply off.",
		"Raise the limit, use a cheaper Model, or lower `context.maxTokens`.",
	},
	{
		ReasonNoProgress, metav1.ConditionFalse,
		"The same plan kept giving the same results, every call failed turn after turn, or the progress expression stood still.",
		"Read in the journal what repeats; change the prompt, or what the tools offer.",
	},
	{
		ReasonInvalidDecision, metav1.ConditionFalse,
		"More than `maxInvalidDecisions` decisions in a row could not be used.",
		"Read in the journal what was wrong with them; use another model, or simplify the tools' schemas.",
	},
	{
		ReasonOutputInvalid, metav1.ConditionFalse,
		"More than `maxInvalidDecisions` answers in a row did not satisfy `spec.output`.",
		"Say in the prompt what the answer has to look like, or loosen `spec.output`.",
	},
	{
		ReasonModelError, metav1.ConditionFalse,
		"The provider refused the request for good, or every attempt failed.",
		"Correct the Model as the condition's message suggests: endpoint, credentials, model name or parameters.",
	},
	{
		ReasonModelRefused, metav1.ConditionFalse,
		"The model, or a content filter, refused to answer.",
		"Change the task or use another model.",
	},
	{
		ReasonCannotContinue, metav1.ConditionFalse,
		"The model said that it can't go on.",
		"Read its reason in the journal and give the next run what was missing.",
	},
	{
		ReasonInputExpired, metav1.ConditionFalse,
		"Nobody answered a question of the model within `inputTimeoutSeconds`.",
		"Create a new run that answers the question in its prompt, or raise the limit.",
	},
	{
		ReasonToolUnavailable, metav1.ConditionFalse,
		"A tool marked `required` could not be used in any of its attempts.",
		"Bring the tool's server back, or allow more attempts.",
	},
	{
		ReasonOutcomeUnknown, metav1.ConditionFalse,
		"Nobody settled an unknown outcome within `inputTimeoutSeconds`.",
		"Ask the service what became of the calls in `status.unknownEffects` and settle them, so that it is on record.",
	},
	{
		ReasonContextOverflow, metav1.ConditionFalse,
		"The conversation became longer than the model accepts.",
		"Lower `context.maxToolResultBytes`, make the task smaller, or use a model with a longer context.",
	},
	{
		ReasonCheckpointFailed, metav1.ConditionFalse,
		"The journal is missing, was altered, or the API server kept refusing it.",
		"Look at the place that the condition's message names, and at quotas of the namespace; then create a new run.",
	},
	{
		ReasonInvalidConfiguration, metav1.ConditionFalse,
		"Something is wrong with the run that can't heal by itself.",
		"Correct what the condition's message names in a new run.",
	},
}
