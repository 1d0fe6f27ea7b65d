package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Provider names a wire protocol that Pawl can ask for decisions.
// +kubebuilder:validation:Enum=OpenAI;Scripted
type Provider string

const (
	// ProviderOpenAI is the Chat Completions protocol, as spoken by OpenAI and by
	// the many servers compatible with it.
	ProviderOpenAI Provider = "OpenAI"
	// ProviderScripted answers from spec.script and needs no network.
	ProviderScripted Provider = "Scripted"
)

// ModelSpec says where decisions come from.
// +kubebuilder:validation:XValidation:rule="self.provider != 'Scripted' || (has(self.script) && size(self.script) > 0)",message="provider Scripted needs at least one step in script"
// +kubebuilder:validation:XValidation:rule="self.provider != 'Scripted' || !(has(self.endpoint) || has(self.credentialsSecretRef) || has(self.caBundleConfigMapRef) || has(self.parameters))",message="provider Scripted uses no network: remove endpoint, credentialsSecretRef, caBundleConfigMapRef and parameters"
// +kubebuilder:validation:XValidation:rule="self.provider == 'Scripted' || !has(self.script)",message="script belongs to provider Scripted: remove it or change provider"
// +kubebuilder:validation:XValidation:rule="self.provider == 'Scripted' || has(self.model)",message="set model to the provider's own model name"
type ModelSpec struct {
	// provider is the wire protocol.
	// +required
	Provider Provider `json:"provider"`

	// model is the provider's own model name. Required for every provider but Scripted.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Model string `json:"model,omitempty"`

	// endpoint is the base URL; for provider OpenAI "/chat/completions" is
	// appended to it. Defaults to the vendor's public root.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != '' && size(url(self).getQuery()) == 0 && !self.contains('#') && !self.contains('@')",message="endpoint must be an absolute http or https URL without user, query or fragment"
	Endpoint string `json:"endpoint,omitempty"`

	// credentialsSecretRef names the Secret key that holds the API key. It is read
	// when used, so a rotated Secret takes effect. Servers without authentication
	// need none.
	// +optional
	CredentialsSecretRef *KeyReference `json:"credentialsSecretRef,omitempty"`

	// caBundleConfigMapRef names the ConfigMap key that holds PEM certificates
	// which are trusted instead of the system's for this endpoint.
	// +optional
	CABundleConfigMapRef *KeyReference `json:"caBundleConfigMapRef,omitempty"`

	// maxOutputTokens bounds one reply. A request asks for the least of this and
	// what is left of the run's token budget.
	// +optional
	// +default=4096
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxOutputTokens int32 `json:"maxOutputTokens,omitempty"`

	// requestTimeoutSeconds bounds one request, from its first byte sent to its
	// last byte read.
	// +optional
	// +default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	RequestTimeoutSeconds int32 `json:"requestTimeoutSeconds,omitempty"`

	// maxAttempts bounds the requests for one decision, restarts of the operator
	// included. What can't succeed by repetition is not repeated.
	// +optional
	// +default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxAttempts int32 `json:"maxAttempts,omitempty"`

	// parameters are members added to the provider's request unchanged, such as
	// {"temperature": 0}. Members that Pawl sets itself are refused by the
	// operator, which reports them in status.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// script answers the run's n-th decision with its n-th step. A run that asks
	// for more decisions than there are steps ends as ModelError.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Script []ScriptStep `json:"script,omitempty"`
}

// ScriptStep is one scripted decision.
// +kubebuilder:validation:XValidation:rule="[has(self.toolCalls), has(self.final), has(self.finalExpression), has(self.question), has(self.cannotContinue), has(self.raw), has(self.error)].filter(x, x).size() == 1",message="set exactly one of toolCalls, final, finalExpression, question, cannotContinue, raw and error"
type ScriptStep struct {
	// toolCalls proposes a batch of calls.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ToolCalls []ScriptToolCall `json:"toolCalls,omitempty"`

	// final is the answer that ends the run.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Final string `json:"final,omitempty"`

	// finalExpression is CEL over results, the outputs of the last batch in call
	// order; its value is the answer.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	FinalExpression string `json:"finalExpression,omitempty"`

	// question asks a person.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Question string `json:"question,omitempty"`

	// cannotContinue gives up with a reason.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	CannotContinue string `json:"cannotContinue,omitempty"`

	// raw is a whole Chat Completions response body, read as provider OpenAI
	// would read it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Raw *runtime.RawExtension `json:"raw,omitempty"`

	// error answers like a provider that failed. The attempt counts; a step with
	// an error answers every attempt at its decision.
	// +optional
	Error *ScriptError `json:"error,omitempty"`

	// delayMilliseconds passes before the step answers. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600000
	DelayMilliseconds int32 `json:"delayMilliseconds,omitempty"`
}

// ScriptToolCall is one proposed call.
type ScriptToolCall struct {
	// tool is the full name, <server>.<tool>. It need not exist: a name that does
	// not is how a test proposes an unknown tool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Tool string `json:"tool"`

	// arguments of the call. Defaults to {}.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Arguments *runtime.RawExtension `json:"arguments,omitempty"`
}

// ScriptError is a scripted failure of the provider.
type ScriptError struct {
	// status is the HTTP status, classified as provider OpenAI would classify it.
	// +required
	// +kubebuilder:validation:Minimum=400
	// +kubebuilder:validation:Maximum=599
	Status int32 `json:"status"`
}

// ModelStatus is what the operator found about a Model.
type ModelStatus struct {
	// conditions holds Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Model declares where decisions come from: a provider, a model and the limits of
// asking it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mdl,categories=pawl
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.model`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Model struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says where decisions come from.
	// +required
	Spec ModelSpec `json:"spec"`

	// status is written by the operator.
	// +optional
	Status ModelStatus `json:"status,omitzero"`
}

// ModelList is a list of Models.
// +kubebuilder:object:root=true
type ModelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Model `json:"items"`
}
